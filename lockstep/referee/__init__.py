"""Judge the candidates of search loops: whether each is correct, honest and faster than the incumbent, and how
certainly.
"""

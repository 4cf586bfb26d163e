"""Judge the candidates of search loops: is a candidate correct, honest and faster than the incumbent, and how sure?"""

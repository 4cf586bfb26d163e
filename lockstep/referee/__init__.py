"""Judge the candidates of search loops: is each correct, honest and faster than the incumbent, and how certainly?"""

"""The gate: is one version of the packages under test slower than another, in which cases, and with which certainty?

One process holds both versions (``namespaces``). Their arms share all buffers (``pairing``, ``buffers``). A sequential
test with a stated error rate decides case by case (``sequential``). A worker runs the steps that may hang or crash
(``worker``, ``compare``). The coordinator in the parent process starts the worker and orders the cases. ``report``
writes the result in each format.
"""

"""The gate: is a version of the packages under test slower than another one, where, and how sure?

One process holds both versions (``namespaces``). Their arms share all buffers (``pairing``, ``buffers``). A sequential
test with a stated error rate decides case by case (``sequential``). A worker runs what may hang or crash (``worker``,
``compare``); the coordinator in the parent starts it and orders the cases. ``report`` has the forms of the result.
"""

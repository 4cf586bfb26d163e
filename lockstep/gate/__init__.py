"""The gate: is a version of the packages under test slower than another one, where, and how sure?

Both versions live in one process (``namespaces``), their arms share all buffers (``duel``), a sequential
test with a stated error rate decides case by case (``sequential``), a worker does what may hang or crash
(``worker``, ``referee``), and the report says it to people and machines (``report`` and what reads it).
"""

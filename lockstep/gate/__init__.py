"""The gate: is one version of the packages under test slower than another, in which cases, and with which certainty?

One process holds both versions (``namespaces``). Their arms share all buffers (``measuring.pairing``). A sequential
test with a stated error rate decides case by case (``sequential_decision``, ``case_verdict``). A worker runs the steps
that may hang or crash (``measuring.worker``, ``measuring.comparer``). The coordinator in the parent process starts the
worker and orders the cases. ``report`` writes the result in each format.
"""

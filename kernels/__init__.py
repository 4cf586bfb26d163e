"""The kernels that are measured: plain functions on tensors, one folder a family.

A family's ``__init__`` has ``VARIANTS = {"name": function}`` and one public entry point of the family's name, which
dispatches to the fastest variant. The modules beside it hold the GPU kernels (``*_kernel.py``), checks of arguments and
tables of tuned configurations; ``common`` holds what several families share. This package imports torch and Triton
alone. This file imports nothing: discovery must not pay for torch.
"""

"""The measured kernels: plain functions on tensors, one folder per family.

A family's ``__init__`` has ``VARIANTS = {"name": function}`` and one public entry point of the family's name, which
dispatches to the fastest variant. The other modules of the folder hold the GPU kernels (``*_kernel.py``), checks of
arguments and tables of tuned configurations. ``common`` holds what several families share. This package imports only
torch and Triton. This file imports nothing, because discovery must not pay for torch.
"""

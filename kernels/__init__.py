"""What is measured: plain functions on tensors, one module a family.

Each family module has ``VARIANTS = {"name": function}`` and one public entry point of the module's
name that dispatches to the best variant. This package imports nothing but torch and triton, and
this file imports nothing at all: discovery must not pay for torch.
"""

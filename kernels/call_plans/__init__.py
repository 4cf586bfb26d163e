"""Repeat a function's launches without computing its checks, tables and descriptors again: the decorator ``planned``.

Nothing else of this package is public, and no other package knows of it. It exists because every family needs it:
µs of host time of a call without and with a plan, on the host of an H200 (torch 2.11, Triton 3.6.0), where
``torch.nn.functional.linear`` of a few numbers takes 13 to 19:

    linear M=8 K=4096 N=2048        92    17      kda M=8 K=2304               139    24
    hgemm 512³                      77    13      kda M=64, mixed with cuBLAS   68    56
    norm_linear M=8                160    31      grouped.linear_train B=1024  351    31
    w4a16 M=16 K=8192 N=8192       150    17      grouped.mlp_train B=1024     739    62

A call that is one product of cuBLAS gains nothing (hgemm 1024³: 21 and 21).
"""

from kernels.call_plans.decorator import planned

__all__ = ["planned"]

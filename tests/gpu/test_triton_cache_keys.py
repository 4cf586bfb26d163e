"""Two processes find each other's kernels in Triton's cache, whatever they called before."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton")

KERNELS = """
import triton
import triton.language as tl

STEP = tl.constexpr(2)


@triton.jit
def helper(x):
    return x * STEP


@triton.jit
def first(x):
    tl.store(x, helper(tl.load(x)))


@triton.jit
def second(x):
    tl.store(x, helper(tl.load(x)) + 1)
"""

KEYS = """
import sys
import kernels_of_test as kernels
from lockstep.gpu.triton_cache_keys import settle_cache_keys

if sys.argv[1] == "settled":
    settle_cache_keys()
keys = {name: getattr(kernels, name).cache_key for name in sys.argv[2:]}
print(*(keys[name] for name in sorted(keys)))
"""


def keys(folder, *words):
    (folder / "kernels_of_test.py").write_text(KERNELS)
    (folder / "keys.py").write_text(textwrap.dedent(KEYS))
    compiled = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, folder / "keys.py", *words]
    return subprocess.run(command, env=compiled, capture_output=True, text=True, check=True).stdout


def test_a_key_does_not_depend_on_the_order_of_calls(tmp_path):
    assert keys(tmp_path, "settled", "first", "second") == keys(tmp_path, "settled", "second", "first")


def test_without_it_a_key_does(tmp_path):
    """Otherwise Triton has mended its keys, and ``lockstep.gpu.triton_cache_keys`` can go."""
    assert keys(tmp_path, "as it is", "first", "second") != keys(tmp_path, "as it is", "second", "first")

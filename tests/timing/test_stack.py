"""Undefined memory on the stack is equal whatever was called before."""

import ctypes
import shutil
import subprocess

import pytest

from lockstep.timing.stack import clear_stack

SOURCE = """
#include <string.h>
void dirty(int value) { volatile unsigned char local[65536]; memset((void *)local, value, sizeof local); }
void look(unsigned char *seen) { volatile unsigned char local[32768]; memcpy(seen, (void *)local, sizeof local); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("stack")
    (folder / "stack.c").write_text(SOURCE)
    command = [compiler, "-w", "-O0", "-shared", "-fPIC", "-o", folder / "stack.so", folder / "stack.c"]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(folder / "stack.so"))
    undefined(loaded, 0, clear=False)  # the first call of a function finds its address, by calls that use the stack
    return loaded


def undefined(library, left, *, clear):
    """Return what an unset local array contains after a call that left bytes of one value on the stack."""
    seen = (ctypes.c_ubyte * 32768)()
    library.dirty(left)
    if clear:
        clear_stack()
    library.look(seen)
    return bytes(seen)


def test_without_clearing_the_stack_keeps_what_earlier_calls_left(library):
    first, second = (undefined(library, left, clear=False) for left in (0x55, 0xAA))
    assert first.count(0x55) > 10_000
    assert second.count(0xAA) > 10_000


def test_a_cleared_stack_is_equal_whatever_earlier_calls_left(library):
    first, second = (undefined(library, left, clear=True) for left in (0x55, 0xAA))
    assert first == second

"""A folder with suites and caches of its own, for tests that trace and compile kernels."""

import textwrap
from contextlib import contextmanager

import pytest


@contextmanager
def room_of(folder, package, **suites):
    """Write a package of suites, text by name of the module, and keep what is compiled within the folder."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    for name, text in suites.items():
        (folder / package / f"{name}.py").write_text(textwrap.dedent(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("LOCKSTEP_CACHE", str(folder / "cache"))
        yield folder

"""Give base and head C++ and CUDA extensions of their own, built with ``torch.utils.cpp_extension``.

torch stores a built extension by its name, and builds it anew in a process only where the text of its sources differs:
head would run base's code where only a header changed. So base's extensions get names of their own. A namespace of
operators is in the text of the sources; a macro renames it.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.gate.after_import import after_import

_MODULE = "torch.utils.cpp_extension"
_REGISTERS = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT|_IMPL)?\s*\(\s*(\w+)")

#: Returns the name of an operator's namespace, or of an extension, for the side that is active; takes the module that
#: gave the name.
Own = Callable[[Any, str], Any]


def keep_extensions_apart(own: Own) -> None:
    """Let ``own`` name each extension that is built from now on, and the namespaces that its sources register."""

    def rename(module: str) -> None:
        for builder in ("load", "load_inline"):
            setattr(sys.modules[module], builder, _renaming(getattr(sys.modules[module], builder), own))

    after_import(_MODULE.__eq__, rename)  # not now: the import takes a second, and few packages need it


def _renaming(build: Callable[..., Any], own: Own) -> Callable[..., Any]:
    signature = inspect.signature(build)

    @functools.wraps(build)
    def function(*args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        given = signature.bind(*args, **kwargs).arguments
        name = given["name"]
        given["name"] = own(name, caller)
        if given["name"] != name:
            spaces = {space: own(space, caller) for text in _texts(given) for space in _REGISTERS.findall(text)}
            macros = [f"-D{space}={renamed}" for space, renamed in spaces.items() if space != "TORCH_EXTENSION_NAME"]
            for flags in ("extra_cflags", "extra_cuda_cflags"):
                given[flags] = [*(given.get(flags) or ()), *macros]
        return build(**given)

    return function


def _texts(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of an extension's sources: those of its files, or those given."""
    for file in _listed(given.get("sources")):
        if Path(file).is_file():
            yield Path(file).read_text(errors="replace")
    for texts in ("cpp_sources", "cuda_sources"):
        yield from _listed(given.get(texts))


def _listed(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or ()

"""Replace ``run`` of Triton's tuners, also of subclasses that have a ``run`` of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def runs_replaced(replacement: Callable[[type[Any], Any], Any]) -> Iterator[None]:
    """Within the block, replace ``run`` of each class of tuners, later ones too, by ``replacement(class, its run)``."""
    from triton.runtime.autotuner import Autotuner

    own: dict[type[Any], Any] = {}

    def follow(kind: type[Any], /, **_: Any) -> None:
        if "run" in vars(kind) and kind not in own:
            own[kind] = vars(kind)["run"]
            kind.run = replacement(kind, own[kind])

    for each in (Autotuner, *_subclasses(Autotuner)):
        follow(each)
    Autotuner.__init_subclass__ = classmethod(follow)
    try:
        yield
    finally:
        del Autotuner.__init_subclass__
        for changed, run in own.items():
            changed.run = run


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)

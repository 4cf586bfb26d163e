"""Find in a function's bytecode, before it runs, values whose use would make the trace of a case untrusted.

``lockstep.machine_code.watch.watch`` checks Python functions when they run. This module checks what calls do not show:
values, and functions and types written in C, which other C code may call unseen.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, ModuleType
from typing import Any

from lockstep.machine_code.watch.purity import (
    HIDING_ATTRIBUTES,
    HOLDERS,
    allowed,
    is_foreign,
    may_be_held,
    refused_call,
    spell,
    top,
)

_MISSING = object()
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_FAST = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST_CHECK")
_NOISE = ("CACHE", "PRECALL", "EXTENDED_ARG", "PUSH_NULL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL")
#: Bytecodes that may follow a module of torch besides reading an attribute: bind a name, set an attribute, discard.
_HARMLESS = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "DELETE_ATTR", "POP_TOP")
_TESTS = ("POP_JUMP", "JUMP_IF", "TO_BOOL")


@dataclass(frozen=True)
class _Mention:
    """A value that a function's code mentions: by a plain name, or by a dotted name such as ``torch.version.cuda``.

    Attributes:
        owner: module that holds the value, ``torch.version``; ``None`` for a plain name.
        name: last part of the dotted name, "cuda".
        value: the object that the name refers to.
        handed_on: whether the value is a module that the code passes on; what is then read from the module is not seen.
    """

    owner: ModuleType | None
    name: str
    value: Any
    handed_on: bool = False


def refused_mentions(
    code: CodeType,
    scope: Mapping[str, Any],
    own: frozenset[str],
    caches: list[Any] | None = None,
    closure: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return a sentence for each value that a function mentions and whose use makes the trace untrusted.

    Args:
        scope: globals of the function.
        own: top-level packages under test, and packages that they may call.
        caches: receives the mentioned ``lru_cache`` functions of other packages. The caller empties their caches,
            because a call that a cache answers is not seen.
        closure: free variables of the function.
    """
    texts = [constant for constant in code.co_consts if isinstance(constant, str)]
    reasons = [f"uses {name}" for name in (*code.co_names, *texts) if name in HIDING_ATTRIBUTES]
    for mention in _Reading(code, scope, closure or {}).mentions():
        value, name, owner = mention.value, mention.name, mention.owner
        if value is _MISSING:
            reasons += [f"uses the dict of {owner.__name__}"] if owner is not None and name == "__dict__" else []
            continue
        if isinstance(value, functools._lru_cache_wrapper):
            inner = inspect.unwrap(value)
            home = str(getattr(inner, "__module__", ""))
            if is_foreign(top(home)):
                if caches is not None and top(home) not in own:
                    caches.append(value)
            elif not allowed(home, getattr(inner, "__qualname__", name)):
                reasons.append(f"asks {home}.{name}")
            continue
        if reason := refused_value(owner, name, value, own):
            reasons.append(reason)
        elif (
            mention.handed_on
            and isinstance(value, ModuleType)
            and (top(value.__name__) == "torch" or value.__name__ in HOLDERS)
        ):
            reasons.append(f"passes on {spell(value, name)}, and what is read from it cannot be seen")
    return reasons


def refused_value(owner: ModuleType | None, name: str, value: Any, own: frozenset[str]) -> str:
    """Return why using a value makes the trace of a case untrusted; "" if it does not.

    Args:
        owner: module from which the value is read; ``None`` for a plain name.
        name: name of the value in that module.
        own: top-level packages under test, and packages that they may call.
    """
    if _seen_when_called(value):
        return ""
    if isinstance(value, BuiltinFunctionType | BuiltinMethodType):
        return refused_call(value)
    if owner is not None and top(owner.__name__) not in own and not isinstance(value, ModuleType | type):
        return "" if allowed(owner.__name__, name) else f"asks {owner.__name__}.{name}"
    return "" if may_be_held(value, own) else f"uses {spell(value, name)}"


class _Reading:
    """Finds the values that one function's bytecode mentions."""

    def __init__(self, code: CodeType, scope: Mapping[str, Any], closure: Mapping[str, Any]) -> None:
        self._scope = scope
        self._steps = [instruction for instruction in dis.get_instructions(code) if instruction.opname not in _NOISE]
        # Names of the function that refer to modules, as far as its own statements bind them.
        self._bound: dict[str, Any] = {name: value for name, value in closure.items() if isinstance(value, ModuleType)}
        # In the body of a class, a bound name becomes an attribute of the class.
        self._in_class = not code.co_flags & inspect.CO_OPTIMIZED and code.co_name != "<module>"

    def mentions(self) -> Iterator[_Mention]:
        """Yield a mention for each plain or dotted name in the function's bytecode."""
        constants: list[Any] = [None, None]
        module: ModuleType | None = None
        index = 0
        while index < len(self._steps):
            step = self._steps[index]
            operation, argument = step.opname, step.argval
            index += 1
            if operation == "LOAD_CONST":
                constants = [constants[1], argument]
            elif operation == "IMPORT_NAME":
                module = _imported(argument, constants[0], constants[1], self._scope)
                yield from self._end(_Mention(None, argument, module or _MISSING), index, imported=True)
            elif operation == "IMPORT_FROM" and module is not None:
                attribute = _attribute(module, argument)
                if index < len(self._steps) and self._steps[index].opname in ("SWAP", "ROT_TWO"):
                    # "import a.b as c" reads "b" from "a"; only the last module counts.
                    module = attribute.value if isinstance(attribute.value, ModuleType) else None
                else:
                    yield from self._end(attribute, index)
            elif (start := self._start(operation, argument)) is not None:
                mention, looked_up = start, self._is_looked_up(index - 1)
                while index < len(self._steps) and isinstance(mention.value, ModuleType):
                    if self._steps[index].opname not in _ATTRIBUTES:
                        break
                    mention = _attribute(mention.value, self._steps[index].argval)
                    index += 1
                yield from self._end(mention, index, looked_up=looked_up)

    def _start(self, operation: str, argument: Any) -> _Mention | None:
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = self._bound.get(argument, self._scope.get(argument, vars(builtins).get(argument, _MISSING)))
            return _Mention(None, argument, value)
        if operation in _FAST and argument in self._bound:
            return _Mention(None, argument, self._bound[argument])
        return None

    def _is_looked_up(self, index: int) -> bool:
        """Return whether the instruction ``index`` loads the first argument of ``getattr`` or ``hasattr``.

        The replacements of these two functions check their arguments at run time.
        """
        before = self._steps[index - 1]
        return index > 0 and before.opname in ("LOAD_GLOBAL", "LOAD_NAME") and before.argval in ("getattr", "hasattr")

    def _end(
        self, mention: _Mention, index: int, *, imported: bool = False, looked_up: bool = False
    ) -> Iterator[_Mention]:
        """Yield the mention that ends before instruction ``index``; set ``handed_on`` if code passes a module on."""
        following = self._steps[index] if index < len(self._steps) else None
        operation = following.opname if following else ""
        if isinstance(mention.value, ModuleType):
            if operation in _HARMLESS and operation.startswith("STORE_") and operation != "STORE_ATTR":
                self._bound[str(following.argval if following else "")] = mention.value
            mention = replace(mention, handed_on=not (imported or looked_up or self._is_harmless(index)))
        if not imported:
            yield mention

    def _is_harmless(self, index: int) -> bool:
        following = [instruction.opname for instruction in self._steps[index : index + 2]]
        if not following:
            return False
        if following[0] in _HARMLESS:
            return not (self._in_class and following[0] == "STORE_NAME")
        return following[0].startswith(_TESTS) or following[1:] == ["IS_OP"]


def _attribute(owner: ModuleType, name: str) -> _Mention:
    return _Mention(owner, name, vars(owner).get(name, sys.modules.get(f"{owner.__name__}.{name}", _MISSING)))


def _imported(name: str, level: Any, names: Any, scope: Mapping[str, Any]) -> ModuleType | None:
    """Return the module that an import statement reads from; None if this module has not been imported."""
    if isinstance(level, int) and level:
        with contextlib.suppress(ImportError, ValueError):
            name = importlib.util.resolve_name("." * level + name, str(scope.get("__package__") or ""))
    return sys.modules.get(name if names else top(name))


def _seen_when_called(value: Any) -> bool:
    """Return whether calling a value runs a Python function, which ``Watch`` checks at the call."""
    if isinstance(value, type):
        return any(isinstance(vars(value).get(name), FunctionType) for name in ("__init__", "__new__", "__call__"))
    return isinstance(value, FunctionType)

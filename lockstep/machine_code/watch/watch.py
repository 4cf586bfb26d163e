"""Watch the code under test: record every question that it asks about the machine, while it is imported and called.

The watch is a profiling function of the thread (``sys.setprofile``) and an audit hook of the process. It checks each
function of the code under test once for what it mentions (``bytecode_mentions.refused_mentions``). It checks the called
function at each call, and each use of a file, process, socket or foreign library by its audit event. It sees the
backward pass of autograd functions too, because torch runs that of "meta" tensors in the caller's thread.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from lockstep.machine_code.watch.bytecode_mentions import refused_mentions
from lockstep.machine_code.watch.dynamic_lookups import Judge
from lockstep.machine_code.watch.module_state import ModuleState
from lockstep.machine_code.watch.object_id import object_id
from lockstep.machine_code.watch.package_files import FILES, TreeFiles
from lockstep.machine_code.watch.purity import PURE, allowed, is_foreign, refused_call, refused_scope, top
from lockstep.machine_code.watch.third_party_values import unknown_globals
from lockstep.machine_code.watch.trace_listener import TRANSPARENT, distrusted_by

#: Audit events that reveal nothing about the machine (https://docs.python.org/3/library/audit_events.html).
HARMLESS_EVENTS = frozenset(
    {
        "import",
        "marshal.loads",
        "sys._getframe",
        "builtins.id",
        "array.__new__",
        "object.__getattr__",
        "object.__setattr__",
        "object.__delattr__",
    }
)
#: Events by which text becomes code, and modules of the standard library that evaluate only texts of their own.
EVALUATING = frozenset({"compile", "exec"})
GENERATORS = frozenset({"ast", "collections", "dataclasses", "enum", "inspect", "typing"})
_EXECUTE = SourceFileLoader.exec_module  # Python's own method, whatever replaced it before
_LOADS = tomllib.loads
#: Parts of the standard library that look up what is installed.
INSTALLED = ("importlib._bootstrap", "importlib.metadata", "importlib.util")
_LOOKING_UP = (globals, locals, vars)
#: Environment variables whose values differ from those in a measuring process.
HARNESS_VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "PYTHONPATH", "PYTHONSAFEPATH", "TRITON_INTERPRET"})


class Watch:
    """Records what the code under test asks about the machine; a process may have one watch, which is never removed.

    Args:
        packages: top-level packages under test.
        trusted: further packages that the packages under test may call.
        root: folder of the tree; its files are compared, so reading them is allowed.

    Attributes:
        loading: for the file of each module that asked about the machine while it was imported, what it asked.
        environment: values of the variables that were read, by name.
    """

    def __init__(self, packages: Iterator[str] | tuple[str, ...], trusted: frozenset[str], root: Path) -> None:
        self.packages = frozenset(packages)
        self.loading: dict[str, str] = {}
        self.environment: dict[str, str | None] = {}
        self._own = self.packages | trusted
        self._files = TreeFiles(root, self.packages)
        self._distrust: Callable[[str], None] | None = None
        self._codes: dict[int, tuple[CodeType, _Known]] = {}
        self._importing: list[FrameType] = []
        self._plain: FrameType | None = None
        self._caches: list[Any] = []
        self._state = ModuleState(self.packages)
        self._hear()
        judge = Judge(self._own, self._report)
        judge.watch_imports(self._is_own)
        self._builtins = judge.builtins()
        self._leave_imports_out()
        self._leave_toml_out()

    def _hear(self) -> None:
        """Add the audit hook of this watch to Python.

        The hook is a function, because Python takes three times as long to call a method. It must be fast: reading
        ``frame.f_code`` raises an event, so most events come from the watch itself.
        """

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in HARMLESS_EVENTS and self._distrust is not None:
                self._audit(event, arguments, sys._getframe())

        sys.addaudithook(hear)

    def _is_own(self, frame: FrameType) -> bool:
        return top(self._files.module(frame)) in self.packages

    def _report(self, reason: str) -> None:
        if self._distrust is not None:
            self._distrust(reason)

    def begin_case(self) -> None:
        """Start a new case: if its code asks about the machine, modules that changed during the case are distrusted."""
        self._state.begin_case()

    @contextlib.contextmanager
    def calls(self, distrust: Callable[[str], None]) -> Iterator[None]:
        """Watch calls of the code under test within the block; pass reasons not to trust the trace to ``distrust``."""
        self._forget()
        before, self._distrust = self._distrust, distrust
        self._state.begin_call()
        reasons: list[str] = []

        def noted(reason: str) -> None:
            reasons.append(reason)
            distrust(reason)

        self._distrust = noted
        with self._profiled(self._event):
            try:
                yield
            finally:
                self._distrust = before
        if reasons:
            self._state.distrust_changed(reasons[0])

    @contextlib.contextmanager
    def loads(self) -> Iterator[None]:
        """Watch imports of modules under test within the block; reasons to distrust a module go into ``loading``."""
        self._forget()
        before, self._distrust = self._distrust, self._distrust_loading
        with distrusted_by(self._distrust_loading), self._profiled(self._event):
            try:
                yield
            finally:
                self._distrust = before

    def _forget(self) -> None:
        """Empty the caches of other packages' functions, because a call that a cache answers is not seen."""
        for cached in self._caches:
            cached.cache_clear()

    def _leave_imports_out(self) -> None:
        """Do not watch imports of modules not under test: they are the same for both trees, and slow to watch."""

        def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
            watched = self._distrust is not None and top(module.__name__) in self.packages
            if top(module.__name__) in self.packages:
                vars(module)["__builtins__"] = self._builtins
            with self._profiled(self._event if watched else None):
                _EXECUTE(loader, module)
            if is_foreign(top(module.__name__)) and top(module.__name__) not in self._own:
                own_caches = [
                    value for value in vars(module).values() if isinstance(value, functools._lru_cache_wrapper)
                ]
                self._caches += own_caches
                for cached in own_caches:
                    cached.cache_clear()

        SourceFileLoader.exec_module = exec_module  # type: ignore[method-assign, assignment]

    def _leave_toml_out(self) -> None:
        """Do not watch how TOML is read from a text: the result depends on the text alone, and it is slow to watch.

        Code under test reads its tables again for each case, because the watch empties its caches.
        """

        def loads(text: str, /, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
            if type(text) is not str or parse_float is not float:
                return _LOADS(text, parse_float=parse_float)
            with self._profiled(None):
                return _LOADS(text)

        tomllib.loads = loads

    @contextlib.contextmanager
    def _profiled(self, function: Any) -> Iterator[None]:
        """Make ``function`` the profiling function of the thread within the block; ``None`` removes it."""
        before = sys.getprofile()
        self._plain = None
        sys.setprofile(function)
        try:
            yield
        finally:
            self._plain = None
            sys.setprofile(before)

    def _distrust_loading(self, reason: str) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = self._files.module(frame)
            if top(module) in self.packages:
                self.loading.setdefault(frame.f_code.co_filename, f"{reason} while {module} is imported")
            frame = frame.f_back

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._plain is not None:
            # Only plain functions run until this one returns or calls another function: their events mean nothing.
            # Passed over early, because there are millions.
            if event != "call":
                if frame is self._plain and event == "return":
                    self._plain = None
                return
            if self._known(frame).plain:
                return
            self._plain = None
        if self._distrust is None:
            return
        if event == "call":
            known = self._known(frame)
            if known.plain:
                self._plain = frame
            elif known.own:
                if known.module in self._state.spoilt:
                    self._distrust(self._state.spoilt[known.module])
                for reason in known.reasons:
                    self._distrust(f"{known.name} {reason}")
                if known.is_module:
                    self._importing.append(frame)
            elif not known.harmless:
                self._judge(frame, known)
        elif event == "c_call":
            known = self._known(frame)
            if known.own or (known.foreign and not known.harmless and self._follows(frame)):
                looks_up = argument in _LOOKING_UP and refused_scope(frame.f_globals, self._own)
                if reason := looks_up or refused_call(argument):
                    self._distrust(f"{known.name} {reason}")
        elif event == "c_exception":
            if self._known(frame).own and (reason := _failed(argument)):
                self._distrust(f"{self._known(frame).name} {reason}")
        # Asking the frame for its code at each return would raise an audit event at each return.
        elif event == "return" and self._importing and frame in self._importing:
            self._importing.remove(frame)
            for reason in refused_mentions(frame.f_code, frame.f_globals, self._own):
                self._distrust(f"{self._files.module(frame)} {reason}")
                self.loading.setdefault(frame.f_code.co_filename, f"{self._files.module(frame)} {reason}")

    def _judge(self, frame: FrameType, known: _Known) -> None:
        """Make the trace untrusted if the code under test called a function that is not known to be harmless."""
        assert self._distrust is not None
        if known.module == "os" and frame.f_code.co_qualname == "_Environ.__getitem__":
            if self._caller(frame, any_library=True) is not None:
                self._read_environment(frame.f_locals.get("key"))
            return
        if known.module == "os" and frame.f_code.co_qualname in ("_Environ.__iter__", "_Environ.__len__"):
            if self._caller(frame, any_library=True) is not None:
                self._distrust("reads the names of all environment variables")
            return
        caller = self._caller(frame)
        if caller is None or (known.module == "logging" and self._files.module(frame.f_back or frame) == "logging"):
            return
        if top(known.module) in FILES and self._files.allows(frame):
            return
        called = f"{known.module}.{frame.f_code.co_qualname}"
        if known.foreign:
            for reason in known.reasons:
                self._distrust(f"{self._known(caller).name} calls {called}, which {reason}")
        else:
            self._distrust(f"{self._known(caller).name} asks {called}, which is not known to be pure")

    def _read_environment(self, name: Any) -> None:
        assert self._distrust is not None
        if not isinstance(name, str) or name in HARNESS_VARIABLES:
            self._distrust(f"reads the environment variable {name}, which has another value in a measuring process")
            return
        answers = vars(os.environ)["_data"]  # the watch would see a read of os.environ itself
        raw = answers.get(os.fsencode(name))
        self.environment[name] = None if raw is None else os.fsdecode(raw)

    def _caller(self, frame: FrameType, *, any_library: bool = False, any_package: bool = False) -> FrameType | None:
        """Return the function under test that made a call, perhaps through the standard library; None if none did.

        A call into an impure part of the standard library was itself checked, so calls made by that part are left out.
        ``any_library`` looks through such parts nevertheless, and ``any_package`` through torch and NumPy.
        """
        caller = frame.f_back
        while caller is not None:
            if caller.f_code in TRANSPARENT:
                caller = caller.f_back
                continue
            module = self._files.module(caller)
            if top(module) in self.packages:
                return caller
            if is_foreign(top(module)) and top(module) not in self._own:
                return caller if self._follows(caller) else None
            if module.startswith(INSTALLED):
                return None
            if top(module) not in sys.stdlib_module_names:
                if not any_package or top(module) not in ("torch", "numpy"):
                    return None
                caller = caller.f_back
                continue
            if module in ("linecache", "warnings") or not (any_library or module in PURE):
                return None  # the first two functions read files only to print a source line
            caller = caller.f_back
        return None

    def _follows(self, frame: FrameType) -> bool:
        """Return whether another package's function runs for the code under test, and not during an import."""
        caller = frame.f_back
        while caller is not None:
            module = self._files.module(caller)
            if top(module) in self.packages:
                return True
            if module.startswith("importlib._bootstrap"):
                return False
            caller = caller.f_back
        return False

    def _audit(self, event: str, arguments: tuple[Any, ...], hook: FrameType) -> None:
        assert self._distrust is not None
        if event in EVALUATING and self._files.module(hook.f_back or hook) in GENERATORS:
            return
        caller = self._caller(hook, any_library=True, any_package=event not in EVALUATING)
        if caller is None:
            return
        if event in ("open", "os.listdir", "os.scandir", "glob.glob", "glob.glob/2"):
            path = arguments[0]
            if self._files.holds(path):
                return
        self._distrust(f"{self._known(caller).name} asks the system ({event})")

    def _known(self, frame: FrameType) -> _Known:
        code = frame.f_code
        entry = self._codes.get(object_id(code))
        if entry is None:
            entry = self._codes[object_id(code)] = (code, self._look(frame))
        return entry[1]

    def _look(self, frame: FrameType) -> _Known:
        module, code = self._files.module(frame), frame.f_code
        own = top(module) in self.packages
        foreign = not own and is_foreign(top(module)) and top(module) not in self._own
        reasons: tuple[str, ...] = ()
        if own or foreign:
            before = len(self._caches)
            free = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
            reasons = tuple(refused_mentions(code, frame.f_globals, self._own, self._caches, free))
            for cached in self._caches[before:]:
                cached.cache_clear()
        if code.co_name == "<module>":
            reasons = ()  # checked after it has run
        elif foreign:
            reasons += tuple(unknown_globals(code, frame.f_globals))
        loading = module.startswith("importlib._bootstrap")
        harmless = own or loading or top(module) in self._own or allowed(module, code.co_qualname)
        is_module = code.co_name == "<module>"
        plain = harmless and not own and not foreign
        return _Known(module, f"{module}.{code.co_qualname}", is_module, own, foreign, harmless, plain, reasons)


def _failed(function: Any) -> str:
    """Return why the failure of a C function makes the trace untrusted; "" if the function is not torch's.

    A function of torch may have failed for lack of a GPU.
    """
    holder = getattr(function, "__self__", None)
    homes = (getattr(function, "__module__", None), getattr(type(holder), "__module__", None))
    if any(top(str(home)) == "torch" for home in homes):
        return f"calls {getattr(function, '__name__', function)} of torch, which fails without a GPU"
    return ""


@dataclass(slots=True)
class _Known:
    """Facts about a function that decide how its calls are checked, found at its first call.

    A call of a ``plain`` function is harmless, and so is all that it does: neither is checked.
    """

    module: str
    name: str
    is_module: bool
    own: bool
    foreign: bool
    harmless: bool
    plain: bool
    reasons: tuple[str, ...]

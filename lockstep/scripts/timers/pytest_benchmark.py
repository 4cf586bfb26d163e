"""pytest-benchmark: the fixture ``benchmark`` and its method ``pedantic``, which return the function's result."""

from __future__ import annotations

import functools
from typing import Any

from lockstep.scripts.call_names import Mark
from lockstep.scripts.taken_calls import Hook

MODULES = ("pytest_benchmark.fixture",)


def install(module: Any, hook: Hook) -> None:
    """Replace the methods of the fixture that time a function."""
    fixture = module.BenchmarkFixture
    fixture.__call__ = _called(fixture.__call__, hook)
    fixture.pedantic = _pedantic(fixture.pedantic, hook)


def _called(original: Any, hook: Hook) -> Any:
    def benchmark(fixture: Any, function_to_benchmark: Any, *args: Any, **kwargs: Any) -> Any:
        if not hook.on:
            return original(fixture, function_to_benchmark, *args, **kwargs)
        fixture._mode = "benchmark(...)"  # it warns at the end of a test without
        call = functools.partial(function_to_benchmark, *args, **kwargs)
        hook.take(call, marks=_parameters(fixture))
        return call()

    return benchmark


def _pedantic(original: Any, hook: Hook) -> Any:
    def pedantic(fixture: Any, target: Any, args: Any = (), kwargs: Any = None, setup: Any = None, **rest: Any) -> Any:
        if not hook.on:
            return original(fixture, target, args, kwargs, setup, **rest)
        fixture._mode = "benchmark.pedantic(...)"
        if setup is not None and (made := setup()) is not None:
            args, kwargs = made
        call = functools.partial(target, *args, **(kwargs or {}))
        hook.take(call, marks=_parameters(fixture))
        result = call()
        if teardown := rest.get("teardown"):
            teardown(*args, **(kwargs or {}))
        return result

    return pedantic


def _parameters(fixture: Any) -> list[Mark]:
    """Return pytest's text of the test's parameters, which may be functions or objects."""
    return [Mark("parameters", str(getattr(fixture, "param", None) or ""), "after")]

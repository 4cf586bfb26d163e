"""``triton.testing``: ``do_bench``, ``do_bench_cudagraph``, and ``perf_report`` with its ``Benchmark``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lockstep.scripts.taken_calls import Hook
from lockstep.scripts.timers.answers import summarized

MODULES = ("triton.testing",)


def install(module: Any, hook: Hook) -> None:
    """Replace the functions that time, and the loop of a ``perf_report``, which needs no pandas then."""
    for name in ("do_bench", "do_bench_cudagraph"):
        if hasattr(module, name):
            setattr(module, name, _timer(getattr(module, name), hook))
    module.Mark.run = _run(hook)


def _timer(original: Any, hook: Hook) -> Any:
    def do_bench(
        fn: Any,
        *args: Any,
        grad_to_none: Any = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **kwargs: Any,
    ) -> Any:
        if not hook.on:
            named = {"grad_to_none": grad_to_none, "quantiles": quantiles, "return_mode": return_mode, **kwargs}
            return original(fn, *args, **named)
        return summarized(hook.take(fn, grad_to_none), quantiles, return_mode)

    return do_bench


def _run(hook: Hook) -> Any:
    def run(mark: Any, *args: Any, return_df: bool = False, **kwargs: Any) -> Any:
        own = {name: value for name, value in kwargs.items() if name not in _SHOWN}
        for benchmark in mark.benchmarks if isinstance(mark.benchmarks, Sequence) else [mark.benchmarks]:
            for axes, name, arguments in _points(benchmark):
                hook.point(partial(mark.fn, **arguments, **own), name, **axes)

    return run


#: Arguments of ``Mark.run`` that say how to show results; all others go to the function.
_SHOWN = ("show_plots", "print_data", "save_path", "diff_col", "save_precision")


def _points(benchmark: Any) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield axes, variant and arguments of each point of a benchmark, in the order of Triton's own loop."""
    fixed = {name: value for name, value in benchmark.args.items() if isinstance(value, bool | int | float | str)}
    for x in benchmark.x_vals:
        values = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
        axes = dict(zip(benchmark.x_names, values, strict=False))
        for number, line in enumerate(benchmark.line_vals):
            names = benchmark.line_names or []
            name = str(names[number]) if number < len(names) else str(line)
            yield {**axes, **fixed}, name, {**axes, benchmark.line_arg: line, **benchmark.args}

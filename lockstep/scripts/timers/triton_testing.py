"""``triton.testing``: ``do_bench``, ``do_bench_cudagraph``, and ``perf_report`` with its ``Benchmark``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lockstep.scripts.taken_calls import Hook

MODULES = ("triton.testing",)


def install(module: Any, hook: Hook) -> None:
    """Replace the functions that time, and the loop of a ``perf_report``, which needs no pandas then."""
    for name in ("do_bench", "do_bench_cudagraph"):
        if hasattr(module, name):
            setattr(module, name, timer(getattr(module, name), hook))
    module.Mark.run = _run(hook)


def timer(original: Any, hook: Hook) -> Any:
    """Return what stands in for a ``do_bench``, also that of a library with the same arguments."""

    def do_bench(fn: Any, *args: Any, **kwargs: Any) -> Any:
        if not hook.on:
            return original(fn, *args, **kwargs)
        return summarized(hook.take(fn, kwargs.get("grad_to_none")), **kwargs)

    return do_bench


def summarized(
    milliseconds: float, quantiles: Sequence[float] | None = None, return_mode: str = "mean", **_: Any
) -> Any:
    """Return a time as ``do_bench`` does: one number, a list of quantiles, or all numbers."""
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds


def _run(hook: Hook) -> Any:
    def run(mark: Any, *args: Any, return_df: bool = False, **kwargs: Any) -> Any:
        own = {name: value for name, value in kwargs.items() if name not in _SHOWN}
        for benchmark in mark.benchmarks if isinstance(mark.benchmarks, Sequence) else [mark.benchmarks]:
            report = getattr(mark.fn, "__name__", ""), benchmark.plot_name
            others = {name: value for name, value in benchmark.args.items() if not isinstance(value, _AXES)}
            for axes, name, arguments in _points(benchmark):
                hook.point(partial(mark.fn, **arguments, **own), name, axes, report, {**others, **own})

    return run


#: Arguments of ``Mark.run`` that say how to show results; all others go to the function.
_SHOWN = ("show_plots", "print_data", "save_path", "diff_col", "save_precision")

#: Types of a benchmark's fixed arguments that are axes of all of its cases.
_AXES = bool | int | float | str


def _points(benchmark: Any) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield axes, variant and arguments of each point of a benchmark, in the order of Triton's own loop."""
    fixed = {name: value for name, value in benchmark.args.items() if isinstance(value, _AXES)}
    for x in benchmark.x_vals:
        values = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
        axes = dict(zip(benchmark.x_names, values, strict=False))
        for number, line in enumerate(benchmark.line_vals):
            names = benchmark.line_names or []
            name = str(names[number]) if number < len(names) else str(line)
            yield {**axes, **fixed}, name, {**axes, benchmark.line_arg: line, **benchmark.args}

"""Liger-Kernel's ``run_benchmarks``: providers, modes and x values become variants and cases; no CSV is written."""

from __future__ import annotations

from functools import partial
from typing import Any

from lockstep.scripts.taken_calls import Hook

MODULES = ("*.utils",)


def install(module: Any, hook: Hook) -> None:
    """Replace the loop over the points of a benchmark in a module that defines it."""
    if hasattr(module, "run_benchmarks") and hasattr(module, "SingleBenchmarkRunInput"):
        module.run_benchmarks = _run(module.SingleBenchmarkRunInput, hook)


def _run(point: Any, hook: Hook) -> Any:
    def run_benchmarks(
        bench_test_fn: Any,
        kernel_name: str = "",
        metric_name: str = "speed",
        metric_unit: str = "ms",
        x_name: str = "x",
        x_label: str = "",
        x_values: Any = (),
        kernel_providers: Any = (),
        kernel_operation_modes: Any = (None,),
        extra_benchmark_configs: Any = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> None:
        if metric_name != "speed":
            return  # the memory that a call takes is not timed
        report = kernel_name or getattr(bench_test_fn, "__name__", ""), x_label
        for config in extra_benchmark_configs or [None]:
            for mode in kernel_operation_modes or [None]:
                for provider in kernel_providers:
                    for x in x_values:
                        asked = point(
                            x=x,
                            kernel_provider=provider,
                            kernel_operation_mode=mode,
                            extra_benchmark_config=config,
                        )
                        variant = f"{provider} {mode}" if mode else str(provider)
                        hook.point(partial(bench_test_fn, asked), variant, {x_name: x}, report, config)

    return run_benchmarks

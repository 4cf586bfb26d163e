"""flash-linear-attention's registry of ops: each ``OpConfig`` at each of its shapes is a case, forward and backward."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from lockstep.scripts.hook import Hook

#: ``__main__`` is the registry given as the script; ``run.py`` imports it as "registry" and has a loop of its own.
MODULES = ("*.run", "__main__")


def install(module: Any, hook: Hook) -> None:
    """Time the ops of a registry that is given as the script; keep the runner from installing a second checkout."""
    if hasattr(module, "_bench_at_ref"):
        module._bench_at_ref = lambda *args, **kwargs: (None, None)
    if all(hasattr(module, name) for name in ("OpConfig", "generate_inputs", "list_ops", "SHAPE_CONFIGS")):
        for name in module.list_ops():
            _take(module, module.get_op(name), hook)


def _take(registry: Any, config: Any, hook: Hook) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for shape in (config.default_shapes or registry.SHAPE_CONFIGS).values():
        limits = (config.dim_constraints or {}).items()
        if any(shape.get(axis) not in allowed for axis, allowed in limits):
            continue
        with hook.labelled(config.name, **shape):
            operation = getattr(importlib.import_module(config.import_path), config.func_name or config.name)
            inputs = registry.generate_inputs(config, **shape, device=device)

            def forward(operation: Any = operation, inputs: Any = inputs) -> Any:
                return operation(**inputs, **config.extra_kwargs)

            hook.take(forward)
            if not config.skip_backward:
                hook.take(_with_backward(forward, config), [*filter(_is_leaf, inputs.values())])


def _with_backward(forward: Any, config: Any) -> Any:
    gradient: list[Any] = []

    def call() -> None:
        result = forward()
        output = result[0] if config.output_is_tuple else result
        if not gradient:
            gradient.append(torch.randn_like(output))
        output.backward(gradient[0])

    return call


def _is_leaf(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False) and value.is_leaf)

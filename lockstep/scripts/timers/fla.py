"""flash-linear-attention's registry of ops: each ``OpConfig`` at each of its shapes is a case, forward and backward."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from lockstep.scripts.taken_calls import Hook

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
    for shape in (config.default_shapes or registry.SHAPE_CONFIGS).values():
        limits = (config.dim_constraints or {}).items()
        if any(shape.get(axis) not in allowed for axis, allowed in limits):
            continue

        def forward(config: Any = config, shape: dict[str, int] = shape) -> None:
            hook.take(_operation(registry, config, shape))

        def forward_and_backward(config: Any = config, shape: dict[str, int] = shape) -> None:
            call = _operation(registry, config, shape)
            result = call()
            gradient = torch.randn_like(result[0] if config.output_is_tuple else result)
            leaves = [one for one in call.keywords.values() if isinstance(one, torch.Tensor) and one.requires_grad]
            if config.output_is_tuple:
                hook.take(lambda: call()[0].backward(gradient), leaves)
            else:
                hook.take(lambda: call().backward(gradient), leaves)

        hook.point(forward, f"{config.name} forward", shape)
        if not config.skip_backward:
            hook.point(forward_and_backward, f"{config.name} forward and backward", shape)


def _operation(registry: Any, config: Any, shape: dict[str, int]) -> functools.partial[Any]:
    """Return an op with its inputs at a shape."""
    operation = getattr(importlib.import_module(config.import_path), config.func_name or config.name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = registry.generate_inputs(config, **shape, device=device)
    return functools.partial(operation, **inputs, **config.extra_kwargs)

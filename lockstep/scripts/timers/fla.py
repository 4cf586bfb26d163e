"""flash-linear-attention's registry of ops: each ``OpConfig`` at each of its shapes is a case, forward and backward."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
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
    for shape in (config.default_shapes or registry.SHAPE_CONFIGS).values():
        limits = (config.dim_constraints or {}).items()
        if any(shape.get(axis) not in allowed for axis, allowed in limits):
            continue

        def forward(config: Any = config, shape: dict[str, int] = shape) -> None:
            hook.take(_Op(registry, config, shape).forward)

        def forward_and_backward(config: Any = config, shape: dict[str, int] = shape) -> None:
            timed = _Op(registry, config, shape)
            hook.take(timed.forward_and_backward, timed.leaves)

        hook.point(forward, f"{config.name} forward", **shape)
        if not config.skip_backward:
            hook.point(forward_and_backward, f"{config.name} forward and backward", **shape)


@dataclass
class _Op:
    """An op at a shape. Its inputs are drawn by the first call: a registry has hundreds of shapes."""

    registry: Any
    config: Any
    shape: dict[str, int]
    operation: Any = None
    inputs: dict[str, Any] = field(default_factory=dict)
    leaves: list[torch.Tensor] = field(default_factory=list)
    gradient: torch.Tensor | None = None

    def forward(self) -> Any:
        if not self.inputs:
            module = importlib.import_module(self.config.import_path)
            self.operation = getattr(module, self.config.func_name or self.config.name)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self.inputs.update(self.registry.generate_inputs(self.config, **self.shape, device=device))
            tensors = (value for value in self.inputs.values() if isinstance(value, torch.Tensor))
            self.leaves += [tensor for tensor in tensors if tensor.requires_grad and tensor.is_leaf]
        return self.operation(**self.inputs, **self.config.extra_kwargs)

    def forward_and_backward(self) -> None:
        result = self.forward()
        output = result[0] if self.config.output_is_tuple else result
        if self.gradient is None:
            self.gradient = torch.randn_like(output)
        output.backward(self.gradient)

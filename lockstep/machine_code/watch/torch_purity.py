"""List the parts of torch and Triton that code under test may use: their results depend on arguments or the target.

Torch's operators are written in C and recorded when they are called (``lockstep.machine_code.tracing.trace``). For
everything else the tables below list what is allowed.
"""

from __future__ import annotations

import functools
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

#: Modules of torch whose results depend only on their arguments, with their submodules.
_MODULES = (
    *("torch.nn", "torch.autograd", "torch.functional", "torch._tensor", "torch._tensor_str", "torch.amp"),
    *("torch._ops", "torch._library", "torch._jit_internal", "torch._compile", "torch.utils._contextlib"),
    *("torch.overrides", "torch.types", "torch._meta_registrations", "torch._refs", "torch._prims"),
    *("torch._prims_common", "torch._decomp", "torch.utils._pytree", "torch.utils._python_dispatch"),
    *("torch.cuda.amp", "torch._linalg_utils", "torch._lowrank", "torch.fft", "torch.linalg", "torch.special"),
    *("torch.utils._device", "torch._classes", "torch._utils", "torch.ops", "torch.return_types"),
    *("torch._vmap_internals", "torch.distributed.tensor", "torch.torch_version"),
)
#: Modules within those above that choose kernels by the device, register other kernels for operators, or measure.
_NOT_MODULES = (
    *("torch.nn.attention", "torch.nn.modules.transformer", "torch.nn.parallel", "torch.library"),
    *("torch.autograd.profiler", "torch.autograd.anomaly_mode", "torch.autograd.gradcheck"),
)
#: Modules of torch that hold operators written in C.
_OPERATORS = frozenset({"torch._C", "torch._C._nn", "torch._C._linalg", "torch._C._special", "torch._C._fft"})
#: Python functions of the module ``torch`` itself.
_FUNCTIONS = frozenset(
    {
        *("sym_not", "sym_float", "sym_int", "sym_max", "sym_min", "sym_sum", "sym_sqrt", "sym_ite", "is_tensor"),
        *("_check", "_check_with", "_check_is_size", "_check_index", "_check_value", "_check_type"),
        *("_check_not_implemented", "_check_tensor_all", "_assert", "set_default_dtype", "compile", "__getattr__"),
        *("cond", "_running_with_deploy", "compiled_with_cxx11_abi"),
    }
)
#: Functions of the module ``torch`` that are written in C but are not operators.
_BUILTINS = frozenset(
    {
        *("as_tensor", "asarray", "from_numpy", "frombuffer", "tensor", "get_default_dtype", "is_grad_enabled"),
        *("is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype"),
        *("is_autocast_cache_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "spmm", "saddmm"),
        *("is_anomaly_enabled", "is_anomaly_check_nan_enabled", "parse_schema", "clear_autocast_cache"),
    }
)
#: Types of the module ``torch``. Events and generators are left out: their results depend on time or chance.
_TYPES = frozenset(
    {
        *("Size", "dtype", "finfo", "iinfo", "layout", "memory_format", "qscheme", "device", "Tag", "Tensor"),
        *("SymInt", "SymFloat", "SymBool", "autocast", "enable_grad", "inference_mode", "no_grad"),
        *("set_grad_enabled", "OutOfMemoryError", "AcceleratorError", "FatalError", "ByteTensor", "CharTensor"),
        *("DoubleTensor", "FloatTensor", "IntTensor", "LongTensor", "ShortTensor", "HalfTensor", "BoolTensor"),
        *("BFloat16Tensor",),
    }
)
#: Values and modules of ``torch`` itself that are refused.
_NOT_VALUES = frozenset({"_C", "_dynamo"})
#: Methods of a tensor that are written in Python and call operators (``torch/_tensor.py``).
_OF_TENSOR = frozenset(
    {
        *("__deepcopy__", "backward", "index", "register_hook", "register_post_accumulate_grad_hook", "reinforce"),
        *("detach", "detach_", "__reversed__", "norm", "lu", "stft", "istft", "resize", "resize_as", "split"),
        *("unique", "unique_consecutive", "__rsub__", "__rdiv__", "__rtruediv__", "__itruediv__", "__pow__"),
        *("__ipow__", "__rmod__", "__rpow__", "__floordiv__", "__rfloordiv__", "__rlshift__", "__rrshift__"),
        *("__rmatmul__", "__pos__", "__neg__", "__abs__", "__len__", "__iter__", "__dir__", "__contains__"),
        *("unflatten", "to_sparse_coo", "dim_order", "_clear_non_serializable_cached_data"),
    }
)
#: Methods of torch's Python objects for operators (``torch/_ops.py``).
_OF_OPERATORS = frozenset(
    {
        *("__call__", "__getattr__", "__init__", "__new__", "__hash__", "__eq__", "__str__", "__repr__", "__iter__"),
        *("__deepcopy__", "namespace", "name", "overloadpacket", "op", "tags", "overloads", "op_overloads"),
        *("_schemas", "_get_dispatch", "is_view"),
    }
)
#: Functions that may be registered for a custom operator. A case that calls the operator is unknown.
_REGISTERED = ("register_fake", "register_autograd", "register_vmap", "register_torch_dispatch", "register_kernel")
#: Functions of ``torch._C`` whose results depend on what the code itself has set, not on the machine.
_STATE = frozenset(
    {
        *("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cache_enabled"),
        *("get_autocast_dtype", "get_autocast_gpu_dtype", "get_default_dtype", "is_autocast_cpu_enabled", "parse_ir"),
        *("get_autocast_cpu_dtype", "are_deterministic_algorithms_enabled", "_is_torch_function_enabled"),
        *("_get_deterministic_algorithms", "_set_grad_enabled", "_has_torch_function", "_has_torch_function_unary"),
        *("_has_torch_function_variadic", "_is_tracing", "_get_tracing_state", "_functionalization_reapply_views_tls"),
    }
)
#: Parts of Triton that measure, or that ask the machine in ways other than through its driver, which is replaced.
_NOT_TRITON = ("triton.testing", "triton.profiler", "triton.runtime.build", "triton.knobs")


@functools.cache
def operators() -> frozenset[str]:
    """Return the names of torch's own operators that exist after its import: "add", "_softmax"."""
    # Imported here: torch is slow to import.
    import torch

    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    return frozenset(name.partition(".")[0] for space, _, name in names if space in ("aten", "prims"))


def allowed_of_torch(module: str, name: str) -> bool:
    """Return whether code may use a function or value of torch; arguments are those of ``purity.allowed``."""
    last = name.rpartition(".")[2]
    if module == "torch":
        return _allowed_of_the_module(name)
    if module in _OPERATORS:
        return True
    if module.startswith(_NOT_MODULES) or not module.startswith(_MODULES):
        return False
    if module == "torch._tensor":
        return name == "Tensor" or name.startswith("_handle_torch_function") or last in _OF_TENSOR
    if module == "torch._ops":
        return name == last or last in _OF_OPERATORS
    if last.startswith(("register", "impl", "py_impl")) and not module.startswith(("torch.nn", "torch.autograd")):
        return last in _REGISTERED
    return True


def _allowed_of_the_module(name: str) -> bool:
    value = vars(sys.modules["torch"]).get(name)
    if isinstance(value, FunctionType):
        return name in _FUNCTIONS or value.__module__ != "torch"
    if isinstance(value, type):
        return name in _TYPES or value.__module__ not in ("torch", "torch._C")
    if isinstance(value, BuiltinFunctionType):
        return name in _BUILTINS or name in operators()
    return name not in _NOT_VALUES


def refused_call_of_torch(module: str, name: str, holder: Any) -> str:
    """Return why calling a function of torch that is written in C makes a trace untrusted; "" if it does not.

    Args:
        holder: object that the function is bound to: a module, a type, or another object.
    """
    if module == "torch._C" or (isinstance(holder, ModuleType) and holder.__name__ == "torch._C"):
        # Functions of the module itself; operators are methods of other objects.
        return "" if name in _STATE else f"asks torch ({name})"
    if isinstance(holder, ModuleType) and holder.__name__ == "torch":
        return "" if name in _BUILTINS or name in operators() else f"asks torch ({name})"
    if isinstance(holder, type) and holder.__module__ == "torch._C" and holder.__name__ == "_VariableFunctions":
        return "" if name in operators() else f"asks torch ({name})"
    return ""


def allowed_of_triton(module: str) -> bool:
    """Return whether code may use the names of a module of Triton and its trace is still trusted."""
    return not module.startswith(_NOT_TRITON)

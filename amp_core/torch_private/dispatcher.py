"""Operations as torch's dispatcher sees them: modes, schemas, keys and rules."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.library import Library
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode


def schema(op: Any) -> Any:
    """An overload's schema: ``name``, ``overload_name``, ``arguments``, ``returns``, ``is_mutable``."""
    return op._schema


def operation_of(op: Any) -> Any:
    """The operation that an overload belongs to, such as ``torch.ops.aten.add`` of ``aten.add.Tensor``."""
    return op._overloadpacket


def overload_name(op: Any) -> str:
    """The name of an overload within its operation: ``Tensor``, ``default``."""
    return str(op._overloadname)


def operation_names() -> list[str]:
    """Every operation this process knows, as ``namespace::name.overload``."""
    return list(torch._C._dispatch_get_all_op_names())


def has_rule(name: str, key: str) -> bool:
    """Whether an operation has a kernel of its own for a dispatch key, such as ``AutocastCPU``."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def key_set(key: str) -> Any:
    """The set of one dispatch key."""
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))


def keys_after(key: str) -> Any:
    """The set of all dispatch keys that come after one."""
    return torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, key))


def without(keys: Any) -> AbstractContextManager[Any]:
    """A region whose operations pass over the keys' rules."""
    region: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(keys)
    return region


def withdraw(library: Library) -> None:
    """Take back every rule that the library has registered."""
    library._destroy()  # type: ignore[no-untyped-call]

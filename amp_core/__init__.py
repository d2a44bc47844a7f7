"""amp_core: automatic mixed precision on PyTorch, with every number it handles on the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amp_core.checking import check
    from amp_core.script.engine import Engine
    from amp_core.script.workload import ScriptWorkload
    from amp_core.workload import Metric, Workload

__all__ = ["Engine", "Metric", "ScriptWorkload", "Workload", "check"]


def __getattr__(name: str) -> Any:
    """Load torch only for those who ask for it: the server imports this package and must not."""
    if name == "check":
        from amp_core.checking import check

        return check
    if name == "Engine":
        from amp_core.script.engine import Engine

        return Engine
    if name == "ScriptWorkload":
        from amp_core.script.workload import ScriptWorkload

        return ScriptWorkload
    if name in __all__:
        from amp_core import workload

        return getattr(workload, name)
    raise AttributeError(f"module 'amp_core' has no attribute {name!r}")

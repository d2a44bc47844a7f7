"""The environment of a child process: an allow-list, so that no secret of server or worker reaches a workload.

Standard library only: the worker starts children without loading torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

ALLOWED_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM",
        "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE",
        "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "XDG_CACHE_HOME", "CUBLAS_WORKSPACE_CONFIG",
        "HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "SCIKIT_LEARN_DATA", "MALLOC_ARENA_MAX",
        "SYSTEMROOT", "COMSPEC", "PATHEXT",
    }
)  # fmt: skip
ALLOWED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ONEDNN_", "DNNL_",
    "ATEN_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_",
)  # fmt: skip
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|AUTH", re.IGNORECASE)


def child_environment(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allowed part of ``source`` (this process's environment by default).

    A name that sounds like a secret is left out even under an allowed prefix. String hashing is pinned, so that the
    order of a workload's sets is the same in every process.
    """
    given = os.environ if source is None else source
    kept = {name: value for name, value in given.items() if _is_allowed(name)}
    kept.setdefault("PYTHONHASHSEED", "0")
    return kept


def _is_allowed(name: str) -> bool:
    if _SECRET.search(name):
        return False
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)

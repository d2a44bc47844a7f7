"""The repro bundle, a zip file: batch, state, recipe, and a script that shows the fault again with PyTorch alone."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from amp_core.config import RunConfig
from amp_core.events import Artifact, Replay
from amp_core.forensics import reproduce
from amp_core.forensics.diagnosis import Diagnosis
from amp_core.forensics.execution import Execution, State
from amp_core.forensics.locate import Fault, flush_faults, non_finite_faults
from amp_core.forensics.rounding import worst_rounding
from amp_core.forensics.subject import FP32_ARM, Arm, Subject
from amp_core.forensics.trace import OpRecord, TensorPlace, Trace, trace_step
from amp_core.torch_private.tensors import tree_leaves, tree_map
from amp_core.workload import Workload

MAX_BYTES = 24 << 20  # of the zip: an event frame carries it
PART_BYTES = 12 << 20  # of the operation's inputs, and of batch and state each
_TIME = (2020, 1, 1, 0, 0, 0)  # the same fault gives the same bytes


def bundle_of(
    config: RunConfig, workload: Workload, subject: Subject, found: Diagnosis, replays: Sequence[Replay]
) -> Artifact | None:
    """The bundle of a diagnosis; parts above `PART_BYTES` are left out, and the script says so."""
    index = max(0, found.step - subject.first_step)
    batches = list(subject.micro_batches(index)) or list(subject.eval_batches[:1])
    state = state_before(subject, index)
    files: dict[str, bytes] = {
        "reproduce.py": Path(reproduce.__file__).read_bytes(),
        "recipe.json": msgspec.json.format(msgspec.json.encode(subject.recipe), indent=1),
        "diagnosis.json": _told(config, workload, found, replays),
    }
    source = Path(config.workload.path)
    if source.is_file():
        files["workload.py"] = source.read_bytes()
    parts: dict[str, Any] = {"batch.pt": _plain(batches), "state.pt": dict(state.tensors) if state else None}
    if found.symptom.kind != "error" and state is not None:
        calls = _operation(subject, found, state, batches)
        if calls is not None:
            parts["operation.pt"] = calls
    for name, part in parts.items():
        if part is not None and num_bytes(part) <= PART_BYTES:
            files[name] = _saved(part)
    content = _zipped(files)
    if len(content) > MAX_BYTES:
        return None
    step = found.step or subject.first_step
    return Artifact(name=f"repro-step-{step}.zip", media_type="application/zip", content=content, step=step)


def state_before(subject: Subject, index: int) -> State | None:
    """The state before a step of the scene, counted from 0, in the run's own arm."""
    if index == 0:
        return subject.start
    execution = Execution(subject, Arm(recipe=subject.recipe))
    with execution.applied():
        for number in range(index):
            execution.step(subject.micro_batches(number))
        return execution.state()


def num_bytes(part: Any) -> int:
    """Bytes of the tensors in a tree."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(part) if isinstance(leaf, Tensor))


def _told(config: RunConfig, workload: Workload, found: Diagnosis, replays: Sequence[Replay]) -> bytes:
    told = {
        "sentence": found.sentence, "symptom": found.symptom.kind, "kind": found.kind, "module": found.module,
        "op": found.op, "phase": found.phase, "step": found.step, "scale": found.scale, "fix": found.fix,
        "workload_class": type(workload).__name__, "params": {**config.workload.params},
        "replays": msgspec.to_builtins(list(replays)),
    }  # fmt: skip
    return json.dumps(told, indent=1).encode()


def _operation(subject: Subject, found: Diagnosis, state: State, batches: list[Any]) -> list[dict[str, Any]] | None:
    """The calls that show the fault: the operation found, and what a cast rounds."""
    if found.phase not in ("forward", "backward", "evaluation"):
        return None
    evaluate = found.phase == "evaluation"
    scale = found.scale if found.phase == "backward" else None
    look = {"evaluate": evaluate, "scale": scale}
    low = trace_step(subject, Arm(recipe=subject.recipe), state, batches, exactly=True, **look)  # type: ignore[arg-type]
    wide = trace_step(replace(subject), FP32_ARM, state, batches, exactly=False, evaluate=evaluate)
    record = _record(low, wide, found)
    if record is None:
        return None
    calls = [_call(record, None)]
    parent = (
        low.records[record.parents[0]] if record.is_cast and record.parents and record.parents[0] is not None else None
    )
    if parent is not None and parent.args is not None and parent.module == record.module:
        calls = [_call(parent, None), _call(record, 0)]
    return None if any(call is None for call in calls) else calls  # type: ignore[return-value]


def _record(low: Trace, wide: Trace, found: Diagnosis) -> OpRecord | None:
    faults: list[Fault] = non_finite_faults(low, wide) or non_finite_faults(low, Trace())
    if found.kind == "underflow":
        faults = [*flush_faults(low, "backward"), *flush_faults(low, "forward"), *faults]
    same = [fault for fault in faults if fault.module == found.module] or faults
    if found.kind in ("precision_loss", "cancellation", "swamping") and found.module is not None:
        worst = worst_rounding(low, found.module)
        return worst[2] if worst is not None else None
    return same[0].record if same else None


def _call(record: OpRecord, previous: int | None) -> dict[str, Any] | None:
    """An operation with its arguments as tensors and plain data."""
    if record.args is None:
        return None
    tensors = iter(record.inputs)
    args, kwargs = record.args
    seen = 0

    def plain(leaf: Any) -> Any:
        nonlocal seen
        if isinstance(leaf, TensorPlace):
            value, seen = next(tensors), seen + 1
            return {"previous": 0} if previous is not None and seen == 1 else value.detach().cpu().contiguous()
        if isinstance(leaf, torch.dtype):
            return {"dtype": str(leaf).removeprefix("torch.")}
        return leaf if isinstance(leaf, int | float | bool | str | None) else None

    made, named = tree_map(plain, (list(args), dict(kwargs)))
    name, _, overload = record.function.partition(".")
    return {"op": name, "overload": overload or "default", "args": list(made), "kwargs": named}


def _plain(batches: list[Any]) -> list[Any] | None:
    """Batches as plain containers of tensors, which load as data; None if they hold something else."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): plain(part) for key, part in value.items()}
        if isinstance(value, tuple | list):
            return [plain(part) for part in value]
        if isinstance(value, Tensor | int | float | str | bool | None):
            return value.detach().cpu().clone() if isinstance(value, Tensor) else value
        raise TypeError

    try:
        return [plain(batch) for batch in batches]
    except TypeError:
        return None


def _saved(part: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(part, buffer)
    return buffer.getvalue()


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()

"""Calls of what is imported: torch first, frameworks, and the few builtins that matter."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_core.lint.interpreter import builtin_calls, flags, torch_calls, trainers, training_calls
from amp_core.lint.interpreter.calls import Arguments, unknown_result
from amp_core.lint.interpreter.logging_calls import note_logged
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import UNKNOWN, External, NullContext, Tensor, Value

Handler = Callable[[Machine, ast.Call, Arguments], Value]

AUTOCASTS = {
    "torch.autocast": None,
    "torch.amp.autocast": None,
    "torch.amp.autocast_mode.autocast": None,
    "torch.cuda.amp.autocast": "cuda",
    "torch.cuda.amp.autocast_mode.autocast": "cuda",
    "torch.cpu.amp.autocast": "cpu",
}
SCALERS = {
    "torch.GradScaler": "cuda",
    "torch.amp.GradScaler": "cuda",
    "torch.amp.grad_scaler.GradScaler": "cuda",
    "torch.cuda.amp.GradScaler": "cuda",
    "torch.cuda.amp.grad_scaler.GradScaler": "cuda",
    "torch.cpu.amp.GradScaler": "cpu",
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": "cuda",
}
ACCELERATORS = {"accelerate.Accelerator", "lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"}


def call_external(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value:
    """The value of calling `name` from outside this module."""
    handler = HANDLERS.get(name)
    if handler is not None:
        return handler(machine, node, arguments)
    if name in AUTOCASTS:
        return training_calls.autocast(machine, node, arguments, AUTOCASTS[name], legacy=AUTOCASTS[name] is not None)
    if name in SCALERS:
        return training_calls.scaler(
            machine, node, arguments, SCALERS[name], legacy=".cuda." in name or ".cpu." in name
        )
    if name in ACCELERATORS:
        return training_calls.accelerator(machine, node, arguments)
    if name in {"torch.no_grad", "torch.inference_mode"}:
        return External(name)
    if name.startswith(("math.", "numpy.sqrt")):
        return Tensor(is_number=True)
    if name.startswith("builtins."):
        return builtin_calls.call(machine, node, name[len("builtins.") :], arguments)
    made = trainers.call(machine, node, name, arguments)
    if made is not None:
        return made
    found = _by_prefix(machine, node, name, arguments)
    if found is not None:
        return found
    note_logged(machine, node, name.rsplit(".", 1)[-1], arguments)
    return unknown_result(machine, arguments, node)


def _by_prefix(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value | None:
    last = name.rsplit(".", 1)[-1]
    if "lr_scheduler." in name or (name.startswith("transformers.") and "schedule" in last):
        return training_calls.scheduler(arguments)
    if last in training_calls.EPS and (name.startswith("torch.optim.") or "optim" in name.lower()):
        return training_calls.optimizer(machine, node, last, arguments)
    if name.startswith("torch.optim.") and last[:1].isupper():
        return training_calls.optimizer(machine, node, last, arguments)
    if last in {"clip_grad_norm_", "clip_grad_value_"} or last in {"clip_grad_norm", "clip_grad_value"}:
        return training_calls.clip(machine, node, arguments)
    if name.startswith(("torchvision.models.", "timm.create_model")) or last == "from_pretrained":
        return training_calls.pretrained(machine, node, name, arguments)
    if name.startswith("torch."):
        return torch_calls.call(machine, node, name, last, arguments)
    return None


def _null(_: Machine, __: ast.Call, ___: Arguments) -> Value:
    return NullContext()


def _anomaly(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    flags.anomaly(machine, node, arguments.get(0, "mode"))
    return UNKNOWN


def _detect_anomaly(machine: Machine, node: ast.Call, _: Arguments) -> Value:
    flags.anomaly(machine, node, None)
    return UNKNOWN


def _matmul_precision(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    flags.matmul_precision(machine, node, arguments.get(0, "precision"))
    return UNKNOWN


HANDLERS: dict[str, Handler] = {
    "contextlib.nullcontext": _null,
    "contextlib.suppress": lambda *_: UNKNOWN,
    "torch.autograd.set_detect_anomaly": _anomaly,
    "torch.autograd.detect_anomaly": _detect_anomaly,
    "torch.autograd.anomaly_mode.set_detect_anomaly": _anomaly,
    "torch.set_float32_matmul_precision": _matmul_precision,
    "torch.autograd.grad": training_calls.autograd_grad,
    "torch.autograd.backward": training_calls.autograd_backward,
    "torch.save": training_calls.save,
    "torch.load": training_calls.load,
    "torch.device": training_calls.device,
    "torch.compile": training_calls.same,
    "torch.jit.script": training_calls.same,
    "torch.nn.parallel.DistributedDataParallel": training_calls.same,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": training_calls.same,
    "torch.nn.utils.weight_norm": training_calls.same,
    "torch.nn.utils.spectral_norm": training_calls.same,
    "torch.distributed.fsdp.FullyShardedDataParallel": training_calls.same,
    "torch.nn.DataParallel": training_calls.data_parallel,
    "torch.nn.parallel.DataParallel": training_calls.data_parallel,
    "torch.optim.swa_utils.AveragedModel": training_calls.copied,
    "copy.deepcopy": training_calls.copied,
    "copy.copy": training_calls.same,
    "threading.Thread": training_calls.thread,
    "functools.partial": training_calls.partial,
    "itertools.chain": builtin_calls.chained,
}

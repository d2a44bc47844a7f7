"""Where autocast does not reach: custom functions, threads, replicas, other devices, out= variants."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event
from amp_core.lint.finding import Severity
from amp_core.lint.interpreter.ducks import path_of
from amp_core.lint.interpreter.oplists import LOW
from amp_core.lint.program import Program
from amp_core.lint.relations import optimized
from amp_core.lint.rule import rule
from amp_core.lint.syntax import nodes_of
from amp_core.lint.values import Class

MOVES = {
    "to",
    "cuda",
    "prepare",
    "setup",
    "set_default_device",
    "DataParallel",
    "DistributedDataParallel",
    "load",
    "DDP",
}


@rule(
    "AMP211",
    "custom-function-without-custom-fwd",
    Severity.WARNING,
    what="A custom autograd.Function that multiplies matrices is used under autocast without custom_fwd and "
    "custom_bwd.",
    why="Its backward runs outside autocast: the incoming gradient is 16-bit, saved weights are float32, and the "
    "product fails on the dtypes.",
    before="""
class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


with autocast("cuda", dtype=torch.float16):
    out = Project.apply(x, w)
""",
    after="""
class Project(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


with autocast("cuda", dtype=torch.float16):
    out = Project.apply(x, w)
""",
    fix="decorate forward with torch.amp.custom_fwd and backward with torch.amp.custom_bwd",
)
def custom_function(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("apply"):
        cls = event.detail
        if event.context.autocast is None or not isinstance(cls, Class):
            continue
        methods = {n.name: n for n in cls.node.body if isinstance(n, ast.FunctionDef)}
        needed = [methods[name] for name in ("forward", "backward") if name in methods]
        if any(_multiplies(method) for method in needed) and not any(_decorated(method) for method in needed):
            yield (
                cls.node,
                f"{cls.node.name} is used under autocast, but forward and backward lack custom_fwd and custom_bwd",
            )


def _decorated(method: ast.FunctionDef) -> bool:
    names = [path_of(d.func if isinstance(d, ast.Call) else d) for d in method.decorator_list]
    return any(
        name.rsplit(".", 1)[-1] in {"custom_fwd", "custom_bwd", "amp_custom_fwd"} or "custom_" in name for name in names
    )


def _multiplies(method: ast.FunctionDef) -> bool:
    for node in ast.walk(method):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Call) and path_of(node.func).rsplit(".", 1)[-1] in LOW:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOW:
            return True
    return False


@rule(
    "AMP212",
    "autocast-not-in-thread",
    Severity.WARNING,
    what="A thread started inside an autocast block runs a model without autocast of its own.",
    why="Autocast is thread-local: the thread computes in float32, without any warning.",
    before="""
import threading


def worker():
    model(x)


with autocast("cuda", dtype=torch.float16):
    thread = threading.Thread(target=worker)
    thread.start()
""",
    after="""
import threading


def worker():
    with autocast("cuda", dtype=torch.float16):
        model(x)


thread = threading.Thread(target=worker)
thread.start()
""",
    fix="enter autocast inside the function that the thread runs, or decorate the model's forward",
)
def not_in_thread(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("thread"):
        yield event.node, "autocast is thread-local: the thread's function must enter it itself"


@rule(
    "AMP213",
    "autocast-dtype-lost-in-dataparallel",
    Severity.WARNING,
    what="bfloat16 autocast around a DataParallel model.",
    why="DataParallel's threads inherit that autocast is on, but not its dtype: replicas run in float16, the "
    "default of CUDA.",
    before="""
replicas = nn.DataParallel(model)
with autocast("cuda", dtype=torch.bfloat16):
    out = replicas(x)
""",
    after="""
class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    @autocast("cuda", dtype=torch.bfloat16)
    def forward(self, x):
        return self.inner(x)


out = nn.DataParallel(Wrapped(model))(x)
""",
    fix="enter autocast in the model's forward, or use DistributedDataParallel",
)
def data_parallel(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        inner = [e for e in trace.of("forward") if e.context.regions]
        for event in inner:
            region, model = event.context.autocast, event.model
            if (
                region is None
                or region.assumed
                or model is None
                or not model.data_parallel
                or region.dtype != "bfloat16"
            ):
                continue
            if not _enters_itself(event):
                yield event.node, "DataParallel's threads do not inherit bfloat16: replicas run in float16"


def _enters_itself(event: Event) -> bool:
    cls = event.model.cls if event.model is not None else None
    forward = cls.method("forward") if cls is not None else None
    return forward is not None and any(
        "autocast" in path_of(n) for n in ast.walk(forward.node) if isinstance(n, ast.Name | ast.Attribute)
    )


@rule(
    "AMP214",
    "autocast-device-mismatch",
    Severity.WARNING,
    what="Autocast or the scaler is for another device than the model.",
    why="Autocast for one device type does nothing on another, without any error. torch.autocast wants a string, "
    "so that a torch.device raises.",
    before="""
model = nn.Linear(8, 8).to("cuda")
with torch.autocast("cpu", dtype=torch.bfloat16):
    out = model(x)
""",
    after="""
model = nn.Linear(8, 8).to("cuda")
with torch.autocast("cuda", dtype=torch.bfloat16):
    out = model(x)
""",
    fix="pass the type of the device that the model is on: device.type",
)
def device_mismatch(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("device_object"):
        yield event.node, "torch.autocast takes a device type as a string, not a torch.device: pass device.type"
    placed = {name for event in program.of("placed") if event.detail for name in event.detail}
    if len(placed) == 1 and placed <= {"cpu", "cuda", "mps", "xpu"}:
        device = next(iter(placed))
        for region in program.regions:
            devices = region.context.devices
            if not region.assumed and region.enabled is not False and len(devices) == 1 and device not in devices:
                yield (
                    region.node,
                    f"autocast is for {next(iter(devices))}, but everything here is moved to {device}: it does nothing",
                )
    yield from _never_moved(program)
    yield from _scalers(program)


def _never_moved(program: Program) -> Iterator[tuple[ast.AST, str]]:
    """Models made and trained here, while nothing in the file puts anything on a device."""
    for node in nodes_of(program.tree):
        if isinstance(node, ast.keyword) and node.arg in {"device", "device_map", "device_ids"}:
            return
        if isinstance(node, ast.Call) and path_of(node.func).rsplit(".", 1)[-1] in MOVES:
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
            return
    for trace in program.traces:
        trained = {m for step in trace.of("opt_step", "step") for m in optimized(step)}
        for event in trace.of("forward"):
            region, model = event.context.autocast, event.model
            if region is None or region.assumed or region.context.devices != {"cuda"} or model not in trained:
                continue
            made_here = event.tensor is not None and event.tensor.dtype is not None and not event.tensor.models
            if model is not None and model.kind and made_here:
                yield region.node, "autocast is for cuda, but nothing here leaves the CPU: it does nothing"


def _scalers(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("scale"):
        scaler, tensor = event.scaler, event.tensor
        if scaler is None or scaler.node is None or tensor is None or len(scaler.devices) != 1 or not tensor.regions:
            continue
        devices = [r.context.devices for r in tensor.regions]
        if all(len(d) == 1 and d != scaler.devices for d in devices):
            there = next(iter(devices[0]))
            yield scaler.node, f"this scaler is for {next(iter(scaler.devices))}, but autocast is for {there}"


@rule(
    "AMP215",
    "out-variant-bypasses-autocast",
    Severity.WARNING,
    what="An out= or in-place matrix product inside autocast.",
    why="Autocast only covers out-of-place operations. The in-place one runs in the type of its operands, or "
    "fails when they differ.",
    before="""
buffer = torch.empty(8, 8, device="cuda")
with autocast("cuda", dtype=torch.float16):
    torch.mm(a, b, out=buffer)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    buffer = torch.mm(a, b)
""",
    fix="use the out-of-place operation",
)
def out_variant(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("bypass"):
        yield event.node, f"{event.detail} is not covered by autocast: use the out-of-place operation"

"""Watches a training loop of anybody's own while it runs: what no single step shows.

Memory that the autocast weight cache holds, weights updated while their casts stay in the cache, ranks that divide one
gradient by different loss scales, memory that grows with every step, and products too small to gain anything.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from amp_core.forensics.loop_products import product_of
from amp_core.forensics.speed_advice import Product, advise
from amp_core.telemetry.memory import process_bytes

CACHE_BYTES = 8 << 20  # casts held in one autocast region under no_grad
GROWTH_BYTES_PER_STEP = 1 << 20
GROWTH_STEPS = 12  # steps in a row, each above the one before
MAX_PRODUCTS = 4096

LoopKind = Literal["api-misuse", "distributed", "memory", "speed"]


class LoopFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a loop; ``symptom``: stale_weights, rank_divergence, memory or no_speedup."""

    kind: LoopKind
    symptom: str
    sentence: str
    fix: str


class LoopWatch(TorchFunctionMode):
    """What was seen so far. Use `watching`; it is made for one loop at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._findings: dict[str, LoopFinding] = {}
        self._depth = 0
        self._cast: dict[int, int] = {}  # leaf: bytes of its low copy, in the autocast region at hand
        self._cast_without_grad = 0
        self._updated: set[int] = set()  # leaves whose copy in the cache is old
        self._unscaled: dict[int, tuple[float, Any]] = {}  # scaler: its scale, and the gradients it divides
        self._memory: list[int] = []
        self._products: list[Product] = []
        self._step_products: list[list[Product]] = []

    @property
    def findings(self) -> list[LoopFinding]:
        """What is wrong, the gravest first; the advice on speed only where nothing else is."""
        order: tuple[LoopKind, ...] = ("api-misuse", "distributed", "memory", "speed")
        found = sorted(self._findings.values(), key=lambda finding: order.index(finding.kind))
        advice = advise(max([*self._step_products, self._products], key=len, default=[])) if not found else None
        if advice is not None and not advice.expects_gain:
            found.append(LoopFinding(kind="speed", symptom="no_speedup", sentence=advice.sentence, fix=advice.fix))
        return found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._depth and _lowers():
            product = product_of(func, args, kwargs)
            if product is not None:
                if len(self._products) < MAX_PRODUCTS:
                    self._products.append(product)
                self._note_casts(args, kwargs)
        return func(*args, **kwargs)

    def _note_casts(self, args: Any, kwargs: Any) -> None:
        if not torch.is_autocast_cache_enabled() or torch.is_inference_mode_enabled():
            return
        for leaf in [*args, *kwargs.values()]:
            if (
                not isinstance(leaf, Tensor)
                or leaf.dtype is not torch.float32
                or not leaf.is_leaf
                or not leaf.requires_grad
            ):
                continue
            if id(leaf) in self._updated:
                self._note_stale()
            if id(leaf) not in self._cast:
                self._cast[id(leaf)] = 2 * leaf.numel()
                if not torch.is_grad_enabled():
                    self._cast_without_grad += 2 * leaf.numel()
        if self._cast_without_grad > CACHE_BYTES:
            self._note_cache()

    def region_entered(self) -> None:
        if self._depth == 0:
            self._forget_casts()
        self._depth += 1

    def region_left(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._forget_casts()

    def _forget_casts(self) -> None:
        self._cast, self._updated, self._cast_without_grad = {}, set(), 0

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        leaves = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._updated |= leaves & self._cast.keys()
        self._step_products.append(self._products)
        self._step_products = self._step_products[-4:]
        self._products = []
        self._note_memory(process_bytes())

    def scaler_steps(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """Two scalers that divide the same gradients stand for two ranks after their all-reduce."""
        if not scaler.is_enabled():
            return
        scale = float(scaler.get_scale())
        gradients = [p.grad.detach() for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if not gradients or not any(bool(g.any()) for g in gradients):
            return
        for other, (other_scale, held) in self._unscaled.items():
            if other != id(scaler) and other_scale != scale and _equal(held, gradients):
                self._note_ranks(other_scale, scale)
        self._unscaled[id(scaler)] = (scale, [g.clone() for g in gradients])

    def _note_stale(self) -> None:
        self._add(
            LoopFinding(
                kind="api-misuse",
                symptom="stale_weights",
                sentence="The optimizer steps inside an autocast region whose weight cache is on: forward goes on with "
                "the casts of the old weights, so the loss does not move.",
                fix="Enter autocast anew for each forward and loss, and leave it before backward and the step; "
                "or cache_enabled=False.",
            )
        )

    def _note_cache(self) -> None:
        self._add(
            LoopFinding(
                kind="memory",
                symptom="memory",
                sentence=f"Under no_grad one autocast region keeps low-precision copies of weights alive "
                f"(more than {CACHE_BYTES >> 20} MiB) that nothing needs for backward.",
                fix="Use torch.inference_mode(), cache_enabled=False, requires_grad_(False), or a shorter region.",
            )
        )

    def _note_ranks(self, first: float, second: float) -> None:
        self._add(
            LoopFinding(
                kind="distributed",
                symptom="rank_divergence",
                sentence=f"Two replicas divide the same averaged gradient by different loss scales ({first:g} and "
                f"{second:g}): their weights drift apart.",
                fix="Give every rank the same scaler settings and state, and let all skip a step when one does "
                "(ShardedGradScaler for FSDP).",
            )
        )

    def _note_memory(self, used: int) -> None:
        self._memory = [*self._memory[-GROWTH_STEPS:], used]
        grown = [later - earlier for earlier, later in zip(self._memory, self._memory[1:], strict=False)]
        if len(grown) == GROWTH_STEPS and min(grown) > GROWTH_BYTES_PER_STEP // 2:
            rate = (self._memory[-1] - self._memory[0]) / GROWTH_STEPS
            if rate > GROWTH_BYTES_PER_STEP:
                self._add(
                    LoopFinding(
                        kind="memory",
                        symptom="memory",
                        sentence=f"The process grows by {rate / 2**20:.1f} MiB with every step.",
                        fix="Keep numbers, not tensors with a graph: loss.item() or loss.detach() in lists and sums.",
                    )
                )

    def _add(self, finding: LoopFinding) -> None:
        self._findings.setdefault(finding.kind, finding)


@contextmanager
def watching() -> Iterator[LoopWatch]:
    """Watch every loop that runs inside; autocast, optimizers and scalers are themselves again afterwards."""
    watch = LoopWatch()
    enter, leave = torch.autocast.__enter__, torch.autocast.__exit__
    step = torch.amp.GradScaler.step

    def entered(self: Any) -> Any:
        made = enter(self)  # type: ignore[no-untyped-call]
        watch.region_entered()
        return made

    def left(self: Any, *exception: Any) -> Any:
        watch.region_left()
        return leave(self, *exception)

    def stepped(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        watch.scaler_steps(self, optimizer)
        return step(self, optimizer, *args, **kwargs)

    handle = register_optimizer_step_post_hook(lambda o, *_: watch.optimizer_stepped(o))
    torch.autocast.__enter__, torch.autocast.__exit__ = entered, left  # type: ignore[method-assign]
    torch.amp.GradScaler.step = stepped  # type: ignore[method-assign]
    try:
        with watch:
            yield watch
    finally:
        torch.autocast.__enter__, torch.autocast.__exit__ = enter, leave  # type: ignore[method-assign]
        torch.amp.GradScaler.step = step  # type: ignore[method-assign]
        handle.remove()


def _lowers() -> bool:
    return torch.is_autocast_enabled("cpu") or (torch.cuda.is_available() and torch.is_autocast_enabled("cuda"))


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        a.shape == b.shape and bool(torch.equal(a, b)) for a, b in zip(first, second, strict=True)
    )


def watch_script(path: Path) -> tuple[list[LoopFinding], str]:
    """Run a Python file as a script under watch: what was found, and the error that ended it, if one did.

    What it prints goes to stderr. Its own exit is no error.
    """
    error = ""
    before = list(sys.path)
    sys.path.insert(0, str(path.parent))
    with watching() as watch, contextlib.redirect_stdout(sys.stderr):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit:
            pass
        except Exception as raised:  # noqa: BLE001 - a script may raise anything; what was seen before it counts
            error = f"{type(raised).__name__}: {raised}"
        finally:
            sys.path[:] = before
    return watch.findings, error

"""Step time of the engine against a bare torch AMP loop, Accelerate and Lightning Fabric: ``make bench-engine``.

Every arm trains the same model on the same batches in a process of its own. The arms take turns in short blocks, in an
order that turns round from round to round, so that what the machine does besides meets all of them. Figures are medians
over rounds of the difference to the bare loop in the same round, with bootstrap intervals.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core import Workload
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Frame, encode_frame
from amp_core.training import train
from amp_core.workload import Split
from amp_core.workloads.stdlib_gpt import StdlibGPT

NUM_BATCHES = 8
WARMUP_STEPS = 30
NUM_RESAMPLES = 4000
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class Gate:
    """Batches without end that stop at the end of each block until the next one is asked for."""

    def __init__(self, batches: list[Any], connection: Connection, clock: str) -> None:
        self._batches = itertools.cycle(batches)
        self._connection = connection
        self._clock = CLOCKS[clock]
        self._left, self._began, self._has_begun = 0, 0.0, False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._left == 0:
            if self._has_begun:
                self._connection.send(self._clock() - self._began)
            self._left = self._connection.recv()
            if self._left < 0:
                raise SystemExit
            self._has_begun, self._began = True, self._clock()
        self._left -= 1
        return next(self._batches)


class TinyMLP(Workload):
    """About a millisecond a step."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))

    def batches(self, split: Split, seed: int) -> Iterable[Any]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(NUM_BATCHES):
            yield torch.randn(64, 64, generator=generator), torch.randint(10, (64,), generator=generator)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


@dataclass(frozen=True)
class Case:
    """A model to train: ``loss`` is what a hand-written loop would write."""

    workload: Workload
    block_steps: int
    loss: Callable[[nn.Module, Any], Tensor]


def _classes(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def _bytes(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def case_of(name: str) -> Case:
    if name == "mlp":
        return Case(TinyMLP(), 200, _classes)
    return Case(StdlibGPT(width=192, depth=3, context=96, batch_size=8, dropout=0.0), 3, _bytes)


def bare(case: Case, batches: Gate, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = case.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def accelerate(case: Case, batches: Gate, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        with accelerator.autocast():
            loss = case.loss(model, batch)
        accelerator.backward(loss)
        optimizer.step()


def fabric(case: Case, batches: Gate, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    model, optimizer = fabric.setup(model, optimizer)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = case.loss(model, batch)
        fabric.backward(loss)
        optimizer.step()


def engine(case: Case, batches: Gate, options: dict[str, Any]) -> None:
    """The engine with all it records at each step, and its events encoded as they go over the pipe."""
    case.workload.batches = lambda split, seed: batches if split == "train" else []  # type: ignore[method-assign]
    config = RunConfig(
        run_id=1, attempt=1, workload=WorkloadRef(name="bench", path=__file__), recipe=parse_recipe("bf16-mixed"),
        steps=10**9, eval_every=0, **options,
    )  # fmt: skip
    for sequence, event in enumerate(train(config, case.workload), 1):
        encode_frame(Frame(sequence=sequence, at=time.time(), event=event))  # type: ignore[arg-type]


LOOPS: dict[str, Callable[..., None]] = {"bare torch": bare, "Accelerate": accelerate, "Lightning Fabric": fabric}
EVERY_STEP: dict[str, Any] = {"numerics_every": 10**9, "diagnose_s": 0.0}
ENGINES = {
    "engine": EVERY_STEP,
    "engine, numerics every 25": EVERY_STEP | {"numerics_every": 25},
    "engine, diagnosis watch": EVERY_STEP | {"diagnose_s": 30.0},
}


def arm(connection: Connection, name: str, case_name: str, clock: str) -> None:
    """One arm in its process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = case_of(case_name)
    batches = Gate(list(itertools.islice(case.workload.batches("train", 1), NUM_BATCHES)), connection, clock)
    if name in ENGINES:
        engine(case, batches, ENGINES[name])
    torch.manual_seed(0)
    model = case.workload.model()
    LOOPS[name](case, batches, model, case.workload.optimizer(model.parameters()))


def measure(case_name: str, rounds: int, clock: str) -> dict[str, np.ndarray]:
    """Seconds per step of every arm in every round."""
    context = multiprocessing.get_context("spawn")
    steps = case_of(case_name).block_steps
    lines: dict[str, Connection] = {}
    for name in [*LOOPS, *ENGINES]:
        lines[name], theirs = context.Pipe()
        context.Process(target=arm, args=(theirs, name, case_name, clock), daemon=True).start()
        theirs.close()
    for line in lines.values():
        line.send(max(steps, WARMUP_STEPS))
        line.recv()
    times: dict[str, list[float]] = {name: [] for name in lines}
    for index in range(rounds):
        order = list(lines)
        order = order[index % len(order) :] + order[: index % len(order)]
        for name in order if index % 2 else reversed(order):
            lines[name].send(steps)
            times[name].append(lines[name].recv() / steps)
    for line in lines.values():
        line.send(-1)
    return {name: np.asarray(values) for name, values in times.items()}


def interval(values: np.ndarray) -> tuple[float, float]:
    """The bootstrap interval of the median, 95 %."""
    draw = np.random.default_rng(0)
    medians = np.median(values[draw.integers(len(values), size=(NUM_RESAMPLES, len(values)))], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def table(case_name: str, times: dict[str, np.ndarray], clock: str) -> str:
    base = times["bare torch"]
    lines = [
        f"{case_name}: {np.median(base) * 1e3:.3f} ms a step in the bare loop ({clock} time), {len(base)} rounds, "
        f"load {' '.join(f'{load:.1f}' for load in os.getloadavg())}",
        "",
        "| loop | ratio to bare | 95 % interval | added a step, µs | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for name, values in times.items():
        if name != "bare torch":
            ratio, added = values / base, (values - base) * 1e6
            (low, high), (less, more) = interval(ratio), interval(added)
            lines.append(
                f"| {name} | {np.median(ratio):.4f} | {low:.4f} to {high:.4f} "
                f"| {np.median(added):+.1f} | {less:+.1f} to {more:+.1f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--case", choices=["mlp", "gpt"], action="append")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu: CPU time, for a machine with other work"
    )
    given = parser.parse_args()
    for case_name in given.case or ["gpt", "mlp"]:
        print(table(case_name, measure(case_name, given.rounds, given.clock), given.clock), flush=True)


if __name__ == "__main__":
    main()

"""Step time of the engine against a bare torch AMP loop, Accelerate and Lightning Fabric: ``make bench-engine``.

Every arm trains the same model on the same batches in a process of its own. The arms take turns in short blocks, in an
order that turns round from round to round, so that what the machine does besides meets all of them. Each round is
compared with the bare loop of the same round; all processes are started anew several times, since where a process has
its memory moves its times by more than what is looked for.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core import Workload, training
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Frame, encode_frame
from amp_core.workload import Split
from amp_core.workloads.stdlib_gpt import StdlibGPT
from tests.engine_figures import BARE, ENGINE, NUMERICS, Times, answers, table

NUM_BATCHES = 8
WARMUP_BLOCKS = 4
# Nothing goes back to the system between steps: whether it does, at hundreds of page faults a step, would else depend
# on which block happens to lie at the end of a process's heap.
SAME_FOR_ALL = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30), "OMP_NUM_THREADS": "1"}
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class Gate:
    """Batches without end that stop at the end of each block until the next one is asked for."""

    def __init__(self, batches: list[Any], connection: Connection, clock: str) -> None:
        self._batches = itertools.cycle(batches)
        self._connection = connection
        self._clock = CLOCKS[clock]
        self._left, self._began, self._has_begun = 0, 0.0, False
        self._waited = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def time(self) -> float:
        """The clock without the waiting for the other arms."""
        return self._clock() - self._waited

    def __next__(self) -> Any:
        if self._left == 0:
            if self._has_begun:
                self._connection.send(self._clock() - self._began)
            waiting = self._clock()
            self._left = self._connection.recv()
            self._waited += self._clock() - waiting
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
        return Case(TinyMLP(), 50, _classes)
    return Case(StdlibGPT(width=192, depth=3, context=96, batch_size=8, dropout=0.0), 2, _bytes)


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
    """The engine with all it records at each step, and its events encoded as they go over the pipe.

    Its clock is the measured one, which stands still while others have their turn: a flush is due after 0.25 s of
    training, and else would come in every block.
    """
    vars(training)["time"] = SimpleNamespace(perf_counter=batches.time, time=time.time)
    case.workload.batches = lambda split, seed: batches if split == "train" else []  # type: ignore[method-assign]
    config = RunConfig(
        run_id=1, attempt=1, workload=WorkloadRef(name="bench", path=__file__), recipe=parse_recipe("bf16-mixed"),
        steps=10**9, eval_every=0, **options,
    )  # fmt: skip
    for sequence, event in enumerate(training.train(config, case.workload), 1):
        encode_frame(Frame(sequence=sequence, at=time.time(), event=event))  # type: ignore[arg-type]


LOOPS: dict[str, Callable[..., None]] = {BARE: bare, "Accelerate": accelerate, "Lightning Fabric": fabric}
LIBRARIES = {"Accelerate": "accelerate", "Lightning Fabric": "lightning_fabric"}
EVERY_STEP: dict[str, Any] = {"numerics_every": 10**9, "diagnose_s": 0.0}
ENGINES = {
    ENGINE: EVERY_STEP,
    NUMERICS: EVERY_STEP | {"numerics_every": 25},
    "engine, diagnosis watch": EVERY_STEP | {"diagnose_s": 30.0},
}


def arm(connection: Connection, name: str, case_name: str, clock: str) -> None:
    """One arm in its process."""
    os.dup2(2, 1)  # what libraries say is not the result
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = case_of(case_name)
    batches = Gate(list(itertools.islice(case.workload.batches("train", 1), NUM_BATCHES)), connection, clock)
    if name in ENGINES:
        engine(case, batches, ENGINES[name])
    torch.manual_seed(0)
    model = case.workload.model()
    LOOPS[name](case, batches, model, case.workload.optimizer(model.parameters()))


def measure(case_name: str, starts: int, rounds: int, clock: str, names: Sequence[str]) -> Times:
    """Seconds per step of every arm: `(starts, rounds)`. A start is a fresh interpreter and what it forks."""
    each = []
    for start in range(starts):
        told = [f"--start={start}", f"--rounds={rounds}", f"--case={case_name}", f"--clock={clock}"]
        told += [f"--arm={name}" for name in names]
        done = subprocess.run(
            [sys.executable, __file__, *told], env=os.environ | SAME_FOR_ALL, stdout=subprocess.PIPE, check=True
        )
        each.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: np.asarray([times[name] for times in each]) for name in each[0]}


def one_start(case_name: str, rounds: int, clock: str, names: Sequence[str], start: int) -> dict[str, list[float]]:
    """The rounds of one set of processes. The bare loop opens and closes each round: its time is the mean of both."""
    for name in set(names) & set(LIBRARIES):
        importlib.import_module(LIBRARIES[name])  # once, and not in each arm
    context = multiprocessing.get_context("fork")  # nothing has been computed here, so that no thread is lost
    steps = case_of(case_name).block_steps
    lines: dict[str, Connection] = {}
    for name in names:
        lines[name], theirs = context.Pipe()
        context.Process(target=arm, args=(theirs, name, case_name, clock), daemon=True).start()
        theirs.close()

    def block(name: str, length: int) -> float:
        lines[name].send(length)
        seconds: float = lines[name].recv()
        return seconds / length

    for name in names:
        block(name, WARMUP_BLOCKS * steps)
    times: dict[str, list[float]] = {name: [] for name in names}
    others = [name for name in names if name != BARE]
    for index in range(rounds):
        shift = (index // 2 + start) % len(others)
        order = others[shift:] + others[:shift]
        opening = block(BARE, steps)
        for name in order if index % 2 else reversed(order):
            times[name].append(block(name, steps))
        times[BARE].append((opening + block(BARE, steps)) / 2)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=8, help="sets of fresh processes")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each start")
    parser.add_argument("--case", choices=["mlp", "gpt"], action="append")
    parser.add_argument(
        "--arm", choices=list(LOOPS | ENGINES), action="append", help="with the bare loop; default: all"
    )
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu: CPU time, for a machine with other work"
    )
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [name for name in LOOPS | ENGINES if name == BARE or given.arm is None or name in given.arm]
    if given.start is not None:
        print(json.dumps(one_start(given.case[0], given.rounds, given.clock, names, given.start)))
        return
    for case_name in given.case or ["gpt", "mlp"]:
        times = measure(case_name, given.starts, given.rounds, given.clock, names)
        print(table(case_name, times, given.clock), flush=True)
        if ENGINE in times:
            print(answers(case_name, times), flush=True)


if __name__ == "__main__":
    main()

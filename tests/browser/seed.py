"""A history for looking at pages: experiments whose runs are written as a worker writes them, from made-up figures.

    python tests/browser/seed.py DATA_DIR        (an empty folder; prints a sign-in URL path)

The figures are shaped like real trainings (a spike, overflows, a NaN, a hostile and a very long name among them), and
serve screenshots, layout tests and load measurements only.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sqlalchemy import select, update

from amp_core import events
from server.access import Principal
from server.accounts import service as accounts
from server.comparisons.service import judge_ended
from server.db.engine import Database
from server.db.tables import Attempt, Experiment, Run, Worker, Workload
from server.db.upgrade import open_database
from server.experiments import service
from server.experiments.schemas import ExperimentIn
from server.metrics.write import store_frames, store_log
from server.queue.claim import ClaimedRun, claim
from server.queue.finish import finish
from server.settings import Settings

LAYERS = ("in_features", "hidden.0", "hidden.1", "out_features")
WORKLOADS: dict[str, dict[str, Any]] = {
    "photo-denoiser": {
        "title": "Photo denoiser",
        "summary": "Removes noise from photographs taken at a tenth of the light. A constructed small-loss training.",
        "steps": 150,
        "recipes": ["32-true", "bf16-mixed", "16-mixed", {"precision": "16-mixed", "scaler": "none"}],
        "primary": {"name": "psnr", "higher_is_better": True, "margin": 0.25, "relative": False, "unit": "dB"},
        "parameters": [
            {"name": "width", "type": "int", "default": 512, "min": 16, "max": 4096, "help": "hidden units"},
            {"name": "noise", "type": "float", "default": 0.15, "min": 0.0, "max": 1.0, "help": "sd of the noise"},
            {"name": "activation", "type": "str", "default": "gelu", "choices": ["gelu", "relu"], "help": ""},
        ],
    },
    "digits-cnn": {
        "title": "Handwritten digits",
        "summary": "A small convolutional network on scikit-learn's handwritten digits.",
        "steps": 200,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "accuracy", "higher_is_better": True, "margin": 0.005, "relative": False, "unit": ""},
        "parameters": [{"name": "lr", "type": "float", "default": 0.001, "min": 1e-6, "max": 1.0, "help": "step size"}],
    },
    "stdlib-gpt": {
        "title": "Python source GPT",
        "summary": "A small byte-level GPT on the source text of Python's standard library.",
        "steps": 1200,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "loss", "higher_is_better": False, "margin": 0.01, "relative": True, "unit": ""},
        "parameters": [{"name": "layers", "type": "int", "default": 4, "min": 1, "max": 24, "help": "blocks"}],
    },
}
BROKEN = "SyntaxError: expected ':' (my_transformer.py, line 12)\n    def model(self) -> nn.Module"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the made-up training of one recipe goes."""

    start: float
    end: float
    metric_end: float
    spike_at: int | None = None
    nan_at: int | None = None
    skips: tuple[int, ...] = ()
    dead: bool = False
    emulated: bool = False
    speed: float = 900.0


def column(name: str, steps: np.ndarray, values: np.ndarray, start: float) -> events.Column:
    times = start + steps * 0.02
    return events.Column(
        name=name,
        steps=steps.astype("<i8").tobytes(),
        values=values.astype("<f8").tobytes(),
        times=times.astype("<f8").tobytes(),
    )


def training(run: ClaimedRun, shape: Shape, metric: str, until: int, start: float) -> Iterator[events.AnyEvent]:
    """The events of one run up to step ``until``."""
    rng = np.random.default_rng(run.seed * 1009 + len(run.recipe["name"]))
    steps = np.arange(1, run.steps + 1)
    fall = np.exp(-4.5 * steps / run.steps)
    loss = shape.end + (shape.start - shape.end) * (1.0 if shape.dead else fall)
    loss = loss * np.exp(rng.normal(0, 0.035, run.steps)) * (1 + 0.01 * math.sin(run.seed))
    if shape.spike_at:
        loss[shape.spike_at] *= 60
    if shape.nan_at:
        loss[shape.nan_at :] = np.nan
        loss[shape.nan_at] = np.inf
    yield events.Started(
        numerics="emulated" if shape.emulated else "native",
        environment={
            "torch": "2.13.0+cpu",
            "python": "3.11.9",
            "platform": "Linux x86_64",
            "device": "cpu",
            "device_name": "AMD EPYC 9R14",
            "num_threads": 2,
            "cpu_abilities": ["avx512f", "avx512_bf16"],
            "flags": {"tf32": False, "deterministic": True},
        },
        num_parameters=722624,
        setup_s=0.41,
    )
    scale = 65536.0
    every = max(run.steps // 10, 1)
    for first in range(0, until, 25):
        part = steps[first : min(first + 25, until)]
        index = part - 1
        scales = []
        for step in part:
            if int(step) in shape.skips:
                yield events.StepSkipped(step=int(step), scale_before=scale, scale_after=scale / 2)
                scale /= 2
            scales.append(scale)
        columns = [
            column("train/loss", part, loss[index], start),
            column("grad/norm", part, loss[index] * (0.0 if shape.dead else 3.1), start),
            column("perf/samples_per_s", part, rng.normal(shape.speed, shape.speed * 0.02, len(part)), start),
            column("memory/process_bytes", part, 4.1e8 + 2e5 * part, start),
            column("grad/underflow_fraction", part[:1], np.array([0.99 if shape.dead else 0.004]), start),
        ]
        if run.recipe["precision"] == "16-mixed" and run.recipe["scaler"]["kind"] != "none":
            skipped = np.isin(part, shape.skips).astype(float)
            columns += [
                column("amp/loss_scale", part, np.array(scales), start),
                column("amp/skipped", part, skipped, start),
            ]
        evaluated = [int(step) for step in part if step % every == 0]
        for step in evaluated:
            value = shape.metric_end * (1 - (0.0 if shape.dead else 0.25) * math.exp(-5 * step / run.steps))
            value += rng.normal(0, abs(shape.metric_end) * 0.0012)
            columns.append(column(f"eval/{metric}", np.array([step]), np.array([value]), start))
            yield events.Evaluated(step=step, metrics={metric: value}, num_samples=450, final=step == run.steps)
        yield events.Segment(columns=columns)
        if shape.nan_at and shape.nan_at in index:
            yield events.NonFinite(step=shape.nan_at + 1, where="loss", name="train/loss", value="inf")
        yield numerics(int(part[-1]), scale, shape, rng)
        final = value if evaluated else 0.0
    if shape.dead:
        zeros = dict.fromkeys(LAYERS[1:3], 0.998)
        probe = dict.fromkeys(LAYERS[1:3], 0.003)
        yield events.ZeroGradients(step=1, zero_fraction=zeros, probe_scale=65536.0, probe=probe)
    if until == run.steps:
        yield events.Finished(
            metrics={metric: final},
            steps=run.steps,
            skipped_steps=len(shape.skips),
            samples=run.steps * 1024,
            lost_samples=len(shape.skips) * 1024,
            train_s=run.steps * 0.02,
            warmup_s=0.4,
        )


def numerics(step: int, scale: float, shape: Shape, rng: np.random.Generator) -> events.Numerics:
    modules = [
        events.ModuleStatistics(
            module=layer,
            num_elements=262656,
            zero_fraction=0.998 if shape.dead and layer in LAYERS[1:3] else float(rng.uniform(0, 0.01)),
            underflow_fraction=0.994 if shape.dead and layer in LAYERS[1:3] else float(rng.uniform(0, 0.004)),
            max_abs=float(rng.uniform(1e-4, 2e-2)),
        )
        for layer in LAYERS
    ]
    return events.Numerics(step=step, loss_scale=scale, modules=modules)


def benchmark(run: ClaimedRun, ratio: float) -> Iterator[events.AnyEvent]:
    """Alternating blocks and the memory of both arms."""
    rng = np.random.default_rng(run.run_id)
    yield events.Started(numerics="native", environment={"device": "cpu"}, num_parameters=722624, setup_s=0.5)
    for block in range(20):
        for mode in ("compute", "loader"):
            for arm in ("baseline", "candidate") if block % 2 == 0 else ("candidate", "baseline"):
                seconds = 0.25 * float(rng.normal(1, 0.02)) / (ratio if arm == "candidate" else 1)
                yield events.BenchmarkBlock(block=block, mode=mode, arm=arm, steps=14, samples=14336, seconds=seconds)
    for arm, saved in (("baseline", 21_000_000), ("candidate", 14_200_000)):
        yield events.BenchmarkMemory(
            arm=arm, process_growth_bytes=saved * 4, device_peak_bytes=0, saved_for_backward_bytes=saved
        )
    yield events.Finished(metrics={}, steps=280, skipped_steps=0, samples=1, lost_samples=0, train_s=11.0, warmup_s=1.0)


def picture(sharpness: float, seed: int) -> bytes:
    """A scene that gets clearer with ``sharpness`` between 0 and 1."""
    y, x = np.mgrid[0:240, 0:320]
    scene = np.stack([np.sin(x / 23) + np.cos(y / 31), np.sin((x + y) / 40), np.cos(x / 17)], axis=-1) * 60 + 128
    noise = np.random.default_rng(seed).normal(0, 70 * (1 - sharpness), scene.shape)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(scene + noise, 0, 255).astype("uint8")).save(buffer, "PNG")
    return buffer.getvalue()


class History:
    """Writes experiments and runs into a database through the product's own services."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sequence = 10_000
        self.database: Database = open_database(settings)
        now = datetime.now(UTC)
        with self.database.write() as session:
            self.link = accounts.first_sign_in_link(session)
            user = accounts.find_user(session, accounts.FIRST_ADMIN)
            self.principal = Principal(user_id=user.id, name=user.name, role="admin", via="session")
            for name, description in WORKLOADS.items():
                session.add(_workload(name, now, description=description))
            session.add(_workload("my-transformer", now, error=BROKEN))
            worker = Worker(
                name="gpu-rack-07.lab@worker",
                host="gpu-rack-07.lab",
                pid=4242,
                version="0.1.0",
                slots=1,
                devices=[{"kind": "cpu", "name": "AMD EPYC 9R14", "cores": 16, "abilities": ["avx512_bf16"]}],
                state="online",
                started_at=now - timedelta(hours=5),
                heartbeat_at=now + timedelta(days=30),
            )
            session.add(worker)
            session.flush()
            self.worker_id = worker.id

    def submit(self, **body: Any) -> int:
        with self.database.write() as session:
            experiment, _ = service.submit(session, self.settings, ExperimentIn.model_validate(body), self.principal)
            return experiment.id

    def work(
        self, shapes: dict[str, Shape], metric: str, num_runs: int | None = None, until: int | None = None
    ) -> None:
        """Take queued runs and write them; the last one only up to step ``until`` when that is given."""
        done = 0
        while num_runs is None or done < num_runs:
            with self.database.write() as session:
                run = claim(session, self.worker_id, {"cpu"}, lease_s=30 * 86400)
            if run is None:
                return
            done += 1
            last = until is not None and done == num_runs
            self._write(run, shapes, metric, until if last else None)

    def _write(self, run: ClaimedRun, shapes: dict[str, Shape], metric: str, until: int | None) -> None:
        start = time.time() - 60
        shape = shapes[run.recipe["name"]]
        told = (
            benchmark(run, 1.62) if run.kind == "benchmark" else training(run, shape, metric, until or run.steps, start)
        )
        frames = [events.Frame(sequence=at, at=start + at * 0.1, event=event) for at, event in enumerate(told, 1)]
        if run.kind == "train" and until is None and metric == "psnr":
            extra = {"clean": (1.0, 1), "noisy": (0.0, 2), "denoised": (0.1 if shape.dead else 0.9, 3 + run.run_id)}
            frames += [
                events.Frame(
                    sequence=len(frames) + at,
                    at=start,
                    event=events.Artifact(name=name, media_type="image/png", content=picture(*made), step=run.steps),
                )
                for at, (name, made) in enumerate(extra.items(), 1)
            ]
        with self.database.write() as session:
            store_frames(session, run.run_id, run.attempt, frames)
            log = "".join(f"step {step:5d}  loss {shape.end + 1 / step:.5f}\n" for step in range(1, run.steps + 1, 5))
            store_log(session, run.run_id, run.attempt, 0, log)
            took = timedelta(seconds=run.steps * 0.03)
            begun = datetime.now(UTC) - took
            session.execute(update(Run).where(Run.id == run.run_id).values(started_at=begun))
            session.execute(update(Attempt).where(Attempt.run_id == run.run_id).values(started_at=begun))
            if until is None and run.seed == 4 and shape.nan_at:
                reason = {
                    "kind": "exception",
                    "message": "RuntimeError: the data loader met a closed file",
                    "traceback": BROKEN,
                }
                finish(session, run.run_id, run.attempt, "failed", reason, exit_code=1)
            elif until is None:
                finish(session, run.run_id, run.attempt, "completed", None, exit_code=0)

    def add_point(self, name: str, value: float) -> None:
        """One more point of the run that is still running, as its worker would store it."""
        with self.database.write() as session:
            run = session.scalars(select(Run).where(Run.state == "running").order_by(Run.id)).first()
            assert run is not None, "a run is running"
            self.sequence += 1
            points = column(name, np.array([run.step + 1]), np.array([value]), time.time())
            frame = events.Frame(sequence=self.sequence, at=time.time(), event=events.Segment(columns=[points]))
            store_frames(session, run.id, run.attempt, [frame])

    def age(self, experiment_id: int, **span: float) -> None:
        """Move an experiment into the past."""
        with self.database.write() as session:
            then = datetime.now(UTC) - timedelta(**span)
            session.execute(
                update(Experiment).where(Experiment.id == experiment_id).values(created_at=then, ended_at=then)
            )


def _workload(
    name: str, now: datetime, description: dict[str, Any] | None = None, error: str | None = None
) -> Workload:
    return Workload(
        name=name,
        source_hash=f"{abs(hash(name)):016x}" * 4,
        path=f"/srv/workloads/{name.replace('-', '_')}.py",
        description=description or {},
        error=error,
        first_seen_at=now,
        seen_at=now,
    )


def write_history(settings: Settings) -> History:
    """The whole history; the last experiments are still running and queued."""
    history = History(settings)
    fp16 = "16-mixed, no scaler"
    digits = {
        "32-true": Shape(start=2.3, end=0.06, metric_end=0.981),
        "bf16-mixed": Shape(start=2.3, end=0.061, metric_end=0.9805, speed=1400),
        "16-mixed": Shape(start=2.3, end=0.06, metric_end=0.9808, skips=(1, 2, 40), emulated=True),
    }
    spiky = {name: Shape(start=3.0, end=1.2, metric_end=1.31, spike_at=90) for name in digits}
    spiky["16-mixed"] = Shape(
        start=3.0, end=1.2, metric_end=1.36, nan_at=700, emulated=True, skips=tuple(range(500, 560))
    )
    denoiser = {
        "32-true": Shape(start=0.004, end=0.0004, metric_end=24.2),
        "bf16-mixed": Shape(start=0.004, end=0.00041, metric_end=24.17, speed=1610),
        "16-mixed": Shape(start=0.004, end=0.0004, metric_end=24.21, skips=(1,), emulated=True),
        fp16: Shape(start=0.004, end=0.004, metric_end=17.8, dead=True, emulated=True),
    }
    first = history.submit(workload="digits-cnn", name="Digits: is bf16 as good?", tags=["baseline"], seeds=5)
    history.work(digits, "accuracy")
    hostile = "<script>alert('x')</script> & \"quotes\" " + "a-very-long-name-" * 9
    second = history.submit(workload="stdlib-gpt", name=hostile[:200], seeds=5, steps=1200)
    history.work(spiky, "loss")
    third = history.submit(workload="photo-denoiser", name="Photo denoiser at a tenth of the light", seeds=5)
    history.work(denoiser, "psnr")
    judge_ended(history.database)
    for experiment, hours in ((first, 50), (second, 26), (third, 0.2)):
        history.age(experiment, hours=hours)
    history.submit(workload="digits-cnn", name="Digits with a larger step", params={"lr": 0.003}, seeds=3)
    history.work(digits, "accuracy", num_runs=6, until=120)
    history.submit(workload="stdlib-gpt", name="GPT, six layers", params={"layers": 6}, seeds=3, priority=-1)
    return history


if __name__ == "__main__":
    data_dir = Path(sys.argv[1])
    data_dir.mkdir(parents=True, exist_ok=True)
    made = write_history(Settings(data_dir=data_dir))
    made.database.dispose()
    sys.stdout.write(accounts.sign_in_url("", made.link) + "\n")

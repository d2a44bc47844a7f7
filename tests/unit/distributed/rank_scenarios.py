"""What is run both by two ranks and by one process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from amp_core.config import Distribution, Fork, RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Evaluated, Event, Finished, Segment, Started, StepSkipped

FILE = Path(__file__).with_name("rank_workloads.py")
FP16 = {"precision": "16-mixed", "fp16_compute": "native"}

SCENARIOS: dict[str, dict[str, Any]] = {
    "ddp fp32": {"recipe": "32-true"},
    "ddp bf16": {"recipe": "bf16-mixed"},
    "ddp fp16": {"recipe": FP16},
    "ddp fp16 emulated": {"recipe": "16-mixed"},
    "ddp bf16-true": {"recipe": "bf16-true"},
    "ddp step": {"recipe": {"precision": "32-true", "accumulate": 3, "clip_norm": 0.3, "ema_decay": 0.9}},
    "ddp uneven": {"recipe": "32-true", "params": {"rows": 13}},
    "ddp reduced in bf16": {"recipe": {"precision": "32-true", "reduce_dtype": "bf16"}},
    "ddp reduced in fp16": {"recipe": {**FP16, "reduce_dtype": "fp16", "scaler": {"init_scale": 256.0}}},
    "ddp overflow": {"recipe": FP16, "workload": "one-rank-overflows"},
    "ddp overflow emulated": {"recipe": "16-mixed", "workload": "one-rank-overflows"},
    "ddp hysteresis": {"recipe": {**FP16, "scaler": {"hysteresis": 2}}, "workload": "one-rank-overflows"},
    "fsdp fp32": {"recipe": "32-true", "strategy": "fsdp"},
    "fsdp bf16": {"recipe": "bf16-mixed", "strategy": "fsdp"},
    "fsdp fp16": {"recipe": FP16, "strategy": "fsdp"},
    "fsdp step": {"recipe": {"precision": "32-true", "accumulate": 3, "clip_norm": 0.3}, "strategy": "fsdp"},
    "fsdp reduced in bf16": {"recipe": {"precision": "32-true", "reduce_dtype": "bf16"}, "strategy": "fsdp"},
    "fsdp overflow": {"recipe": FP16, "workload": "one-rank-overflows", "strategy": "fsdp"},
    "ddp resumed": {"recipe": FP16, "workload": "dropped", "resumes": True},
    "fsdp resumed": {"recipe": FP16, "workload": "dropped", "strategy": "fsdp", "resumes": True},
    "fsdp adam resumed": {"recipe": "bf16-mixed", "workload": "two-adams", "strategy": "fsdp", "resumes": True},
    "ddp forked": {"recipe": "32-true", "workload": "dropped", "forks": True},
    "fsdp forked": {"recipe": "32-true", "workload": "two-adams", "strategy": "fsdp", "forks": True},
}  # fmt: skip
STEPS, FORKED_AT = 14, 6


def config_of(
    *,
    recipe: Any,
    ranks: int,
    folder: Path,
    workload: str = "blocks",
    strategy: str = "ddp",
    params: dict[str, Any] | None = None,
    resumes: bool = False,
    resume_from: tuple[str, ...] = (),
    forks: bool = False,
    fork_of: str | None = None,
    **fields: Any,
) -> RunConfig:
    given: dict[str, Any] = {"seed": 4, "steps": STEPS, **fields}
    if forks:
        given["keep_steps"] = (FORKED_AT,)
    if fork_of is not None:
        made_by = {"run": 1, "step": FORKED_AT, "seed": 4, "steps": STEPS}
        given |= {"fork": Fork(name=Path(fork_of).name, path=fork_of, **made_by), "keep_steps": ()}
        given["steps"] = STEPS - FORKED_AT
    return RunConfig(
        run_id=1,
        attempt=1,
        workload=WorkloadRef(name=workload, path=str(FILE), params=params or {}),
        recipe=parse_recipe(recipe),
        eval_every=5,
        numerics_every=4,
        num_threads=1,
        ranks=ranks,
        distribution=Distribution(strategy=strategy),  # type: ignore[arg-type]
        checkpoint_dir=str(folder) if resumes or forks else None,
        checkpoint_every_steps=6 if resumes and not resume_from else 0,
        resume_from=resume_from,
        **given,
    )


def told(events: Iterable[Event]) -> dict[str, Any]:
    """What a test compares of a run's events."""
    series: dict[str, list[float]] = {}
    facts: dict[str, Any] = {"skipped": []}
    for event in events:
        if isinstance(event, Segment):
            for column in event.columns:
                series.setdefault(column.name, []).extend(np.frombuffer(column.values, "<f8").tolist())
        elif isinstance(event, StepSkipped):
            facts["skipped"].append([event.step, event.scale_before, event.scale_after])
        elif isinstance(event, Finished):
            facts["finished"] = {"metrics": event.metrics, "steps": event.steps, "samples": event.samples}
        elif isinstance(event, Evaluated):
            facts.setdefault("evaluated", []).append(event.num_samples)
        elif isinstance(event, Started):
            facts["resumed_step"], facts["not_resumed"] = event.resumed_step, event.not_resumed
            facts["ranks"] = event.environment.get("ranks")
            facts["num_parameters"] = event.num_parameters
    return {"series": series, **facts}

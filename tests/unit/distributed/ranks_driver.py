"""Runs every scenario on the ranks torchrun started, in one process group; rank r writes what it saw to OUT/r.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_scenarios import SCENARIOS, config_of, told

from amp_core.distributed.group import Ranks
from amp_core.distributed.training import train_rank
from amp_core.loader import load


def main(out: Path) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.join(torch.device("cpu"))
    seen: dict[str, Any] = {}
    for name, fields in SCENARIOS.items():
        config = config_of(**fields, ranks=ranks.size, folder=out / name)
        if fields.get("resumes") or fields.get("forks"):
            first = list(train_rank(config, load(config.workload), ranks, bool, bool))
            path = [str(event.path) for event in first if type(event).__name__ == "Checkpointed"][-1]
            shared: list[Any] = [path]
            dist.broadcast_object_list(shared)
            there = {"resume_from": (shared[0],)} if fields.get("resumes") else {"fork_of": shared[0]}
            again = {**fields, **there, "ranks": ranks.size, "folder": out / f"{name}-again"}
            config = config_of(**again)
            seen[f"{name}, undisturbed"] = told(first)
            if fields.get("forks"):
                for title, change in (("another seed", {"seed": 5}), ("control", {"init_perturbation": 1e-6})):
                    other = config_of(**again, **change)
                    seen[f"{name}, {title}"] = told(train_rank(other, load(other.workload), ranks, bool, bool))
        seen[name] = told(train_rank(config, load(config.workload), ranks, bool, bool))
    (out / f"{ranks.rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A run on two ranks as a child process: one record, one end, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests_child import Watched, is_alive, wait_until

from amp_core.checkpoints import load
from amp_core.config import Distribution, WorkloadRef, parse_recipe
from amp_core.events import Checkpointed, Evaluated, Failed, Finished, Started
from worker.limits import group_rss_bytes

Watch = Callable[..., Watched]
WORKLOADS = Path(__file__).parents[1] / "distributed" / "rank_workloads.py"


@pytest.fixture
def ranks(watch: Watch) -> Callable[..., Watched]:
    """``ranks(name)`` launches a workload on two ranks."""

    def launch(name: str, **fields: object) -> Watched:
        given = {"ranks": 2, "num_threads": 2, **fields}
        return watch(name, workload=WorkloadRef(name=name, path=str(WORKLOADS)), **given)

    return launch


def test_two_ranks_make_one_record(ranks: Callable[..., Watched], tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ended = ranks(
        "blocks", recipe=parse_recipe("bf16-mixed"), checkpoint_dir=str(folder), checkpoint_every_steps=5
    ).end()
    assert ended.exit_code == 0, ended.log
    assert [frame.sequence for frame in ended.frames] == list(range(1, len(ended.frames) + 1))
    (started,) = ended.all(Started)
    assert started.environment["ranks"] == {"size": 2, "hosts": 1, "strategy": "ddp", "reduce_dtype": "fp32"}
    assert len(ended.trace()) == 12
    assert isinstance(ended.frames[-1].event, Finished)
    assert ended.frames[-1].event.samples == 12 * 16
    assert [event.final for event in ended.all(Evaluated)][-1]
    assert [event.step for event in ended.all(Checkpointed)] == [5, 10]
    assert len(list(folder.iterdir())) == 2


def test_shards_are_killed_and_go_on(ranks: Callable[..., Watched], tmp_path: Path) -> None:
    """One file that holds the whole model, written by rank 0; the killed run's losses go on bitwise."""
    sharded = {"distribution": Distribution(strategy="fsdp"), "steps": 14}
    calm = ranks("blocks", **sharded).end()
    folder = tmp_path / "kept"
    writing = {**sharded, "checkpoint_dir": str(folder), "checkpoint_every_steps": 5}
    broken = ranks("blocks", **writing, flush_interval_s=0.0)
    wait_until(lambda: len(broken.all(Checkpointed)) >= 1, 90)
    broken.child.kill()
    path = Path(broken.all(Checkpointed)[-1].path)
    step = int(path.name[5:15])
    state = load(path)
    assert state["model"]["blocks.0.1.weight"].shape == (24, 8)
    assert state["optimizers"][0]["state"][0]["momentum_buffer"].shape == (8,)
    resumed = ranks("blocks", **writing, attempt=2, resume_from=(str(path),)).end()
    assert resumed.exit_code == 0, resumed.log
    assert resumed.all(Started)[0].resumed_step == step
    assert resumed.trace() == calm.trace()[step:]
    assert resumed.all(Finished)[0].metrics == calm.all(Finished)[0].metrics


def test_the_rank_that_failed_is_named(ranks: Callable[..., Watched]) -> None:
    ended = ranks("fails").end()
    assert ended.exit_code == 1
    assert ended.failed.message == "Rank 1: ValueError: this rank has had enough"
    assert "in loss" in ended.failed.traceback


def test_cancel_ends_all_ranks(ranks: Callable[..., Watched]) -> None:
    running = ranks("slow", steps=100_000, flush_interval_s=0.0)
    wait_until(lambda: len(running.trace()) >= 3, 90)
    started = [process.pid for process in psutil.Process(running.child.pid).children(recursive=True)]
    assert len(started) >= 3, "torchrun and two ranks"
    assert group_rss_bytes(running.child.pid) > sum(psutil.Process(pid).memory_info().rss for pid in started) // 2
    running.child.cancel()
    ended = running.end(60)
    assert ended.failed.kind == "interrupted"
    assert len(ended.all(Failed)) == 1
    wait_until(lambda: not any(map(is_alive, started)), 20)


def test_killed_children_leave_no_ranks(ranks: Callable[..., Watched]) -> None:
    running = ranks("slow", steps=100_000, flush_interval_s=0.0)
    wait_until(lambda: len(running.trace()) >= 1, 90)
    started = [process.pid for process in psutil.Process(running.child.pid).children(recursive=True)]
    running.child.kill()
    wait_until(lambda: not any(map(is_alive, started)), 20)


def test_what_shards_cannot_do_is_told(ranks: Callable[..., Watched]) -> None:
    ended = ranks("blocks", distribution=Distribution(strategy="fsdp"), recipe=parse_recipe("bf16-true")).end()
    assert ended.failed.kind == "recipe"
    assert "strategy='fsdp'" in ended.failed.message


def test_a_rank_listens_to_its_parent_before_torch_is_there() -> None:
    """While torch is imported, for seconds on a busy host, a rank whose run's process is killed must die, too."""
    code = "import sys, amp_core.distributed.rank, amp_core.script.surroundings; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"

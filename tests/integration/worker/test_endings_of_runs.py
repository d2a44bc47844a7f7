"""Real children that end in every way a run can, under one real worker: each leaves its reason in the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worker_site import TINY, Site, misbehaving, wait_for

from server.queue.cancel import cancel_run

WORKLOADS = {
    "raises": misbehaving("Raises", "if self.calls == 5:\n    raise ValueError('the fifth batch is bad')"),
    "exits": misbehaving("Exits", "if self.calls == 5:\n    import sys\n    sys.exit(3)"),
    "vanishes": misbehaving("Vanishes", "if self.calls == 5:\n    import os\n    os._exit(4)"),
    "segfaults": misbehaving("Segfaults", "if self.calls == 5:\n    import ctypes\n    ctypes.string_at(0)"),
    "loops": misbehaving("Loops", "while self.calls == 5:\n    pass"),
    "hoards": misbehaving("Hoards", "self.hoard = getattr(self, 'hoard', []) + [b'x' * 100_000_000]"),
    "deaf": misbehaving(
        "Deaf",
        "import time\nwhile self.calls == 5:\n"
        "    try:\n        time.sleep(60)\n    except BaseException:\n        pass",
    ),
    "chatty": misbehaving("Chatty", "print(f'step {self.calls}: naïve ∞', flush=True)"),
    "parent": misbehaving(
        "Parent",
        "if self.calls == 5:\n    import subprocess, sys\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as site:
        site.add_workload(TINY, "tiny")
        for stem, source in WORKLOADS.items():
            site.add_workload(source, stem)
        site.start_worker()
        yield site


def fails(site: Site, workload: str, **config: float) -> dict[str, str]:
    (run_id,) = site.submit(workload, steps=200, **config)
    run = site.await_end(run_id)
    assert run.state == "failed"
    assert run.attempt == 1, "a failure of the workload itself is not tried again"
    assert site.experiment(run_id).state == "ended"
    assert site.attempts(run_id)[0].outcome == "failed"
    reason = run.reason
    assert reason is not None
    assert reason["remedy"]
    return reason


def test_a_healthy_run_completes_with_all_its_points(site: Site) -> None:
    (run_id,) = site.submit("tiny", steps=120)
    run = site.await_end(run_id)
    assert (run.state, run.reason, run.step) == ("completed", None, 120)
    steps, values = site.series(run_id)
    assert steps == list(range(1, 121))
    assert values[-1] < values[0]
    assert run.result is not None
    assert run.environment is not None
    (attempt,) = site.attempts(run_id)
    assert (attempt.outcome, attempt.exit_code, attempt.worker_name) == ("completed", 0, "one")


def test_an_exception_leaves_its_traceback(site: Site) -> None:
    reason = fails(site, "raises")
    assert reason["kind"] == "exception"
    assert "the fifth batch is bad" in reason["message"]
    assert "raises.py" in reason["traceback"]


def test_sys_exit_is_told_as_such(site: Site) -> None:
    reason = fails(site, "exits")
    assert reason["kind"] == "exit"
    assert "3" in reason["message"]


def test_a_process_that_just_ends_is_noticed(site: Site) -> None:
    reason = fails(site, "vanishes")
    assert reason["kind"] == "exit"
    assert "exit code 4" in reason["message"]


def test_a_segfault_names_the_signal(site: Site) -> None:
    reason = fails(site, "segfaults")
    assert reason["kind"] == "signal"
    assert "SIGSEGV" in reason["message"]


def test_an_endless_loop_ends_at_the_time_limit(site: Site) -> None:
    reason = fails(site, "loops", max_time_s=6)
    assert reason["kind"] == "time_limit"
    assert "limit of 6 s" in reason["message"]


def test_too_much_memory_ends_at_the_limit(site: Site) -> None:
    reason = fails(site, "hoards", max_memory_bytes=1_500_000_000)
    assert reason["kind"] == "out_of_memory"
    assert "1.4 GiB" in reason["message"]


def test_output_becomes_the_log(site: Site) -> None:
    (run_id,) = site.submit("chatty", steps=20)
    site.await_end(run_id)
    assert [line for line in site.log(run_id).splitlines() if line.startswith("step ")] == [
        f"step {number}: naïve ∞" for number in range(1, 21)
    ]


def test_a_grandchild_does_not_keep_the_run_open(site: Site) -> None:
    (run_id,) = site.submit("parent", steps=30)
    run = site.await_end(run_id)
    assert run.state == "completed"
    assert run.ended_at is not None
    assert run.started_at is not None
    assert (run.ended_at - run.started_at).total_seconds() < 30


def test_cancelling_a_running_run_stops_it_soon(site: Site) -> None:
    (run_id,) = site.submit("tiny", steps=5000)
    site.await_step(run_id, 20)
    with site.database.write() as session:
        assert cancel_run(session, run_id, "ann") == "running"
    run = site.await_end(run_id, 8)
    assert run.state == "cancelled"
    assert run.reason is not None
    assert run.reason["message"].startswith("Cancelled by ann.")
    assert len(site.series(run_id)[0]) == run.step


def test_a_run_that_does_not_listen_is_killed_after_the_grace(site: Site) -> None:
    (run_id,) = site.submit("deaf", steps=100)
    wait_for(lambda: site.run(run_id).environment, "the run does not start", 30, site.logs)
    with site.database.write() as session:
        cancel_run(session, run_id, "ann")
    run = site.await_end(run_id, 25)
    assert run.state == "cancelled"
    assert run.reason is not None
    assert "did not stop when asked" in run.reason["message"]


def test_a_file_changed_after_submission_is_not_run(site: Site) -> None:
    (blocker,) = site.submit("tiny", steps=5000)
    site.add_workload(TINY.replace("class Tiny", "class Edited"), "edited")
    (run_id,) = site.submit("edited")
    site.add_workload(TINY.replace("class Tiny", "class Edited").replace("16", "17"), "edited")
    with site.database.write() as session:
        cancel_run(session, blocker)
    run = site.await_end(run_id)
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "workload"
    assert "has changed since this run was submitted" in run.reason["message"]

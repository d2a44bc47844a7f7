"""Streams over a real connection: nothing missing, nothing twice, quick, and many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
from histories import add_experiment, add_run, change_run, finished, frame, segment, started
from live_server import LiveServer, Message

from amp_core import events
from server.db.engine import Database
from server.db.tables import Experiment
from server.metrics.polls import polls_of
from server.metrics.write import store_frames, store_log


@pytest.fixture
def server(database: Database, tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(database, tmp_path)
    server.start()
    yield server
    server.stop()


def store(database: Database, run_id: int, *frames: events.Frame, attempt: int = 1) -> None:
    with database.write() as session:
        store_frames(session, run_id, attempt, frames)


def log(database: Database, run_id: int, position: int, text: str, attempt: int = 1) -> None:
    with database.write() as session:
        store_log(session, run_id, attempt, position, text)


def point(sequence: int, value: float = 0.5) -> events.Frame:
    return segment(sequence, {"train/loss": ([sequence], [value])})


def skip(sequence: int) -> events.Frame:
    return frame(sequence, events.StepSkipped(step=sequence, scale_before=2.0, scale_after=1.0))


def end_experiment(database: Database, experiment_id: int) -> None:
    with database.write() as session:
        experiment = session.get_one(Experiment, experiment_id)
        experiment.state, experiment.judged_at = "ended", datetime.now(UTC)


def whole(server: LiveServer, path: str, last_event_id: str | None = None) -> list[Message]:
    with server.stream(path, last_event_id) as stream:
        return list(stream)


def told(received: list[Message]) -> list[Any]:
    """What was told, without the states, which say the present only."""
    return [(message.event, message.data) for message in received if message.event not in ("run", "experiment")]


def write_history(database: Database) -> int:
    """A run whose first attempt was lost and whose second finished."""
    run_id = add_run(database)
    store(database, run_id, started(1), point(2), skip(3), point(4))
    log(database, run_id, 0, "first attempt\n")
    change_run(database, run_id, attempt=2)
    store(database, run_id, started(1), *(point(n) for n in range(2, 6)), skip(6), finished(7, loss=0.1), attempt=2)
    log(database, run_id, 0, "second attempt: é ✓\n", attempt=2)
    log(database, run_id, 20, "done\n", attempt=2)
    change_run(database, run_id, state="completed", ended_at=datetime.now(UTC))
    return run_id


def test_a_finished_run_is_told_in_order_and_ends(server: LiveServer, database: Database) -> None:
    received = whole(server, f"/api/v1/runs/{write_history(database)}/stream")
    order = [(m.data["attempt"], m.data["sequence"]) for m in received if m.event in ("segment", "event")]
    assert order == [(1, n) for n in range(1, 5)] + [(2, n) for n in range(1, 8)]
    assert [m.data["text"] for m in received if m.event == "log"] == ["first attempt\n", "second attempt: é ✓\ndone\n"]
    assert [m.event for m in received[-2:]] == ["run", "end"]
    state = received[-2].data
    assert (state["state"], state["attempt"], state["step"]) == ("completed", 2, 6)
    assert received[1].data["series"] == {"train/loss": {"steps": [2], "values": [0.5], "times": [2.0]}}


def test_resuming_at_every_message_leaves_no_gap_and_no_duplicate(server: LiveServer, database: Database) -> None:
    path = f"/api/v1/runs/{write_history(database)}/stream"
    everything = whole(server, path)
    for place, message in enumerate(everything[:-1]):
        assert told(whole(server, path, message.id)) == told(everything[place + 1 :]), message.id
    by_parameter = whole(server, f"{path}?last_event_id={everything[3].id}")
    assert told(by_parameter) == told(everything[4:])
    by_header = whole(server, f"{path}?last_event_id={everything[0].id}", everything[5].id)
    assert told(by_header) == told(everything[6:])


def test_points_arrive_live_within_a_second_and_broken_connections_resume(
    server: LiveServer, database: Database
) -> None:
    run_id = add_run(database)
    path = f"/api/v1/runs/{run_id}/stream"
    stored_at: dict[int, float] = {}

    def write() -> None:
        for sequence in range(1, 41):
            store(database, run_id, point(sequence))
            stored_at[sequence] = time.monotonic()
            time.sleep(0.05)
        change_run(database, run_id, state="completed")

    writer = threading.Thread(target=write)
    writer.start()
    received: list[Message] = []
    last_id: str | None = None
    while not received or received[-1].event != "end":
        with server.stream(path, last_id) as stream:
            for count, message in enumerate(stream):
                received.append(message)
                last_id = message.id
                if count == 6 and message.event != "end":
                    break  # the connection breaks; what had been sent but not read is lost
    writer.join()
    segments = [message for message in received if message.event == "segment"]
    assert [message.data["sequence"] for message in segments] == list(range(1, 41))
    delays = [message.at - stored_at[message.data["sequence"]] for message in segments]
    assert max(delays) < 5.0, "generous: the machine may be busy"
    assert sorted(delays)[len(delays) // 2] < 1.0


def test_a_page_goes_on_where_its_own_data_ends(server: LiveServer, database: Database) -> None:
    run_id = add_run(database)
    store(database, run_id, started(1), point(2))
    log(database, run_id, 0, "before\n")
    with server.client() as client:
        answer = client.get(f"/api/v1/runs/{run_id}/series").json()
    store(database, run_id, point(3), skip(4))
    log(database, run_id, 7, "after\n")
    change_run(database, run_id, state="failed", reason={"kind": "crash", "message": "exit code 1"})
    received = whole(server, f"/api/v1/runs/{run_id}/stream?last_event_id={answer['cursor']}")
    assert [message.event for message in received] == ["segment", "event", "log", "run", "end"]
    assert received[0].data["sequence"] == 3
    assert received[2].data["text"] == "after\n"
    assert received[3].data["reason"]["message"] == "exit code 1"


def test_long_histories_come_in_pieces_in_order(server: LiveServer, database: Database) -> None:
    run_id = add_run(database)
    frames = [skip(n) if n % 3 == 0 or 300 < n < 1500 else point(n) for n in range(1, 2001)]
    store(database, run_id, *frames)
    log(database, run_id, 0, "x" * 300_000)
    change_run(database, run_id, state="completed")
    received = whole(server, f"/api/v1/runs/{run_id}/stream")
    sequences = [m.data["sequence"] for m in received if m.event in ("segment", "event")]
    assert sequences == list(range(1, 2001))
    assert sum(len(m.data["text"]) for m in received if m.event == "log") == 300_000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/runs/999/stream", 404),
        ("/api/v1/experiments/999/stream", 404),
        ("/api/v1/runs/{run}/stream?last_event_id=nonsense", 422),
        ("/api/v1/experiments/{experiment}/stream?last_event_id=1.2.3", 422),
        (f"/api/v1/experiments/{{experiment}}/stream?series={','.join(map(str, range(60)))}", 422),
    ],
)
def test_errors_come_before_the_stream_begins(server: LiveServer, database: Database, path: str, status: int) -> None:
    experiment_id = add_experiment(database)
    run_id = add_run(database, experiment_id)
    with server.client() as client:
        response = client.get(path.format(run=run_id, experiment=experiment_id))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


def test_strangers_get_no_stream(server: LiveServer, database: Database) -> None:
    run_id = add_run(database)
    assert httpx.get(f"{server.url}/api/v1/runs/{run_id}/stream", trust_env=False).status_code == 401


def test_an_experiment_sends_the_series_asked_for_and_ends_once_judged(server: LiveServer, database: Database) -> None:
    experiment_id = add_experiment(database)
    first, second = (add_run(database, experiment_id, seed=seed) for seed in range(2))
    store(database, first, started(1), *(point(n) for n in range(2, 10)))
    store(
        database, second, segment(1, {"train/loss": ([1], [2.0]), "eval/accuracy": ([1], [0.5]), "other": ([1], [0])})
    )
    for run_id in (first, second):
        change_run(database, run_id, state="completed")
    path = f"/api/v1/experiments/{experiment_id}/stream?series=train/loss,eval/accuracy"
    with server.stream(path) as stream:
        begun = list(takewhile(lambda message: message.event != "experiment", stream))
        assert [(m.data["run_id"], m.data["sequence"]) for m in begun] == [
            *((first, n) for n in range(2, 10)),
            (second, 1),
        ]
        assert set(begun[-1].data["series"]) == {"train/loss", "eval/accuracy"}
        end_experiment(database, experiment_id)
        rest = list(stream)
    assert [message.event for message in rest] == ["experiment", "end"]
    assert rest[0].data["state"] == "ended"
    assert rest[0].data["progress"] == {
        "total": 2, "queued": 0, "running": 0, "paused": 0, "completed": 2, "failed": 0, "cancelled": 0,
    }  # fmt: skip
    for place, message in enumerate(begun):
        assert told(whole(server, path, message.id)) == [*told(begun[place + 1 :]), ("end", {})]


def test_an_experiment_follows_a_run_through_its_attempts(server: LiveServer, database: Database) -> None:
    experiment_id = add_experiment(database)
    run_id = add_run(database, experiment_id, state="queued", attempt=0)
    path = f"/api/v1/experiments/{experiment_id}/stream?series=train/loss"
    seen: list[tuple[int, int]] = []
    with server.stream(path) as stream:
        assert next(stream).data["progress"]["queued"] == 1
        for attempt in (1, 2):
            change_run(database, run_id, state="running", attempt=attempt)
            store(database, run_id, *(point(n) for n in range(1, 4)), attempt=attempt)
            while len(seen) < 3 * attempt:
                message = next(stream)
                if message.event == "points":
                    seen.append((message.data["attempt"], message.data["sequence"]))
    assert seen == [(attempt, sequence) for attempt in (1, 2) for sequence in (1, 2, 3)]


def test_many_viewers_share_polls_and_leave_the_server_responsive(server: LiveServer, database: Database) -> None:
    """More viewers than the 40 threads that serve requests; all get everything, others are served meanwhile."""
    num_viewers, num_points = 60, 10
    experiment_id = add_experiment(database)
    run_id = add_run(database, experiment_id)
    path = f"/api/v1/runs/{run_id}/stream"
    ready = threading.Barrier(num_viewers + 1, timeout=60)

    def view() -> list[int]:
        with server.stream(path) as stream:
            assert next(stream).event == "run"
            ready.wait()
            return [message.data["sequence"] for message in stream if message.event == "segment"]

    with ThreadPoolExecutor(num_viewers) as pool:
        viewers = [pool.submit(view) for _ in range(num_viewers)]
        ready.wait()
        polls, began = polls_of(server.app).num_polls, time.monotonic()
        slowest = 0.0
        with server.client() as client:
            for sequence in range(1, num_points + 1):
                store(database, run_id, point(sequence))
                asked = time.monotonic()
                assert client.get(f"/api/v1/runs/{run_id}/series").status_code == 200
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.1)
        change_run(database, run_id, state="completed")
        received = [viewer.result(timeout=60) for viewer in viewers]
        elapsed = time.monotonic() - began
        polls = polls_of(server.app).num_polls - polls
    assert received == [list(range(1, num_points + 1))] * num_viewers
    assert slowest < 3.0, "generous: the machine may be busy"
    unshared = num_viewers * elapsed / 0.25
    assert polls < unshared / 2, f"{polls} polls in {elapsed:.1f} s"


def test_streams_end_when_the_server_stops(database: Database, tmp_path: Path) -> None:
    server = LiveServer(database, tmp_path)
    server.start()
    run_id = add_run(database)
    with server.stream(f"/api/v1/runs/{run_id}/stream") as stream:
        assert next(stream).event == "run"
        took = server.stop()
        assert list(stream) == []
    assert took < 4.0


def test_a_stream_outlives_an_outage_of_the_store(
    server: LiveServer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from server.db.errors import StoreUnavailable
    from server.metrics import stream as stream_module

    run_id = add_run(database)
    store(database, run_id, point(1))
    real, failures = stream_module.run_news, iter([True, True, False])

    def sometimes(*arguments: Any) -> Any:
        if next(failures, False):
            raise StoreUnavailable("the database server cannot be reached")
        return real(*arguments)

    monkeypatch.setattr(stream_module, "run_news", sometimes)
    with server.stream(f"/api/v1/runs/{run_id}/stream") as stream:
        assert next(stream).data["sequence"] == 1

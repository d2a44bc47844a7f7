"""A run over two hosts, here both on loopback: two children that meet, one record. `make test-netns` parts them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests_child import Watched

from amp_core.config import Distribution, WorkloadRef
from amp_core.distributed.interface import address_towards, interface_of
from amp_core.events import Checkpointed, Finished, Started

WORKLOADS = Path(__file__).parents[1] / "distributed" / "rank_workloads.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_two_hosts_make_one_record_and_the_same_numbers_as_one(watch: Callable[..., Watched], tmp_path: Path) -> None:
    workload = WorkloadRef(name="blocks", path=str(WORKLOADS))
    one = watch("blocks", workload=workload, ranks=2, num_threads=2, scratch_dir=str(tmp_path / "one")).end()
    endpoint = f"127.0.0.1:{free_port()}"
    hosts = [
        watch(
            "blocks", workload=workload, ranks=1, num_threads=1, scratch_dir=str(tmp_path / f"host{number}"),
            distribution=Distribution(nnodes=2, node_rank=number, rdzv_endpoint=endpoint),
        )
        for number in (0, 1)
    ]  # fmt: skip
    first, second = (host.end(120) for host in hosts)
    assert (first.exit_code, second.exit_code) == (0, 0), first.log + second.log
    (started,) = first.all(Started)
    assert started.environment["ranks"]["size"] == 2
    assert len(first.trace()) == 12
    assert first.trace() == one.trace()
    told = [type(frame.event) for frame in second.frames]
    assert told == [Started, Finished], "only the first host tells what happened between"


@pytest.mark.parametrize(("first_host", "second_host"), [("has it", "has none"), ("has none", "has it")])
def test_hosts_go_on_from_a_checkpoint_that_only_one_of_them_has(
    watch: Callable[..., Watched], tmp_path: Path, first_host: str, second_host: str
) -> None:
    def on_two_hosts(attempt: int, **fields: tuple[object, object]) -> tuple[Watched, Watched]:
        endpoint = f"127.0.0.1:{free_port()}"
        hosts = [
            watch(
                "blocks", workload=WorkloadRef(name="blocks", path=str(WORKLOADS)), num_threads=1, attempt=attempt,
                distribution=Distribution(nnodes=2, node_rank=number, rdzv_endpoint=endpoint), flush_interval_s=0.0,
                scratch_dir=str(tmp_path / f"{attempt}-{number}"), checkpoint_every_steps=5,
                **{name: values[number] for name, values in fields.items()},
            )
            for number in (0, 1)
        ]  # fmt: skip
        first, second = (host.end(120) for host in hosts)
        assert (first.exit_code, second.exit_code) == (0, 0), first.log + second.log
        return first, second

    folder = tmp_path / "kept"
    calm, _ = on_two_hosts(1, checkpoint_dir=(str(folder), str(tmp_path / "other")))
    newest, older = (Path(event.path).name for event in reversed(calm.all(Checkpointed)))
    places = {"has it": folder, "has none": tmp_path / "nowhere"}
    files = [tuple(str(places[host] / name) for name in (newest, older)) for host in (first_host, second_host)]
    first, second = on_two_hosts(2, resume_from=(files[0], files[1]))
    assert [event.resumed_step for event in (*first.all(Started), *second.all(Started))] == [10, 10]
    assert first.all(Started)[0].not_resumed == ""
    assert first.trace() == calm.trace()[10:]


def test_an_endpoint_that_leads_nowhere_is_told(watch: Callable[..., Watched]) -> None:
    place = Distribution(nnodes=2, node_rank=1, rdzv_endpoint="no such host:1")
    ended = watch("blocks", workload=WorkloadRef(name="blocks", path=str(WORKLOADS)), distribution=place).end()
    assert "name the first host's address" in ended.failed.message


def test_the_way_to_loopback_is_loopback() -> None:
    assert address_towards("127.0.0.1:1") == "127.0.0.1"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
    with pytest.raises(ValueError, match="invalid literal"):
        address_towards("nowhere")

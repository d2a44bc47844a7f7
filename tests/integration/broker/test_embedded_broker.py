"""The embedded broker on its private socket: start, adopt, clean up, stop; and the doorbell over it."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.broker.embedded import BrokerError, EmbeddedBroker
from server.broker.publish import QUEUE, ring
from server.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def broker(settings: Settings) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(settings)
    yield broker
    broker.stop()


def test_it_starts_once_and_is_private(broker: EmbeddedBroker) -> None:
    pid = broker.ensure()
    assert broker.ensure() == pid, "a second call adopts the one that runs"
    assert stat.S_IMODE(broker.socket_path.stat().st_mode) == 0o700
    broker.stop()
    assert not broker.is_running()


def test_a_killed_broker_is_started_again_over_its_stale_socket(broker: EmbeddedBroker) -> None:
    pid = broker.ensure()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert broker.socket_path.exists(), "the socket of a killed server stays behind"
    assert broker.ensure() != pid


def test_ringing_puts_one_message_per_run_into_the_queue(broker: EmbeddedBroker, settings: Settings) -> None:
    import redis

    broker.ensure()
    assert ring(settings, 3)
    with redis.Redis(unix_socket_path=str(broker.socket_path)) as client:
        assert client.llen(QUEUE) == 3


def test_ringing_without_a_broker_is_quick_and_harmless(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    begun = time.monotonic()
    assert not ring(settings)
    assert time.monotonic() - begun < 3
    assert "workers will find the queued runs by polling" in caplog.text


def test_too_long_a_path_names_the_setting_to_change(tmp_path: Path) -> None:
    broker = EmbeddedBroker(Settings(data_dir=tmp_path / ("d" * 100)))
    with pytest.raises(BrokerError, match="AMPBOARD_DATA_DIR"):
        broker.ensure()


def test_a_broker_that_cannot_start_shows_its_last_words(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedBroker, "_binary", staticmethod(lambda: Path("/bin/false")))
    with pytest.raises(BrokerError, match=r"exit status 1.*AMPBOARD_BROKER_URL"):
        broker.ensure()

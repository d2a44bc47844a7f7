"""A worker or a server whose clock and whose store's clock can be shifted while it runs, by a number in a file."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import server.queue.clock

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

CLOCK = "FAULTS_CLOCK"  # names the file, which holds seconds

_true_time, _true_store_now = time.time, server.queue.clock.store_now


def offset_s() -> float:
    """By how much the clock is wrong now."""
    try:
        return float(Path(os.environ[CLOCK]).read_text())
    except (KeyError, OSError, ValueError):
        return 0.0


def wrong_time() -> float:
    return _true_time() + offset_s()


def wrong_store_now(session: Session) -> datetime:
    return _true_store_now(session) + timedelta(seconds=offset_s())


def main() -> None:
    """``disturbed.py worker`` or ``disturbed.py server``; the clocks are replaced before anybody imports them."""
    time.time = wrong_time
    server.queue.clock.store_now = wrong_store_now
    if sys.argv[1] == "worker":
        from worker.main import main as work

        sys.exit(work())
    from server.cli.main import main as command

    command()


if __name__ == "__main__":
    main()

"""Write the history into an empty folder, and serve it when asked.

PYTHONPATH=.:tests python -m seeded DATA_DIR [--serve] [--runs N]
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import uvicorn

from seeded import add_many_runs, write_team_history
from server.accounts import service as accounts
from server.app import base_url, create_app, listen
from server.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--serve", action="store_true", help="serve it on a free port until interrupted")
    parser.add_argument("--runs", type=int, default=0, help="add so many further rows")
    given = parser.parse_args()
    given.data_dir.mkdir(parents=True, exist_ok=True)
    settings = Settings(data_dir=given.data_dir, lease_s=60 * 86400, heartbeat_s=3)
    begun = time.perf_counter()
    history = write_team_history(settings)
    if given.runs:
        add_many_runs(history.database, given.runs)
    print(f"written in {time.perf_counter() - begun:.1f} s")
    if not given.serve:
        print(accounts.sign_in_url("", history.link))
        return
    app = create_app(settings, history.database)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    print(accounts.sign_in_url(base_url(listener), history.link), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()

"""``make test-faults``: rounds of faults on SQLite with the embedded broker, and on PostgreSQL with Redis.

Prints a line for each round. Exit status 1 for the first round after which something is wrong: its seed repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from faults.kinds import kinds_of
from faults.places import Place, place
from faults.rounds import play, undisturbed

HEAD = f"{'round':>5}  {'store':<9} {'fault':<28} {'step':>4} {'back after':>11}  {'attempts':<36} what was done"


def main() -> int:
    asked = _arguments()
    for name in asked.stores:
        with tempfile.TemporaryDirectory(prefix="ampboard-faults-") as folder:
            if not _rounds(name, Path(folder), asked):
                return 1
    return 0


def _rounds(name: str, folder: Path, asked: argparse.Namespace) -> bool:
    began = time.monotonic()
    rng = random.Random(f"{name}-{asked.seed}")
    with place(name, folder) as here:
        traces = undisturbed(here)
        print(f"{name}: seed {asked.seed}, everything up and a first trace after {time.monotonic() - began:.0f} s")
        print(HEAD, flush=True)
        deck = _deck(here, rng, asked.faults)
        for number in range(1, asked.rounds + 1):
            fault = next(deck)
            try:
                done = play(here, fault, rng, traces)
            except Exception:  # noqa: BLE001 - whatever it is, the seed that shows it is told
                traceback.print_exc()
                print(here.site.logs())
                print(f"round {number} on {name}, {fault!r}: FAILED (--seed {asked.seed} --stores {name})", flush=True)
                return False
            attempts = ", ".join(f"{num} {outcome}" for outcome, num in done.num_attempts.items())
            print(f"{number:>5}  {name:<9} {fault:<28} {done.step:>4} {done.recovered_s:>9.1f} s  {attempts:<36} "
                  f"{done.told}", flush=True)  # fmt: skip
        print(f"{name}: {asked.rounds} rounds passed in {time.monotonic() - began:.0f} s", flush=True)
    return True


def _deck(here: Place, rng: random.Random, only: list[str]) -> Iterator[str]:
    """Every fault that can happen there before any comes again, in an order of the seed; the kills come first."""
    faults = [fault for fault in kinds_of(here) if not only or fault in only]
    while True:
        yield from faults
        rng.shuffle(faults)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="of each store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--faults", nargs="*", default=[], help="only these, by name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

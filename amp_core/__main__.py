"""``python -m amp_core run | describe | serve | check``: what others start as separate processes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m amp_core", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run one configuration, a JSON line on stdin, and send its events to a pipe")
    run.add_argument("--events-fd", type=int, required=True, help="descriptor for the frames of amp_core.events")
    describe = commands.add_parser("describe", help="print one JSON line for each workload of the files")
    describe.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    serve = commands.add_parser("serve", help="fork warm children on request")
    serve.add_argument("--socket-fd", type=int, required=True, help="descriptor of the socket to the launcher")
    commands.add_parser("rank", help="one rank of a run, started by torchrun")
    check = commands.add_parser("check", help="train the workloads of a file briefly and tell faults of low precision")
    check.add_argument("path", type=Path, metavar="FILE")
    check.add_argument("--recipe", action="append", required=True, help="precision or JSON; repeat for more")
    check.add_argument("--steps", type=int, default=60)
    check.add_argument("--seed", type=int, default=0)
    check.add_argument("--seeds", type=int, default=0)
    check.add_argument("--json", action="store_true")
    check.add_argument("--exit-code", action="store_true")
    given = parser.parse_args(arguments)
    if given.command == "run":
        from amp_core import child

        child.run_and_exit(given.events_fd)
    if given.command == "rank":
        from amp_core.distributed import rank

        return rank.main()
    if given.command == "serve":
        from amp_core import forkserver

        return forkserver.serve(given.socket_fd)
    if given.command == "check":
        from amp_core import check_command

        return check_command.run(
            given.path,
            given.recipe,
            given.steps,
            given.seed,
            given.seeds,
            as_json=given.json,
            exit_code=given.exit_code,
        )
    from amp_core import loader

    return loader.print_descriptions(given.paths)


if __name__ == "__main__":
    sys.exit(main())

"""`ScriptWorkload`: an existing training script as a workload; the worker runs it in its own Python environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import getfile
from pathlib import Path
from typing import Any, ClassVar

from amp_core.errors import WorkloadError
from amp_core.script.sources import named_scripts
from amp_core.workload import Workload

CONFIGURED = ("script", "python", "cwd", "env", "args")


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is started: arguments, folder, and variables on top of the child's environment."""

    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str]


class ScriptWorkload(Workload):
    """A training script that uses `amp_core.Engine`. Paths are relative to the file with this class.

    ``script`` is a literal string, because its content counts as part of the workload's version. ``python`` is the
    interpreter (default: the worker's own), ``cwd`` the working folder (default: the script's), ``env`` further
    variables, ``args`` the script's arguments, where ``{steps}``, ``{seed}`` and every parameter's name in braces are
    filled in. Metric, parameters, steps and recipes are declared as in any workload.
    """

    script: ClassVar[str] = ""
    python: ClassVar[str | None] = None
    cwd: ClassVar[str | None] = None
    env: ClassVar[Mapping[str, str]] = {}
    args: ClassVar[Sequence[str]] = ()

    @classmethod
    def is_base(cls) -> bool:
        return not cls.script

    @classmethod
    def check_definition(cls) -> None:
        """Raise `WorkloadError` unless script, interpreter and folder are there and the arguments can be filled in."""
        source, script = _file_of(cls), cls.script_path()
        if not script.is_file():
            raise WorkloadError(f"script={cls.script!r} of {cls.__name__} is no file: it is looked for as {script}")
        if script not in {path.resolve() for path in named_scripts(source.read_bytes(), source.parent)}:
            raise WorkloadError(
                f'script of {cls.__name__} must be written as script = "…" in {source.name}: its content is part of '
                "the workload's version"
            )
        if script.parent == source.parent and not script.name.startswith("_"):
            raise WorkloadError(
                f"script={cls.script!r} lies in the folder of workload files, where it would be taken for one: move it "
                "to a folder below"
            )
        cls().command(1, 0)

    @classmethod
    def script_path(cls) -> Path:
        """The script as an absolute path."""
        return (_file_of(cls).parent / cls.script).resolve()

    def command(self, steps: int, seed: int) -> Command:
        """How to start the script. Raises `WorkloadError` for what is missing on this host."""
        folder = _file_of(type(self)).parent
        python = sys.executable if self.python is None else str(folder / Path(self.python).expanduser())
        if not os.access(python, os.X_OK):
            raise WorkloadError(f"python={self.python!r} of workload {self.name!r} is no program: {python} is missing")
        script = self.script_path()
        cwd = script.parent if self.cwd is None else (folder / Path(self.cwd).expanduser()).resolve()
        if not cwd.is_dir():
            raise WorkloadError(f"cwd={self.cwd!r} of workload {self.name!r} is no folder: {cwd} is missing")
        values = {**self.values(), "steps": steps, "seed": seed}
        return Command(
            argv=(python, str(script), *(self._filled(argument, values) for argument in self.args)),
            cwd=cwd,
            env={str(name): str(value) for name, value in self.env.items()},
        )

    def _filled(self, argument: str, values: Mapping[str, Any]) -> str:
        try:
            return argument.format_map(values)
        except (KeyError, ValueError, IndexError) as error:
            raise WorkloadError(
                f"args of workload {self.name!r} hold {argument!r}: braces take one of {', '.join(values)}"
            ) from error


def _file_of(found: type[ScriptWorkload]) -> Path:
    return Path(getfile(found)).resolve()

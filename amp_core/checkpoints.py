"""Checkpoint files: whole or not there, checksummed by their name, the last few kept, loaded as data, never as code."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from amp_core.checkpoint_names import checksum_of, name_of, step_of
from amp_core.errors import NotResumable

FORMAT = 1
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Written:
    """A checkpoint on disk."""

    path: Path
    num_bytes: int


class Checkpoints:
    """The checkpoints of one run in a folder of its own: the last ``keep``, and those after ``kept_steps``."""

    def __init__(self, folder: Path, keep: int, kept_steps: Sequence[int] = ()) -> None:
        self._folder = folder
        self._keep = max(1, keep)
        self._kept_steps = frozenset(kept_steps)
        self._has_proved = False

    def save(self, step: int, state: dict[str, Any]) -> Written:
        """Write ``state`` (tensors and plain data) for a step and drop the oldest beyond those kept.

        The file appears under its name only when it is complete and on the disk. Raises `NotResumable` for a state
        that could not be loaded again, and `OSError` if it cannot be written; the checkpoints before stay.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f"writing-{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                _write(file, {"format": FORMAT, **state})
                os.fsync(file.fileno())
            if not self._has_proved:
                _load(temporary)
                self._has_proved = True
            path = self._folder / name_of(step, _digest(temporary))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self._folder)
        self._drop_old(path)
        return Written(path=path, num_bytes=path.stat().st_size)

    def _drop_old(self, newest: Path) -> None:
        """Keep the files written last: after a restart from step 1 a lower step is the newer one.

        Of a kept step the newest file stays in any case.
        """
        files = [path for path in self._folder.iterdir() if step_of(path.name) is not None]
        files.sort(key=lambda path: (path == newest, path.stat().st_mtime_ns), reverse=True)
        held = {step: path for path in reversed(files) if (step := step_of(path.name)) in self._kept_steps}
        for path in files[self._keep :]:
            if path not in held.values():
                path.unlink(missing_ok=True)


class _Noting:
    """A file for `torch.save`, which makes a RuntimeError of whatever a write raises: the true reason is kept here."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self.error = error
            raise


def _write(file: BinaryIO, state: dict[str, Any]) -> None:
    """Write and flush the state. Raises `OSError` when the disk takes no more."""
    noting = _Noting(file)
    try:
        torch.save(state, cast("IO[bytes]", noting))  # it only writes and flushes
        noting.flush()
    except RuntimeError as error:
        if noting.error is not None:
            raise noting.error from error
        raise


def load_first(paths: Sequence[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The state in the first of these files that is whole, and why those before it were passed over."""
    refused: list[str] = []
    for path in map(Path, paths):
        try:
            return load(path), refused
        except NotResumable as error:
            refused.append(str(error))
    return None, refused


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint file. Raises `NotResumable` if it is missing, damaged or of another format."""
    checksum = checksum_of(path.name)
    if checksum is None:
        raise NotResumable(f"{path.name} is no checkpoint: its name must be step-<step>-<checksum>.pt")
    try:
        digest = _digest(path)
    except OSError as error:
        raise NotResumable(f"checkpoint {path.name} cannot be read: {error.strerror or error}") from error
    if digest != checksum:
        raise NotResumable(f"checkpoint {path.name} is damaged: its content has the checksum {digest}")
    return _of_this_format(_load(path), path.name)


def loaded(content: bytes, name: str) -> dict[str, Any]:
    """The state in a checkpoint file of that name, given its content. Raises `NotResumable` as `load` does."""
    if (digest := hashlib.sha256(content).hexdigest()[:32]) != checksum_of(name):
        raise NotResumable(f"checkpoint {name} is damaged: its content has the checksum {digest}")
    return _of_this_format(_load(io.BytesIO(content)), name)


def _of_this_format(state: dict[str, Any], name: str) -> dict[str, Any]:
    if state.get("format") != FORMAT:
        raise NotResumable(f"checkpoint {name} has format {state.get('format')!r}; this version reads {FORMAT}")
    return state


def _load(file: Path | BinaryIO) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise NotResumable(
            f"the state of this run cannot be loaded as plain data ({error}): an optimizer or schedule keeps objects "
            "in its state_dict; the run goes on without checkpoints"
        ) from error
    return state


def _digest(path: Path) -> str:
    """The first 32 hex digits of the file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()[:32]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

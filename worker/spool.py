"""What could not be stored yet: on disk, in order, until the store answers again.

One file per attempt holds length-prefixed MessagePack records. It is only ever appended to, a record cut off by a crash
is dropped, and replaying it is harmless however often, because the store knows frames by their sequence and log pieces
by their position.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from amp_core.events import Frame
from worker.ending import Ending

MAX_MEMORY_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct("<I")


class FrameRecord(msgspec.Struct, frozen=True, tag="frame"):
    """One event of the child."""

    frame: Frame


class LogRecord(msgspec.Struct, frozen=True, tag="log"):
    """A piece of the log; ``position`` counts the characters before it."""

    position: int
    text: str


class EndRecord(msgspec.Struct, frozen=True, tag="end"):
    """The attempt has ended."""

    ending: Ending


Record = FrameRecord | LogRecord | EndRecord


class SpoolFull(Exception):
    """Neither disk nor memory has room for what the run says while the store is away."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class Spool:
    """The backlog of one attempt: a file, and memory for what the disk refuses.

    ``append`` raises `SpoolFull` only when more than ``max_memory_bytes`` wait in memory.
    """

    def __init__(self, path: Path, max_memory_bytes: int = MAX_MEMORY_BYTES) -> None:
        self.path = path
        self.disk_error: OSError | None = None
        self._max_memory_bytes = max_memory_bytes
        self._held: list[bytes] = []
        self._num_held_bytes = 0
        self._has_file = path.exists()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return self._has_file or bool(self._held)

    def append(self, records: Sequence[Record]) -> None:
        """Keep the records after all earlier ones."""
        if not records:
            return
        encoded = [_LENGTH.pack(len(body)) + body for body in map(_encoder.encode, records)]
        if not self._held and self._write(b"".join(encoded)):
            return
        self._held.extend(encoded)
        self._num_held_bytes += sum(map(len, encoded))
        if self._num_held_bytes > self._max_memory_bytes:
            raise SpoolFull(
                f"The store cannot be reached, {self.path.parent} cannot take what the run says ({self.disk_error}), "
                f"and {self._num_held_bytes} bytes wait in memory: free disk space or bring the store back."
            )

    def records(self) -> Iterator[Record]:
        """Everything that waits, oldest first."""
        if self._has_file:
            yield from read_spool(self.path)
        for encoded in self._held:
            yield _decoder.decode(encoded[_LENGTH.size :])

    def clear(self) -> None:
        """Forget it all: it is stored, or nobody may store it any more."""
        self._held.clear()
        self._num_held_bytes = 0
        self.disk_error = None
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._has_file = False

    def _write(self, data: bytes) -> bool:
        """Append to the file wholly or not at all."""
        size = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.path.open("ab", buffering=0) as file:
                self._has_file = True
                size = file.tell()
                written = file.write(data)
                if written != len(data):
                    file.truncate(size)
                    raise OSError(f"only {written} of {len(data)} bytes fitted")
        except OSError as error:
            self.disk_error = error
            return False
        self.disk_error = None
        return True


def read_spool(path: Path) -> Iterator[Record]:
    """The records of a spool file; reading ends before one that is cut off or damaged."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            body = file.read(length)
            if len(body) < length:
                return
            try:
                record = _decoder.decode(body)
            except msgspec.MsgspecError:
                return
            yield record


def spool_path(folder: Path, run_id: int, attempt: int) -> Path:
    """Where an attempt's backlog lies."""
    return folder / f"{run_id}-{attempt}.spool"


def attempt_of(path: Path) -> tuple[int, int] | None:
    """Run id and attempt of a spool file's name; None for any other file."""
    run_id, _, attempt = path.stem.partition("-")
    if path.suffix != ".spool" or not (run_id.isdigit() and attempt.isdigit()):
        return None
    return int(run_id), int(attempt)

"""Typed events of a run, and the frames that carry them from the child process to the worker.

A frame is a 4-byte little-endian length followed by a MessagePack map. Frames of an attempt are numbered from 1
without gaps, so a frame can be stored twice without effect. MessagePack, because it carries NaN and infinities.
Standard library and msgspec only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from amp_core.errors import ProtocolError
from amp_core.event_base import Event as Event
from amp_core.numeric_events import Casts as Casts
from amp_core.numeric_events import Diagnosis as Diagnosis
from amp_core.numeric_events import EffectivePrecision as EffectivePrecision
from amp_core.numeric_events import ExponentHistograms as ExponentHistograms
from amp_core.numeric_events import Misaligned as Misaligned
from amp_core.numeric_events import ModuleStatistics as ModuleStatistics
from amp_core.numeric_events import Numerics as Numerics
from amp_core.numeric_events import Operations as Operations
from amp_core.numeric_events import Replay as Replay
from amp_core.numeric_events import StressFinding as StressFinding
from amp_core.numeric_events import ZeroGradients as ZeroGradients

_LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 32 * 1024 * 1024


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """The child is ready for step 1. ``environment`` holds versions, device, threads and flags as they really are."""

    numerics: str  # "native" or "emulated"
    environment: dict[str, Any]
    num_parameters: int
    setup_s: float
    resumed_step: int = 0  # the last step that earlier attempts have made and this one does not make again
    not_resumed: str = ""  # why a checkpoint at hand was not used


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """New points of one series: little-endian int64 steps, float64 values, and float64 unix seconds, all `(N,)`."""

    name: str
    steps: bytes
    values: bytes
    times: bytes


class Segment(Event, frozen=True, kw_only=True, tag="segment"):
    """The points of many series gathered since the last flush."""

    columns: list[Column]


class Evaluated(Event, frozen=True, kw_only=True, tag="evaluated"):
    """Metrics of one evaluation; ``final`` marks the one a comparison uses."""

    step: int
    metrics: dict[str, float]
    num_samples: int
    final: bool


class StepSkipped(Event, frozen=True, kw_only=True, tag="step_skipped"):
    """An optimizer step that did not happen because a scaled gradient was not finite."""

    step: int
    scale_before: float
    scale_after: float


class SkipsRepeat(Event, frozen=True, kw_only=True, tag="skips_repeat"):
    """The run stops because skipping does not help. ``streak`` counts the skipped steps in a row up to ``step``."""

    step: int
    streak: int
    scale_before: float  # when the streak began
    scale_after: float
    diagnosis: str


class NonFinite(Event, frozen=True, kw_only=True, tag="non_finite"):
    """A NaN or infinity that is not an ordinary skipped step. ``where``: loss, gradient, weight or evaluation."""

    step: int
    where: str
    name: str  # module, parameter or metric
    value: str  # "nan", "inf" or "-inf"


class Checkpointed(Event, frozen=True, kw_only=True, tag="checkpointed"):
    """A checkpoint after ``step`` is complete on the disk. Everything the run said up to this step came before.

    ``kept``: it stays when the run has ended, as the configuration's ``keep_steps`` say.
    """

    step: int
    path: str
    num_bytes: int
    seconds: float
    kept: bool = False


class NoCheckpoint(Event, frozen=True, kw_only=True, tag="no_checkpoint"):
    """A checkpoint could not be written, and why. ``final``: none will be tried again."""

    step: int
    message: str
    final: bool


class Artifact(Event, frozen=True, kw_only=True, tag="artifact"):
    """A file the run made (a picture, a table); the content travels in the frame."""

    name: str
    media_type: str
    content: bytes
    step: int


class BenchmarkBlock(Event, frozen=True, kw_only=True, tag="benchmark_block"):
    """One timed block of one arm. ``mode``: ``compute`` (batches at hand) or ``loader`` (with the data loader)."""

    block: int
    mode: str
    arm: str  # "baseline" or "candidate"
    steps: int
    samples: int
    seconds: float


class BenchmarkMemory(Event, frozen=True, kw_only=True, tag="benchmark_memory"):
    """Memory of one arm in a process of its own. ``device_peak_bytes`` is 0 on a CPU."""

    arm: str
    process_growth_bytes: int
    device_peak_bytes: int
    saved_for_backward_bytes: int


class Progress(Event, frozen=True, kw_only=True, tag="progress"):
    """How far an analysis has come: ``done`` of about ``total`` pieces of work, and what it does now."""

    done: int
    total: int
    message: str


class Report(Event, frozen=True, kw_only=True, tag="report"):
    """The answer of an analysis as plain JSON values; NaN and infinities are spelled ``"NaN"``, ``"Infinity"``.

    A report that is not ``final`` is what is known so far; the newest one counts.
    """

    kind: str
    content: dict[str, Any]
    final: bool


class Finished(Event, frozen=True, kw_only=True, tag="finished"):
    """The run reached its last step. Times in seconds; ``lost_samples`` are those of skipped steps.

    ``stopped`` says why a run ended before its last step (weights beyond repair, skips without end); else it is empty.
    """

    metrics: dict[str, float]
    steps: int
    skipped_steps: int
    samples: int
    lost_samples: int
    train_s: float
    warmup_s: float
    stopped: str = ""


class Paused(Event, frozen=True, kw_only=True, tag="paused"):
    """The run stopped because it was asked to pause; its checkpoint came just before, if it can have one."""


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """The run ended early. ``kind``: exception, exit, out_of_memory, recipe, workload or interrupted."""

    kind: str
    message: str
    traceback: str = ""


AnyEvent = (
    Started
    | Segment
    | Evaluated
    | StepSkipped
    | SkipsRepeat
    | NonFinite
    | Numerics
    | ExponentHistograms
    | EffectivePrecision
    | ZeroGradients
    | Checkpointed
    | NoCheckpoint
    | Artifact
    | BenchmarkBlock
    | BenchmarkMemory
    | Progress
    | Report
    | StressFinding
    | Diagnosis
    | Finished
    | Paused
    | Failed
)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered event. ``at`` is the child's clock in unix seconds."""

    sequence: int
    at: float
    event: AnyEvent


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    """The frame with its length in front, ready for one write."""
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


def decode_body(body: bytes) -> Frame:
    """The frame in a body without its length. Raises `ProtocolError`."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{len(body)} bytes are not an event frame: {error}") from error


def read_frames(pipe: BinaryIO) -> Iterator[Frame]:
    """Yield frames until the pipe ends; a frame cut off by the writer's death is dropped.

    Raises:
        ProtocolError: for a length above `MAX_FRAME_BYTES` or a body that is no frame.
    """
    while True:
        head = pipe.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(head)
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {length} bytes is above the limit of {MAX_FRAME_BYTES}")
        body = pipe.read(length)
        if len(body) < length:
            return
        yield decode_body(body)

"""What a benchmark and its processes say to each other, as MessagePack over a pipe."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Mode = Literal["compute", "loader"]


class RunBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Run this many steps and time them together."""

    mode: Mode
    steps: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """An arm is built and warm. ``step_s`` is the measured time of one step by mode."""

    numerics: str
    environment: dict[str, Any]
    num_parameters: int
    setup_s: float
    warmup_s: float
    step_s: dict[Mode, float]


class Timed(msgspec.Struct, frozen=True, kw_only=True, tag="timed"):
    """One block is done."""

    samples: int
    seconds: float


class MemoryUsed(msgspec.Struct, frozen=True, kw_only=True, tag="memory_used"):
    """What training took in a process of its own."""

    process_growth_bytes: int
    device_peak_bytes: int
    saved_for_backward_bytes: int


class Fitted(msgspec.Struct, frozen=True, kw_only=True, tag="fitted"):
    """A batch of some size has trained for a few steps. ``peak_bytes``: growth of the process, or of the device's."""

    samples_per_s: float
    step_s: float
    peak_bytes: int
    numerics: str
    environment: dict[str, Any]
    num_parameters: int
    setup_s: float


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag="broken"):
    """The process failed."""

    kind: str
    message: str
    traceback: str


Answer = Ready | Timed | MemoryUsed | Fitted | Broken
answers = msgspec.msgpack.Decoder(Answer)
requests = msgspec.msgpack.Decoder(RunBlock)
encode = msgspec.msgpack.Encoder().encode

"""What really ran, and what exponents gradients had: two panels of the run page, drawn here as plain SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.telemetry.exponents import FORMATS, Histogram, merged
from server.db.tables import Event
from server.pages.formats import number, percent, size
from server.records.exponents import ExponentSample, exponent_samples

SLOTS = {"float32": "fp32", "float64": "fp32", "tf32": "other-3", "bfloat16": "bf16", "float16": "fp16"}
NAMES = {"float32": "FP32", "float64": "FP64", "tf32": "TF32", "bfloat16": "bf16", "float16": "fp16"}
MAX_CASTS, MAX_MODULES, MAX_COLUMNS, NUM_LEVELS = 8, 12, 48, 8
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CELL_H, MIN_WIDTH = 5, 576
LOW_FORMAT = {"bf16-mixed": "bf16", "bf16-true": "bf16"}  # every other recipe is looked at through fp16's window


def effective_precision(session: Session, run: dict[str, Any]) -> dict[str, Any] | None:
    """The panel "What really ran": the newest attempt's proof, or None."""
    run_id = run["id"]
    query = (
        select(Event)
        .where(Event.run_id == run_id, Event.kind == "effective_precision")
        .order_by(Event.attempt.desc(), Event.sequence.desc())
        .limit(1)
    )
    event = session.scalars(query).first()
    if event is None:
        return None
    proof = event.payload
    kernels = proof["kernels"]
    return {
        "step": event.step,
        "sentence": proof["sentence"],
        "took_effect": proof["took_effect"],
        "bars": [
            bar
            for bar in (
                _bar("FLOPs of products", proof["flops"]),
                _bar(
                    "Time of operations" if run["numerics"] != "emulated" else "Time, emulated",
                    {k: v for k, v in proof["seconds"].items() if k != "casts"},
                ),
            )
            if bar["parts"]
        ],
        "modules": _modules(proof["operations"]),
        "casts": _casts(proof["casts"]),
        "cast_share": _share(proof["seconds"].get("casts", 0.0), sum(map(float, proof["seconds"].values()))),
        "flags": ", ".join(f"{name} {value}" for name, value in sorted(proof["flags"].items())),
        "fused": ", ".join(f"{name} {'yes' if value else 'no'}" for name, value in sorted(proof["fused"].items())),
        "misaligned": proof["misaligned"],
        "memory": _memory(run),
        "tensor_cores": f"{sum(kernels.values())} of {len(kernels)} product kernels" if kernels else "",
    }


def _memory(run: dict[str, Any]) -> str:
    """Bytes by part, the most at any sample; what autograd keeps under emulation says nothing about a device."""
    parts = ["weights", "gradients", "optimizer", *(["saved_for_backward"] if run["numerics"] != "emulated" else [])]
    known = {part: run["metrics"].get(f"memory/{part}_bytes") for part in parts}
    return ", ".join(f"{part.replace('_', ' ')} {size(one['max'])}" for part, one in known.items() if one)


def _bar(label: str, amounts: dict[str, float]) -> dict[str, Any]:
    """One bar of 100 units, the largest part first."""
    total = sum(map(float, amounts.values()))
    parts: list[dict[str, Any]] = []
    left = 0.0
    for dtype, amount in sorted(amounts.items(), key=lambda item: -float(item[1])):
        share = _share(float(amount), total)
        if share >= 0.0005:
            width = round(100 * share, 2)
            parts.append({"name": _name(dtype), "slot": _slot(dtype), "x": round(left, 2), "width": width,
                          "text": percent(share)})  # fmt: skip
            left += width
    return {"label": label, "parts": parts, "text": ", ".join(f"{part['name']} {part['text']}" for part in parts)}


def _share(amount: float, total: float) -> float:
    return amount / total if total else 0.0


def _name(dtype: str) -> str:
    return NAMES.get(dtype, "fp8" if dtype.startswith("float8") else dtype)


def _slot(dtype: str) -> str:
    return SLOTS.get(dtype, "other-1")


def _modules(operations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Modules by falling time, each with the types it computed in, forward and backward."""
    found: dict[str, dict[str, Any]] = {}
    for row in operations:
        one = found.setdefault(row["module"], {"module": row["module"], "seconds": 0.0, "flops": 0, "phases": {}})
        one["seconds"] += float(row["seconds"])
        one["flops"] += row["flops"]
        if row["flops"]:
            one["phases"].setdefault(row["phase"], {})[_name(row["dtype"])] = None
    ordered = sorted(found.values(), key=lambda one: -one["seconds"])[:MAX_MODULES]
    return [
        {
            "module": one["module"] or "outside of modules",
            "ms": number(1e3 * one["seconds"], 3),
            "flops": number(one["flops"]) if one["flops"] else "–",
            **{phase: ", ".join(one["phases"].get(phase, ())) or "–" for phase in ("forward", "backward")},
        }
        for one in ordered
    ]


def _casts(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Casts by direction, the slowest first."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        total = found.setdefault((_name(row["source"]), _name(row["target"])), [0, 0, 0.0])
        total[0] += row["calls"]
        total[1] += row["num_bytes"]
        total[2] += float(row["seconds"])
    ordered = sorted(found.items(), key=lambda item: -item[1][2])[:MAX_CASTS]
    return [
        {
            "types": f"{source} → {target}",
            "calls": number(calls),
            "bytes": size(num_bytes),
            "ms": number(1e3 * seconds, 3),
        }
        for (source, target), (calls, num_bytes, seconds) in ordered
    ]


def gradient_exponents(session: Session, run: dict[str, Any]) -> dict[str, Any] | None:
    """The heat map of gradient exponents over steps with the window of a format, or None without samples."""
    samples = exponent_samples(session, run["id"], "gradients")
    shown = [samples[index] for index in _evenly(len(samples))]
    columns = [(sample, merged(sample.modules.values())) for sample in shown]
    filled = [exponents for _, histogram in columns if (exponents := histogram.by_exponent()[0])]
    if not filled:
        return None
    name = LOW_FORMAT.get(run["recipe"]["precision"], "fp16")
    low, high = min(one[0] for one in filled), max(one[-1] for one in filled)
    last, histogram = columns[-1]
    return {
        "format": name,
        "width": cell_width(len(columns)) * len(columns),
        "height": CELL_H * (high - low + 1),
        "levels": _levels(columns, high),
        "window": _window(columns, name, low, high),
        "high": high,
        "cell": CELL_H,
        "power": _power(last.scale),
        "ticks": [
            {"y": CELL_H * (high - exponent) + CELL_H, "text": f"2{str(exponent).translate(_SUPERSCRIPT)}"}
            for exponent in range(high, low - 1, -1)
            if exponent % 8 == 0
        ],
        "steps": [samples[0].step, samples[-1].step],
        "note": f"{len(shown)} of {len(samples)} samples" if len(shown) < len(samples) else f"{len(samples)} samples",
        "facts": _facts(last, histogram),
    }


def cell_width(num_columns: int) -> int:
    """Few samples are drawn wider, so that the picture keeps a legible shape."""
    return max(1, MIN_WIDTH // num_columns)


def _evenly(count: int) -> list[int]:
    if count <= MAX_COLUMNS:
        return list(range(count))
    return sorted({round(index * (count - 1) / (MAX_COLUMNS - 1)) for index in range(MAX_COLUMNS)})


def _levels(columns: Sequence[tuple[ExponentSample, Histogram]], high: int) -> list[dict[str, Any]]:
    """One SVG path of cells for each level; a level is a share of the column's elements, by powers of four."""
    paths: list[list[str]] = [[] for _ in range(NUM_LEVELS)]
    width = cell_width(len(columns))
    for column, (_, histogram) in enumerate(columns):
        exponents, counts = histogram.by_exponent()
        total = sum(counts)
        for exponent, count in zip(exponents, counts, strict=True):
            if count:
                level = NUM_LEVELS - 1 - min(NUM_LEVELS - 1, int(-math.log(count / total, 4)))
                paths[level].append(f"M{width * column} {CELL_H * (high - exponent)}h{width}v{CELL_H}h-{width}z")
    return [
        {"path": "".join(path), "opacity": round((level + 1) / NUM_LEVELS, 3)}
        for level, path in enumerate(paths)
        if path
    ]


def _window(
    columns: Sequence[tuple[ExponentSample, Histogram]], name: str, low: int, high: int
) -> list[dict[str, Any]]:
    """The format's edges at each step's loss scale as stepped lines; those outside of the picture have no path."""
    of, width = FORMATS[name], cell_width(len(columns))
    lines: list[dict[str, Any]] = []
    for label, edge in (
        ("overflow", of.max_exponent + 1),
        ("subnormal", of.min_normal),
        ("zero", of.min_subnormal - 1),  # half of the smallest number; what is above rounds up to it
    ):
        heights = [CELL_H * (high + 1 - (edge - _power(sample.scale))) for sample, _ in columns]
        path = "".join(
            f"{'M' if index == 0 else 'L'}{width * index} {height}H{width * (index + 1)}"
            for index, height in enumerate(heights)
        )
        seen = any(0 <= height <= CELL_H * (high - low + 1) for height in heights)
        lines.append({"label": label, "path": path if seen else "", "edge": edge})
    return lines


def _power(scale: float) -> int:
    return round(math.log2(scale)) if np.isfinite(scale) and scale > 0 else 0


def _facts(sample: ExponentSample, histogram: Histogram) -> list[str]:
    """What the last sample would lose in each 16-bit format."""
    k = _power(sample.scale)
    said = []
    for name, power in dict.fromkeys([("fp16", k), ("fp16", 0), ("bf16", 0)]):
        shares = histogram.shares(name, power)
        scale = f" at loss scale {number(2.0**power)}" if name == "fp16" else ""
        lost, over = _fine(shares.underflow), _fine(shares.overflow)
        said.append(f"{name}{scale}: {lost} to zero, {over} beyond its range")
    return said


def _fine(share: float) -> str:
    """A share that is not zero never reads as zero."""
    return "none" if share == 0 else "below 0.1 %" if share < 0.001 else percent(share)

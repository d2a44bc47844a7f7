"""For those who choose hardware: a workload by device and recipe, and by batch size."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from server.access import viewer
from server.pages import batch_chart, colours, trend_chart
from server.pages.formats import number, size
from server.pages.render import MALFORMED, page
from server.pages.trends import workload_names
from server.state import DatabaseOf
from server.trends.hardware import batch_reports, kernels_of, newest_by_device
from server.trends.queries import Point, points_of

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
Word = Annotated[str, Query(max_length=400)]


@router.get("/devices")
def show_devices(request: Request, database: DatabaseOf, workload: Word = "", settings: Word = "") -> Response:
    """Device × recipe for a workload: how much faster, how much smaller, and whether tensor cores worked."""
    with database.read() as session:
        names = workload_names(session)
        workload = workload or (names[0] if names else "")
        points = points_of(session, workload) if workload else []
        shown = [point for point in points if not settings or point.settings == settings]
        table = newest_by_device(shown)
        recipes = list(dict.fromkeys(point.recipe for point in shown))
        rows = [
            {"device": device, "cells": [_cell(session, found.get(recipe)) for recipe in recipes]}
            for device, found in sorted(table.items())
        ]
    context: dict[str, Any] = {
        "names": names,
        "chosen": {"workload": workload, "settings": settings},
        "all_settings": sorted({point.settings for point in points}),
        "recipes": [(recipe, _style(shown, recipe)) for recipe in recipes],
        "rows": rows,
    }
    return page(request, "devices.html", **context)


def _style(points: list[Point], recipe: str) -> colours.Style:
    return colours.natural_style(next(point.recipe_json for point in points if point.recipe == recipe))


def _cell(session: Session, point: Point | None) -> dict[str, Any] | None:
    """One device under one recipe in words; None where it has not run."""
    if point is None:
        return None
    interval = point.speed_interval
    return {
        "experiment_id": point.experiment_id,
        "is_emulated": point.is_emulated,
        "rate": trend_chart.text_of("speed", point.value("speed")),
        "memory": trend_chart.text_of("memory", point.value("memory")),
        "speed": f"×{number(point.speed_ratio, 3)}" if point.speed_ratio else "",
        "interval": f"{number(interval[0], 3)} to {number(interval[1], 3)}" if interval else "",
        "memory_ratio": f"×{number(point.memory_ratio, 2)}" if point.memory_ratio else "",
        "verdict": point.verdict,
        "kernels": kernels_of(session, point.experiment_id, point.recipe),
        "at": point.at,
    }


@router.get("/batch-size")
def show_batch_sizes(request: Request, database: DatabaseOf, workload: Word = "", device: Word = "") -> Response:
    """Which batches fit under each recipe and how fast they are, from the searches for the largest batch."""
    with database.read() as session:
        names = workload_names(session)
        workload = workload or (names[0] if names else "")
        reports = batch_reports(session, workload) if workload else []
    devices = sorted({report["device"] for report in reports})
    shown = [report for report in reports if (not device or report["device"] == device) and _is_readable(report)]
    context: dict[str, Any] = {
        "names": names,
        "chosen": {"workload": workload, "device": device},
        "devices": devices,
        "drawing": batch_chart.drawing_of(shown),
        "reports": [_report(report) for report in shown],
    }
    return page(request, "batch_size.html", **context)


def _is_readable(report: dict[str, Any]) -> bool:
    """Whether a search reported what this page knows; the page of its run says so where it did not."""
    try:
        shown = _report(report)
        batch_chart.drawing_of([report])
    except MALFORMED:
        return False
    return isinstance(shown["answer"], str)


def _report(report: dict[str, Any]) -> dict[str, Any]:
    content = report["content"]
    fitting = [point for point in content.get("points", []) if point["fits"]]
    fastest = max(fitting, key=lambda point: float(point["samples_per_s"]), default=None)
    largest = content.get("largest")
    at_largest = next((point for point in fitting if point["batch"] == largest), None)
    return {
        **{name: report[name] for name in ("run_id", "recipe", "device", "final")},
        "style": colours.natural_style(report["recipe_json"]),
        "answer": content.get("answer", ""),
        "largest": f"{largest:,}" if largest else "–",
        "too_large": f"{content['smallest_too_large']:,}" if content.get("smallest_too_large") else "–",
        "peak": size(at_largest["peak_bytes"]) if at_largest else "–",
        "fastest": f"{fastest['batch']:,}" if fastest else "–",
        "rate": number(fastest["samples_per_s"], 3) if fastest else "–",
    }

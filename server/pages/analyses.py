"""Analyses on the pages: the buttons that ask for one, how far it has come, and its answer."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.analyses import TITLES
from server.access import Principal, submitter
from server.analyses import service
from server.analyses.queries import analyses_of, newest_progress
from server.analyses.schemas import AnalysisOfRunIn
from server.broker.publish import ring
from server.db.tables import Event, Workload
from server.pages.formats import number, percent, size
from server.pages.module_tree import tree
from server.pages.render import MALFORMED, can_show
from server.state import DatabaseOf, SettingsOf

router = APIRouter(include_in_schema=False)
BUTTONS = {
    "sensitivity": "Find the smallest FP32 set",
    "stress": "Stress this recipe",
    "layers": "Compare layer by layer",
    "batch-size": "Find the largest batch",
}
LOWERED = ("bf16-mixed", "16-mixed", "bf16-true", "16-true", "fp8-mixed")
MAX_ROWS = 300
OPERATION = "operation"  # the kind of rows that are no modules
_TONES = {"finding": "unsafe", "note": "caution", "passes": "completed"}


@router.post("/runs/{run_id}/analyse")
def analyse_run(
    run_id: int,
    kind: Annotated[str, Form(max_length=16)],
    principal: Annotated[Principal, Depends(submitter)],
    database: DatabaseOf,
    settings: SettingsOf,
) -> Response:
    """Queue an analysis of the run with default options, and show it."""
    with database.write() as session:
        made = service.add_analysis(session, run_id, AnalysisOfRunIn(kind=kind), principal).id
    ring(settings)
    return RedirectResponse(f"/runs/{made}", status_code=303)


def buttons(run: dict[str, Any], workload: Workload) -> list[dict[str, str]]:
    """The analyses that a run's page offers: those of a training that lowers precision, executed here, by our loop."""
    executed_here = run["kind"] == "train" and run["config"].get("device") != "outside"
    if not executed_here or workload.is_script or run["recipe"].get("precision") not in LOWERED:
        return []
    emulated = run.get("numerics") == "emulated"  # whose memory means nothing
    return [{"kind": kind, "label": label} for kind, label in BUTTONS.items() if kind != "batch-size" or not emulated]


def listed(session: Session, experiment_id: int) -> list[dict[str, Any]]:
    """The analyses of an experiment with what each has found so far, the newest first."""
    rows = []
    for run in reversed(analyses_of(session, experiment_id, tuple(BUTTONS))):
        report = _newest(session, run.id)
        rows.append(
            {
                "id": run.id,
                "title": TITLES.get(run.kind, run.kind),
                "recipe": run.recipe_name,
                "state": run.state,
                "answer": str(report.payload["content"].get("answer") or "") if report is not None else "",
            }
        )
    return rows


def panel(session: Session, run: dict[str, Any]) -> dict[str, Any] | None:
    """What the page of an analysis shows, or None for another kind of run."""
    if run["kind"] not in BUTTONS:
        return None
    report = _newest(session, run["id"])
    try:
        shown = _shown(run, report)
    except MALFORMED:
        shown = None
    if shown is not None:
        shown["progress"] = newest_progress(session, run["id"])
    if shown is None or not can_show("parts/analysis.html", analysis=shown, run=run):
        return {"kind": run["kind"], "title": TITLES[run["kind"]], "unreadable": True}
    return shown


def _shown(run: dict[str, Any], report: Event | None) -> dict[str, Any]:
    """What the panel says. A report of another shape than ours raises one of `server.pages.render.MALFORMED`."""
    content = report.payload["content"] if report is not None else {}
    recipe = content.get("recipe")
    return {
        "unreadable": False,
        "kind": run["kind"],
        "title": TITLES[run["kind"]],
        "answer": content.get("answer", ""),
        "final": bool(report is not None and report.payload["final"]),
        "recipe": json.dumps(recipe, indent=1) if recipe else "",
        "try_url": _try_url(run, report) if recipe and report is not None else "",
        "modules": _modules(run["kind"], content.get("modules", [])[:MAX_ROWS]),
        "certificate": _certificate(content),
        "speed": (content.get("speed") or {}).get("sentence", ""),
        "cases": [row | {"tone": _TONES.get(row["outcome"], "")} for row in content.get("cases", [])],
        "batches": _batches(content.get("points", [])),
        "reference": content.get("reference", ""),
        "facts": _facts(content),
    }


def _newest(session: Session, run_id: int) -> Event | None:
    query = select(Event).where(Event.run_id == run_id, Event.kind == "report")
    return session.scalars(query.order_by(Event.attempt.desc(), Event.sequence.desc()).limit(1)).first()


def _try_url(run: dict[str, Any], report: Event) -> str:
    return f"/experiments/new?from={run['experiment_id']}&cure={run['id']}.{report.attempt}.{report.sequence}"


def _modules(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The module map: for sensitivity a tree with bars; operations, which are in none, as they come."""
    if kind != "sensitivity" or any(row.get("kind") == OPERATION for row in rows):
        return [_module(row) for row in rows]
    return [
        {"name": row["module"], "label": row["label"], "depth": row["depth"], "bar": row["bar"], "heading": True}
        if row["heading"]
        else _module(row) | {"label": row["label"], "depth": row["depth"], "bar": row["bar"]}
        for row in tree(rows, "sensitivity")
    ]


def _module(row: dict[str, Any]) -> dict[str, Any]:
    """One line of the module map: the figures as words."""
    name = row["module"]
    shown = {"name": name, "label": name, "depth": 0, "heading": False}
    shown |= {"kept": row.get("kept", False), "kind": row.get("kind", "")}
    if "worst" in row:
        error, low = row["worst"], row["ordinary"]
        return shown | {"error": number(error, 2), "ordinary": number(low, 2), "case": row["case"].replace("_", " ")}
    nonzero = row["gradient_nonzero"]
    return shown | {
        "sensitivity": number(row["sensitivity"], 2),
        "error": number(row["error"], 2),
        "max_abs": number(row["max_abs"], 3),
        "lost": percent(row["gradient_lost"] / nonzero) if nonzero else "–",
        "out_of_range": row["out_of_range"],
    }


def _batches(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sizes tried by a search for the largest batch, with throughput as a share of the fastest."""
    fastest = max((point["samples_per_s"] for point in points if point["fits"]), default=1.0)
    return [
        {"batch": f"{point['batch']:,}", "reason": point["reason"]}
        if not point["fits"]
        else {
            "batch": f"{point['batch']:,}",
            "reason": "",
            "rate": number(point["samples_per_s"], 3),
            "share": round(point["samples_per_s"] / fastest, 4),
            "memory": size(point["peak_bytes"]),
        }
        for point in points
    ]


def _certificate(content: dict[str, Any]) -> dict[str, Any] | None:
    given = content.get("certificate")
    if not given:
        return None
    limits = given["limits"]
    return {
        "without": [
            {"module": one["module"], "reason": (one["fails"] or {}).get("reason", "")} for one in given["without"]
        ],
        "alone": (given["alone"] or {}).get("reason", ""),
        "facts": [
            ("Checkpoint", f"after step {given['checkpoint']['step']} of FP32, {given['checkpoint']['sha256'][:16]}…"),
            ("Horizon", f"{given['horizon']} steps, batches {', '.join(one[:8] for one in given['batches'][:4])} …"),
            ("Loss", _limit(limits["loss"], limits["loss_noise"])),
            ("Updates", _limit(limits["update"], limits["update_noise"])),
        ],
    }


def _limit(limit: object, noise: object) -> str:
    return f"within {number(limit, 2)} of FP32's, relatively; FP32 differs from itself by {number(noise, 2)}"


def _facts(content: dict[str, Any]) -> list[str]:
    said = []
    if "evaluations" in content:
        said.append(f"{content['evaluations']} evaluations")
    if "seconds" in content:
        said.append(f"{number(content['seconds'], 3)} s")
    return said

"""What the run page tells besides curves: figures, events in words, gradients by module, why it failed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from amp_core.verdict.sentences import metric_label
from server.db.tables import Event
from server.pages.formats import between, number, percent, size

MAX_EVENTS = 300
ALARM_FRACTION = 0.5
# Shown in places of their own.
UNLISTED = ("numerics", "benchmark_block", "exponent_histograms", "progress", "report")
_TONES = {
    "step_skipped": "caution",
    "non_finite": "unsafe",
    "zero_gradients": "unsafe",
    "failed": "failed",
    "stress_finding": "unsafe",
    "diagnosis": "caution",
    "finished": "completed",
}
_REMEDIES = {
    "out_of_memory": "Lower the batch size, or give the run more memory.",
    "time_limit": "Raise max_time_s, or ask for fewer steps.",
    "lost": "Its worker fell silent; see the workers page.",
    "exception": "The traceback shows the line; mend the workload and retry the experiment.",
}


def reason_of(run: dict[str, Any]) -> dict[str, Any] | None:
    """Why it failed, was cancelled, or why its last attempt ended early; with a remedy."""
    reason = run["reason"]
    if not reason or run["state"] == "completed":
        return None
    return {
        "message": reason.get("message") or reason.get("kind") or "no reason was recorded",
        "remedy": reason.get("remedy") or _REMEDIES.get(reason.get("kind", "")),
        "traceback": reason.get("traceback"),
    }


def stats(run: dict[str, Any], primary: dict[str, Any]) -> list[dict[str, str]]:
    """The figures in the summary of the run, as far as they are known."""
    metrics, result = run["metrics"], run["result"] or {}
    found = [{"label": "Time", "value": between(run["started_at"], run["ended_at"]), "detail": ""}]
    decisive = metrics.get(f"eval/{primary['metric']}")
    if decisive:
        best = decisive["max"] if primary["higher_is_better"] else decisive["min"]
        detail = f"{primary.get('unit', '')} at the last evaluation, best {number(best)}".strip()
        found.append({"label": metric_label(primary["metric"]), "value": number(decisive["last"]), "detail": detail})
    if "train/loss" in metrics:
        found.append({"label": "Training loss", "value": number(metrics["train/loss"]["last"]), "detail": "last"})
    if "amp/loss_scale" in metrics:
        found.append({"label": "Loss scale", "value": number(metrics["amp/loss_scale"]["last"]), "detail": ""})
    if "skipped_steps" in result:
        lost = result.get("lost_samples", 0) / max(result.get("samples", 0), 1)
        found.append(
            {
                "label": "Skipped steps",
                "value": number(result["skipped_steps"]),
                "detail": f"{percent(lost)} of samples",
            }
        )
    emulated = run["numerics"] == "emulated"
    if "perf/samples_per_s" in metrics:
        value = "–" if emulated else number(metrics["perf/samples_per_s"]["mean"], 3)
        detail = "emulated: not measured here" if emulated else "samples/s, mean"
        found.append({"label": "Throughput", "value": value, "detail": detail})
    if "memory/process_bytes" in metrics and not emulated:
        peak = size(metrics["memory/process_bytes"]["max"])
        found.append({"label": "Process memory", "value": peak, "detail": "peak"})
    return found


def latest_events(session: Session, run_id: int) -> list[dict[str, Any]]:
    """The newest events in words, newest first; sampled statistics have their own table."""
    query = (
        select(Event)
        .where(Event.run_id == run_id, Event.kind.not_in(UNLISTED))
        .order_by(Event.attempt.desc(), Event.sequence.desc())
        .limit(MAX_EVENTS)
    )
    return [
        {
            "kind": event.kind.replace("_", " "),
            "tone": "caution" if event.payload.get("took_effect") is False else _TONES.get(event.kind, ""),
            "step": event.step,
            "text": event_text(event.kind, event.payload),
        }
        for event in session.scalars(query)
    ]


def events_note(session: Session, run_id: int, shown: int) -> str:
    """Whether the list is whole."""
    query = select(func.count()).where(Event.run_id == run_id, Event.kind.not_in(UNLISTED))
    total = session.scalar(query) or 0
    return "all of them, newest first" if total <= shown else f"the newest {shown} of {total}"


def event_text(kind: str, payload: dict[str, Any]) -> str:
    """One event in words."""
    if kind == "started":
        return f"{number(payload.get('num_parameters'))} parameters, ready after {number(payload.get('setup_s'), 2)} s"
    if kind == "evaluated":
        figures = ", ".join(f"{name} {number(value, 5)}" for name, value in payload.get("metrics", {}).items())
        return f"{figures}{' (final)' if payload.get('final') else ''}"
    if kind == "step_skipped":
        return f"overflow: loss scale {number(payload.get('scale_before'))} → {number(payload.get('scale_after'))}"
    if kind == "non_finite":
        return f"{payload.get('value')} in {payload.get('where')} {payload.get('name')}"
    if kind == "effective_precision":
        return str(payload.get("sentence", ""))
    if kind == "checkpointed":
        return f"{size(payload.get('num_bytes'))}{', kept' if payload.get('kept') else ''}"
    if kind == "zero_gradients":
        names = ", ".join(payload.get("zero_fraction", {}))
        probe = ", ".join(f"{name} {percent(value, 0)} zeros" for name, value in payload.get("probe", {}).items())
        return f"gradients of {names} became zeros; scaled by {number(payload.get('probe_scale'))}: {probe}"
    if kind == "diagnosis":
        return str(payload.get("sentence", ""))
    if kind == "report":
        return f"{payload.get('kind')}{'' if payload.get('final') else ', so far'}"
    if kind == "stress_finding":
        return f"{str(payload.get('case')).replace('_', ' ')}: {payload.get('sentence')}"
    if kind == "finished":
        return f"{number(payload.get('steps'))} steps in {number(payload.get('train_s'), 3)} s"
    return str(payload.get("message", ""))


def numerics(session: Session, run_id: int) -> dict[str, Any] | None:
    """The newest sample of gradients by module."""
    query = (
        select(Event)
        .where(Event.run_id == run_id, Event.kind == "numerics")
        .order_by(Event.attempt.desc(), Event.sequence.desc())
        .limit(1)
    )
    event = session.scalars(query).first()
    if event is None:
        return None
    modules = [
        module
        | {
            "zero_percent": round(100 * float(module["zero_fraction"]), 1),
            "alarm": float(module["zero_fraction"]) > ALARM_FRACTION,
        }
        for module in event.payload["modules"]
    ]
    return {"step": event.step, "loss_scale": event.payload["loss_scale"], "modules": modules}


def blocks(session: Session, run_id: int, attempt: int) -> list[dict[str, Any]]:
    """The timed blocks of a benchmark in order."""
    query = (
        select(Event.payload)
        .where(Event.run_id == run_id, Event.attempt == attempt, Event.kind == "benchmark_block")
        .order_by(Event.sequence)
    )
    timed = [block for block in session.scalars(query) if block["seconds"]]
    return [block | {"rate": block["samples"] / block["seconds"]} for block in timed]


def skipped_steps(session: Session, run_id: int, attempt: int) -> list[int]:
    """Every skipped step of the attempt."""
    query = select(Event.step).where(
        Event.run_id == run_id, Event.attempt == attempt, Event.kind == "step_skipped", Event.step.is_not(None)
    )
    return [step for step in session.scalars(query) if step is not None]


def configuration(run: dict[str, Any]) -> dict[str, Any]:
    """Recipe and run configuration, without what the page shows elsewhere."""
    hidden = ("run_id", "attempt", "scratch_dir")
    recipe = {key: value for key, value in run["recipe"].items() if key != "name"}
    config = {key: value for key, value in run["config"].items() if key not in hidden}
    return {"recipe": recipe, "seed": run["seed"], "steps": run["steps"], **config}

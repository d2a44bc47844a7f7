"""Alert rules: making, listing and removing them, and telling of what they find, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.engine import Database
from server.db.tables import Alert, AlertRule, Experiment, User, Workload
from server.errors import Fault, Forbidden, Invalid, NotFound
from server.queue.clock import store_now
from server.trends.queries import MEASURES, Measure, Point, points_of
from server.webhooks.outbox import announce

EARLIER = 8  # points before the newest whose median it is held against
FEWEST = 2
SHOWN = timedelta(days=14)
MAX_RULES = 50
WORDS = {"speed": "slower", "memory": "larger in memory", "quality": "worse in quality"}


@dataclass(frozen=True, kw_only=True)
class Found:
    """A newest point that is worse than those before it; ``worse_by`` is the fraction of the reference."""

    point: Point
    value: float
    reference: float
    worse_by: float


def regressions(points: Sequence[Point], measure: Measure, worse_by: float, since: datetime) -> Iterator[Found]:
    """Points that ended after ``since`` and are worse by more than ``worse_by`` than the median before them.

    A point is held against up to eight earlier ones of its series (recipe, device, settings), at least two.
    """
    series: dict[tuple[str, str, str], list[float]] = {}
    for point in points:
        value = point.value(measure)
        if value is None:
            continue
        before = series.setdefault(point.series, [])
        if point.at > since and len(before) >= FEWEST:
            reference = median(before[-EARLIER:])
            change = (reference - value if point.is_better_higher(measure) else value - reference) / (
                abs(reference) or 1.0
            )
            if change > worse_by:
                yield Found(point=point, value=value, reference=reference, worse_by=change)
        before.append(value)


def create(
    session: Session, principal: Principal, workload: str, measure: str, recipe: str | None, worse_by: float
) -> AlertRule:
    """Watch a workload from now on: what has ended before does not alert. Raises `Invalid`."""
    faults = []
    if session.scalar(select(Workload.id).where(Workload.name == workload).limit(1)) is None:
        faults.append(Fault(field="workload", value=workload[:80], rule="it is unknown", remedy="name a workload"))
    if measure not in MEASURES:
        faults.append(
            Fault(field="measure", value=measure[:40], rule=f"it is none of {', '.join(MEASURES)}", remedy="choose one")
        )
    if not 0.001 <= worse_by <= 1:
        rule = "it must lie between 0.1 % and 100 %"
        faults.append(Fault(field="worse_by", value=worse_by, rule=rule, remedy="5 % is a usual start"))
    if faults:
        raise Invalid(faults)
    held = session.scalar(select(func.count()).where(AlertRule.owner_id == principal.user_id)) or 0
    if held >= MAX_RULES:
        rule = f"you have {held} rules, and {MAX_RULES} are allowed"
        raise Invalid([Fault(field="workload", value=workload, rule=rule, remedy="delete one first")])
    now = store_now(session)
    rule_row = AlertRule(owner_id=principal.user_id, workload=workload, measure=measure, recipe=recipe or None,
                         worse_by=worse_by, created_at=now, checked_at=now)  # fmt: skip
    session.add(rule_row)
    session.flush()
    record(session, principal.user_id, "alert.create", f"alert/{rule_row.id}", workload=workload, measure=measure)
    return rule_row


def remove(session: Session, rule_id: int, principal: Principal) -> None:
    """Delete a rule of one's own, or as an admin any. Raises `NotFound`, `Forbidden`."""
    rule = session.get(AlertRule, rule_id)
    if rule is None:
        raise NotFound(f"alert rule {rule_id} is not here: GET /api/v1/alert-rules lists them")
    if rule.owner_id != principal.user_id and not principal.may("admin"):
        raise Forbidden(f"alert rule {rule_id} belongs to somebody else: its owner or an admin may delete it")
    session.delete(rule)
    session.flush()
    record(session, principal.user_id, "alert.delete", f"alert/{rule_id}")


def rules_json(session: Session, workload: str | None = None) -> list[dict[str, Any]]:
    """Every rule of the team, or those about one workload."""
    query = select(AlertRule, User.name).join(User, User.id == AlertRule.owner_id).order_by(AlertRule.id)
    if workload is not None:
        query = query.where(AlertRule.workload == workload)
    fields = ("id", "workload", "measure", "recipe", "worse_by", "created_at", "owner_id")
    return [
        {**{name: getattr(rule, name) for name in fields}, "owner": owner} for rule, owner in session.execute(query)
    ]


def alerts_json(session: Session, *, workload: str | None = None, unseen: bool = False) -> list[dict[str, Any]]:
    """Alerts of the last two weeks, the newest first."""
    query = (
        select(Alert, AlertRule.measure, AlertRule.workload, Experiment.name)
        .join(AlertRule, AlertRule.id == Alert.rule_id)
        .join(Experiment, Experiment.id == Alert.experiment_id)
        .where(Alert.at > datetime.now(UTC) - SHOWN)
        .order_by(Alert.at.desc(), Alert.id.desc())
        .limit(100)
    )
    if workload is not None:
        query = query.where(AlertRule.workload == workload)
    if unseen:
        query = query.where(Alert.seen_at.is_(None))
    fields = ("id", "rule_id", "experiment_id", "recipe", "message", "value", "reference", "at", "seen_at")
    return [
        {
            **{name: getattr(alert, name) for name in fields},
            "measure": measure,
            "workload": of,
            "experiment_name": named,
        }
        for alert, measure, of, named in session.execute(query)
    ]


def put_away(session: Session, alert_id: int) -> None:
    """Mark an alert as seen by the team. Raises `NotFound`."""
    alert = session.get(Alert, alert_id)
    if alert is None:
        raise NotFound(f"alert {alert_id} is not here: GET /api/v1/alerts lists those of the last two weeks")
    alert.seen_at = alert.seen_at or store_now(session)


def check_rules(database: Database) -> int:
    """Look at every workload with a rule in which something ended since; return how many alerts were new.

    Safe to call from several servers: an alert is one row for each rule, experiment and recipe.
    """
    with database.read() as session:
        due = session.scalars(select(AlertRule.id).where(_ended_since()).order_by(AlertRule.id)).all()
    told = 0
    for rule_id in due:
        with database.write() as session:
            rule = session.get(AlertRule, rule_id, with_for_update=True)
            if rule is not None:
                told += _check(session, rule)
    return told


def _ended_since() -> Any:
    return (
        select(Experiment.id)
        .join(Workload, Workload.id == Experiment.workload_id)
        .where(Workload.name == AlertRule.workload, Experiment.ended_at > AlertRule.checked_at)
        .exists()
    )


def _check(session: Session, rule: AlertRule) -> int:
    points = points_of(session, rule.workload)
    measure: Measure = next(known for known in MEASURES if known == rule.measure)
    now, told = store_now(session), 0
    for found in regressions(points, measure, rule.worse_by, rule.checked_at):
        if rule.recipe is None or rule.recipe == found.point.recipe:
            told += _tell(session, rule, found, now)
    ended = session.scalar(
        select(func.max(Experiment.ended_at))
        .join(Workload, Workload.id == Experiment.workload_id)
        .where(Workload.name == rule.workload)
    )
    rule.checked_at = max(rule.checked_at, ended) if ended is not None else rule.checked_at
    session.flush()
    return told


def _tell(session: Session, rule: AlertRule, found: Found, now: datetime) -> int:
    point = found.point
    known = select(Alert.id).where(
        Alert.rule_id == rule.id, Alert.experiment_id == point.experiment_id, Alert.recipe == point.recipe
    )
    if session.scalar(known) is not None:
        return 0
    message = (
        f"{rule.workload}, {point.recipe} on {point.device}: {100 * found.worse_by:.1f} % {WORDS[rule.measure]} than "
        f"the median of the experiments before"
    )
    alert = Alert(rule_id=rule.id, experiment_id=point.experiment_id, recipe=point.recipe, message=message,
                  value=found.value, reference=found.reference, at=now)  # fmt: skip
    session.add(alert)
    session.flush()
    payload = {
        "experiment": {"id": point.experiment_id, "name": point.name, "page": f"/experiments/{point.experiment_id}"},
        "workload": rule.workload, "measure": rule.measure, "recipe": point.recipe, "device": point.device,
        "message": message, "value": found.value, "reference": found.reference,
    }  # fmt: skip
    announce(session, "trend.alert", payload, now, rule.owner_id)
    return 1

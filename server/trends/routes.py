"""Trends and alert rules over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, status

from server.access import Principal, submitter, viewer
from server.records.subjects import Id
from server.state import DatabaseOf
from server.trends import alerts
from server.trends.changes import changes_in
from server.trends.queries import points_of
from server.trends.schemas import AlertList, RuleIn, RuleList, RuleOut, TrendOut, TrendPoint

router = APIRouter(prefix="/api/v1", tags=["trends"], dependencies=[Depends(viewer)])
Submitter = Annotated[Principal, Depends(submitter)]


@router.get("/trends/{workload}")
def show_trend(workload: str, database: DatabaseOf) -> TrendOut:
    """A workload over its ended experiments: speed, memory, quality and verdict by recipe, and where they changed."""
    with database.read() as session:
        points = points_of(session, workload)
    listed = [TrendPoint.model_validate(point, from_attributes=True) for point in points]
    return TrendOut.model_validate({"workload": workload, "points": listed, "changes": changes_in(points)})


@router.get("/alert-rules")
def list_alert_rules(
    database: DatabaseOf, workload: Annotated[str | None, Query(max_length=80)] = None
) -> RuleList:  # fmt: skip
    """The team's alert rules."""
    with database.read() as session:
        return RuleList.model_validate({"items": alerts.rules_json(session, workload)})


@router.post("/alert-rules", status_code=status.HTTP_201_CREATED)
def create_alert_rule(body: RuleIn, principal: Submitter, database: DatabaseOf) -> RuleOut:
    """Watch a workload: when an experiment ends worse than those before it, home and webhooks (trend.alert) tell."""
    with database.write() as session:
        rule = alerts.create(session, principal, body.workload, body.measure, body.recipe, body.worse_by)
        return RuleOut.model_validate({**vars(rule), "owner": principal.name})


@router.delete("/alert-rules/{rule_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_alert_rule(rule_id: Id, principal: Submitter, database: DatabaseOf) -> None:
    """Delete a rule of one's own, or as an admin any, with its alerts."""
    with database.write() as session:
        alerts.remove(session, rule_id, principal)


@router.get("/alerts")
def list_alerts(database: DatabaseOf, unseen: bool = False) -> AlertList:
    """Alerts of the last two weeks, the newest first."""
    with database.read() as session:
        return AlertList.model_validate({"items": alerts.alerts_json(session, unseen=unseen)})


@router.post("/alerts/{alert_id}/seen", status_code=status.HTTP_204_NO_CONTENT)
def mark_alert_seen(alert_id: Id, principal: Submitter, database: DatabaseOf) -> None:  # noqa: ARG001 - declares the role
    """Put an alert away for the whole team."""
    with database.write() as session:
        alerts.put_away(session, alert_id)

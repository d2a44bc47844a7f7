"""Who has used how much: device-seconds by person and kind of device, halved with each half-life that passes.

An attempt that ends is charged by the next claim, which knows the half-life; so ending a run needs no setting, and
two ends never wait for the same row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from server.db.base import table_of
from server.db.tables import Attempt, Experiment, Run, Usage

Account = tuple[int, str]  # user id, kind of device

_attempt, _run, _experiment, _usage = (
    table_of(entity).c for entity in (Attempt, Run, Experiment, Usage)
)  # fmt: skip
_ENDED = (
    select(_attempt.run_id, _attempt.number, _attempt.started_at, _attempt.ended_at, _run.device,
           (_run.num_devices * _run.num_hosts).label("num_devices"), _experiment.owner_id)
    .select_from(
        table_of(Attempt)
        .join(table_of(Run), _run.id == _attempt.run_id)
        .join(table_of(Experiment), _experiment.id == _run.experiment_id)
    )
    .where(_attempt.charged_at.is_(None), _attempt.ended_at.is_not(None))
    .limit(500)
)  # fmt: skip
_ACCOUNTS = select(_usage.user_id, _usage.kind, _usage.device_s, _usage.at)
_CHARGED = (
    update(table_of(Attempt))
    .where(_attempt.run_id == bindparam("of_run"), _attempt.number == bindparam("of_number"))
    .values(charged_at=bindparam("now"))
)
_CHANGED = (
    update(table_of(Usage))
    .where(_usage.user_id == bindparam("of_user"), _usage.kind == bindparam("of_kind"))
    .values(device_s=bindparam("new_s"), at=bindparam("now"))
)
_ADDED = insert(table_of(Usage))


def decayed(device_s: float, elapsed_s: float, half_life_s: float) -> float:
    """What is left of a charge after ``elapsed_s``; a charge of the future counts in full."""
    return device_s * math.pow(0.5, max(0.0, elapsed_s) / half_life_s)


def usage_at(session: Session, now: datetime, half_life_s: float) -> dict[Account, float]:
    """Every account as it stands now, without what runs at the moment."""
    rows = session.connection().execute(_ACCOUNTS)
    return {
        (user, kind): decayed(device_s, (now - at).total_seconds(), half_life_s) for user, kind, device_s, at in rows
    }


def charge_ended(session: Session, now: datetime, half_life_s: float) -> dict[Account, float]:
    """Charge every attempt that has ended and was not charged yet; return the accounts as they stand now.

    The caller is the only one to schedule at the moment.
    """
    connection = session.connection()
    before = usage_at(session, now, half_life_s)
    charges: dict[Account, float] = defaultdict(float)
    charged = []
    for run_id, number, started_at, ended_at, device, num_devices, owner_id in connection.execute(_ENDED):
        device_s = num_devices * max(0.0, (ended_at - started_at).total_seconds())
        charges[owner_id, device.partition(":")[0]] += decayed(device_s, (now - ended_at).total_seconds(), half_life_s)
        charged.append({"of_run": run_id, "of_number": number, "now": now})
    if not charged:
        return before
    connection.execute(_CHARGED, charged)
    after = dict(before)
    for (user_id, kind), device_s in charges.items():
        after[user_id, kind] = total = before.get((user_id, kind), 0.0) + device_s
        if (user_id, kind) in before:
            connection.execute(_CHANGED, {"of_user": user_id, "of_kind": kind, "new_s": total, "now": now})
        else:
            connection.execute(_ADDED, {"user_id": user_id, "kind": kind, "device_s": total, "at": now})
    return after

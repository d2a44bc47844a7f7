"""Experiments in groups that overlap: by tag, or by recipe with that recipe's own verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run
from server.experiments.queries import VERDICTS, ExperimentFilter, filtered, verdicts_of

OVERLAPPING = ("tag", "recipe")
NO_TAG = "without a tag"
MAX_EXPERIMENTS, MAX_GROUPS = 1000, 60  # the newest that groups are made of, and groups shown
COMPARED = ("baseline", "candidate", "tracked")


@dataclass(kw_only=True)
class Members:
    """One group: its experiments, the newest first, and in how many of them each verdict was given."""

    key: str
    ids: list[int] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)


def overlapping_groups(session: Session, chosen: ExperimentFilter, by: str) -> list[Members]:
    """The groups of the newest experiments that a filter lets through, the largest first. Raises `Invalid`.

    By recipe a verdict counts that was given to that recipe; by tag any of the experiment's, once.
    """
    newest = filtered(chosen).order_by(Experiment.created_at.desc(), Experiment.id.desc()).limit(MAX_EXPERIMENTS)
    experiments = session.scalars(newest).unique().all()
    recipes = _recipes(session, [one.id for one in experiments]) if by == "recipe" else {}
    groups: dict[str, Members] = {}
    for one in experiments:
        given = verdicts_of(one)
        for key in recipes.get(one.id, []) if by == "recipe" else one.tags or [NO_TAG]:
            group = groups.setdefault(key, Members(key=key))
            group.ids.append(one.id)
            told = {item["verdict"] for item in given if by == "tag" or item["recipe"] == key}
            group.verdicts.update(verdict for verdict in VERDICTS if verdict in told)
    return sorted(groups.values(), key=lambda group: (-len(group.ids), group.key))[:MAX_GROUPS]


def _recipes(session: Session, ids: Sequence[int]) -> dict[int, list[str]]:
    query = (
        select(Run.experiment_id, Run.recipe_name)
        .where(Run.experiment_id.in_(ids), Run.role.in_(COMPARED))
        .distinct()
        .order_by(Run.experiment_id, Run.recipe_name)
    )
    found: dict[int, list[str]] = defaultdict(list)
    for experiment_id, name in session.execute(query):
        found[experiment_id].append(name)
    return found

"""The runs and points that a report's charts show, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from amp_core.verdict.sentences import listing
from server.db.tables import Experiment, Run
from server.diff.queries import find_runs
from server.errors import Invalid, NotFound
from server.metrics.read import MIN_POINTS, windows
from server.pages import colours
from server.reports.curves import Curve
from server.reports.document import ChartBlock
from server.runs.forked import step_title_of

STILL_POINTS = 6000  # over all curves of a still chart: what bounds the size of an export


@dataclass(frozen=True, kw_only=True)
class ChartRuns:
    """The runs of a chart by name and style, or the fault why there are none. ``missing`` says which are left out."""

    groups: tuple[tuple[str, colours.Style, tuple[Run, ...]], ...] = ()
    fault: str = ""
    missing: str = ""

    @property
    def run_ids(self) -> list[int]:
        return [run.id for _, _, runs in self.groups for run in runs]

    @property
    def steps(self) -> str:
        """The title of their axis of steps."""
        return step_title_of([run.config for _, _, runs in self.groups for run in runs])


def runs_of(session: Session, block: ChartBlock) -> ChartRuns:
    """The block's runs, one group per experiment and recipe, each in a colour of its own as far as there are any."""
    if block.fault:
        return ChartRuns(fault=block.fault)
    run_ids = _here(session, Run.id, block.runs)
    experiment_ids = _here(session, Experiment.id, block.experiments)
    lost = [f"run {one}" for one in block.runs if one not in run_ids]
    lost += [f"experiment {one}" for one in block.experiments if one not in experiment_ids]
    missing = f"{listing(lost)} {'is' if len(lost) == 1 else 'are'} not here" if lost else ""
    try:
        runs = find_runs(session, run_ids, experiment_ids)
    except (NotFound, Invalid) as error:
        return ChartRuns(fault=str(error))
    if not runs:
        return ChartRuns(fault=missing or "there are no runs")
    return ChartRuns(groups=_grouped(runs), missing=missing)


def _here(session: Session, column: InstrumentedAttribute[int], ids: Sequence[int]) -> list[int]:
    """Those of the numbers that the store knows, in the order given."""
    known = set(session.scalars(select(column).where(column.in_(ids))))
    return [one for one in ids if one in known]


def _grouped(runs: Sequence[Run]) -> tuple[tuple[str, colours.Style, tuple[Run, ...]], ...]:
    several = len({run.experiment_id for run in runs}) > 1
    groups: dict[str, list[Run]] = {}
    for run in runs:
        name = f"{run.recipe_name}, #{run.experiment_id}" if several else run.recipe_name
        groups.setdefault(name, []).append(run)
    styles = colours.assign([{**of_name[0].recipe, "name": name} for name, of_name in groups.items()])
    return tuple((name, styles[name], tuple(of_name)) for name, of_name in groups.items())


def curves_of(session: Session, chosen: ChartRuns, series: str) -> list[Curve]:
    """The points of the series, thinned with every extreme kept."""
    ids = chosen.run_ids
    limit = max(MIN_POINTS, STILL_POINTS // max(1, len(ids)))
    loaded = windows(session, ids, [series], max_points=limit)
    found = []
    for name, style, runs in chosen.groups:
        for run in runs:
            window = loaded.get(run.id, {}).get(series)
            if window is not None:
                label = f"{name}, seed {run.seed}"
                found.append(
                    Curve(label=label, colour=style.light, dash=style.svg_dash, steps=window.points.steps,
                          values=window.points.values)
                )  # fmt: skip
    return found

"""Pictures of one seed side by side: those alike in every run once, the others by recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from server.db.tables import Artifact
from server.pages.colours import Style
from server.pages.pictures import MAX_TILES, Sheet, pictures_of, sheet_key, sheet_of


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One picture: its artifact, its box in the sheet, and what stands under it."""

    artifact_id: int
    box: tuple[int, int, int]
    caption: str
    style: Style | None
    detail: str

    @property
    def alt(self) -> str:
        return f"{self.caption}, {self.detail}" if self.detail else self.caption


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The pictures of ``seed`` and the sheet that holds their small versions."""

    seed: int
    key: str
    sheet: Sheet
    tiles: tuple[Tile, ...]


def gallery_of(session: Session, experiment: dict[str, Any], styles: dict[str, Style]) -> Gallery | None:
    """The gallery of the seed with the most pictures, None when no run made any."""
    runs = [run for run in experiment["runs"] if run["role"] in ("baseline", "candidate")]
    by_run: dict[int, list[Artifact]] = {run["id"]: [] for run in runs}
    for artifact in pictures_of(session, list(by_run)):
        by_run[artifact.run_id].append(artifact)
    counts: dict[int, int] = {}
    for run in runs:
        counts[run["seed"]] = counts.get(run["seed"], 0) + bool(by_run[run["id"]])
    seed = max(counts, key=lambda seed: counts[seed], default=None)
    if seed is None or not counts[seed]:
        return None
    members = [run for run in runs if run["seed"] == seed and by_run[run["id"]]]
    shown = _shown(members, by_run)[:MAX_TILES]
    pictures = [artifact for artifact, _ in shown]
    sheet = sheet_of(session, pictures)
    named = len({artifact.name for artifact, recipe in shown if recipe is not None}) > 1
    tiles = tuple(_tile(item, box, styles, named) for item, box in zip(shown, sheet.boxes, strict=True))
    return Gallery(seed=seed, key=sheet_key(pictures), sheet=sheet, tiles=tiles)


def _shown(members: list[dict[str, Any]], by_run: dict[int, list[Artifact]]) -> list[tuple[Artifact, str | None]]:
    """Pictures in order with the recipe that made them; None for those that every run made alike."""
    digests: dict[str, set[str]] = {}
    for run in members:
        for artifact in by_run[run["id"]]:
            digests.setdefault(artifact.name, set()).add(artifact.sha256)
    alike = {name for name, found in digests.items() if len(found) == 1 and len(members) > 1}
    common = [(artifact, None) for artifact in by_run[members[0]["id"]] if artifact.name in alike]
    own = [
        (artifact, str(run["recipe_name"]))
        for run in members
        for artifact in by_run[run["id"]]
        if artifact.name not in alike
    ]
    return [*common, *own]


def _tile(item: tuple[Artifact, str | None], box: tuple[int, int, int], styles: dict[str, Style], named: bool) -> Tile:
    artifact, recipe = item
    name = artifact.name.rsplit(".", 1)[0].replace("_", " ")
    if recipe is None:
        return Tile(artifact_id=artifact.id, box=box, caption=name, style=None, detail="")
    return Tile(
        artifact_id=artifact.id, box=box, caption=recipe, style=styles.get(recipe), detail=name if named else ""
    )

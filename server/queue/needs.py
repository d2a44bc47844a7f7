"""What a run needs of its devices beyond their kind; a row spells it ``bf16 label:fast memory:17179869184``.

A run that needs a file of one worker's disk has ``worker:NAME``, with spaces and percent signs of the name quoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from amp_core.config import Recipe

SAFE = "@:/+,"  # of a worker's name, besides letters, digits and _.-~
_CUDA_ABILITIES = {"tf32": "tf32", "bf16-mixed": "bf16", "bf16-true": "bf16", "fp8-mixed": "fp8"}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Abilities and memory that each device of the run must have, and labels that its worker must carry.

    ``worker``: the only one that may take it; empty for any.
    """

    abilities: frozenset[str] = frozenset()
    memory_bytes: int = 0
    labels: frozenset[str] = frozenset()
    worker: str = ""

    def spell(self) -> str:
        """The one spelling of these needs, as `runs.needs` keeps it."""
        words = [*sorted(self.abilities), *(f"label:{label}" for label in sorted(self.labels))]
        words += [f"worker:{quote(self.worker, safe=SAFE)}"] if self.worker else []
        return " ".join([*words, f"memory:{self.memory_bytes}"] if self.memory_bytes else words)

    def __str__(self) -> str:
        parts = [*sorted(self.abilities), *(f"the label {label}" for label in sorted(self.labels))]
        if self.memory_bytes:
            parts.append(f"{self.memory_bytes / 2**30:g} GiB of memory")
        if self.worker:
            parts.append(f"the worker {self.worker}, which has the checkpoint")
        return ", ".join(parts) or "nothing special"


NOTHING = Needs()


@lru_cache(maxsize=1024)
def parse_needs(text: str) -> Needs:
    """The needs that a row spells; words of a later version count as abilities, which no device here has."""
    abilities, labels, memory, worker = set[str](), set[str](), 0, ""
    for word in text.split():
        name, colon, value = word.partition(":")
        if colon and name == "label":
            labels.add(value)
        elif colon and name == "memory" and value.isdigit():
            memory = int(value)
        elif colon and name == "worker":
            worker = unquote(value)
        else:
            abilities.add(word)
    return Needs(abilities=frozenset(abilities), memory_bytes=memory, labels=frozenset(labels), worker=worker)


def needs_of(recipes: Iterable[Recipe], device: str, memory_bytes: int = 0, labels: Iterable[str] = ()) -> Needs:
    """What recipes need on a kind of device. A CPU computes every format, if need be slowly, so it needs none."""
    wanted = {_ability(recipe) for recipe in recipes} if device.startswith("cuda") else set()
    abilities = frozenset(ability for ability in wanted if ability is not None)
    return Needs(abilities=abilities, memory_bytes=memory_bytes, labels=frozenset(labels))


def _ability(recipe: Recipe) -> str | None:
    """What a GPU must be able to compute; fp8 emulated there still runs bf16 beside it."""
    emulated = recipe.precision == "fp8-mixed" and recipe.fp8_compute == "emulated"
    return "bf16" if emulated else _CUDA_ABILITIES.get(recipe.precision)

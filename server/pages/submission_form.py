"""The form of a new experiment: its rows, its defaults, and the submission that its fields spell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError
from server.errors import Fault, Invalid
from server.experiments.sweep_text import sweep_of
from server.pages.colours import STYLES, Style

DEFAULT_SCALE = "65536"
FIELDS = (
    "name", "seeds", "steps", "eval_every", "margin", "device", "control", "measure_gain", "priority", "tags", "note",
    "sweep", "draws", "also.sensitivity", "also.stress", "also.layers", "fork.run", "fork.step", "fork.horizon",
    "keep_checkpoints", "hosts", "ranks", "strategy",
)  # fmt: skip
ALSO = ("sensitivity", "stress", "layers")  # analyses that a submission may ask of every candidate
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the recipe matrix."""

    label: str
    precision: str
    kind: str | None
    slot: str
    help: str

    @property
    def style(self) -> Style:
        return STYLES[self.slot]

    @property
    def scaled(self) -> bool:
        return self.kind in ("dynamic", "static")


MATRIX = (
    Row(label="32-true", precision="32-true", kind=None, slot="fp32", help="FP32 everywhere, TF32 off"),
    Row(label="bf16-mixed", precision="bf16-mixed", kind=None, slot="bf16", help="FP32's range, 8 bits of precision"),
    Row(label="16-mixed", precision="16-mixed", kind="dynamic", slot="fp16", help="dynamic loss scale (GradScaler)"),
    Row(label="16-mixed, static scale", precision="16-mixed", kind="static", slot="fp16-static", help="fixed scale"),
    Row(label="16-mixed, no scaler", precision="16-mixed", kind="none", slot="fp16-none", help="shows what underflows"),
)


def row_fields(index: int) -> tuple[str, ...]:
    return tuple(f"recipe.{index}.{field}" for field in ("on", "init_scale", "growth_interval", "fp32_modules"))


def blank(workload: Mapping[str, Any]) -> dict[str, str]:
    """The form of a workload before anybody touched it: its own steps, recipes, margin and parameters."""
    form = dict.fromkeys(FIELDS, "")
    form |= {
        "name": str(workload["title"] or workload["name"])[:200],
        "seeds": "5",
        "steps": str(workload["steps"] or ""),
        "margin": f"{workload['primary']['margin']:g}",
        "device": "auto",
        "control": "1",
        "measure_gain": "1",
        "priority": "0",
        "hosts": "1",
        "ranks": "1",
        "strategy": "ddp",
    }
    form |= {f"params.{item['name']}": spelled(item["default"]) for item in workload["parameters"]}
    for index in range(len(MATRIX)):
        form |= dict.fromkeys(row_fields(index), "")
        form[f"recipe.{index}.init_scale"] = DEFAULT_SCALE
        form[f"recipe.{index}.growth_interval"] = "2000"
    for recipe in workload["recipes"] or ["32-true", "bf16-mixed", "16-mixed"]:
        _switch_on(form, recipe)
    return form


def copied(workload: Mapping[str, Any], submission: Mapping[str, Any]) -> dict[str, str]:
    """The form filled with an earlier submission."""
    form = blank(workload)
    seeds = submission.get("seeds", 5)
    form |= {
        "name": str(submission.get("name") or form["name"]),
        "seeds": ", ".join(str(seed) for seed in seeds) if isinstance(seeds, list) else str(seeds),
        "device": str(submission.get("device") or "auto"),
        "control": "1" if submission.get("control", True) else "",
        "measure_gain": "1" if submission.get("measure_gain", True) else "",
        "priority": str(submission.get("priority", 0)),
        "hosts": str(submission.get("hosts", 1)),
        "ranks": str(submission.get("ranks", 1)),
        "strategy": str(submission.get("strategy", "ddp")),
        "tags": ", ".join(submission.get("tags") or []),
        "note": str(submission.get("note") or ""),
        "eval_every": str(submission.get("eval_every") or ""),
    }
    if (fork := submission.get("fork")) is not None:
        form |= {f"fork.{name}": str(fork.get(name) or "") for name in ("run", "step", "horizon")}
    kept = submission.get("keep_checkpoints")
    form["keep_checkpoints"] = ", ".join(map(str, kept)) if isinstance(kept, list) else kept or ""
    asked = {one["kind"] for one in submission.get("analyses") or []}
    form |= {f"also.{kind}": "1" if kind in asked else "" for kind in ALSO}
    if submission.get("steps"):
        form["steps"] = str(submission["steps"])
    if (submission.get("primary") or {}).get("margin"):
        form["margin"] = f"{submission['primary']['margin']:g}"
    for name, value in (submission.get("params") or {}).items():
        form[f"params.{name}"] = spelled(value)
    if submission.get("recipes"):
        for index in range(len(MATRIX)):
            form[f"recipe.{index}.on"] = ""
        for recipe in submission["recipes"]:
            _switch_on(form, recipe)
    return form


def spelled(value: Any) -> str:
    """A parameter's value as the form writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _switch_on(form: dict[str, str], given: str | dict[str, Any]) -> None:
    """Tick the row of a recipe and take over its options."""
    try:
        recipe = parse_recipe(given)
    except RecipeError:
        return
    kind = recipe.scaler.kind if recipe.scaler is not None and recipe.precision == "16-mixed" else None
    for index, row in enumerate(MATRIX):
        if (row.precision, row.kind) == (recipe.precision, kind):
            form[f"recipe.{index}.on"] = "1"
            form[f"recipe.{index}.fp32_modules"] = ", ".join(recipe.fp32_modules)
            if recipe.scaler is not None:
                form[f"recipe.{index}.init_scale"] = f"{recipe.scaler.init_scale:.12g}"
                form[f"recipe.{index}.growth_interval"] = str(recipe.scaler.growth_interval)


def typed(text: str, kind: str = "any") -> Any:
    """A field's text as the value it spells; text that is no figure stays text, and the service says what is wrong."""
    text = text.strip()
    if kind == "str":
        return text
    if text.lower() in ("true", "false") and kind in ("bool", "any"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text) and len(text) < 20:
        return int(text) if kind != "float" else float(text)
    try:
        return float(text)
    except ValueError:
        return text


def submission_of(form: Mapping[str, str], workload: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """The body for ``POST /experiments``, without what is the default anyway, and the matrix row of each recipe."""
    default = blank(workload)
    body: dict[str, Any] = {"name": form["name"].strip(), "workload": workload["name"]}
    params = {}
    for item in workload["parameters"]:
        name = f"params.{item['name']}"
        if form.get(name, default[name]).strip() != default[name]:
            params[item["name"]] = typed(form[name], item["type"])
    if params:
        body["params"] = params
    rows = [index for index in range(len(MATRIX)) if form.get(f"recipe.{index}.on")]
    body["recipes"] = [recipe_of(form, index) for index in rows]
    if analyses := analyses_of(form, body["recipes"]):
        body["analyses"] = analyses
    body["seeds"] = seeds_of(form["seeds"])
    if any(form.get(f"fork.{name}", "").strip() for name in ("run", "step", "horizon")):
        body["fork"] = fork_of(form)
    for name in ("steps", "eval_every"):
        if form[name].strip() and not (name == "steps" and "fork" in body):  # whose horizon is the length
            body[name] = typed(form[name], "int")
    if form.get("keep_checkpoints", "").strip():
        body["keep_checkpoints"] = kept_in(form["keep_checkpoints"])
    if form["margin"].strip() and form["margin"].strip() != default["margin"]:
        body["primary"] = {"margin": typed(form["margin"])}
    body |= {"control": bool(form.get("control")), "measure_gain": bool(form.get("measure_gain"))}
    if form["device"] != "auto":
        body["device"] = form["device"]
    for name in ("hosts", "ranks"):
        if form[name].strip() not in ("", "1"):
            body[name] = typed(form[name], "int")
    if form["strategy"].strip() not in ("", "ddp"):
        body["strategy"] = form["strategy"]
    if form["priority"].strip() not in ("", "0"):
        body["priority"] = typed(form["priority"], "int")
    tags = [tag.strip() for tag in form["tags"].split(",") if tag.strip()]
    return body | ({"tags": tags} if tags else {}) | ({"note": form["note"]} if form["note"].strip() else {}), rows


def analyses_of(form: Mapping[str, str], recipes: list[str | dict[str, Any]]) -> list[dict[str, Any]]:
    """What is asked of every recipe that lowers something; a recipe that cannot be read is told by its own row."""
    names = []
    for given in recipes:
        try:
            recipe = parse_recipe(given)
        except RecipeError:
            continue
        if recipe.precision not in ("32-true", "tf32"):
            names.append(recipe.name)
    return [{"kind": kind, "recipe": name} for kind in ALSO if form.get(f"also.{kind}") for name in names]


def sweep_in(form: Mapping[str, str]) -> dict[str, Any] | None:
    """The sweep that the form spells, one parameter a line, or None. Raises `Invalid`."""
    lines = [line.strip() for line in form.get("sweep", "").splitlines() if line.strip()]
    if not lines:
        return None
    draws = typed(form.get("draws", ""), "int") if form.get("draws", "").strip() else None
    try:
        return sweep_of(lines, draws)
    except ValueError as error:
        raise Invalid([Fault(field="sweep", value=None, rule=str(error), remedy="mend the line")]) from error


def recipe_of(form: Mapping[str, str], index: int) -> str | dict[str, Any]:
    """A row as people write it: a name when nothing is special about it, else an object."""
    row = MATRIX[index]
    at = f"recipe.{index}"
    scaler: dict[str, Any] = {"kind": row.kind} if row.kind is not None else {}
    if row.scaled and form.get(f"{at}.init_scale", DEFAULT_SCALE).strip() not in ("", DEFAULT_SCALE):
        scaler["init_scale"] = typed(form[f"{at}.init_scale"])
    if row.kind == "dynamic" and form.get(f"{at}.growth_interval", "2000").strip() not in ("", "2000"):
        scaler["growth_interval"] = typed(form[f"{at}.growth_interval"], "int")
    kept = [name.strip() for name in form.get(f"{at}.fp32_modules", "").split(",") if name.strip()]
    if not kept and (not scaler or scaler == {"kind": "dynamic"}):
        return row.precision
    recipe: dict[str, Any] = {"precision": row.precision}
    if scaler:
        recipe["scaler"] = scaler
    if kept:
        recipe |= {"fp32_modules": kept, "name": f"{row.label}, {', '.join(kept)} in FP32"[:80]}
    return recipe


def fork_of(form: Mapping[str, str]) -> dict[str, Any]:
    """Where the runs begin; a field that was left empty is left out, and the service says what is missing."""
    given = {name: form.get(f"fork.{name}", "").strip() for name in ("run", "step", "horizon")}
    return {name: "last" if text == "last" else typed(text, "int") for name, text in given.items() if text}


def kept_in(text: str) -> Any:
    """``last``, or steps with commas."""
    parts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    return "last" if parts == ["last"] else [typed(part, "int") for part in parts]


def seeds_of(text: str) -> Any:
    """``5`` is a number of seeds, ``3, 7, 11`` a list."""
    parts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    if len(parts) <= 1 and "," not in text:
        return typed(text, "int")
    return [typed(part, "int") for part in parts]


def _rule(fault: Fault) -> str:
    """The rule with the value it concerns, once, and without the path that a decoder adds."""
    rule = re.sub(r" - at `\$[^`]*`", "", fault.rule)
    told = fault.value in (None, "") or isinstance(fault.value, dict | list) or str(fault.value) in rule
    return rule if told else f"{fault.value!r}: {rule}"


def placed(faults: tuple[Fault, ...], rows: list[int]) -> list[dict[str, Any]]:
    """Faults with the name of the form field each belongs to."""
    result = []
    for fault in faults:
        field = fault.field
        found = re.match(r"recipes\.(\d+)", field)
        if found and int(found.group(1)) < len(rows):
            field = f"recipe.{rows[int(found.group(1))]}"
        elif field.startswith("seeds"):
            field = "seeds"
        elif field.startswith("analyses"):
            field = "also"
        elif field.startswith("keep_checkpoints"):
            field = "keep_checkpoints"
        elif field == "fork":
            field = "fork.run"
        elif field.startswith("tags"):
            field = "tags"
        elif field.startswith("sweep"):
            field = "draws" if field == "sweep.num" else "sweep"
        elif field == "baseline":
            field = "recipes"
        result.append({"field": field, "value": fault.value, "rule": _rule(fault), "remedy": fault.remedy})
    return result

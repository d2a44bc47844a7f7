"""The reference pages that are generated from code: docs/configuration.md and docs/rest.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from server.access.dependencies import roles_of
from server.routers import ROUTERS
from server.settings import Settings
from server.version import VERSION

CONFIGURATION_HEAD = """\
# Configuration

Generated from `server/settings.py` by `make docs`. Every setting is an environment variable; server, worker and command
line read the same ones. None is needed: by default everything is embedded and listens on loopback only. Secrets have no
default, and never reach a run's process.

| variable | type | default | meaning |
|---|---|---|---|
"""

REST_HEAD = """\
# The REST interface

Generated from the OpenAPI description by `make docs`; a server gives its own at `/api/v1/openapi.json`.

**Who may.** Send `Authorization: Bearer amp_…`; `ampboard token create NAME` or the account page makes a token. Each
operation names the role it needs: *viewer* reads everything of the team, *submitter* also submits, cancels, retries and
clones, *admin* also manages people. A token never does more than its owner may. Browsers use a session cookie, and must
send `Origin` to change something.

**Errors** are problem details (RFC 9457, `application/problem+json`): `type`, `title`, `status`, `detail`, and for an
invalid request `errors`, a list of `{field, value, rule, remedy}` with every fault at once.

**Lists** are `{items, next_cursor}`: pass `next_cursor` as `cursor` to get the next page; null is the end.

**Numbers** that JSON cannot spell are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`. Times are ISO 8601 in UTC.

**Points without JSON.** Send `Accept: application/vnd.ampboard.series`, and series come as raw arrays: the bytes
`AMPSER01`, the length of the header (uint64), the header (JSON: `series`, a list of windows without their points,
padded with spaces to a multiple of 8), and for each series int64 steps, float64 values and float64 unix seconds,
`num_points` each, all little-endian. Answers about runs that have ended carry an `ETag`; send it as `If-None-Match`.

**Submit and read:**

    curl -H "Authorization: Bearer $AMPBOARD_TOKEN" -H "Content-Type: application/json" \\
      -d '{"workload": "digits-cnn", "recipes": ["fp32", "bf16", "fp16"], "seeds": 5}' \\
      http://127.0.0.1:8420/api/v1/experiments
    curl -H "Authorization: Bearer $AMPBOARD_TOKEN" http://127.0.0.1:8420/api/v1/experiments/1/comparison

An `Idempotency-Key` header makes a repeated submission harmless: within a day the same key gives the same experiment.
"""


def configuration_markdown() -> str:
    """docs/configuration.md: every setting with its variable, type, default and meaning."""
    return CONFIGURATION_HEAD + "".join(f"{row}\n" for row in _setting_rows())


def _setting_rows() -> Iterator[str]:
    schema = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        default = _default(field.get_default(call_default_factory=True))
        kind = _kind(schema[name])
        yield f"| `AMPBOARD_{name.upper()}` | {kind} | {default} | {field.description} |"


def _default(value: Any) -> str:
    if value is None or value == []:
        return "unset"
    if isinstance(value, Path):
        return f"`~/{value.relative_to(Path.home())}`" if value.is_relative_to(Path.home()) else f"`{value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return _kind(next(option for option in schema["anyOf"] if option.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "password":
        return "secret"
    if schema.get("format") == "path":
        return "path"
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}s"
    return {"integer": "integer", "number": "number", "boolean": "true or false", "string": "text"}[schema["type"]]


def rest_markdown() -> str:
    """docs/rest.md: every operation with its role, parameters, body and answer, and every schema."""
    app = application()
    schema, roles = app.openapi(), roles_of(app)
    parts = [REST_HEAD]
    for tag, operations in _by_tag(schema).items():
        parts.append(f"\n## {tag.capitalize()}\n")
        for method, path, operation in operations:
            parts.append(_operation(method, path, operation, roles.get((method, path), "none: open to everybody")))
    parts.append("\n## Schemas\n")
    for name, item in sorted(schema["components"]["schemas"].items()):
        if not name.startswith(("Body_", "HTTPValidationError", "ValidationError")):
            parts.append(_schema(name, item))
    return "".join(parts)


def application() -> FastAPI:
    """Every route, without a database behind it."""
    app = FastAPI(title="ampboard", version=VERSION)
    for router in ROUTERS:
        app.include_router(router)
    return app


_TAGS = (
    "experiments", "comparisons", "runs", "actions", "views", "search", "tracking",
    "series", "records", "streams", "workloads", "workers",
    "projects",
)  # fmt: skip


def _by_tag(schema: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append((method.upper(), path, operation))
    rank = {name: place for place, name in enumerate(_TAGS)}
    return dict(sorted(groups.items(), key=lambda item: rank.get(item[0], len(rank))))


def _operation(method: str, path: str, operation: dict[str, Any], role: str) -> str:
    text = operation.get("description", operation.get("summary", "")).replace("``", "`")
    lines = [f"\n### `{method} {path}`\n", f"{text} Role: {role}.\n"]
    rows = [_parameter(item) for item in operation.get("parameters", []) if item["in"] != "path"]
    if rows:
        lines += ["| parameter | in | type | meaning |", "|---|---|---|---|", *rows, ""]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        lines.append(f"Body: {_type(body)}\n")
    answers = [_answer(status, item) for status, item in operation["responses"].items() if status != "422"]
    lines.append(f"Answer: {'; '.join(answers)}\n")
    return "\n".join(lines)


def _parameter(item: dict[str, Any]) -> str:
    schema = item.get("schema", {})
    kind = _type(schema).removesuffix(" or null")
    if schema.get("default") is not None:
        kind = f"{kind}, default `{schema['default']}`"
    return f"| `{item['name']}` | {item['in']} | {kind} | {item.get('description', '')} |"


def _answer(status: str, response: dict[str, Any]) -> str:
    content = response.get("content", {})
    if "application/json" in content:
        kind = _type(content["application/json"].get("schema", {}))
        return f"{status} {kind}" if kind else status
    return f"{status} {', '.join(f'`{name}`' for name in content)}" if content else status


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_type(option) for option in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    limits = [f"{sign} {schema[key]:g}" for key, sign in _LIMITS.items() if key in schema]
    if "maxLength" in schema:
        limits.append(f"up to {schema['maxLength']} characters")
    kind = str(schema.get("format") if schema.get("format") == "date-time" else schema.get("type", ""))
    return f"{kind} {', '.join(limits)}".strip()


_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _schema(name: str, schema: dict[str, Any]) -> str:
    lines = [f"\n### {name}\n"]
    if schema.get("description"):
        lines.append(f"{schema['description']}\n".replace("``", "`"))
    lines += ["| field | type | meaning |", "|---|---|---|"]
    required = set(schema.get("required", []))
    for field, item in schema.get("properties", {}).items():
        mark = "" if field in required or "default" not in item else f", default `{item['default']}`"
        meaning = " ".join(str(item.get("description", "")).split())
        lines.append(f"| `{field}` | {_type(item)}{mark} | {meaning} |".replace("default `None`", "optional"))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both pages into docs/ of this checkout."""
    folder = Path(__file__).resolve().parent.parent / "docs"
    (folder / "configuration.md").write_text(configuration_markdown(), encoding="utf-8")
    (folder / "rest.md").write_text(rest_markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()

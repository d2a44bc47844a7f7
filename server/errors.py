"""The server's errors, and the one place where they become responses.

ServerError
├── ConfigurationError      the process cannot start: bad address, port taken, nobody has an account
└── RequestError            a request that is refused; each has a status and a short code
    ├── NotFound            404
    ├── Unauthenticated     401
    ├── Forbidden           403
    ├── Conflict            409
    ├── TooLarge            413
    ├── TooManyRequests     429
    ├── Invalid             422, with one `Fault` per field
    └── Unavailable         503

API callers get problem details (RFC 9457); browsers get the page that ``app.state.error_page`` renders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from sqlalchemy.exc import DataError, NoResultFound
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from amp_core.errors import AmpError
from server.db.errors import StoreUnavailable
from server.db.json_values import clean_text, to_json

logger = logging.getLogger(__name__)


GONE = "it was deleted a moment ago: look at the list again"


class ServerError(Exception):
    """Base of everything the server raises on purpose."""


class ConfigurationError(ServerError):
    """The process cannot start as configured: the message names the value, the rule and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with one field of a request."""

    field: str
    value: Any
    rule: str
    remedy: str


class RequestError(ServerError):
    """A refused request. ``str(error)`` is the detail shown to the caller."""

    status = 400
    code = "bad-request"
    title = "The request cannot be served"
    faults: tuple[Fault, ...] = ()
    headers: dict[str, str] | None = None


class NotFound(RequestError):
    status, code, title = 404, "not-found", "Not found"


class Unauthenticated(RequestError):
    status, code, title = 401, "unauthenticated", "Sign in first"
    headers = {"WWW-Authenticate": 'Bearer realm="ampboard"'}  # noqa: RUF012 - a constant, never changed


class Forbidden(RequestError):
    status, code, title = 403, "forbidden", "Not allowed"


class Conflict(RequestError):
    status, code, title = 409, "conflict", "The request does not fit the present state"


class TooLarge(RequestError):
    status, code, title = 413, "too-large", "The request body is too large"


class TooManyRequests(RequestError):
    status, code, title = 429, "too-many-requests", "Too many attempts"


class Unavailable(RequestError):
    status, code, title = 503, "unavailable", "Temporarily unavailable"
    headers = {"Retry-After": "5"}  # noqa: RUF012 - a constant, never changed


class Invalid(RequestError):
    """The request was read, but its content cannot be accepted; every fault is reported, not only the first."""

    status, code, title = 422, "invalid", "The request is not valid"

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults, "an Invalid names at least one fault"
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault.field}: {fault.rule}" for fault in faults))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] = field(default_factory=list)


ErrorPage = Callable[[Request, Problem], Response]


def spell(value: Any, depth: int = 0) -> Any:
    """The value as an answer may show it: storable JSON, long text and lists cut, nothing nested deeply."""
    if isinstance(value, str):
        return clean_text(value if len(value) <= 200 else value[:200] + "…")
    if depth > 4:
        return "…"
    if isinstance(value, dict):
        return {clean_text(str(key)[:200]): spell(item, depth + 1) for key, item in list(value.items())[:50]}
    if isinstance(value, list | tuple | set):
        return [spell(item, depth + 1) for item in list(value)[:50]]
    return to_json(value)


def problem_of(error: RequestError) -> Problem:
    """The problem details of a refusal."""
    return Problem(
        type=f"urn:ampboard:problem:{error.code}",
        title=error.title,
        status=error.status,
        detail=str(error) or error.title,
        errors=[spell(asdict(fault)) for fault in error.faults],
    )


def wants_html(request: Request) -> bool:
    """Whether the caller is a person in front of a browser rather than a client of the API."""
    return not request.scope["path"].startswith("/api/") and "text/html" in request.headers.get("accept", "")


def respond(request: Request, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The response for a problem: problem details, the error page, or the way to the sign-in page."""
    if wants_html(request):
        if problem.status == 401 and request.method == "GET":
            query = request.scope["query_string"].decode("latin-1")
            target = quote(request.scope["path"]) + (f"?{query}" if query else "")
            return RedirectResponse(f"/signin?next={quote(target, safe='')}", status_code=303)
        page: ErrorPage | None = getattr(request.app.state, "error_page", None)
        if page is not None:
            answer = page(request, problem)
            answer.headers.update(headers or {})
            return answer
    body = {key: value for key, value in asdict(problem).items() if key != "errors" or value}
    return JSONResponse(body, status_code=problem.status, headers=headers, media_type="application/problem+json")


def respond_to(request: Request, error: RequestError) -> Response:
    """The response for a refusal."""
    return respond(request, problem_of(error), error.headers)


def faults_of(error: RequestValidationError) -> list[Fault]:
    """Pydantic's findings as faults: the field's path, what was given, the rule, and where the right form is told."""
    faults = []
    for item in error.errors():
        location = [str(part) for part in item["loc"] if part not in ("body", "query", "path", "header")]
        faults.append(
            Fault(
                field=".".join(location) or "body",
                value=_shown(item, location),
                rule=_rule(item),
                remedy=_REMEDIES.get(item["type"], "send a value that fits the rule; docs/rest.md shows the fields"),
            )
        )
    return faults


def _shown(item: dict[str, Any], location: list[str]) -> Any:
    """What was given for a field; never a whole body, and never a secret."""
    if not location or item["type"] == "missing" or {"password", "current_password", "token"} & set(location):
        return None
    return item.get("input")


_REMEDIES = {
    "missing": "add the field",
    "extra_forbidden": "remove the field or mend its name",
    "json_invalid": "send a JSON object with the header Content-Type: application/json",
}


def _rule(item: dict[str, Any]) -> str:
    if item["type"] == "json_invalid":
        return f"the body is not JSON: {item.get('ctx', {}).get('error', item['msg'])}"
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def internal_error(request: Request) -> Response:
    """The response for an exception nobody foresaw; it tells nothing of it."""
    detail = "the server failed on this request; its log has the traceback"
    problem = Problem(type="urn:ampboard:problem:internal", title="Internal server error", status=500, detail=detail)
    return respond(request, problem)


async def _too_deep(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the handler's signature
    """JSON nested beyond what the parser follows."""
    fault = Fault(field="body", value=None, rule="the JSON is nested too deeply", remedy="send a flat object")
    return respond_to(request, Invalid([fault]))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return respond_to(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return respond_to(request, Invalid(faults_of(error)))


async def _engine_error(request: Request, error: Exception) -> Response:
    return respond_to(request, Invalid([Fault(field="body", value=None, rule=str(error), remedy="mend the value")]))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 413:
        return respond_to(request, TooLarge(error.detail))
    kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    problem = Problem(
        type=f"urn:ampboard:problem:{kind}", title=str(error.detail), status=error.status_code, detail=detail
    )
    return respond(request, problem, dict(error.headers or {}))


async def _database_away(request: Request, error: Exception) -> Response:
    logger.error("%s %s: %s", request.method, request.url.path, error)
    return respond_to(request, Unavailable(str(error)))


async def _gone(request: Request, error: Exception) -> Response:
    """A row that was there a moment ago: someone deleted it before it could be locked."""
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    return respond_to(request, NotFound(GONE))


async def _beyond_the_columns(request: Request, error: Exception) -> Response:
    logger.info("%s %s: %s", request.method, request.url.path, type(error).__name__)
    rule = "a number or a text in the request is beyond what the database can hold"
    return respond_to(request, Invalid([Fault(field="request", value=None, rule=rule, remedy="mend the value")]))


def install_handlers(app: FastAPI) -> None:
    """Make every error of ``app`` a problem response."""
    for kind, handler in {
        RequestError: _refused,
        RequestValidationError: _invalid,
        AmpError: _engine_error,
        HTTPException: _http_error,
        StoreUnavailable: _database_away,
        NoResultFound: _gone,
        DataError: _beyond_the_columns,
        OverflowError: _beyond_the_columns,
        RecursionError: _too_deep,
    }.items():
        app.add_exception_handler(kind, handler)

"""What callers are told when something is wrong, and what the log keeps to itself."""

from __future__ import annotations

import json
import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from team import BASE_URL, Team

from server.access.middleware import HeadersAndLog
from server.db.errors import StoreUnavailable
from server.errors import install_handlers, spell
from server.logs import JsonFormatter, RedactingFormatter, bound_run, redact


@pytest.mark.parametrize(
    ("role", "method", "path", "status", "kind"),
    [
        (None, "GET", "/api/v1/runs", 401, "unauthenticated"),
        ("viewer", "POST", "/api/v1/experiments", 403, "forbidden"),
        ("viewer", "GET", "/api/v1/runs/1", 404, "not-found"),
        ("viewer", "GET", "/api/v1/nowhere", 404, "not-found"),
        ("viewer", "PUT", "/api/v1/runs/1", 405, "method-not-allowed"),
        ("submitter", "POST", "/api/v1/experiments", 422, "invalid"),
    ],
)
def test_refusals_are_problem_details(
    team: Team, role: str | None, method: str, path: str, status: int, kind: str
) -> None:
    body = {"json": {}} if method == "POST" else {}
    response = team.client(role).request(method, path, **body)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"], problem["type"]) == (
        status,
        status,
        f"urn:ampboard:problem:{kind}",
    )
    assert problem["title"]
    assert problem["detail"]


def test_browsers_get_pages(team: Team) -> None:
    response = team.browser("viewer").get("/runs/99")
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "run 99 does not exist" in response.text
    hostile = team.browser("viewer").get("/<script>alert(1)</script>")
    assert hostile.status_code == 404
    assert "<script>alert" not in hostile.text


@pytest.fixture
def failing() -> TestClient:
    app = FastAPI()
    install_handlers(app)
    app.add_middleware(HeadersAndLog)

    @app.get("/bug")
    def bug() -> None:
        raise KeyError("internal detail")

    @app.get("/away")
    def away() -> None:
        raise StoreUnavailable("the database server cannot be reached: check that it runs")

    return TestClient(app, base_url=BASE_URL)


def test_an_unforeseen_error_tells_nothing_but_is_logged(failing: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    response = failing.get("/bug")
    assert response.status_code == 500
    assert response.json()["type"] == "urn:ampboard:problem:internal"
    assert "internal detail" not in response.text
    assert "internal detail" in caplog.text
    assert "content-security-policy" in response.headers


def test_a_database_that_is_away_is_a_503(failing: TestClient) -> None:
    response = failing.get("/away")
    assert response.status_code == 503
    assert "check that it runs" in response.json()["detail"]


def test_not_ready_while_the_tables_are_of_another_version(team: Team) -> None:
    assert team.client().get("/readyz").json() == {"status": "ready"}
    with team.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'unknown'"))
    response = team.client().get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable", "cause": "schema"})
    assert team.client().get("/healthz").status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["workload", "name", "params", "recipes", "seeds", "baseline", "steps", "eval_every", "primary", "control",
     "device", "max_time_s", "max_memory_bytes", "priority", "project", "tags", "note", "zzz"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(FIELDS, JSON, max_size=6), known=st.booleans())
def test_no_body_breaks_the_submission(team: Team, body: dict[str, object], known: bool) -> None:
    if known:
        body = {**body, "workload": "digits-cnn"}
    raw = json.dumps(body).encode()
    client = team.client("submitter")
    response = client.post("/api/v1/experiments", content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code in (201, 422)
    response.json()


@given(value=JSON)
def test_whatever_was_given_can_be_shown_back(value: object) -> None:
    json.dumps(spell(value), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("token amp_abcdefghijklmnopqrstuvwxyz0123 used", "abcdefghijklmnop"),
        ("GET /signin?token=link_abcdefghijklmnop-_xyz", "abcdefghijklmnop"),
        ("cookie ses_abcdefghijklmnopqrstuv", "abcdefghijklmnop"),
        ("postgresql+psycopg://user:s3cr3t@db:5432/x", "s3cr3t"),
        ("redis://:s3cr3t@redis:6379/0", "s3cr3t"),
        ('{"password": "hunter2"}', "hunter2"),
        ("Authorization: Bearer eyJhbGciOi", "eyJhbGciOi"),
    ],
)
def test_secrets_are_taken_out_of_log_lines(line: str, secret: str) -> None:
    assert secret not in redact(line)
    assert "[redacted]" in redact(line)


def test_ordinary_lines_stay() -> None:
    line = "run 3: loss 0.5 at step 10; see http://127.0.0.1:8420/runs/3 and amp/loss_scale"
    assert redact(line) == line


def _failure(secret: str) -> logging.LogRecord:
    try:
        raise ValueError(secret)
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    return logging.LogRecord("worker", logging.ERROR, __file__, 1, "failed\n%s", (f"with {secret}",), info)


def test_a_json_line_is_one_object_with_its_run_and_without_secrets() -> None:
    formatter = JsonFormatter()
    record = _failure("amp_abcdefghijklmnopqrstuvwxyz")
    with bound_run(7):
        line = formatter.format(record)
    assert "\n" not in line
    assert "abcdefghijklmnop" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["run_id"]) == ("ERROR", "worker", 7)
    assert told["message"] == "failed\nwith amp_[redacted]"
    assert "ValueError: amp_[redacted]" in told["traceback"]
    assert told["time"].endswith("+00:00")
    assert "run_id" not in json.loads(formatter.format(record))


def test_no_character_of_a_message_ends_a_json_line() -> None:
    text = "one\u2028two\u2029three\x85four\x0bfive, café"
    line = JsonFormatter().format(logging.LogRecord("worker", logging.INFO, __file__, 1, text, (), None))
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == text


def test_the_run_is_named_in_its_lines_and_tracebacks_are_redacted() -> None:
    formatter = RedactingFormatter()
    record = _failure("amp_abcdefghijklmnopqrstuvwxyz")
    with bound_run(7):
        line = formatter.format(record)
    assert line.endswith("run_id=7")
    assert "abcdefghijklmnop" not in line
    assert "run_id" not in formatter.format(record)

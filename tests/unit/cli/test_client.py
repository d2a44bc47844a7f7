"""The client keeps what the server says, and gives its token to nobody else."""

from __future__ import annotations

import httpx
import pytest

from server.client import ApiError, Client, ClientError, ServerUnreachable, connect, token_file, url_file
from server.settings import Settings


def answering(status: int, **content: object) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(status, **content))


def test_problem_details_keep_value_rule_and_remedy() -> None:
    problem = {
        "title": "The request is not valid",
        "detail": "recipes.0: unknown precision",
        "errors": [{"field": "recipes.0", "value": "fp12", "rule": "unknown precision", "remedy": "choose bf16-mixed"}],
    }
    with (
        Client("http://127.0.0.1:1", "amp_x", transport=answering(422, json=problem)) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.post("/api/v1/experiments", {})
    assert caught.value.status == 422
    assert str(caught.value).splitlines() == [
        "recipes.0: unknown precision",
        "  recipes.0='fp12': unknown precision: choose bf16-mixed",
    ]


@pytest.mark.parametrize("body", ["<html>", "[1]", ""])
def test_an_error_that_is_no_problem_still_names_address_and_status(body: str) -> None:
    with (
        Client("http://127.0.0.1:1", None, transport=answering(502, text=body)) as client,
        pytest.raises(ApiError, match=r"http://127\.0\.0\.1:1/x answered 502 Bad Gateway"),
    ):
        client.get("/x")


def test_html_from_another_program_is_named() -> None:
    page = answering(200, text="<html>", headers={"content-type": "text/html"})
    with Client("http://127.0.0.1:1", None, transport=page) as client, pytest.raises(ClientError, match="AMPBOARD_URL"):
        client.get("/x")


def test_no_server_says_how_to_start_one() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with (
        Client("http://127.0.0.1:1", None, transport=httpx.MockTransport(refuse)) as client,
        pytest.raises(ServerUnreachable, match="ampboard up"),
    ):
        client.get("/x")


def test_none_is_left_out_of_the_query() -> None:
    seen: list[str] = []

    def record(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(204)

    with Client("http://127.0.0.1:1/", None, transport=httpx.MockTransport(record)) as client:
        assert client.get("/x", state=None, limit=3) is None
    assert seen == ["http://127.0.0.1:1/x?limit=3"]


@pytest.mark.parametrize(
    ("url", "token", "expected"),
    [
        (None, None, "Bearer amp_local"),
        ("http://127.0.0.1:9123/", None, "Bearer amp_local"),
        ("http://elsewhere.example", None, None),
        ("http://elsewhere.example", "amp_given", "Bearer amp_given"),
        (None, "amp_given", "Bearer amp_given"),
    ],
)
def test_the_local_token_goes_to_the_local_server_only(
    tmp_path, monkeypatch: pytest.MonkeyPatch, url: str | None, token: str | None, expected: str | None
) -> None:
    settings = Settings(data_dir=tmp_path)
    token_file(settings).write_text("amp_local\n")
    url_file(settings).write_text("http://127.0.0.1:9123\n")
    for name, value in (("AMPBOARD_URL", url), ("AMPBOARD_TOKEN", token)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with connect(settings) as client:
        assert client._http.headers.get("Authorization") == expected

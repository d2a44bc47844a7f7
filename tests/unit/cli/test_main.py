"""One message for expected errors; help that starts quickly because nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from server.cli import main as cli
from server.cli import processes


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ampboard", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_wrong_setting_is_named_as_people_set_it(monkeypatch, capsys) -> None:
    monkeypatch.setenv("AMPBOARD_PORT", "http")
    assert run_main(monkeypatch, "runs") == 1
    assert "AMPBOARD_PORT='http'" in capsys.readouterr().err


def test_secrets_of_settings_are_not_repeated(monkeypatch, capsys) -> None:
    monkeypatch.setenv("AMPBOARD_LEASE_S", "1")
    monkeypatch.setenv("AMPBOARD_DATABASE_URL", "postgresql+psycopg://u:hunter2@h/d")
    assert run_main(monkeypatch, "runs") == 1
    printed = capsys.readouterr().err
    assert "AMPBOARD_LEASE_S" in printed
    assert "hunter2" not in printed


def test_no_server_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setenv("AMPBOARD_URL", "http://127.0.0.1:9")
    assert run_main(monkeypatch, "runs") == 1
    assert capsys.readouterr().err.startswith("error: no server answers at http://127.0.0.1:9")


def test_an_unknown_command_is_a_usage_error(monkeypatch) -> None:
    assert run_main(monkeypatch, "trian") == 2


@pytest.mark.parametrize("module", ["torch", "sqlalchemy", "celery", "alembic", "fastapi", "scipy", "plotly"])
def test_help_imports_nothing_heavy(module: str) -> None:
    code = f"import server.cli.main, sys; raise SystemExit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("style", "lines"), [("text", ["ampboard serves at http://here"]), ("json", [])])
def test_a_json_log_holds_no_plain_line(monkeypatch, capsys, style: str, lines: list[str]) -> None:
    def serve(settings, on_listening=None) -> None:
        if on_listening is not None:
            on_listening("http://here")

    monkeypatch.setattr("server.app.serve", serve)
    monkeypatch.setenv("AMPBOARD_LOG_FORMAT", style)
    processes.server()
    told = capsys.readouterr()
    assert (told.out.splitlines(), told.err.splitlines()) == ([], lines)

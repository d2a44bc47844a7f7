"""What the documents name is there: paths, links, make targets, commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.is_file()
)
TOP_LEVEL = ("amp_core", "server", "worker", "web", "migrations", "tests", "docs", ".ci")


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_relative_links_lead_somewhere(document: Path) -> None:
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (ROOT / document.parent / target).exists(), f"{document} links to {target}"


def test_every_page_is_in_its_index() -> None:
    for folder in (ROOT / "docs", ROOT / "docs" / "decisions"):
        index = (folder / "README.md").read_text()
        missing = [
            page.name for page in folder.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
        ]
        assert not missing, f"{folder.relative_to(ROOT)}/README.md does not list {missing}"


def named_paths(text: str) -> set[str]:
    """Code spans that are paths of this repository."""
    spans = re.findall(r"`([\w./-]+)`", text)
    return {span for span in spans if span.split("/")[0] in TOP_LEVEL and ("/" in span)}


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"])
def test_named_paths_exist(document: str) -> None:
    missing = sorted(path for path in named_paths((ROOT / document).read_text()) if not (ROOT / path).exists())
    assert not missing, f"{document} names {missing}"


def test_architecture_names_every_part() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    parts = [
        path.parent.relative_to(ROOT)
        for base in ("server", "worker", "amp_core")
        for path in ROOT.glob(f"{base}/**/__init__.py")
    ]
    missing = [str(part) for part in parts if f"`{part}/`" not in text and f"`{part.name}/`" not in text]
    assert not missing, f"ARCHITECTURE.md does not mention {missing}"


def test_make_help_lists_what_the_documents_tell_people_to_run() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"make (\w+)", shown))
    assert {"setup", "demo", "up", "test", "check", "bench", "migrate", "screenshots"} <= targets
    for document in DOCUMENTS:
        named = set(re.findall(r"`make (\w+)", (ROOT / document).read_text()))
        assert named <= targets, f"{document} names make {named - targets}"


def test_commands_that_documents_name_exist() -> None:
    import typer

    from server.cli.main import app

    group = typer.main.get_command(app)
    assert hasattr(group, "commands")
    commands = set(group.commands)
    for document in DOCUMENTS:
        named = set(re.findall(r"\bampboard ([a-z]{2,})\b", "\n".join(code_of((ROOT / document).read_text()))))
        assert named <= commands, f"{document} names ampboard {sorted(named - commands)}"


def code_of(text: str) -> list[str]:
    """Code spans and code blocks."""
    return re.findall(r"^```.*?^```", text, re.S | re.M) + re.findall(r"`[^`\n]+`", text)

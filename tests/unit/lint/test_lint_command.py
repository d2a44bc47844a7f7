"""``ampboard lint``: formats, selection, exit codes, explanations, the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amp_core.lint import RULES
from amp_core.lint.documentation import anchor, markdown
from server.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
FAULTY = """\
import torch

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()
for x in data:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FAULTY)
    return path


def lint(*arguments):
    return CliRunner().invoke(app, ["lint", *map(str, arguments)])


def test_text_names_place_rule_and_fix(script):
    done = lint(script)
    assert done.exit_code == 1
    assert f"{script}:10:5: error AMP111 [optimizer-step-bypasses-scaler]" in done.stdout
    assert f"{script}:5:10: info AMP511 [deprecated-amp-api]" in done.stdout
    assert "fix: replace optimizer.step()" in done.stdout
    assert done.stdout.rstrip().endswith("1 file: 1 error, 0 warnings, 1 info")


def test_json_is_complete(script):
    document = json.loads(lint("--format", "json", script).stdout)
    assert document["files"] == 1
    assert document["errors"] == []
    last = document["findings"][-1]
    assert (last["line"], last["code"], last["severity"]) == (10, "AMP111", "error")
    assert set(last) == {"path", "line", "column", "end_line", "code", "name", "severity", "message", "fix"}


def test_sarif_has_rules_and_results(script):
    document = json.loads(lint("--format", "sarif", script).stdout)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == list(RULES)
    result = run["results"][-1]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "AMP111"
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 10, "startColumn": 5, "endLine": 10}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--fail-on", "never"], 0),
        (["--select", "AMP5"], 0),
        (["--select", "AMP5", "--fail-on", "info"], 1),
        (["--ignore", "optimizer-step-bypasses-scaler"], 0),
        (["--ignore", "AMP1"], 0),
        (["--select", "AMP111,deprecated-amp-api", "--fail-on", "error"], 1),
        (["--select", "AMP999"], 2),
        (["--fail-on", "often"], 2),
    ],
)
def test_exit_codes(script, arguments, code):
    assert lint(*arguments, script).exit_code == code


def test_what_cannot_be_linted_is_code_2(tmp_path):
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00torch autocast")
    done = lint(tmp_path)
    assert done.exit_code == 2
    assert "broken.py:2: is not Python" in done.stderr
    assert "binary.py: is not text" in done.stderr
    assert lint(tmp_path / "absent.py").exit_code == 2
    assert lint().exit_code == 2


def test_folders_leave_out_environments(tmp_path, script):
    for name in (".venv", "node_modules", "env"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "copy.py").write_text(FAULTY)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "clean.py").write_text("import torch\n")
    assert json.loads(lint("--format", "json", tmp_path).stdout)["files"] == 2


def test_explain(script):
    done = lint("--explain", "clip-before-unscale")
    assert done.exit_code == 0
    assert done.stdout.startswith("AMP101 clip-before-unscale (error)")
    assert "scaler.unscale_(optimizer)" in done.stdout
    assert all(code in lint("--explain", "all").stdout for code in RULES)
    assert lint("--explain", "nothing").exit_code == 2


def test_the_page_is_the_rule_table():
    assert (ROOT / "docs" / "lint.md").read_text() == markdown()
    assert all(f"#{anchor(rule)}" in markdown() for rule in RULES.values())


def test_names_and_codes_follow_one_form():
    for code, rule in RULES.items():
        assert code.startswith("AMP")
        assert code[3:].isdigit()
        assert rule.name == rule.name.lower()
        assert " " not in rule.name
        assert rule.what.endswith(".")
        assert rule.why.endswith(".")
        assert not rule.fix.endswith(".")


def test_the_linter_imports_only_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import amp_core.lint, amp_core.lint.report, amp_core.lint.discovery;"
        "new = {n.split('.')[0] for n in set(sys.modules) - before} - {'amp_core'};"
        "raise SystemExit(sorted(n for n in new if n not in sys.stdlib_module_names and n != 'msgspec') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

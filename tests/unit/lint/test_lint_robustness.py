"""No source crashes the linter, and large files are read quickly."""

import ast
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint_sources import found
from test_lint_programs import ALL

from amp_core.lint import LintError, lint_source
from amp_core.lint.engine import lint_file
from amp_core.lint.interpreter import interpret

SOURCES = list(ALL.values())
STDLIB = sorted(Path(ast.__file__).parent.glob("*.py"))
ROOT = Path(__file__).resolve().parents[3]


def survives(source: str) -> None:
    with suppress(LintError):
        lint_source(source)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutated_programs(data):
    """Statements swapped, dropped and moved between programs, names exchanged: whatever parses is linted."""
    tree = ast.parse(data.draw(st.sampled_from(SOURCES)))
    other = ast.parse(data.draw(st.sampled_from(SOURCES)))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    bodies = [n.body for n in ast.walk(tree) if isinstance(getattr(n, "body", None), list)]
    donors = [n for n in ast.walk(other) if isinstance(n, ast.stmt)]
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute)]
    for _ in range(rng.randint(1, 6)):
        body = rng.choice(bodies)
        body.insert(rng.randint(0, len(body)), rng.choice(donors))
        if len(body) > 1 and rng.random() < 0.5:
            body.pop(rng.randrange(len(body)))
        first, second = rng.choice(names), rng.choice(names)
        if isinstance(first, ast.Name) and isinstance(second, ast.Name):
            first.id, second.id = second.id, first.id
    survives(ast.unparse(ast.fix_missing_locations(tree)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SOURCES), st.integers(0, 2000), st.text(max_size=6))
def test_text_changed_anywhere(source, position, text):
    survives(source[:position] + text + source[position:])


@pytest.mark.parametrize("path", STDLIB[::9], ids=lambda path: path.stem)
def test_the_standard_library_is_read_and_silent(path):
    """The interpreter itself, without the shortcut for files that do not mention torch."""
    interpret(ast.parse(path.read_bytes()))
    assert lint_file(path) == []


def test_this_project_has_no_finding():
    for folder in ("amp_core", "server", "worker"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            assert lint_file(path) == [], path


def test_recursion_ends():
    assert found("import torch\nautocast = 1\ndef f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nf(3)\n") == set()
    assert found("import torch\n# autocast\nclass A(A):\n    pass\nx = [x for x in x]\n") == set()
    deep = "import torch\n# autocast\nx = " + "(" * 150 + "1" + ")" * 150 + "\n"
    assert found(deep) == set()
    with pytest.raises(LintError, match="nested too deeply"):
        lint_source("import torch\n# autocast\nx = " + "-" * 5000 + "1\n")


def test_exponential_calls_stay_cheap():
    lines = ["import torch", "# autocast", "def f0():", "    pass"]
    for n in range(1, 40):
        lines += [f"def f{n}():", *[f"    f{n - 1}()"] * 4]
    start = time.process_time()
    assert found("\n".join([*lines, "f39()"])) == set()
    assert time.process_time() - start < 2


def test_a_thousand_lines_in_a_tenth_of_a_second():
    """Several methods and loops; the best of some runs, since the machine may be busy."""
    unit = ALL["order: clip in another method"].split("class Trainer")[1]
    source = "import torch\n" + "".join(f"class Trainer{n}{unit}\n" for n in range(1000 // (unit.count("\n") + 1)))
    assert 900 < source.count("\n") < 1100
    times = []
    for _ in range(5):
        start = time.process_time()
        lint_source(source)
        times.append(time.process_time() - start)
    assert min(times) < 0.3  # measured: below 0.1 s; the rest is room for a slow, shared machine
    print(f"\n1,000 lines: {min(times) * 1e3:.0f} ms")

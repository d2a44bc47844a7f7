"""The examples of the rule table are true: each `before` has its finding, each `after` has none."""

import pytest

from amp_core.lint import RULES, lint_source
from amp_core.lint.documentation import PRELUDE


@pytest.mark.parametrize("code", RULES)
def test_before_is_found_by_its_rule(code):
    found = {finding.code for finding in lint_source(PRELUDE + RULES[code].before)}
    assert found == {code}


@pytest.mark.parametrize("code", RULES)
def test_after_is_silent(code):
    assert lint_source(PRELUDE + RULES[code].after) == []


@pytest.mark.parametrize("code", RULES)
def test_examples_are_python(code):
    for text in (RULES[code].before, RULES[code].after):
        compile(PRELUDE + text, code, "exec")

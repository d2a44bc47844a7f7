"""Whole programs in scripts, functions, classes and under aliases: every marked finding and no other."""

import pytest
from lint_sources import PROGRAMS, check, expected, programs

from amp_core.lint import RULES

GROUPS = sorted(path.stem for path in PROGRAMS.glob("*.txt"))
ALL = {f"{group}: {title}": source for group in GROUPS for title, source in programs(group).items()}


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
def test_program(source):
    check(source)


def test_recipes_are_correct_programs():
    assert all(expected(source) == set() for source in programs("recipes").values())


def test_faulty_groups_are_faulty():
    assert all(expected(source) for group in ("order", "state") for source in programs(group).values())


def test_marks_name_rules():
    names = {rule.name for rule in RULES.values()}
    assert {name for source in ALL.values() for _, name in expected(source)} <= names

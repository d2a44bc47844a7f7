"""Facts of several runs as rows, and two sources line by line."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.diff.lines import MAX_LINES, differences
from server.diff.rows import alike, rows_of

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
FACTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.recursive(LEAVES, lambda inner: st.dictionaries(
    st.text("xyz", min_size=1, max_size=2), inner, max_size=3), max_leaves=6), max_size=4)  # fmt: skip


def test_rows_name_nested_facts_and_tell_what_differs() -> None:
    rows = rows_of([{"a": {"b": 1, "c": [1, 2]}, "d": True}, {"a": {"b": 2, "c": [1, 2]}}, None])
    assert [(row.name, row.values, row.differs) for row in rows] == [
        ("a.b", (1, 2, None), True),
        ("a.c", ([1, 2], [1, 2], None), False),  # of the last run nothing is recorded
        ("d", (True, None, None), True),
    ]
    assert not any(row.differs for row in rows_of([{"a": 1}, {"a": 1}]))
    assert rows_of([{"a": 1}, {"a": True}])[0].differs, "1 and true are two settings"


@given(st.lists(FACTS, min_size=1, max_size=4))
def test_the_same_facts_never_differ_and_runs_that_agree_stand_together(facts: list[dict[str, object]]) -> None:
    twice = [*facts, facts[0]]
    rows = rows_of(twice)
    groups = alike(rows, len(twice))
    assert sorted(index for group in groups for index in group) == list(range(len(twice)))
    assert any({0, len(twice) - 1} <= set(group) for group in groups)
    assert not any(row.differs for row in rows_of([facts[0], facts[0]]))


@given(
    st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=14), st.lists(st.sampled_from(["a", "b", "d"]), max_size=14)
)
def test_lines_of_both_texts_come_back_from_the_difference(old: list[str], new: list[str]) -> None:
    found = differences("\n".join(old), "\n".join(new))
    before, after = "\n".join(old).splitlines(), "\n".join(new).splitlines()
    assert all(before[line.old - 1] == line.text for line in found if line.old is not None)
    assert all(after[line.new - 1] == line.text for line in found if line.new is not None)
    changed = [line.mark + line.text for line in found if line.mark in "+-"]
    oracle = [line for line in difflib.unified_diff(before, after, lineterm="", n=3) if line[:3] not in ("---", "+++")]
    assert changed == [line for line in oracle if line[0] in "+-"]


def test_equal_texts_have_no_difference_and_distant_changes_leave_lines_out() -> None:
    text = [f"line {number}" for number in range(100)]
    assert differences("\n".join(text), "\n".join(text)) == []
    marks = [
        line for line in differences("\n".join(text), "\n".join([*text[:50], "new", *text[50:]])) if line.mark != " "
    ]
    assert [(line.mark, line.text) for line in marks] == [("@", "47 equal lines"), ("+", "new")]


def test_a_text_too_long_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_LINES}"):
        differences("a\n" * (MAX_LINES + 1), "b")

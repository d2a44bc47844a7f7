"""Modules as a tree: order, headings, depth, bars."""

from __future__ import annotations

from server.pages.module_tree import tree

ROWS = [
    {"module": "blocks.10.norm", "sensitivity": 8.0},
    {"module": "blocks.2.linear", "sensitivity": 0.8},
    {"module": "head", "sensitivity": 8e-9},
    {"module": "blocks.2", "sensitivity": "NaN"},
]


def test_parents_come_before_children_and_numbers_in_their_order() -> None:
    shown = tree(ROWS, "sensitivity")
    assert [(row["module"], row["depth"], row["heading"]) for row in shown] == [
        ("blocks", 0, True),
        ("blocks.2", 1, False),
        ("blocks.2.linear", 2, False),
        ("blocks.10", 1, True),
        ("blocks.10.norm", 2, False),
        ("head", 0, False),
    ]
    assert [row["label"] for row in shown] == ["blocks", "2", "linear", "10", "norm", "head"]


def test_bars_are_logarithmic_and_what_is_not_finite_fills_them() -> None:
    bars = {row["module"]: row["bar"] for row in tree(ROWS, "sensitivity")}
    assert bars == {
        "blocks": 0.0, "blocks.2": 100.0, "blocks.2.linear": 75.0, "blocks.10": 0.0, "blocks.10.norm": 100.0,
        "head": 0.0,
    }  # fmt: skip


def test_no_rows_make_no_tree() -> None:
    assert tree([], "sensitivity") == []

"""What goes into JSON columns and answers can be read by every database and browser."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amp_core.events import ModuleStatistics, Numerics
from server.db.json_values import clean_text, spell, to_json

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


@given(anything)
def test_everything_becomes_strict_json(value: Any) -> None:
    text = json.dumps(to_json(value), allow_nan=False, ensure_ascii=False)
    assert b"\\u0000" not in text.encode()


def test_non_finite_numbers_are_spelled_and_read_back() -> None:
    for value, name in [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]:
        assert spell(value) == name
        assert repr(float(name)) == repr(value)
    assert spell(1.5) == 1.5


def test_structs_become_objects_without_their_tag() -> None:
    module = ModuleStatistics(
        module="net.0", num_elements=4, zero_fraction=1.0, underflow_fraction=0.5, max_abs=math.inf
    )
    event = Numerics(step=3, loss_scale=2.0, modules=[module])
    assert to_json(event) == {
        "step": 3,
        "loss_scale": 2.0,
        "modules": [
            {
                "module": "net.0",
                "num_elements": 4,
                "zero_fraction": 1.0,
                "underflow_fraction": 0.5,
                "max_abs": "Infinity",
            }
        ],
    }


def test_cleaning_keeps_the_length() -> None:
    assert clean_text("a\x00b\ud800c😀") == "a\ufffdb\ufffdc😀"

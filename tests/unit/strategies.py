"""Hypothesis strategies for JSON values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perkey.store.unfit import LARGEST, SMALLEST

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(SMALLEST, LARGEST) | floats | text
"""Everything that JSON can hold and give back, containers aside."""


def nested(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str], size: int) -> Any:
    """Values with dicts and lists around ``leaves``."""
    return st.recursive(
        leaves,
        lambda child: st.lists(child, max_size=size) | st.dictionaries(keys, child, max_size=size),
        max_leaves=12,
    )


json_values = nested(scalars, text, 5)
"""Any value that can be stored."""

few = st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, "", "a", "b"])
"""Few scalars, so that two drawn values often agree; some of them are equal in Python only."""

alike = nested(few, st.sampled_from("abc"), 4)
"""Small values that resemble each other."""

listy = st.lists(st.integers(0, 5), max_size=8)
"""Short lists over few items."""

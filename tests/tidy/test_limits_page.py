"""The page of limits says what the code does: every default, and no limit is left out."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

from perkey.engine.limits import EngineLimits
from perkey.server.settings import Settings
from perkey.store.limits import Limits
from tests.tidy import repo

PAGE = (repo.ROOT / "docs" / "reference" / "limits.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([\w.]+)(?:\((\w+)=\))?` \| ([^|]+) \|", PAGE, re.MULTILINE)
KINDS = {kind.__name__: kind for kind in (Limits, EngineLimits, Settings)}


def default(name: str, parameter: str) -> Any:
    """What the code says: a dataclass's field, a constant, or a parameter's default."""
    owner, _, last = name.rpartition(".")
    if owner in KINDS:
        return next(field.default for field in fields(KINDS[owner]) if field.name == last)
    found = getattr(importlib.import_module(owner), last)
    return inspect.signature(found).parameters[parameter].default if parameter else found


@pytest.mark.parametrize(("name", "parameter", "said"), ROWS)
def test_the_default_is_the_one_that_runs(name: str, parameter: str, said: str) -> None:
    value = default(name, parameter)
    assert said.strip() == (f"{value:,}" if isinstance(value, int | float) else str(value))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_no_number_is_left_out(kind: Any) -> None:
    """A field that is a number bounds something; others are choices, and so is a port."""
    named = {name for name, _, _ in ROWS}
    numbers = {
        f"{kind.__name__}.{each.name}"
        for each in fields(kind)
        if re.match(r"(int|float)\b", str(each.type)) and each.name != "port"
    }
    assert len(numbers) > 5
    assert numbers - named == set()

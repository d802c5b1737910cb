"""Which instances the live table has rows for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from perkey.cli.run import view
from perkey.engine import InstanceState


def handle(name: str, key: str, state: InstanceState) -> Any:
    return SimpleNamespace(id=name, key=key, state=state)


def rows(known: list[Any]) -> list[str]:
    return [each.id for each in view.listed(known)]


def ended(key: str, count: int) -> list[Any]:
    return [handle(f"{key}{n}", key, InstanceState.COMPLETED) for n in range(count)]


def running(key: str, count: int) -> list[Any]:
    return [handle(f"{key}{n}", key, InstanceState.RUNNING) for n in range(count)]


def test_what_runs_comes_first_and_a_timer_pushes_nothing_out() -> None:
    known = [*running("order", 3), *ended("parcel", 1), *ended("stock", 50)]
    assert rows(known) == ["order2", "order1", "order0", "stock49", "stock48", "parcel0"]


def test_what_is_held_back_counts_as_running() -> None:
    known = [handle("held", "order", InstanceState.PENDING), *ended("order", 5)]
    assert rows(known) == ["held", "order4", "order3"]


def test_there_are_never_too_many_rows() -> None:
    shown = rows([*running("order", 100), *ended("stock", 5)])
    assert len(shown) == view.SHOWN
    assert shown[0] == "order99"
    assert all(each.startswith("order") for each in shown)


def test_nothing_known_is_no_rows() -> None:
    assert rows([]) == []

"""The two colours never drift: ``X`` and ``AsyncX`` have the same methods and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import perkey

# What a context manager is called in each colour, and what only one of them can have.
TWINS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "aclose": "close"}


def pairs() -> list[tuple[str, type, type]]:
    """Every ``(name, X, AsyncX)`` among the public names."""
    names = getattr(perkey, "__all__", [])
    found = [name.removeprefix("Async") for name in names if name.startswith("Async")]
    return [(name, getattr(perkey, name), getattr(perkey, f"Async{name}")) for name in found]


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class and its context-manager pair, by the sync colour's name."""
    return {
        TWINS.get(name, name): value
        for name, value in inspect.getmembers(cls)
        if inspect.isroutine(value)
        and (not name.startswith("_") or name in {*TWINS, *TWINS.values()})
    }


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter; annotations may differ by colour."""
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def drift(one: type, other: type) -> list[str]:
    """How the public methods of two classes differ, in words."""
    left, right = methods(one), methods(other)
    found = [f"only {one.__name__} has {name}" for name in sorted(set(left) - set(right))]
    found += [f"only {other.__name__} has {name}" for name in sorted(set(right) - set(left))]
    for name in sorted(set(left) & set(right)):
        if parameters(left[name]) != parameters(right[name]):
            found.append(f"{name} takes other parameters")
    return found


def test_the_two_colours_have_the_same_methods_and_parameters() -> None:
    assert {name: found for name, one, other in pairs() if (found := drift(one, other))} == {}


class Sync:
    def get(self, key: str, *, wait: bool = True) -> int:
        return len(key) if wait else 0

    def close(self) -> None: ...


class Same:
    async def get(self, key: str, *, wait: bool = True) -> int:
        return len(key) if wait else 0

    async def aclose(self) -> None: ...


class Drifted:
    async def get(self, key: str, *, wait: bool = False) -> int:
        return len(key) if wait else 0

    async def put(self) -> None: ...


def test_drift_is_seen() -> None:
    assert drift(Sync, Same) == []
    assert drift(Sync, Drifted) == [
        "only Sync has close",
        "only Drifted has put",
        "get takes other parameters",
    ]


@pytest.mark.parametrize("names", [("open", "aopen")])
def test_the_two_ways_to_open_take_the_same_parameters(names: tuple[str, str]) -> None:
    functions = [getattr(perkey, name) for name in names if hasattr(perkey, name)]
    assert len({str(parameters(function)) for function in functions}) <= 1

"""The registry's lock guards its maps only, and its helpers hand out plain data."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from perkey.engine import AsyncEngine, State, define
from perkey.engine.guarded import RegistryLock, outside
from perkey.engine.registry import Registration, Registry, Starter, Version

HELPERS = [name for name in vars(Registry) if name.endswith("_locked")]


async def body(ctx: Any) -> None:
    return None


def test_every_public_method_of_the_registry_is_a_locked_helper() -> None:
    assert sorted(HELPERS) == sorted(name for name in vars(Registry) if not name.startswith("_"))


@pytest.mark.parametrize("name", HELPERS)
def test_no_helper_takes_a_callback(name: str) -> None:
    hints = inspect.signature(getattr(Registry, name)).parameters.values()
    assert not [each.name for each in hints if "Callable" in str(each.annotation)]


PLAIN = ["int", "None", "Version", "Registration", "Starter", "str"]


@pytest.mark.parametrize("name", HELPERS)
def test_every_helper_returns_plain_data(name: str) -> None:
    """Numbers, texts and frozen records, alone or in a new list: nothing to call or to wait for."""
    said = str(inspect.signature(getattr(Registry, name)).return_annotation)
    said = said.removeprefix("list[").removesuffix("]")
    assert set(said.split(" | ")) <= set(PLAIN)
    for frozen in (Version, Registration, Starter):
        assert frozen.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_a_foreign_call_under_the_lock_is_an_error() -> None:
    lock = RegistryLock()
    outside("a call")
    with lock, pytest.raises(AssertionError, match="a call while the registry's lock is held"):
        outside("a call")
    with lock, pytest.raises(AssertionError, match="deadlocks"), lock:
        pass
    outside("a call")


async def test_state_is_read_while_the_registry_is_locked() -> None:
    engine = AsyncEngine()
    with engine._registry._lock:
        assert engine.state is State.NOT_STARTED


async def test_a_state_under_the_registry_lock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: a state that takes the lock, read by a helper that holds it, hangs."""

    def locked(engine: AsyncEngine) -> State:
        with engine._registry._lock:
            return engine._cell.get()

    original = Registry.starters_locked

    def reads_state(registry: Registry) -> Any:
        with registry._lock:
            assert engine.state
        return original(registry)

    monkeypatch.setattr(AsyncEngine, "state", property(locked))
    monkeypatch.setattr(Registry, "starters_locked", reads_state)
    engine = AsyncEngine()
    await engine.register_process(define("order", body))
    with pytest.raises(AssertionError, match="deadlocks"):
        engine.starters()


async def test_what_the_registry_returns_is_a_copy() -> None:
    engine = AsyncEngine()
    await engine.register_process(define("order", body))
    engine.registrations("order").clear()
    engine.starters().clear()
    assert len(engine.registrations("order")) == 1

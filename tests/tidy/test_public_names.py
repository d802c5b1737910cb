"""What ``perkey`` and ``perkey.testing`` offer is documented, and nothing else is public."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

MODULES = ["perkey", "perkey.testing"]


def public(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", []))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists_once(name: str) -> None:
    module = importlib.import_module(name)
    names = public(module)
    assert len(names) == len(set(names))
    assert [each for each in names if not hasattr(module, each)] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_public_class_and_function_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    bare = [
        each
        for each in public(module)
        if (inspect.isclass(value := getattr(module, each)) or inspect.isroutine(value))
        and not (inspect.getdoc(value) or "").strip()
    ]
    assert bare == []


@pytest.mark.parametrize("name", MODULES)
def test_every_public_method_has_a_docstring(name: str) -> None:
    """Its own or an inherited one; a person reading ``help()`` never meets a blank."""
    module = importlib.import_module(name)
    bare = [
        f"{cls.__name__}.{method}"
        for cls in (getattr(module, each) for each in public(module))
        if inspect.isclass(cls) and cls.__module__.startswith("perkey")
        for method, value in inspect.getmembers(cls)
        if not method.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and not (inspect.getdoc(value) or "").strip()
    ]
    assert bare == []

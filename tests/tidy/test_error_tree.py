"""The error tree: every class says what it means, and machines can tell each from the others."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from perkey import errors


def tree(cls: type[errors.PerkeyError] = errors.PerkeyError) -> Iterator[type[errors.PerkeyError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from tree(child)


CLASSES = [cls for cls in tree() if cls.__module__.startswith("perkey.")]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_error_teaches(cls: type[errors.PerkeyError]) -> None:
    assert cls.__doc__, "its docstring is its default message"
    assert str(cls()) == " ".join(cls.__doc__.split())
    assert cls.__doc__.strip().endswith(".")
    assert 400 <= cls.status <= 599
    assert "code" in vars(cls), "each class has a code of its own"


def test_codes_are_unique_and_fit_a_url() -> None:
    codes = [cls.code for cls in CLASSES]
    assert sorted(set(codes)) == sorted(codes)
    assert all(code == code.lower() and code.replace("-", "").isalpha() for code in codes)


def test_the_drawing_names_every_class() -> None:
    drawing = (errors.__doc__ or "").split()
    here = [cls.__name__ for cls in CLASSES if cls.__module__ == "perkey.errors"]
    assert [name for name in here if name not in drawing] == []


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_error_crosses_a_process_boundary(cls: type[errors.PerkeyError]) -> None:
    error = cls("what happened", key="k", version=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (str(again), again.key, again.version) == ("what happened", "k", 3)
    with pytest.raises(AttributeError, match="nothing"):
        _ = again.nothing

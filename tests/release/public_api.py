"""The public interface as text: every name, its kind, its signature.

python -m tests.release.public_api > tests/release/public_api.txt
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

MODULES = ("perkey", "perkey.testing", "perkey.asgi")


def lines() -> list[str]:
    """One line a name and one a public member of a class, sorted by name."""
    found: list[str] = []
    for module in MODULES:
        home = importlib.import_module(module)
        names = getattr(home, "__all__", None) or [n for n in vars(home) if not n.startswith("_")]
        for name in names:
            value = getattr(home, name)
            if module in ("perkey", "perkey.testing") or _made_in(value, module):
                found += described(f"{module}.{name}", value)
    return sorted(set(found), key=lambda line: line[line.index("perkey") :])


def _made_in(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def described(name: str, value: Any) -> Iterator[str]:
    """The lines of one name."""
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases}){signature(value).removesuffix(' -> None')}"
        for member, found in inspect.getmembers_static(value):
            if not member.startswith("_") and _ours(value, member):
                yield from _member(f"{name}.{member}", found)
    elif callable(value):
        yield f"def {name}{signature(value)}"
    else:
        yield f"{type(value).__name__} {name}"


def _ours(kind: type, member: str) -> bool:
    """Whether perkey defined it, not Python or a package."""
    for base in kind.__mro__:
        if member in vars(base):
            return base.__module__.startswith("perkey")
    return False


def _member(name: str, found: Any) -> Iterator[str]:
    if isinstance(found, staticmethod | classmethod):
        yield f"{type(found).__name__} {name}{signature(found.__func__)}"
    elif isinstance(found, property):
        yield f"property {name}"
    elif inspect.isroutine(found) and inspect.isfunction(found):
        prefix = "async def" if inspect.iscoroutinefunction(found) else "def"
        yield f"{prefix} {name}{signature(found)}"
    else:
        yield f"attribute {name}"


def signature(value: Any) -> str:
    """As it is written, without what differs from run to run or from Python to Python."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are kept as text


if __name__ == "__main__":
    print("\n".join(lines()))

"""Who set what: the version and the author behind each leaf of a JSON value.

A leaf is a scalar or an empty dict or list.  ``blame(history)`` walks the versions once; to
keep up with new ones, ``advance`` the result: subtrees that did not change are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perkey.errors import UsageError
from perkey.flows import pointer
from perkey.flows.align import align
from perkey.flows.diff import ABSENT
from perkey.flows.pointer import Path
from perkey.store.codec import same
from perkey.store.record import signed

__all__ = ["NOTHING", "Blame", "Origin", "blame"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The version that set a leaf to what it is, and its author."""

    version: int
    by: str | None
    """None where ``known`` is false."""
    known: bool = True
    """False: it was already there in ``version``, the first one after history that is gone."""

    def __str__(self) -> str:
        if self.known:
            return f"version {self.version}{signed(self.by)}"
        return f"at or before version {self.version}"


Node = Origin | dict[str, Any] | list[Any]
"""An origin stands for everything below it, so a subtree costs nothing until it changes."""


Walk = Callable[[Node, Any, Path], Iterator[tuple[Path, Origin]]]


@dataclass(frozen=True, slots=True)
class Blame:
    """The origins of one version's leaves."""

    version: int = 0
    value: Any = ABSENT
    """Of that version; ``ABSENT`` where the document was deleted."""
    tree: Node = Origin(0, None)

    def advance(self, version: int, by: str, value: Any) -> Blame:
        """The blame of a later version.  Where versions in between are not known, neither is
        who set what: everything counts as there at or before it."""
        if version <= self.version:
            raise UsageError(f"expected a version above {self.version}, found {version}")
        if version > self.version + 1:
            return Blame(version, value, Origin(version, None, known=False))
        origin = Origin(version, by)
        return Blame(version, value, _advanced(self.tree, self.value, value, origin))

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Origin]]:
        """(path, origin) of each leaf at or below ``path``, in document order; ``NotFound``
        where nothing is there."""
        return self._walk(path, _leaves)

    def parts(self, path: Path = ()) -> Iterator[tuple[Path, Origin]]:
        """The same in as few entries as there can be: one for all that one version set."""
        return self._walk(path, _parts)

    def _walk(self, path: Path, walk: Walk) -> Iterator[tuple[Path, Origin]]:
        if self.value is ABSENT and not path:
            return iter(())
        pointer.get(self.value, path)  # tells exactly what is missing
        node, value = self.tree, self.value
        at: Path = ()
        for token in path:
            step: Any = int(token) if isinstance(value, list) else token
            node, value, at = _child(node, step), value[step], (*at, step)
        return walk(node, value, at)

    def origin(self, path: Path) -> Origin:
        """The newest origin at or below ``path``: who touched that last."""
        return max((each for _, each in self.leaves(path)), key=lambda each: each.version)


NOTHING = Blame()
"""Before the first version."""


def blame(history: Iterable[tuple[int, str, Any]]) -> Blame:
    """The blame of the last of (version, author, value or ``ABSENT``), in ascending order.

    History may start late: retention drops the oldest versions first.
    """
    found = NOTHING
    for version, by, value in history:
        found = found.advance(version, by, value)
    return found


def _advanced(node: Node, old: Any, new: Any, origin: Origin) -> Node:
    if same(old, new):
        return node
    if isinstance(old, dict) and isinstance(new, dict) and old and new:
        return {
            key: _advanced(_child(node, key), old[key], item, origin) if key in old else origin
            for key, item in new.items()
        }
    if isinstance(old, list) and isinstance(new, list) and old and new:
        nodes: list[Node] = [origin] * len(new)
        for x, y, replaced in align(old, new):
            if not replaced:
                nodes[y] = _advanced(_child(node, x), old[x], new[y], origin)
        return nodes
    return origin


def _child(node: Node, token: Any) -> Node:
    return node if isinstance(node, Origin) else node[token]


def _leaves(node: Node, value: Any, path: Path) -> Iterator[tuple[Path, Origin]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(_child(node, key), item, (*path, key))
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield from _leaves(_child(node, at), item, (*path, at))
    elif isinstance(node, Origin):
        yield path, node


def _parts(node: Node, value: Any, path: Path) -> Iterator[tuple[Path, Origin]]:
    if isinstance(node, Origin):
        yield path, node
    else:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _parts(_child(node, key), value[key], (*path, key))

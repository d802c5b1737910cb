"""Statistics are read while another thread meets a key for the first time.

The kind of report it resembles: "RuntimeError: dictionary changed size during iteration" out of
a metrics endpoint, under load only.
"""

from __future__ import annotations

from perkey.observe.hooks import Observers


class _Interrupted(list[int]):
    """Figures of one prefix; while they are read, a commit meets a new prefix."""

    def __init__(self, observers: Observers) -> None:
        super().__init__([1, 0])
        self._observers = observers

    def __iter__(self):  # type: ignore[no-untyped-def]
        self._observers.committed([1], ["new/1"])
        return super().__iter__()


def test_a_commit_under_a_new_prefix_does_not_break_the_figures() -> None:
    observers = Observers()
    observers._prefixes["old"] = _Interrupted(observers)
    assert observers.conflict_rates() == {"old": 0.0}
    assert observers.conflict_rates() == {"old": 0.0, "new": 0.0}

"""A store that fails the look at its opening is closed, and one that passes is not."""

from __future__ import annotations

import pytest

from perkey.store.backends.memory import MemoryBackend
from perkey.store.backends.opening import opened


class Watched(MemoryBackend):
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_is_refused_or_interrupted_is_closed(error: type[BaseException]) -> None:
    backend = Watched()

    def check() -> None:
        assert not backend.closed
        raise error

    with pytest.raises(error):
        opened(backend, check)
    assert backend.closed


def test_what_passes_is_handed_over_open() -> None:
    backend = Watched()
    looked: list[int] = []
    assert opened(backend, lambda: looked.append(1)) is backend
    assert (looked, backend.closed) == ([1], False)

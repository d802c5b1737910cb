"""A password, and that nothing shows it."""

from __future__ import annotations

from perkey import Store

SECRET = "s3cr3t-w0rd"


def hidden(error: BaseException | None, secret: str = SECRET) -> None:
    """Neither an error nor what caused it shows ``secret``."""
    while error is not None:
        assert secret not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def hidden_by(store: Store) -> None:
    """Nor does an open store."""
    assert SECRET not in f"{store!r}{store.backend!r}{store.backend.describe()}"

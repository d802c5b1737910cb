"""The list of checks, and how one is run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perkey.clock import SYSTEM
from perkey.errors import UsageError
from perkey.store.abc import Backend
from perkey.testing.conformance.bench import Bench, CheckFailed, Source

Run = Callable[[Bench], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One named rule of the ``Backend`` contract."""

    name: str
    run: Run
    keys: int
    """How many keys one of its commits spans; backends that cannot are excused."""

    @property
    def about(self) -> str:
        """What the rule says, in a sentence."""
        return " ".join((self.run.__doc__ or "").split())


CHECKS: dict[str, Check] = {}


def check(keys: int = 1) -> Callable[[Run], Run]:
    """Add a function to the suite, under its own name."""

    def add(run: Run) -> Run:
        name = run.__name__
        CHECKS[name] = Check(name, run, keys)
        return run

    return add


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found."""

    name: str
    about: str
    status: str
    """passed | failed | excused (the backend commits too few keys at once for it)"""
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status != "failed"

    def __str__(self) -> str:
        return f"{self.status:8}{self.name}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Report:
    """What the whole suite found about one backend."""

    backend: str
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(result.ok for result in self.results)

    @property
    def failures(self) -> tuple[Result, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if not result.ok)

    def raise_if_failed(self) -> Report:
        """Raise ``CheckFailed`` with every failure in its message, else return the report."""
        if not self.passed:
            raise CheckFailed("\n".join(map(str, self.failures)))
        return self

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


def check_backend(source: Source, *, only: Sequence[str] = ()) -> Report:
    """Run the conformance suite of ``perkey.store.abc.Backend`` against a store.

    ``source`` is a store's URL, or a function from ``Limits`` to an open backend, called once
    or more a check.  Every key carries a random token, so the store need not be empty; what
    was written stays there as small records.  Nothing is raised for a check that fails: ask
    the report, or call its ``raise_if_failed()``.
    """
    for name in only:
        if name not in CHECKS:
            raise UsageError(f"no check is called {name!r}; known are {', '.join(CHECKS)}")
    probe = Bench(source)
    try:
        backend = probe.open()
    finally:
        probe.close()
    names = only or list(CHECKS)
    return Report(backend.name, tuple(run_check(CHECKS[name], source, backend) for name in names))


def run_check(check: Check, source: Source, backend: Backend) -> Result:
    """Run one check; ``backend`` says how many keys a commit can span."""
    if backend.atomic_keys is not None and backend.atomic_keys < check.keys:
        why = f"needs commits over {check.keys} keys; this store commits {backend.atomic_keys}"
        return Result(check.name, check.about, "excused", why)
    bench = Bench(source)
    started = SYSTEM.monotonic()
    detail = ""
    try:
        check.run(bench)
    except Exception as error:
        detail = _told(error)
    finally:
        bench.close()
    status = "failed" if detail else "passed"
    return Result(check.name, check.about, status, detail, SYSTEM.monotonic() - started)


def _told(error: Exception) -> str:
    if isinstance(error, CheckFailed):
        return str(error) or "failed"
    # Anything else came out of the backend: say where.
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"

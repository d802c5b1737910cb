"""The registry: which versions exist, and which is the latest of each key.

Its lock guards its maps and nothing else.  Each critical section is one small ``..._locked``
method that takes the lock, touches the maps and returns plain data; none takes a callback, so
no hub, store, instance or user call can ever happen while it is held.

Lock order: a process key's lock, then this lock, released again, then the hub.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from perkey.engine.definitions import Definition, Start
from perkey.engine.guarded import RegistryLock
from perkey.errors import NotFound


@dataclass(frozen=True, slots=True)
class Registration:
    """The receipt of one registered version.  Immutable."""

    key: str
    version: int
    id: str
    digest: str
    engine: str
    """The engine that gave it; another engine refuses it."""


@dataclass(frozen=True, slots=True)
class Starter:
    """One trigger of the latest version of a key."""

    key: str
    version: int
    trigger: str


@dataclass(frozen=True, slots=True)
class Version:
    """A registered version and what it runs."""

    registration: Registration
    definition: Definition
    manual: bool
    """Started by hand only; its triggers stay closed."""

    @property
    def starts(self) -> tuple[Start, ...]:
        return () if self.manual else self.definition.starts


@dataclass(slots=True)
class _Process:
    versions: dict[int, Version] = field(default_factory=dict)
    latest: int = 0
    last: int = 0
    """The highest version ever given; never goes back."""


class Registry:
    """The maps, behind their lock."""

    def __init__(self) -> None:
        self._lock = RegistryLock()
        self._processes: dict[str, _Process] = {}

    def last_locked(self, key: str) -> int:
        """The highest version number ever given to ``key`` here."""
        with self._lock:
            process = self._processes.get(key)
            return process.last if process else 0

    def take_number_locked(self, key: str, number: int) -> None:
        """A number is given once, whatever becomes of the registration."""
        with self._lock:
            process = self._processes.setdefault(key, _Process())
            process.last = max(process.last, number)

    def add_locked(self, version: Version) -> None:
        """Make a version known; the highest known one is the latest."""
        with self._lock:
            process = self._processes.setdefault(version.registration.key, _Process())
            number = version.registration.version
            process.versions[number] = version
            process.last = max(process.last, number)
            process.latest = max(process.versions)

    def remove_locked(self, registration: Registration) -> Version:
        """Forget one version; the newest that remains becomes the latest."""
        with self._lock:
            process = self._processes.get(registration.key)
            found = process and process.versions.get(registration.version)
            if process is None or not found or found.registration != registration:
                raise _unknown(registration)
            del process.versions[registration.version]
            process.latest = max(process.versions, default=0)
            return found

    def remove_all_locked(self, key: str) -> list[Version]:
        """Forget every version of ``key``; its numbers are not given again."""
        with self._lock:
            process = self._processes.get(key)
            if process is None or not process.versions:
                raise NotFound(f"no process is registered as {key!r}", key=key)
            removed = [process.versions[number] for number in sorted(process.versions)]
            process.versions = {}
            process.latest = 0
            return removed

    def latest_locked(self, key: str) -> Version | None:
        """The latest version of ``key``."""
        with self._lock:
            process = self._processes.get(key)
            return process.versions.get(process.latest) if process else None

    def version_locked(self, key: str, number: int) -> Version | None:
        """A version by its number."""
        with self._lock:
            process = self._processes.get(key)
            return process.versions.get(number) if process else None

    def holds_locked(self, registration: Registration) -> Version:
        """The version that this very receipt stands for; refused once unregistered."""
        with self._lock:
            process = self._processes.get(registration.key)
            found = process and process.versions.get(registration.version)
            if not found or found.registration != registration:
                raise _unknown(registration)
            return found

    def registrations_locked(self, key: str) -> list[Registration]:
        """The receipts of ``key``, ascending; a copy."""
        with self._lock:
            process = self._processes.get(key, _Process())
            return [process.versions[n].registration for n in sorted(process.versions)]

    def keys_locked(self) -> list[str]:
        """The keys that have a version, in order."""
        with self._lock:
            return sorted(key for key, each in self._processes.items() if each.versions)

    def starters_locked(self) -> list[Starter]:
        """Every trigger of every key's latest version."""
        with self._lock:
            latest = [
                each.versions[each.latest] for each in self._processes.values() if each.versions
            ]
            return [
                Starter(v.registration.key, v.registration.version, start.trigger)
                for v in latest
                for start in v.starts
            ]


def _unknown(registration: Registration) -> NotFound:
    return NotFound(
        f"version {registration.version} of {registration.key!r} is not registered here: it was "
        "unregistered, or another engine gave this receipt",
        key=registration.key,
        version=registration.version,
    )

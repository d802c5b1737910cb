"""A status feed that never goes backwards: events as they happen, and a sweep behind them.

Units change state.  An event publishes its unit at once; some events get lost, and a sweep
repairs what they missed.  Both load, decide, send and record inside the unit's section, so
the last message of a unit carries its last state, and no view ever shows an older one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from perkey import Broadcast, Latest, Message, Publisher, Sections

UNITS = [f"unit-{number}" for number in range(8)]
CHANGES = 200  # of each unit


@dataclass(frozen=True)
class Status:
    """What a unit looks like; ``version`` grows with every change."""

    version: int
    state: str


class Plant:
    """The units, as some database would have them."""

    def __init__(self) -> None:
        self.units = {unit: Status(0, "off") for unit in UNITS}

    def change(self, unit: str) -> None:
        version = self.units[unit].version + 1
        self.units[unit] = Status(version, ("idle", "busy", "down")[version % 3])

    def load(self, unit: str) -> Status:
        return self.units[unit]


def main() -> None:
    plant, broadcast = Plant(), Broadcast(queue=100_000)
    publisher = Publisher(plant.load, broadcast.send, sections=Sections(64), send_timeout=60)
    feed, latest = broadcast.subscribe(), Latest()
    view: dict[str, Status] = {}
    backwards = 0

    def work(unit: str) -> None:
        for number in range(CHANGES):
            plant.change(unit)
            if number % 10 != 9:  # the tenth event is lost, also the very last one
                publisher.publish(unit)

    sweeper = threading.Thread(target=publisher.run, args=(0.01, UNITS))
    workers = [threading.Thread(target=work, args=(unit,)) for unit in UNITS]
    for thread in [sweeper, *workers]:
        thread.start()
    for thread in workers:
        thread.join()
    publisher.stop()
    sweeper.join()
    publisher.sweep(UNITS)  # the next one would have come in a moment
    feed.close()

    for message in feed:
        assert isinstance(message, Message)  # a queue of 100,000 drops nothing here
        status = message.value
        backwards += status.version < view.get(message.key, status).version
        if latest.accept(message.key, status.version):
            view[message.key] = status

    counts = publisher.statistics()
    print("passes:", {name: counts[name] for name in ("sent", "unchanged", "shared", "skipped")})
    print("messages out of order:", backwards, " dropped by Latest:", latest.dropped)
    for unit in UNITS:
        print(unit, "is", view[unit].state, "at version", view[unit].version)
    assert backwards == 0
    assert view == plant.units


if __name__ == "__main__":
    main()

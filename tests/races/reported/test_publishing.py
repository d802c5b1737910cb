"""Views that went backwards and messages that never came: what other projects reported."""

from __future__ import annotations

from typing import Any

import pytest

from perkey import AsyncPublisher, Latest
from perkey.testing import explore
from tests.explore.test_publisher import Feed, event, sweep
from tests.races import buggy_publishers


def event_and_sweep(kind: Any) -> Any:
    return explore(lambda: Feed(kind), [event, sweep], check=Feed.current, always=Feed.forward)


def test_the_last_message_carries_the_last_state() -> None:
    """As in https://github.com/BitBoxSwiss/bitbox-wallet-app/pull/4247 and
    https://github.com/kamp-us/phoenix/issues/1903: an old read arrives after a new one."""
    event_and_sweep(AsyncPublisher).assert_holds()


def test_a_read_and_a_send_without_a_section_go_backwards() -> None:
    event_and_sweep(buggy_publishers.PublishWithoutASection).assert_fails()


# ------------------------------------------------------------------- out of order on the way


def shown(latest: Latest) -> str:
    """A consumer gets an element's third update before its second one."""
    view = ""
    for version, state in ((1, "started"), (3, "done"), (2, "running")):
        if latest.accept("element", version):
            view = state
    return view


def test_an_older_update_that_comes_late_is_dropped() -> None:
    """As in https://github.com/drasi-project/drasi-core/pull/302."""
    assert shown(Latest()) == "done"


class Arrival(Latest):
    """Takes updates in the order in which they arrive."""

    def accept(self, key: object, version: int) -> bool:
        return True


def test_a_consumer_that_goes_by_arrival_shows_the_older_one() -> None:
    assert shown(Arrival()) == "running"


# ------------------------------------------------------------- noted as sent, and not sent


async def sent_after_a_failure(kind: Any) -> list[int]:
    """The first send fails; a sweep comes by later."""
    sent: list[int] = []
    down = [True]

    async def send(key: str, state: int) -> None:
        if down.pop() if down else False:
            raise ConnectionError
        sent.append(state)

    async def load(key: str) -> int:
        return 7

    publisher = kind(load, send)
    with pytest.raises(ConnectionError):
        await publisher.publish("unit")
    await publisher.sweep(["unit"])
    return sent


async def test_what_could_not_be_sent_is_sent_by_the_next_sweep() -> None:
    """As in https://github.com/arkeep-io/arkeep/issues/53."""
    assert await sent_after_a_failure(AsyncPublisher) == [7]


async def test_what_is_noted_before_it_is_sent_is_never_repaired() -> None:
    assert await sent_after_a_failure(buggy_publishers.RecordBeforeSend) == []

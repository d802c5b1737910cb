"""Two hundred connections at once: nothing lost, nothing doubled, nothing told out of order.

The long form is ``make bench NAME=server_load``: a minute, with the table.
"""

from __future__ import annotations

from copy import deepcopy

from tests.server import load
from tests.servers.perkey_http import PerkeyHttp

SECONDS = 5.0
GROWTH = 32 * 2**20
"""How much more memory the second half may hold, in bytes: no run of five seconds is quite flat."""


def test_two_hundred_connections() -> None:
    with PerkeyHttp() as server:
        tally = load.run(server, SECONDS)
        server.stop()
        assert "Traceback" not in server.log_tail()
    print(tally.table())
    assert tally.unexpected == []
    assert tally.wrong() == []
    assert tally.gaps == 0
    assert tally.growth < GROWTH, tally.table()
    for what, status in (("write", 200), ("write", 412), ("read", 200)):
        assert tally.statuses[what, status] > 0, "what was to be tried was tried"


def test_what_would_be_wrong_is_found() -> None:
    """The run can fail: each way in which writes and events go wrong is told from the tally."""
    good = load.Tally(["k"], 1.0, last={"k": (3, 3)}, seen=[{"k": [1, 2, 3]}])
    good.made["k"] = [2, 1, 3]
    assert good.wrong() == []
    lost, doubled, silent, twice, count = (deepcopy(good) for _ in range(5))
    lost.made["k"] = [1, 3]
    doubled.made["k"] = [1, 2, 2, 3]
    silent.seen = [{"k": [1, 3]}]
    twice.seen = [{"k": [1, 2, 2, 3]}]
    count.last["k"] = 3, 2
    for bad in (lost, doubled, silent, twice, count):
        assert len(bad.wrong()) == 1
    good.statuses["read", 500] = 1
    assert good.unexpected == [("read", 500)]
    good.memory = [100] * 8 + [900] * 8
    assert good.growth > 0

"""A minute of load on ``perkey serve``: ``python -m benchmarks.server_load [--seconds N]``.

200 connections: 100 read, 50 write on the condition that nobody else did, 50 follow the events.
Ends with an error where a write was lost or doubled, an event was missed, or an answer is none
that the design has.
"""

from __future__ import annotations

import argparse
import sys

from tests.server import load
from tests.servers.perkey_http import PerkeyHttp


def main() -> int:
    parser = argparse.ArgumentParser(description="A minute of load on perkey serve.")
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with PerkeyHttp() as server:
        tally = load.run(server, seconds)
    print(tally.table())
    wrong = [*tally.wrong(), *(f"answered {each}" for each in tally.unexpected)]
    for each in wrong:
        print(each)
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Fixtures that every test can use, and settings for the drawn examples and the explorations."""

from __future__ import annotations

import signal

from hypothesis import settings

from perkey.testing import shrink

pytest_plugins = ["tests.servers.fixtures", "pytester"]

# A slow machine is no failure: no drawn example has a deadline,
settings.register_profile("perkey", deadline=None)
settings.load_profile("perkey")

# and a failing schedule is made small to its end.  (What explorations may take is the processor's
# time, so a machine that is busy, or stands still, ends none of them early.)
shrink.SECONDS = 60.0

# A shell that runs the tests in the background has Ctrl-C ignored, by all that they start, too:
# what a test interrupts would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

"""The lab: the four failures as real code, with the variants that people reach for first.

Each scenario (``lost_update``, ``double_move``, ``backwards_view``, ``half_open``) is a small
world that several callers work on, and a judge that says what must never be.  Each variant is
the same work done in another way: a habit, a repair that does not help, a repair that helps and
costs something, and perkey's.

``examine.examine(variant)`` explores every schedule of a variant with ``perkey.testing``, counts
how many of all schedules fail, runs the very same code in an ordinary stress test on asyncio and
on threads, and draws the smallest failing schedule as a sequence.  ``conflicts`` measures what
optimistic retry, a lock over the whole turn and merging cost as writers become more.
"""

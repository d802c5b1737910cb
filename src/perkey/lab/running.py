"""Examines many variants, side by side in worker processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context

from perkey.lab import catalogue
from perkey.lab.catalogue import Chosen
from perkey.lab.examine import Report, examine


def everything(
    chosen: Sequence[Chosen],
    rounds: int,
    *,
    jobs: int = 0,
    done: Callable[[Report], None] = lambda report: None,
) -> list[Report]:
    """A report for each of ``chosen``, in their order; ``done`` hears of each as it comes.

    ``jobs`` worker processes share the work (default: one a core); with one it is done here.
    """
    workers = min(jobs or os.cpu_count() or 1, len(chosen))
    found: dict[Chosen, Report] = {}
    if workers <= 1:
        for each in chosen:
            found[each] = _one(each, rounds)
            done(found[each])
        return list(found.values())
    # Fresh processes: a forked one would take over locks, and threads would be missing.
    fresh = get_context("spawn")
    others = set(active_children())
    with ProcessPoolExecutor(workers, mp_context=fresh, initializer=_die_quietly) as pool:
        with _uninterrupted():
            started = {pool.submit(_one, each, rounds): each for each in _longest_first(chosen)}
        try:
            for future in as_completed(started):
                found[started[future]] = future.result()
                done(future.result())
        except BaseException:
            # Nothing is cancelled: the pool, which loses its workers, fails all that is left, and
            # its thread trips over what somebody else has ended.
            for worker in set(active_children()) - others:
                worker.terminate()  # what it has begun may take half a minute
            raise
    return [found[each] for each in chosen]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes begun meanwhile start without Ctrl-C, which would meet them at their imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _die_quietly() -> None:
    """From now on Ctrl-C ends a worker without a word; the parent tells."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _longest_first(chosen: Sequence[Chosen]) -> list[Chosen]:
    """perkey's own variants take longest; begun last, they would be waited for alone."""
    return sorted(chosen, key=lambda each: catalogue.find(each)[1].kind != "right")


def _one(chosen: Chosen, rounds: int) -> Report:
    return examine(*catalogue.find(chosen), rounds)

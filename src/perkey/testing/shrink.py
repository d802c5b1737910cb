"""Makes a failing schedule small: fewest injections, then fewest switches, then shortest."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from perkey.testing.loop import Diverged
from perkey.testing.moves import CALLBACK, FAIL, TIMER, Move
from perkey.testing.runner import Program, Run, Violation

ATTEMPTS = 2_000
SECONDS = 3.0


def shrink(program: Program, moves: list[Move], violation: Violation) -> list[Move]:
    """A schedule that fails in the same way and is no larger in any respect tried."""
    best = attempt(program, moves, violation) or moves
    deadline = time.process_time() + SECONDS
    attempts = 0
    better = True
    while better:
        better = False
        for candidate in _candidates(best):
            attempts += 1
            if attempts > ATTEMPTS or time.process_time() > deadline:
                return best
            found = attempt(program, candidate, violation)
            if found is not None and cost(found) < cost(best):
                best, better = found, True
                break
    return best


def cost(moves: list[Move]) -> tuple[int, int, int]:
    """Injections, switches between tasks, length."""
    actors = [_actor(move) for move in moves if move.kind not in (CALLBACK, TIMER)]
    switches = sum(a != b for a, b in itertools.pairwise(actors))
    return sum(move.kind >= FAIL for move in moves), switches, len(moves)


def attempt(program: Program, moves: list[Move], violation: Violation) -> list[Move] | None:
    """What really happened when following ``moves`` as far as possible, if it fails alike."""
    run = Run(program)
    happened: list[Move] = []
    try:
        wanted = iter(moves)
        while True:
            found = run.violation()
            if found is None:
                possible = run.moves()
                if not possible:
                    found = run.verdict()
                    return happened if _alike(found, violation) else None
                move = next((each for each in wanted if each in possible), possible[0])
                if move.kind >= FAIL and move is possible[0]:
                    return None
                run.make(move)
                happened.append(move)
                continue
            return happened if _alike(found, violation) else None
    except Diverged:
        return None
    finally:
        run.close()


def _alike(found: Violation | None, wanted: Violation) -> bool:
    return (
        found is not None and found.kind == wanted.kind and type(found.error) is type(wanted.error)
    )


def _candidates(moves: list[Move]) -> Iterator[list[Move]]:
    injections = [index for index, move in enumerate(moves) if move.kind >= FAIL]
    for index in injections:
        yield moves[:index] + moves[index + 1 :]
    yield from _merged(_blocks(moves))
    size = len(moves) // 2
    while size:
        for start in range(0, len(moves) - size + 1, size):
            yield moves[:start] + moves[start + size :]
        size //= 2


def _merged(blocks: list[list[Move]]) -> Iterator[list[Move]]:
    """One task's next block moved up to its last one, or its last one moved down to the next."""
    for later in range(len(blocks)):
        actor = _actor(blocks[later][0])
        earlier = [i for i in range(later - 1) if _actor(blocks[i][0]) == actor]
        if not earlier:
            continue
        i = earlier[-1]
        between = blocks[i + 1 : later]
        yield _flat([*blocks[: i + 1], blocks[later], *between, *blocks[later + 1 :]])
        yield _flat([*blocks[:i], *between, blocks[i], *blocks[later:]])


def _blocks(moves: list[Move]) -> list[list[Move]]:
    blocks: list[list[Move]] = []
    for move in moves:
        if blocks and _actor(blocks[-1][0]) == _actor(move):
            blocks[-1].append(move)
        else:
            blocks.append([move])
    return blocks


def _flat(blocks: list[list[Move]]) -> list[Move]:
    return [move for block in blocks for move in block]


def _actor(move: Move) -> tuple[str, int]:
    return ("loop", 0) if move.kind in (CALLBACK, TIMER) else ("task", move.number)

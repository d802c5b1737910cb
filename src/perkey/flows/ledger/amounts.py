"""Amounts as text: exact both ways, and never through a float."""

from __future__ import annotations

import re

from perkey.errors import InvalidAmount

_DECIMAL = re.compile(r"(-?)([0-9]{1,19})(?:\.([0-9]{1,18}))?", re.ASCII)


def minor(text: str, scale: int) -> int:
    """``12.5`` at a scale of 2 as 1250 minor units; ``InvalidAmount`` if it does not fit."""
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        raise InvalidAmount(f"expected an amount like 12.50, found {text!r:.60}")
    sign, whole, part = found[1], found[2], (found[3] or "").rstrip("0")
    if len(part) > scale:
        raise InvalidAmount(f"expected at most {scale} decimal places, found {text!r:.60}")
    amount = int(whole + part.ljust(scale, "0"))
    return -amount if sign else amount


def whole(text: str) -> int:
    """Minor units given as text."""
    found = _DECIMAL.fullmatch(text.strip())
    if found is None or found[3] is not None:
        raise InvalidAmount(f"expected whole minor units like 1250, found {text!r:.60}")
    return int(found[0])


def decimal(amount: int, scale: int) -> str:
    """1250 at a scale of 2 as ``12.50``."""
    digits = str(abs(amount)).rjust(scale + 1, "0")
    cut = len(digits) - scale
    sign = "-" if amount < 0 else ""
    return f"{sign}{digits[:cut]}.{digits[cut:]}" if scale else f"{sign}{digits}"


def money(amount: int, scale: int, unit: str) -> str:
    """1250 at a scale of 2 as ``12.50 EUR``: how people are told of it."""
    return f"{decimal(amount, scale)} {unit}"


def in_minor(scale: int, *figures: int) -> str:
    """The same figures for programs, in brackets; nothing where both are written alike."""
    return f" ({' and '.join(map(str, figures))} in minor units)" if scale else ""

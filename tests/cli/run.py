"""Running the command in this process, as a person would type it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from perkey.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The one JSON object on standard error."""
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


class Command:
    """The command, with one store named by the environment."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> Ran:
        self._capture.readouterr()
        code = main(list(arguments))
        out, err = self._capture.readouterr()
        return Ran(code, out, err)

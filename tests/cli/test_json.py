"""``--json`` is valid JSON from every command that prints data, and every such command takes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from perkey.cli import app, exits
from tests.cli.run import Command
from tools import command_page

SESSION = """
doc put k '{"a": 1}' --create
doc put k '{"a": 2}' --if-match 1
doc get k
doc patch k '{"b": 1}'
doc history k
doc diff k 1
doc blame k
doc list
doc delete k
ledger open world EUR --floor none
ledger open a EUR
ledger transfer world a 5 --key t
ledger hold a world 2 --key h
ledger settle h 1 --key s
ledger hold a world 1 --key h2
ledger release h2
ledger transfer world a 1 --key t2
ledger reverse t2
ledger balance a
ledger accounts
ledger statement a
ledger verify
ledger import rows.csv
ledger export all.csv
doctor --n 2
copy {url} sqlite:///copied.db
token ana
lab double-move/delete --rounds 2 --jobs 1
lab conflicts --writers 2 --no-real
"""
ELSEWHERE = {"doc watch", "demo", "run", "serve"}
"""Print lines, or run until they are stopped; their own tests read their JSON."""
NO_DATA = {"completion"}


def name_of(words: list[str]) -> str:
    groups = ("doc", "ledger") if words[1:2] != ["conflicts"] else ("lab",)
    return " ".join(words[:2] if words[0] in groups else words[:1])


def test_every_command_prints_valid_json(perkey: Command, url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("source,target,amount\nworld,a,1\n")
    for line in SESSION.strip().splitlines():
        words = shlex.split(line.replace("{url}", url))
        words = [str(tmp_path / each) if each.endswith(".csv") else each for each in words]
        words = [each.replace("///copied", f"///{tmp_path}/copied") for each in words]
        ran = perkey(*words, "--json")
        assert (ran.code, ran.err) == (exits.DONE, ""), line
        assert json.loads(ran.out) is not None, line


def test_every_command_with_data_takes_it() -> None:
    tried = {name_of(shlex.split(line)) for line in SESSION.strip().splitlines()}
    takes, lacks = set(), set()
    for chain, command in command_page.commands(app.build()):
        if command.default_command is not None:
            names = {n for each in command.assemble_argument_collection() for n in each.names}
            (takes if "--json" in names else lacks).add(" ".join(chain))
    assert lacks == NO_DATA
    assert takes == tried | ELSEWHERE

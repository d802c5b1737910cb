"""``perkey doc`` on a SQLite file: what each command prints, writes and refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from perkey.cli import exits, options
from perkey.flows import transforms
from tests.cli.run import Command


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_put_then_get(perkey: Command) -> None:
    ran = perkey("doc", "put", "k", '{"a": [1, 2.5, "ä"]}', "--create", "--by", "me")
    assert (ran.code, ran.out) == (exits.DONE, "k: version 1\n")
    assert perkey("doc", "get", "k").json == {"a": [1, 2.5, "ä"]}


def test_get_as_json_says_who_and_when(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create", "--by", "me")
    found = perkey("doc", "get", "k", "--json").json
    assert found.pop("at").endswith("+00:00")
    assert found == {
        "key": "k", "version": 1, "etag": '"1"', "by": "me", "base": 0, "deleted": False,
        "value": 1,
    }  # fmt: skip


def test_one_condition_is_needed(perkey: Command) -> None:
    for flags in [[], ["--create", "--overwrite"]]:
        ran = perkey("doc", "put", "k", "1", *flags)
        assert ran.code == exits.USAGE
        assert "condition-required" in ran.err
        assert "--if-match VERSION" in ran.err
        assert "=" not in ran.err, "this is no Python"


def test_merge_alone_is_no_condition(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create")
    ran = perkey("doc", "put", "k", "2", "--overwrite", "--merge")
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert "--merge needs --if-match VERSION" in ran.err
    assert "=" not in ran.err
    assert perkey("doc", "get", "k").json == 1


def test_who_conflicts_is_told_to_merge_unless_that_was_tried(perkey: Command) -> None:
    perkey("doc", "put", "k", '{"a": 1}', "--create")
    perkey("doc", "put", "k", '{"a": 2}', "--overwrite")
    stale = ("doc", "put", "k", '{"a": 3}', "--if-match", "1")
    assert "--merge keeps" in perkey(*stale).err
    overlapping = perkey(*stale, "--merge")
    assert overlapping.code == exits.REFUSED
    assert "changes the same places: /a" in overlapping.err
    perkey("doc", "delete", "k")
    deleted = perkey(*stale, "--merge")
    assert "deleted in version 3" in deleted.err
    for ran in (overlapping, deleted):
        assert "--merge" not in ran.err
        assert "redo the change and repeat it with its version" in ran.err


def test_something_there_already_is_told_by_the_flag(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create")
    ran = perkey("doc", "put", "k", "1", "--create")
    assert "found version 1; read it, or use --if-match VERSION" in ran.err
    assert "if_match" not in ran.err


def test_a_conflict_is_refused_and_explained(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create", "--by", "first")
    perkey("doc", "put", "k", "2", "--if-match", "1", "--by", "second")
    ran = perkey("doc", "put", "k", "3", "--if-match", "1", "--by", "third")
    assert ran.code == exits.REFUSED
    assert "conflict" in ran.err
    assert perkey("doc", "put", "k", "3", "--create").code == exits.REFUSED
    assert perkey("doc", "get", "k").json == 2


def test_earlier_versions_and_history(perkey: Command) -> None:
    perkey("doc", "put", "k", '"one"', "--create", "--by", "a")
    perkey("doc", "put", "k", '"two"', "--if-match", "1", "--by", "b")
    perkey("doc", "delete", "k", "--if-match", "2", "--by", "c")
    assert perkey("doc", "get", "k", "--at", "1").json == "one"
    assert perkey("doc", "get", "k").code == exits.REFUSED
    table = perkey("doc", "history", "k").out
    rows = [(row[0], row[1], row[-1]) for row in lines(table)]
    assert rows == [
        ("version", "by", "value"),
        ("1", "a", '"one"'),
        ("2", "b", '"two"'),
        ("3", "c", "(deleted)"),
    ]
    found = perkey("doc", "history", "k", "--after", "1", "--limit", "1", "--json").json
    assert [(v["version"], v["by"], v["value"]) for v in found] == [(2, "b", "two")]


def test_delete_says_its_version(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create")
    assert perkey("doc", "delete", "k").out == "k: deleted, version 2\n"
    assert perkey("doc", "put", "k", "1", "--create", "--json").json["version"] == 3


def test_list_by_prefix(perkey: Command) -> None:
    for key in ["a/1", "a/2", "b/1"]:
        perkey("doc", "put", key, f'"{key}"', "--create")
    found = perkey("doc", "list", "a/", "--json").json
    assert [each["key"] for each in found] == ["a/1", "a/2"]
    assert [row[0] for row in lines(perkey("doc", "list").out)] == ["key", "a/1", "a/2", "b/1"]
    assert [each["key"] for each in perkey("doc", "list", "--after", "a/2", "--json").json] == [
        "b/1"
    ]
    assert len(perkey("doc", "list", "--limit", "2", "--json").json) == 2
    assert perkey("doc", "list", "--limit", "0").code == exits.USAGE


def test_watch_from_the_beginning(perkey: Command) -> None:
    perkey("doc", "put", "w/1", "1", "--create", "--by", "a")
    perkey("doc", "put", "x", "0", "--create")
    perkey("doc", "put", "w/1", "2", "--if-match", "1", "--by", "b")
    perkey("doc", "delete", "w/1", "--by", "c")
    perkey("doc", "put", "w/1", "4", "--create")
    seen = perkey("doc", "watch", "w/", "--after", "", "--until-synced").out
    assert seen.splitlines() == ["w/1 1 a 1", "w/1 2 b 2", "w/1 3 c (deleted)", "w/1 4 - 4"]


def test_watch_goes_on_from_a_cursor(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create")
    first = perkey("doc", "watch", "--after", "", "--until-synced", "--json").out.splitlines()
    change, synced = map(json.loads, first)
    assert (change["value"], synced["synced"]) == (1, True)
    perkey("doc", "put", "k", "2", "--if-match", "1")
    again = perkey("doc", "watch", "--after", change["cursor"], "--until-synced", "--json").out
    assert [json.loads(line).get("value") for line in again.splitlines()] == [2, None]


def test_watch_from_now_is_caught_up_at_once(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create")
    assert perkey("doc", "watch", "--until-synced").out == ""


@pytest.mark.parametrize(
    "key", ["-", "a b\n", "\x1b[2J", "käse/北", "--", "../../x", "'; drop table"]
)
def test_hostile_keys(perkey: Command, key: str) -> None:
    stored = perkey("doc", "put", "--create", "--json", "--", key, "1")
    assert stored.json["key"] == key
    assert perkey("doc", "get", "--", key).json == 1
    assert all(c.isprintable() or c == "\n" for c in perkey("doc", "list").out)


# ------------------------------------------------------------------------- values as JSON


def test_a_value_from_a_file_and_from_standard_input(
    perkey: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "value.json").write_text('{"from": "file"}')
    perkey("doc", "put", "k", f"@{tmp_path / 'value.json'}", "--create")
    assert perkey("doc", "get", "k").json == {"from": "file"}
    monkeypatch.setattr(sys, "stdin", io.StringIO('"piped"'))
    perkey("doc", "put", "k", "-", "--overwrite")
    assert perkey("doc", "get", "k").json == "piped"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is no JSON"),
        ("text", "this is no JSON"),
        ("", "this is no JSON"),
        ("[" * 100_000, "nested too deep"),
        ("@/nowhere/at/all", "No such file"),
    ],
)
def test_a_value_that_is_none(perkey: Command, text: str, said: str) -> None:
    ran = perkey("doc", "put", "k", text, "--create")
    assert ran.code == exits.USAGE
    assert said in ran.err


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"a": [1e999]}', str(2**70), '"\\ud800"'])
def test_json_that_does_not_come_back_as_it_went_in(perkey: Command, text: str) -> None:
    assert perkey("doc", "put", "k", text, "--create").code == exits.USAGE
    assert perkey("doc", "get", "k").code == exits.REFUSED


def test_a_file_that_is_not_utf8_or_too_long(
    perkey: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "value"
    path.write_bytes(b'"\xff"')
    assert "is not UTF-8" in perkey("doc", "put", "k", f"@{path}", "--create").err
    path.write_text('"12345678901"')
    monkeypatch.setattr(options, "MAX_ARGUMENT_BYTES", 10)
    assert "longer than 10" in perkey("doc", "put", "k", f"@{path}", "--create").err


# --------------------------------------------------------------------- patches and diffs


@pytest.fixture
def stored(perkey: Command) -> Command:
    """``k`` at version 1."""
    perkey("doc", "put", "k", '{"a": 1, "list": ["x"], "gone": true}', "--create", "--by", "first")
    return perkey


@pytest.mark.parametrize(
    ("change", "flags", "after"),
    [
        (
            '[{"op": "replace", "path": "/a", "value": 2}]',
            [],
            {"a": 2, "list": ["x"], "gone": True},
        ),
        ('{"a": 2, "gone": null}', [], {"a": 2, "list": ["x"]}),
        ('{"a": 2}', ["--as", "merge-patch"], {"a": 2, "list": ["x"], "gone": True}),
        ("[1]", ["--as", "merge-patch"], [1]),
        (
            '[{"op": "increment", "path": "/a", "value": 4},'
            ' {"op": "append_unique", "path": "/list", "values": ["x", "y"]}]',
            ["--as", "transforms"],
            {"a": 5, "list": ["x", "y"], "gone": True},
        ),
    ],
)
def test_patches(stored: Command, change: str, flags: list[str], after: object) -> None:
    ran = stored("doc", "patch", "k", change, *flags, "--by", "second")
    assert (ran.code, ran.out) == (exits.DONE, "k: version 2\n")
    assert stored("doc", "get", "k").json == after


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        ('[{"op": "test", "path": "/a", "value": 9}]', []),
        ('[{"op": "remove", "path": "/none"}]', []),
        ('{"op": "increment"}', ["--as", "transforms"]),
        ('"text"', ["--as", "json-patch"]),
        ("{", []),
        ('{"a": 2}', ["--as", "guess"]),
    ],
)
def test_a_patch_that_does_not_apply_changes_nothing(
    stored: Command, change: str, flags: list[str]
) -> None:
    assert stored("doc", "patch", "k", change, *flags).code == exits.USAGE
    assert stored("doc", "get", "k", "--json").json["version"] == 1


@pytest.mark.parametrize("op", sorted(transforms._APPLY))
def test_a_transform_that_is_taken_for_a_json_patch_is_told_how(stored: Command, op: str) -> None:
    ran = stored("doc", "patch", "k", f'[{{"op": "{op}", "path": "/n"}}]')
    assert ran.code == exits.USAGE
    assert "hint: this is a transform; add --as transforms" in ran.err
    named = stored("doc", "patch", "k", '[{"op": "grow", "path": "/n"}]')
    assert "--as transforms" not in named.err
    chosen = stored("doc", "patch", "k", f'[{{"op": "{op}"}}]', "--as", "transforms")
    assert (chosen.code, "hint" in chosen.err) == (exits.USAGE, False)


def test_a_patch_made_for_an_older_version(stored: Command) -> None:
    stored("doc", "patch", "k", '{"a": 2}')
    assert stored("doc", "patch", "k", '{"a": 3}', "--if-match", "1").code == exits.REFUSED
    assert stored("doc", "patch", "k", '{"a": 3}', "--if-match", "2").code == exits.DONE


def test_merging_keeps_what_others_changed(stored: Command) -> None:
    stored("doc", "patch", "k", '{"a": 2}', "--by", "second")
    mine = '{"a": 1, "list": ["x", "y"], "gone": true}'
    merged = stored("doc", "put", "k", mine, "--if-match", "1", "--merge", "--by", "third")
    assert merged.code == exits.DONE
    assert stored("doc", "get", "k").json == {"a": 2, "list": ["x", "y"], "gone": True}


def test_merging_refuses_a_change_to_the_same_place_and_names_it(stored: Command) -> None:
    stored("doc", "patch", "k", '{"a": 2}', "--by", "second")
    mine = '{"a": 3, "list": ["x"], "gone": true}'
    ran = stored("doc", "put", "k", mine, "--if-match", "1", "--merge", "--json")
    assert ran.code == exits.REFUSED
    assert ran.error["code"] == "conflict"
    assert "/a" in ran.error["message"]
    assert "second" in ran.error["message"]


def test_diff_of_two_versions(stored: Command) -> None:
    stored("doc", "put", "k", '{"a": "\\u001b[2J", "list": ["x"], "new": {}}', "--if-match", "1")
    stored("doc", "patch", "k", '{"more": 1}')
    assert stored("doc", "diff", "k", "1", "2").out.splitlines() == [
        '~ /a: 1 -> "\\u001b[2J"',
        "- /gone: true",
        "+ /new: {}",
    ]
    assert stored("doc", "diff", "k", "2").out == "+ /more: 1\n"
    assert stored("doc", "diff", "k", "2", "--json").json == [
        {"op": "add", "path": "/more", "new": 1}
    ]
    assert stored("doc", "diff", "k", "3").out == ""
    unknown = stored("doc", "diff", "k", "1", "9", "--json")
    assert unknown.code == exits.REFUSED
    assert unknown.error["hint"].startswith("perkey doc history")


def test_blame_names_the_author_of_each_value(stored: Command) -> None:
    stored("doc", "patch", "k", '{"a": 2, "gone": null, "new": {"x": 1}}', "--by", "second")
    rows = lines(stored("doc", "blame", "k").out)
    assert rows == [
        ["path", "version", "by"],
        ["/a", "2", "second"],
        ["/list/0", "1", "first"],
        ["/new/x", "2", "second"],
    ]
    below = stored("doc", "blame", "k", "/new", "--json").json
    assert below == {"/new/x": {"version": 2, "by": "second", "known": True}}


def test_blame_of_a_place_that_is_not_there(stored: Command) -> None:
    assert stored("doc", "blame", "k", "/none").code == exits.REFUSED
    assert stored("doc", "blame", "none").code == exits.REFUSED
    assert stored("doc", "blame", "k", "no pointer").code == exits.USAGE


def test_blame_of_a_plain_value(perkey: Command) -> None:
    perkey("doc", "put", "k", "1", "--create", "--by", "me")
    assert lines(perkey("doc", "blame", "k").out)[1] == ["(all)", "1", "me"]

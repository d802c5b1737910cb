"""The shell of the command: exit codes, errors as one line and a hint, JSON, missing packages."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey as library
from perkey import errors
from perkey.cli import app, exits, main, output
from tests.cli.run import Command
from tests.tidy import repo


def test_version(perkey: Command) -> None:
    assert perkey("--version").out.strip() == library.__version__


def test_help_says_what_the_exit_codes_mean(perkey: Command) -> None:
    said = " ".join(perkey("--help").out.split())
    assert all(meaning in said for meaning in exits.MEANING.values())


def test_the_page_about_the_command_has_the_same_exit_codes() -> None:
    page = (repo.ROOT / "docs" / "command.md").read_text("utf-8")
    rows = [f"| {code} | {meaning} |" for code, meaning in exits.MEANING.items()]
    assert [row for row in rows if row not in page] == []


def commands() -> Iterator[tuple[str, set[str]]]:
    """Each command as a person types it, with its options."""
    root = app.build()
    for group in ("doc", "ledger", "demo"):
        names = [name for name in root[group] if not name.startswith("-")]
        for name in names or [""]:
            command = root[group][name] if name else root[group]
            arguments = command.assemble_argument_collection()
            options = {o for a in arguments for o in a.names if o.startswith("--")}
            yield f"perkey {group} {name}".strip(), options


def test_every_command_and_option_is_documented() -> None:
    page = (repo.ROOT / "docs" / "command.md").read_text("utf-8")
    found = dict(commands())
    assert len(found) > 5
    assert {"--blind", "--kill"} <= found["perkey demo"]
    missing = [name for name in found if name not in page]
    missing += sorted({o for options in found.values() for o in options if o not in page})
    assert missing == []


@pytest.mark.parametrize(
    "arguments", [["none"], ["doc", "none"], ["doc", "get"], ["doc", "get", "k", "--none"],
                  ["doc", "get", "k", "--at", "x"], ["demo", "--workers", "many"]]
)  # fmt: skip
def test_a_wrong_command_is_one_line_and_a_hint(perkey: Command, arguments: list[str]) -> None:
    ran = perkey(*arguments)
    assert (ran.code, ran.out) == (exits.USAGE, "")
    message, hint = ran.err.splitlines()
    assert message.startswith("perkey: ")
    typed = [each for each in arguments[:2] if each in ("doc", "get", "demo")]
    assert hint == f"hint: {' '.join(['perkey', *typed, '--help'])} says what it takes"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ledger transfer a b 5", "perkey ledger transfer needs --key KEY"),
        ("ledger transfer a b", "perkey ledger transfer needs AMOUNT"),
        ("doc get", "perkey doc get needs KEY"),
        ("run", "perkey run needs FILE"),
        ("ledger transfer a b 5 --key", 'Command "ledger transfer" parameter --key requires an '
         "argument."),
    ],
)  # fmt: skip
def test_what_is_left_out_is_named(perkey: Command, arguments: str, said: str) -> None:
    ran = perkey(*arguments.split())
    assert (ran.code, ran.out) == (exits.USAGE, "")
    assert ran.err.splitlines()[0] == f"perkey: {said}"


def test_no_command_shows_the_help(perkey: Command) -> None:
    ran = perkey()
    assert ran.code == exits.DONE
    assert "Exit codes" in ran.out


def test_no_store_named(perkey: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERKEY_STORE")
    ran = perkey("doc", "get", "k")
    assert ran.code == exits.USAGE
    assert "PERKEY_STORE" in ran.err


def test_an_error_as_json(perkey: Command) -> None:
    ran = perkey("doc", "get", "nothing", "--json")
    assert ran.code == exits.REFUSED
    assert ran.out == ""
    assert ran.error["code"] == "not-found"
    assert ran.error["details"] == {"key": "nothing"}
    assert ran.error["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["doc", "get", "--json"],
        ["doc", "nonsense", "--json"],
        ["doc", "get", "k", "--at", "soon", "--json"],
        ["ledger", "balance", "cash", "--nonsense", "--json"],
        ["doc", "put", "k", "1", "--json"],
        ["doc", "put", "k", "{", "--create", "--json"],
    ],
)
def test_every_wrong_command_is_told_as_json(perkey: Command, arguments: list[str]) -> None:
    plain = perkey(*(each for each in arguments if each != "--json"))
    ran = perkey(*arguments)
    assert (ran.out, ran.code, plain.code) == ("", exits.USAGE, exits.USAGE)
    assert set(ran.error) == {"code", "message", "hint", "details"}
    assert ran.error["code"] in {"usage", "condition-required", "invalid-value"}
    assert ran.error["message"] in " ".join(plain.err.split())
    assert len(ran.err.splitlines()) == 1


def test_what_stands_behind_two_dashes_is_no_option(perkey: Command) -> None:
    ran = perkey("doc", "get", "--", "--json")
    assert ran.err.startswith("perkey: not-found: there is nothing at '--json'")


def test_an_error_of_the_system_as_json(perkey: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device", "report.md")

    monkeypatch.setattr(app, "build", lambda _: fail)
    ran = perkey("anything", "--json")
    assert ran.code == exits.STORE
    assert ran.error == {
        "code": "io",
        "message": "report.md: No space left on device",
        "hint": "",
        "details": {"errno": 28, "path": "report.md"},
    }


def test_details_of_any_kind_can_be_told(perkey: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise errors.Conflict(
            "moved", by={1: {2, 3}}, at=(1, float("nan")), key=Path("a"), text="\ud800 é", n=None
        )

    monkeypatch.setattr(app, "build", lambda _: fail)
    ran = perkey("anything", "--json")
    assert ran.code == exits.REFUSED
    details = ran.error["details"]
    assert sorted(details["by"]["1"]) == [2, 3]
    assert (details["at"], details["key"], details["n"]) == ([1, "nan"], "a", None)
    assert details["text"].endswith("é")


KINDS = [
    (errors.InvalidKey, exits.USAGE),
    (errors.Conflict, exits.REFUSED),
    (errors.NotFound, exits.REFUSED),
    (errors.IncompleteRun, exits.REFUSED),
    (errors.Timeout, exits.BUSY),
    (errors.QueueFull, exits.BUSY),
    (errors.OutcomeUnknown, exits.UNKNOWN),
    (errors.StoreUnavailable, exits.STORE),
    (errors.MissingExtra, exits.STORE),
]


@pytest.mark.parametrize(("kind", "code"), KINDS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_each_kind_of_error_has_its_exit_code(kind: type[errors.PerkeyError], code: int) -> None:
    assert exits.code_of(kind()) == code
    assert code in exits.MEANING


def test_who_is_not_known_is_told_where_a_token_stands() -> None:
    assert "http://token:TOKEN@" in exits.hint_for(errors.Unauthorised("who?"))


def test_every_error_has_an_exit_code_that_is_explained() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert {exits.code_of(kind()) for kind in kinds} <= set(exits.MEANING) - {exits.DONE}


@pytest.mark.parametrize(
    ("raised", "code"),
    [(KeyboardInterrupt(), exits.INTERRUPTED), (errors.Timeout("late"), exits.BUSY)],
)
def test_what_a_command_raises(
    monkeypatch: pytest.MonkeyPatch,
    perkey: Command,
    raised: BaseException,
    code: int,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise raised

    monkeypatch.setattr(app, "build", lambda _: fail)
    assert perkey("anything").code == code


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch, perkey: Command) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app, "build", lambda _: fail)
    with pytest.raises(ZeroDivisionError):
        perkey("anything")


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    """In a process where the package cannot be imported."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from perkey.cli import main; sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == exits.STORE
    assert f"needs the package '{missing}'" in done.stderr
    assert "hint: pip install 'perkey[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_ours_that_is_missing_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perkey.cli.doc", None)
    monkeypatch.delattr("perkey.cli.doc", raising=False)
    with pytest.raises(ImportError):
        main(["--help"])


def test_a_reader_that_leaves_is_no_error(url: str) -> None:
    """``perkey doc list | head -0`` ends without a complaint, however much there is to say."""
    with library.open(url) as store:
        for number in range(50):
            store.put(f"key/{number}", "x" * 2000, create=True)
    child = subprocess.Popen(
        [sys.executable, "-m", "perkey", "doc", "list", "--json"],
        env={**os.environ, "PERKEY_STORE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    complaint = child.stderr.read()
    child.stderr.close()
    assert (child.wait(timeout=60), complaint) == (0, b"")


@pytest.mark.parametrize("module", ["perkey", "perkey.cli"])
def test_it_runs_as_a_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == library.__version__


@pytest.mark.parametrize("colour", [True, False])
def test_no_line_of_a_table_ends_in_spaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR" if colour else "NO_COLOR", "1")
    output.table(("key", "what"), [("a", "short"), ("b", "rather longer")], title="the table")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert plain == "the table\nkey  what\na    short\nb    rather longer\n"


def test_text_from_outside_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2Jb\r\nc\u202ed[bold]"
    output.say(hostile)
    output.table(("x",), [(hostile,)])
    output.complain(hostile, hostile)
    out, err = capsys.readouterr()
    for text in (out, err):
        assert "a\\x1b[2Jb\\r\\nc\\u202ed[bold]" in text
        assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(
    ("value", "shown"), [({"a": "ä"}, '{"a": "ä"}'), ("x" * 90, '"' + "x" * 58 + "…")]
)
def test_values_are_shown_short(value: object, shown: str) -> None:
    assert output.short(value) == shown


@pytest.mark.parametrize("variable", ["NO_COLOR", ""])
def test_colour_only_at_a_terminal_that_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as at a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    if variable:
        monkeypatch.setenv(variable, "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    output.say("hello", style="red")
    assert ("\x1b[31m" in capsys.readouterr().out) is (variable == "")


def test_a_store_without_credentials_ends_alike_everywhere(
    perkey: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One code, one beginning and no second advice, whoever's bucket it is."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", _Nobody)
    for url in ("s3://b/p", "gs://b/p", "az://account@b/p"):
        ran = perkey("doc", "get", "k", "--store", url, "--json")
        assert (ran.code, ran.error["code"]) == (exits.STORE, "no-credentials")
        assert ran.error["message"].startswith("no credentials")
        assert ran.error["hint"] == ""


class _Nobody:
    """Whoever azure-identity finds where nobody is logged in."""

    def get_token(self, *scopes: str) -> object:
        from azure.core.exceptions import ClientAuthenticationError

        raise ClientAuthenticationError("nobody is logged in")


def test_a_file_of_another_program_is_told_by_name_and_without_a_second_advice(
    perkey: Command, tmp_path: Path
) -> None:
    raw = sqlite3.connect(tmp_path / "crm.db")
    raw.execute("CREATE TABLE customers (id)")
    raw.close()
    ran = perkey("doc", "list", "--store", f"sqlite:///{tmp_path}/crm.db")
    assert ran.code == exits.STORE
    (line,) = ran.err.splitlines()
    assert "of another program" in line
    assert "table customers" in line
    assert line.endswith("name another file")


def test_at_a_terminal_an_error_stands_out_and_a_sentence_breaks_between_words(
    perkey: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ran = perkey("doc", "get", "k")
    assert ran.err.startswith("\x1b[1;31mperkey:\x1b[0m not-found: ")
    assert len(ran.err.splitlines()) == 2, "a line of an error is never broken: it may be copied"
    output.prose("one sentence with a few words")
    assert capsys.readouterr().out == "one sentence with a\nfew words\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in perkey("doc", "get", "k").err


def test_in_a_pipe_a_sentence_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.prose("many words " * 30)
    assert len(capsys.readouterr().out.splitlines()) == 1

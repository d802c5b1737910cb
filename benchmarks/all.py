"""All benches in one command: ``make bench NAME=all``, which writes ``benchmarks/RESULTS.md``.

    python -m benchmarks.all [--quick] [--only store,locks] [--into FOLDER] [--most SECONDS]

Each bench is a process of its own.  One that fails or takes too long is named in the results,
and the others go on; what it started (servers of the stores) ends with it.  ``--quick`` takes
fewer rounds: to try it out, not to be quoted.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import perkey
from benchmarks import plots, records
from benchmarks.records import Record

ROOT = Path(__file__).resolve().parents[1]
BENCHES = ("store", "codec", "locks", "ledger", "engine", "server", "server_load", "backends",
           "explore")  # fmt: skip
PEERS = (
    "msgspec", "psycopg", "redis", "grpcio", "nats-py", "boto3", "asyncio-keyed-lock", "aiologic",
    "dogpile.cache", "oslo.concurrency", "dbos", "SpiffWorkflow", "frontrun", "detangle",
    "starlette", "uvicorn", "agent-once", "justonce", "aws-lambda-powertools", "a-ledger",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one bench."""

    name: str
    text: str
    seconds: float
    wrong: str
    """Why it does not count; empty when it ended well."""
    records: list[Record]


def run(name: str, quick: bool, most: float) -> Outcome:
    """Run one bench to its end, or for ``most`` seconds."""
    with tempfile.TemporaryDirectory(prefix="perkey-bench-") as folder:
        kept = Path(folder) / "records"
        environment = os.environ | {records.FILE: str(kept)}
        if quick:
            environment[records.QUICK] = "1"
        said = Path(folder) / "said"
        began = time.monotonic()
        with said.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", f"benchmarks.{name}"],
                cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            wrong = _wait(process, most)
        seconds = time.monotonic() - began
        text = plainly(said.read_text("utf-8", "replace"))
        return Outcome(name, text, seconds, wrong, records.read(kept))


def _wait(process: subprocess.Popen[bytes], most: float) -> str:
    """What went wrong; afterwards nothing that the bench started in its session is left."""
    wrong = ""
    try:
        code = process.wait(most)
        wrong = f"ended with {code}" if code else ""
    except subprocess.TimeoutExpired:
        wrong = f"not done after {most:g} s"
    finally:
        # Interrupted as by Ctrl-C, it stops its servers by itself.
        for number, patience in ((signal.SIGINT, 30), (signal.SIGKILL, 10)):
            if process.poll() is not None:
                break
            process.send_signal(number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        try:
            os.killpg(process.pid, signal.SIGKILL)
            wrong = wrong or "left processes behind, which were ended"
        except ProcessLookupError:
            pass
    return wrong


def plainly(text: str) -> str:
    """Without the places of one machine."""
    for path, name in ((str(ROOT), "."), (str(Path.home()), "~"), (tempfile.gettempdir(), "TMP")):
        text = text.replace(path, name)
    return text.strip()


# ------------------------------------------------------------ the page


def machine() -> list[str]:
    """What the figures were taken on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text("utf-8").splitlines()
        model = next((x.partition(": ")[2] for x in lines if x.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"- {model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}",
        f"- Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"perkey {perkey.__version__} at {commit()}",
        f"- {', '.join(versions())}",
    ]


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "an unknown commit"


def versions() -> list[str]:
    found = []
    for name in PEERS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return found


def page(outcomes: list[Outcome], quick: bool, load: tuple[float, float]) -> str:
    """The whole of ``RESULTS.md``."""
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    lines = [
        "# Benchmark results", "",
        "Written by `make bench NAME=all`. A figure is a median; where there are two sides they",
        "took turns, a ratio is the median of the pairs' ratios, and its spread is the middle half",
        "of them. Of rates, above 1 means that perkey does more; of costs, that it takes longer.",
        "Quote ratios: the load of the machine moves both sides.",
        "", *machine(),
        f"- load before and after: {load[0]:.1f} and {load[1]:.1f}",
    ]  # fmt: skip
    if quick:
        lines += ["- **reduced sizes (`--quick`)**: to try it out, not to be quoted"]
    lines += [f"- **{each.name} does not count**: {each.wrong}" for each in wrong]
    for outcome in outcomes:
        took = f"{outcome.seconds:.0f} s{': ' + outcome.wrong if outcome.wrong else ''}"
        lines += ["", f"## {outcome.name}", "", f"`make bench NAME={outcome.name}`, {took}"]
        lines += table(outcome.records)
        lines += [f"\n![{title}](results/{file})" for file, title, _ in pictures(outcome)]
        lines += ["", "```text", outcome.text, "```"]
    return "\n".join(lines) + "\n"


def table(found: list[Record]) -> list[str]:
    """One row a figure."""
    if not found:
        return []
    lines = ["", "| what | perkey | other side | ratio | middle half | goal |",
             "| --- | ---: | ---: | ---: | ---: | --- |"]  # fmt: skip
    for each in found:
        theirs = "" if each.theirs is None else f"{plots.amount(each.theirs)} {each.unit}"
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        spread = "" if each.low is None else f"{each.low:.2f} to {each.high:.2f}"
        what = each.what.replace("|", "\\|")
        value = f"{plots.amount(each.value)} {each.unit}"
        lines.append(f"| {what} | {value} | {theirs} | {ratio} | {spread} | {each.goal} |")
    return lines


def pictures(outcome: Outcome) -> list[tuple[str, str, str]]:
    """(file, title, SVG) of a bench: its ratios, and its figures by unit."""
    found = []
    ratios = [plots.Bar(x.what, x.ratio, x.low, x.high) for x in outcome.records if x.ratio]
    if ratios:
        title = f"{outcome.name}: perkey to the other side"
        picture = plots.bars(title, "ratio, the line is 1", ratios, 1.0)
        found.append((f"{outcome.name}-ratios.svg", title, picture))
    units = dict.fromkeys(x.unit for x in outcome.records if not x.ratio)
    for unit in units:
        rows = [plots.Bar(x.what, x.value) for x in outcome.records if x.unit == unit]
        title = f"{outcome.name}: {unit}"
        slug = "".join(c if c.isalnum() else "-" for c in unit)
        found.append((f"{outcome.name}-{slug}.svg", title, plots.bars(title, unit, rows)))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the benches, write the page and its pictures; 1 if one of them does not count."""
    parser = argparse.ArgumentParser(prog="benchmarks.all", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default=",".join(BENCHES), help="names, with commas")
    parser.add_argument("--into", type=Path, default=ROOT / "benchmarks", help="a folder")
    parser.add_argument("--most", type=float, default=1800.0, help="seconds for one bench")
    asked = parser.parse_args(arguments)
    names = asked.only.split(",")
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        parser.error(f"expected some of {', '.join(BENCHES)}; found {', '.join(unknown)}")
    before = os.getloadavg()[0]
    outcomes = []
    for name in names:
        print(f"== {name}", flush=True)
        outcomes.append(run(name, asked.quick, asked.most))
        print(outcomes[-1].text)
        print(
            f"== {name}: {outcomes[-1].wrong or 'done'}, {outcomes[-1].seconds:.0f} s", flush=True
        )
    folder: Path = asked.into / "results"
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in outcomes:
        for file, _, picture in pictures(outcome):
            (folder / file).write_text(picture, "utf-8")
    text = page(outcomes, asked.quick, (before, os.getloadavg()[0]))
    (asked.into / "RESULTS.md").write_text(text, "utf-8")
    print(f"wrote {asked.into / 'RESULTS.md'}")
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

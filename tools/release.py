"""What must hold before a release; needs a package index.  ``python tools/release.py``

Builds the sdist and from it the wheel, installs the wheel into a clean environment of every
Python from 3.11 that is found here, alone and with each extra alone, and begins what each extra
is for.  Then it asks whether every public name is pinned.  One line a step; 1 if one failed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.release import public_api  # noqa: E402
from tests.release.alone import PROJECT  # noqa: E402
from tests.release.test_packages import USES, build  # noqa: E402

WANTED = ("3.11", "3.12", "3.13")


def pythons() -> dict[str, str]:
    """Version -> the first working interpreter of it on this machine."""
    found: dict[str, str] = {}
    folders = os.environ.get("PATH", "").split(os.pathsep)
    folders += [str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin")]
    for version in WANTED:
        for folder in folders:
            path = shutil.which(f"python{version}", path=folder)
            if path and _version(path) == version:
                found[version] = path
                break
    return found


def _version(python: str) -> str:
    done = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    matched = re.match(r"Python (\d+\.\d+)", done.stdout)
    return matched.group(1) if matched and done.returncode == 0 else ""


def tried(python: str, wheel: Path, extra: str, folder: Path) -> str:
    """Install with one extra and use it; what went wrong, or an empty text."""
    place = folder / f"{_version(python)}-{extra}"
    wanted = str(wheel) if extra == "none" else f"{wheel}[{extra}]"
    inside = place / "bin" / "python"
    pip = [str(inside), "-m", "pip", "--disable-pip-version-check"]
    commands = [
        [python, "-m", "venv", str(place)],
        [*pip, "install", "--quiet", wanted],
        [str(inside), "-I", "-c", USES[extra]],
        [*pip, "check"],
    ]
    folders = [str(Path(sys.executable).parent), *os.get_exec_path()]
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is not None:  # some ten times faster
        commands[0] = [uv, "venv", "--quiet", "--python", python, str(place)]
        commands[1] = [uv, "pip", "install", "--quiet", "--python", str(inside), wanted]
        commands[3] = [uv, "pip", "check", "--quiet", "--python", str(inside)]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            return (done.stderr or done.stdout).strip().splitlines()[-1]
    shutil.rmtree(place)
    return ""


def main() -> int:
    """Print one line a step; 1 if one of them failed."""
    found = pythons()
    for version in sorted(set(WANTED) - found.keys()):
        print(f"Python {version}: not on this machine, NOT TRIED")
    failed = False
    with tempfile.TemporaryDirectory(prefix="perkey-release-") as name:
        folder = Path(name)
        sdist = build(ROOT, folder / "sdist", "sdist")
        shutil.unpack_archive(sdist, folder / "source", filter="data")
        source = folder / "source" / f"perkey-{PROJECT['version']}"
        wheel = build(source, folder / "wheel", "wheel")
        print(f"built {sdist.name} and, from it, {wheel.name}")
        for version, python in found.items():
            for extra in USES:
                wrong = tried(python, wheel, extra, folder)
                failed = failed or bool(wrong)
                print(f"Python {version}, {extra}: {wrong or 'ok'}", flush=True)
    pinned = (ROOT / "tests/release/public_api.txt").read_text("utf-8").splitlines()
    if pinned != public_api.lines():
        failed = True
        print("not everything public is pinned: python -m tests.release.public_api")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

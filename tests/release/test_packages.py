"""Wheel and sdist: they build, hold what belongs in them, and the wheel works where nothing but
msgspec is installed.  ``tools/release.py`` does the same with an index and on several Pythons.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from tests.release.alone import PROJECT, ROOT, closure, requirements


def build(source: Path, into: Path, target: str) -> Path:
    """What hatchling builds from ``source``; offline."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into), "-t", target],
        cwd=source, check=True, capture_output=True, timeout=250,
    )  # fmt: skip
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"perkey-{PROJECT['version']}"


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist builds."""
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and msgspec, nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    # Of the interpreter below this environment, so that nothing of it shines through.
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    site = next(folder.glob("lib/python*/site-packages"))
    shutil.copytree(Path(msgspec.__file__).parent, site / "msgspec")
    subprocess.run(
        [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--target", str(site), str(wheel)],
        check=True, timeout=120,
    )  # fmt: skip
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", *arguments], capture_output=True, text=True, timeout=60, cwd=python.parent
    )


def test_the_sdist_holds_what_one_needs_to_build_and_test(source: Path) -> None:
    for name in ("LICENSE", "CHANGELOG.md", "SECURITY.md", "tests/conftest.py", "Makefile"):
        assert (source / name).is_file(), name


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    src = ROOT / "src"
    modules = {path.relative_to(src).as_posix() for path in src.rglob("*.py")}
    assert modules <= found
    assert {"perkey/py.typed", "perkey/_pages/README.md"} <= found
    assert {name.partition("/")[0] for name in found} == {
        "perkey", f"perkey-{PROJECT['version']}.dist-info",
    }  # fmt: skip


def test_the_wheel_works_with_msgspec_alone(clean: Path) -> None:
    done = run(clean, "-c", (
        "import perkey, sys, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    with perkey.open(f'sqlite:///{folder}/a.db') as store:\n"
        "        store.put('k', {'n': 1}, create=True)\n"
        "        store.transact('k', lambda tx: tx.__setitem__('k', {'n': 2}))\n"
        "        print(store.get('k').value, perkey.__version__)\n"
        "from perkey.testing import explore\n"
    ))  # fmt: skip
    assert done.stdout.split("\n")[0] == f"{{'n': 2}} {PROJECT['version']}", done.stderr
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there(clean: Path) -> None:
    code = (
        "import perkey, perkey.testing\n"
        "for module in (perkey, perkey.testing):\n"
        "    for name in module.__all__:\n"
        "        getattr(module, name)\n"
    )
    assert run(clean, "-c", code).stderr == ""


def test_what_is_missing_is_named_with_the_command_that_installs_it(clean: Path) -> None:
    done = run(clean, "-c", "import perkey; perkey.open('postgresql://127.0.0.1:1/x')")
    assert "pip install 'perkey[postgres]'" in done.stderr
    command = run(clean, "-m", "perkey.cli", "--help")
    assert command.returncode != 0
    assert "perkey[cli]" in command.stderr


def test_the_entry_points_are_declared(clean: Path) -> None:
    site = next(clean.parents[1].glob("lib/python*/site-packages"))
    (found,) = metadata.distributions(name="perkey", path=[str(site)])
    points = {(point.group, point.name): point.value for point in found.entry_points}
    assert points == {
        ("console_scripts", "perkey"): "perkey.cli:main",
        ("pytest11", "perkey"): "perkey.testing.pytest_plugin",
    }
    assert found.metadata["Requires-Python"] == PROJECT["requires-python"]


# ------------------------------------------------------------ extras, each alone

USES = {
    "none": "import perkey; perkey.open('memory://').close(); import perkey.asgi",
    "cli": "import perkey.cli; perkey.cli.main(['--version'])",
    "schema": "from perkey import Documents; import perkey, jsonschema; "
    "d = Documents(perkey.open('memory://')); d.put('k', 1, create=True)",
    "azure": "import perkey.store.backends.azure, azure.identity",
    "dynamodb": "import perkey.store.backends.dynamodb",
    "etcd": "import perkey.store.backends.etcd",
    "gcs": "import perkey.store.backends.gcs, google.auth, google.oauth2.service_account",
    "postgres": "import perkey.store.backends.postgres",
    "nats": "import perkey.store.backends.nats",
    "otel": "import opentelemetry.trace, perkey",
    "redis": "import perkey.store.backends.redis",
    "s3": "import perkey.store.backends.objects",
    "server": "import perkey.server.app, perkey.server.pages.render, perkey.server.run",
}
"""What somebody with this extra alone begins with."""


def test_every_extra_is_tried() -> None:
    assert USES.keys() - {"none"} == PROJECT["optional-dependencies"].keys() - {"all"}


def test_all_holds_every_extra_in_the_same_order() -> None:
    extras = [name for name in PROJECT["optional-dependencies"] if name != "all"]
    assert PROJECT["optional-dependencies"]["all"] == [f"perkey[{','.join(extras)}]"]


@pytest.mark.parametrize("extra", list(USES))
def test_an_extra_alone_is_enough(extra: str) -> None:
    """Although all are installed here, only its own packages can be imported."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.release.alone", extra, USES[extra]],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_blocker_blocks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.release.alone", "redis", "import psycopg"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "ModuleNotFoundError: No module named 'psycopg'" in done.stderr
    assert "psycopg" in closure(requirements("postgres"))
    assert closure(requirements(None)) == {"msgspec"}

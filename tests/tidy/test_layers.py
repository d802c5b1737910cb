"""Imports run one way, as ``[tool.importlinter]`` in pyproject.toml says."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.tidy import repo

CHECK = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=repo.ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_has_its_place_in_the_layers() -> None:
    """A module that no layer names would be free to import anything."""
    settings = tomllib.loads((repo.ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["id"] == "layers")
    placed = {name.strip(" ()") for layer in layers for name in layer.replace("|", ":").split(":")}
    modules = {path.stem for path in repo.SRC.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in repo.SRC.glob("*/__init__.py")}
    assert sorted((modules | packages) - placed - {"__main__"}) == []

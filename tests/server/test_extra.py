"""Without the packages of the extra, whoever imports the server is told what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import importlib, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
from perkey import MissingExtra
for name in {fine!r}:
    importlib.import_module(name)
for name in {needing!r}:
    try:
        importlib.import_module(name)
    except MissingExtra as error:
        print(error)
"""


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "httptools"])
def test_the_line_for_pip_is_told(package: str) -> None:
    fine = ["perkey.asgi", "perkey.server", "perkey.server.settings", "perkey.server.hosting"]
    needing = ["perkey.server.run"]
    (needing if package == "starlette" else fine).insert(0, "perkey.server.app")
    code = WITHOUT.format(absent=(package,), fine=fine, needing=needing)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = (
        f"the server needs the package {package!r}; install it with: pip install 'perkey[server]'"
    )
    assert ran.stdout.splitlines() == [told] * len(needing)
    assert ran.stderr == ""

#!/bin/sh
# usage: install.sh VENV GROUP
# Makes VENV if it is missing and installs perkey (editable, every extra) with one dependency
# group.  uv is some ten times faster; where it cannot be had, or cannot reach the index that
# pip is set up for, pip does the same work.
set -eu

venv=$1
group=$2
python=${PYTHON:-python3}

"$python" - <<'CHECK' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"perkey needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}")
CHECK

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
log="$venv/install.log"

with_uv() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv &&
        "$venv/bin/uv" pip install --python "$venv/bin/python" --editable ".[all]" --group "$group"
}

with_pip() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" &&
        "$venv/bin/python" -m pip install --quiet --editable ".[all]" --group "$group"
}

echo "installing perkey and its '$group' tools into $venv"
if with_uv >"$log" 2>&1; then
    exit 0
fi
echo "uv could not do it (see $log); using pip"
with_pip

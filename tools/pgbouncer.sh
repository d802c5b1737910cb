#!/bin/sh
# pgbouncer for the tests of PostgreSQL behind it.  Installs Debian's package where CI is set and
# this may be done: elsewhere the package would begin to serve.  Where it is missing, says so.
set -eu

if PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null 2>&1; then
    exit 0
fi
if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing pgbouncer for the tests of PostgreSQL behind it"
    if said=$({ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends pgbouncer; } 2>&1); then
        exit 0
    fi
    echo "$said" | tail -n 5
fi
echo "pgbouncer is missing and was not installed: its tests are left out (a small pooler of ours is still used)."
echo "Install it with the system's package manager, for example: apt-get install pgbouncer"

#!/bin/sh
# Chromium for the tests that look at the pages.  Installs Debian's package where this may be
# done; where it may not, says so: those tests are then left out, or fail where CI is set.
set -eu

for name in chromium chromium-browser google-chrome chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium for the tests of the pages"
    if said=$({ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } 2>&1); then
        exit 0
    fi
    echo "$said" | tail -n 5
fi
echo "Chromium is missing and was not installed: the pages are not looked at in a browser."
echo "Install it with the system's package manager, for example: apt-get install chromium"

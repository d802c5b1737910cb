"""``python -m perkey.cli``: the command where no script is installed."""

from __future__ import annotations

import sys

from perkey.cli import main

if __name__ == "__main__":
    sys.exit(main())

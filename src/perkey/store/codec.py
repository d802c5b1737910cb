"""JSON in and out."""

from __future__ import annotations

import msgspec

encode = msgspec.json.encode
decode = msgspec.json.decode

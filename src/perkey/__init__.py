"""perkey: one at a time per key; never on a stale read; never twice."""

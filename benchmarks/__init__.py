"""Measurements against hand-written code: ``python -m benchmarks.store``."""

"""Real servers on loopback, from wheels, for tests and benchmarks."""

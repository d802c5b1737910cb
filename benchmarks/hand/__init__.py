"""What one would write by hand on each store: a compare-and-swap loop with history."""

"""The process engine: a versioned registry, an atomic lifecycle, starts that are never lost."""

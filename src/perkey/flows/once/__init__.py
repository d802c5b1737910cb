"""Operations that run once, in two modes that are never blurred."""

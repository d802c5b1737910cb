"""``perkey lab``: the four failures, found and not found, and what conflicts cost."""

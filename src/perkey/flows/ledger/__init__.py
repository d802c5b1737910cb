"""Double entry on the store: accounts, postings, holds."""

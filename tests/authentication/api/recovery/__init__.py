"""Account recovery in two parts (security M-8)."""

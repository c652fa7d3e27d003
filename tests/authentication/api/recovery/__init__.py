"""The recovery of accounts in two parts (security M-8)."""

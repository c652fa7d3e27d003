"""Assignments to `sign_in_flows` columns that several areas write."""

from typing import Final

NO_PROOFS: Final = "proofs = '[]', identity = null, proofs_expire_at = null"
# Attempts start again.
NO_CHALLENGE: Final = """
    challenge_id = null, challenge = null, challenge_email = null, challenge_begun_at = null, challenge_expires_at = null,
    challenge_user_id = null, challenge_hash = null, challenge_code = null, failures = 0"""

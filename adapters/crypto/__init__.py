"""Passwords, one-time codes, access tokens and secrets at rest; the only package that imports a cryptographic library."""

from adapters.crypto.one_time_codes import TimedCodes
from adapters.crypto.passwords import Argon2Passwords, verifications_per_second
from adapters.crypto.tokens import JwtTokens
from adapters.crypto.vault import AesVault, generate_key, parse_keys

__all__ = ["AesVault", "Argon2Passwords", "JwtTokens", "TimedCodes", "generate_key", "parse_keys", "verifications_per_second"]

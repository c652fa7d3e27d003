"""Attacks on OAuth and OpenID Connect. Each must fail and change nothing (RFC 9700, OpenID Connect Core section 16)."""

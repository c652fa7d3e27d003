"""Attacks on OAuth and OpenID Connect. Every attack must fail and change nothing (RFC 9700, OpenID Connect Core section 16)."""

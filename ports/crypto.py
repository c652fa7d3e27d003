"""Passwords, tokens and secrets at rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from core.authentication.signing_keys_rules import SigningKey
from core.federation.saml.configuration_rules import SamlCertificate
from core.kernel.principals import Claims, PreAuthClaims
from core.kernel.values import Email


class Passwords(Protocol):
    """Argon2id (security.md A-1, A-2). At most as many hashes at once as there are cores, and a bounded queue before them.

    `hash`, `verify` and `derive` raise core.errors.Limited when the queue is full.
    """

    async def hash(self, password: str) -> str:
        """The PHC string of a new hash."""
        ...

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Whether the password is the one that was hashed. None stands for no such account: it costs the same and is false (B-2)."""
        ...

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made with other parameters than those in use now."""
        ...

    def new_salt(self) -> bytes:
        """A salt for `derive`, 128 random bits. It says by which parameters it was made, so that it is good for ever."""
        ...

    async def derive(self, secret: str, salt: bytes) -> bytes:
        """32 bytes that only this secret gives with this salt: for secrets that are looked up among several of one salt (M-4)."""
        ...


class OneTimeCodes(Protocol):
    """Codes of six digits that change with time (TOTP, RFC 6238): SHA-1, steps of 30 seconds, as every authenticator app makes them
    (security.md M-1; decisions, point 43)."""

    def new_secret(self) -> str:
        """160 random bits, as 32 characters of base32 (RFC 4648 section 6)."""
        ...

    def uri(self, secret: str, email: Email, issuer: str) -> str:
        """The `otpauth` address by which authenticator apps learn the secret; its label is `<issuer>:<email>`."""
        ...

    def step_of(self, secret: str, code: str, now: datetime) -> int | None:
        """The step, counted from 1970, whose code this is: that of now, or the one before or after it; None if it is none of theirs.

        Takes the same time whatever the code is.
        """
        ...


class Tokens(Protocol):
    """Access tokens: JWTs signed with RS256 (RFC 7519, RFC 8725; security.md section 4)."""

    @property
    def loaded_at(self) -> datetime:
        """When `use` was last called, in UTC."""
        ...

    def use(self, keys: Sequence[SigningKey], now: datetime) -> None:
        """Believe these keys from now on; sign with the newest that does not retire."""
        ...

    async def new_key(self, now: datetime) -> SigningKey:
        """A new RSA key of 2048 bits. Takes long, so it is made in a thread."""
        ...

    def sign(self, claims: Claims) -> str:
        """A signed access token."""
        ...

    def read(self, token: str, now: datetime) -> Claims:
        """The claims of an access token. Raises TokenInvalid, WrongToken, TokenExpired, UnknownKey, by security.md J-1 to J-3 and J-7."""
        ...

    def sign_pre_auth(self, claims: PreAuthClaims) -> str:
        """A signed pre-auth token, of another type and for another audience than an access token (RFC 8725 section 3.11, 3.12)."""
        ...

    def read_pre_auth(self, token: str, now: datetime) -> PreAuthClaims:
        """The claims of a pre-auth token. Raises TokenInvalid, WrongToken, PreAuthExpired, UnknownKey."""
        ...

    def jwks(self) -> dict[str, Any]:
        """The public keys that are believed, as a JWK set (RFC 7517)."""
        ...


class Certificates(Protocol):
    """X.509 certificates that vouch for keys of our own."""

    async def new(self, organization: str, name: str, now: datetime, years: int) -> SamlCertificate:
        """A new key of RSA with 2048 bits, and a certificate of it in these names, signed with that very key by SHA-256, and good from
        the second of `now` on for so many years. Takes long, so it is made in a thread."""
        ...


@dataclass(frozen=True, slots=True)
class SecretContext:
    """Where a sealed value is kept; part of what its seal covers, so that it opens nowhere else (security.md L-1)."""

    table: str
    row: str
    column: str


class Vault(Protocol):
    """AES-256-GCM with key ids (security.md L-1). The purpose of a value is its table and column; each purpose has a key of its own."""

    def seal(self, plaintext: bytes, place: SecretContext) -> bytes:
        """The value, encrypted under the active key."""
        ...

    def open(self, sealed: bytes, place: SecretContext) -> bytes:
        """The plaintext. Raises SealBroken when the key is unknown, the value was changed, or it comes from another place."""
        ...

    def is_current(self, sealed: bytes) -> bool:
        """Whether the value was sealed under the active key."""
        ...


class SealBroken(Exception):
    """A sealed value cannot be opened. Never falls back to plaintext; the operator must bring the key back."""

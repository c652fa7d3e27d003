"""The rules for DPoP: proofs of possession, nonces, and tokens that are bound to a key.

Sources: RFC 9449, RFC 3986 section 6.2, RFC 7638 (thumbprints of keys).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from core.kernel import errors, values
from core.kernel.uris import DEFAULT_PORTS
from core.kernel.values import base64url

# None is symmetric (RFC 9449 section 4.2). All are at least as strong as RSA with 2048 bits.
PROOF_ALGORITHMS: Final = ("ES256", "EdDSA", "PS256", "RS256")
MAX_ID_LENGTH: Final = 255
# The nonce proves the age of a proof, so the client's clock need not be exact. A proof with a time
# that is further off comes from a client that does not set it.
MAX_CLOCK_DIFFERENCE: Final = timedelta(days=1)
NONCE_STEP: Final = 30  # seconds after which a newer nonce is issued
NONCE_STEPS: Final = 2  # in which a nonce is accepted: the present and the previous step
NONCE_KEY_STEPS: Final = 120  # an hour, for which a single key makes the nonces
PROOF_TABLES: Final = 10  # see `ProofUse.table`
_KEPT_MINUTES: Final = 3  # before the present minute; a table belongs to a minute of the nonce, which is accepted for a further minute
_FREE_MINUTES: Final = 2  # after the present minute, for processes with clocks that are ahead
_MINUTE: Final = 60 // NONCE_STEP
NONCE_SECRET_BYTES: Final = 32
_NONCE: Final = re.compile(r"([0-9a-z]{1,13})\.([A-Za-z0-9_-]{22})")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # SHA-256 in base64url
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class ProofInvalid(errors.Invalid):
    """The DPoP proof is not valid. Check its claims, its key and its signature (RFC 9449 section 4.2)."""

    oauth_error = "invalid_dpop_proof"

    def __init__(self, reason: str) -> None:
        """`reason` continues a sentence, and quotes nothing from the proof."""
        super().__init__(f"The DPoP proof is not valid: {reason}.")


class ProofReplayed(ProofInvalid):
    """The DPoP proof was used before. Send a new one with each request (RFC 9449 section 11.1)."""

    def __init__(self) -> None:
        errors.Invalid.__init__(self)


class NonceKeyLost(Exception):
    """The key of a nonce is no longer stored. The database has crashed since, and has forgotten which proofs were used."""


class ProofMissing(errors.Invalid):
    """Send a DPoP proof: this client, code or refresh token is bound to a key (RFC 9449 section 5)."""

    oauth_error = "invalid_dpop_proof"


class NonceMissing(errors.Invalid):
    """Repeat the request with a DPoP proof that has the nonce of the response header DPoP-Nonce (RFC 9449 section 8)."""

    oauth_error = "use_dpop_nonce"

    def __init__(self, nonce: str) -> None:
        """`nonce` is the nonce to use."""
        super().__init__()
        self.nonce = nonce


class ProofRefused(errors.Unauthenticated):
    """The DPoP proof does not fit this request. Send a new proof that fits it (RFC 9449 section 7)."""

    oauth_error = "invalid_dpop_proof"
    token_sent = True


class NonceRequired(errors.Unauthenticated):
    """Repeat the request with a DPoP proof that has the nonce of the response header DPoP-Nonce (RFC 9449 section 9)."""

    oauth_error = "use_dpop_nonce"
    token_sent = True

    def __init__(self, nonce: str) -> None:
        """`nonce` is the nonce to use."""
        super().__init__()
        self.nonce = nonce


class BoundTokenAsBearer(errors.Unauthenticated):
    """This access token is bound to a key. Send it with the scheme DPoP and a proof, not as a Bearer token."""

    token_sent = True


class BearerTokenAsBound(errors.Unauthenticated):
    """This access token is not bound to this key. Send a proof of its own key, or send it as a Bearer token if it is bound to none."""

    token_sent = True


@dataclass(frozen=True, slots=True)
class SentProof:
    """A DPoP proof as it was sent, and the method and URL of its request. The URL is that of the client, without a query."""

    text: str = field(repr=False)
    method: str
    url: str


@dataclass(frozen=True, slots=True)
class SignedProof:
    """The claims in a proof with a valid signature, and the thumbprint of the signing key (RFC 7638)."""

    thumbprint: str
    claims: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeyBinding:
    """The key that the tokens of a request are bound to.

    Refresh tokens are bound only if the client did not prove who it is. A client that proved who it is needs its secret
    or its own key anyway, and so it can replace its proof key (RFC 9449 section 5).
    """

    thumbprint: str
    binds_refresh_token: bool


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """An access token as it was presented: with the scheme Bearer, or with the scheme DPoP and a proof."""

    text: str = field(repr=False)
    proof: ProofUse | None = None


@dataclass(frozen=True, slots=True)
class NonceKey:
    """The secret that makes the nonces of an hour, for all processes. `period` is the number of the hour since 1970."""

    period: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProofUse:
    """A valid proof that must be used up, which can be done once.

    `key` made its nonce, and `step` is the number of the step in which the nonce was issued. `next_nonce` is the nonce
    for the client's next proof, or None if the nonce stays the same.
    """

    thumbprint: str
    token_id: str
    step: int
    key: NonceKey
    next_nonce: str | None = None

    @property
    def table(self) -> int:
        """The number of the table that stores the use.

        A table takes the proofs from one minute, then it is emptied.

        The minute of the nonce counts, so the same proof always belongs to the same table.
        """
        return self.step // _MINUTE % PROOF_TABLES

    @property
    def id(self) -> bytes:
        """The id of the use, 16 bytes from a hash. It names the key, the `jti` and the nonce's step."""
        return values.digest(f"{self.step}.{self.thumbprint}.{self.token_id}")[:16]


def tables_to_empty(now: datetime) -> list[int]:
    """Return the numbers of the tables that no accepted proof belongs to, not even at a process with a clock that is two minutes off.

    A table is on this list for four minutes in ten.
    """
    minute = _step_at(now) // _MINUTE
    return [(minute + away) % PROOF_TABLES for away in range(_FREE_MINUTES + 1, PROOF_TABLES - _KEPT_MINUTES)]


def is_thumbprint(text: str) -> bool:
    """Return whether the text has the form of a SHA-256 key thumbprint (RFC 7638)."""
    return _THUMBPRINT.fullmatch(text) is not None


# Nonces


def nonce_period(now: datetime) -> int:
    """Return the key period for this time's nonces."""
    return _step_at(now) // NONCE_KEY_STEPS


def make_nonce(key: NonceKey, now: datetime) -> str:
    """Return the nonce of this time. `key` belongs to `nonce_period(now)`."""
    return _nonce_of_step(key, _step_at(now))


def parse_nonce(nonce: object, now: datetime) -> int | None:
    """Return the step of a nonce that may be accepted at this time, or None. The caller compares it with `is_nonce_of`.

    A nonce is accepted for 60 seconds from the start of its step. The clock of another process can
    be ahead, so the next step is accepted as well.
    """
    match = _NONCE.fullmatch(nonce) if isinstance(nonce, str) else None
    if match is None:
        return None
    step, present = int(match[1], 36), _step_at(now)
    return step if present - NONCE_STEPS < step <= present + 1 else None


def period_of_step(step: int) -> int:
    """Return the key period for this step's nonce."""
    return step // NONCE_KEY_STEPS


def is_nonce_of(nonce: str, key: NonceKey, step: int) -> bool:
    """Return whether this key made this nonce."""
    return hmac.compare_digest(nonce, _nonce_of_step(key, step))


def is_outdated(step: int, now: datetime) -> bool:
    """Return whether a newer nonce than this step's nonce is issued now."""
    return step < _step_at(now)


def _step_at(now: datetime) -> int:
    return int(now.timestamp()) // NONCE_STEP


def _nonce_of_step(key: NonceKey, step: int) -> str:
    mac = hmac.digest(key.secret, f"dpop nonce {step}".encode(), sha256)[:16]
    return f"{_to_base36(step)}.{base64url(mac)}"


def _to_base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"


# Claims


def check_claims(proof: SignedProof, sent: SentProof, access_token: str | None, now: datetime) -> None:
    """Check the claims of a proof for this request, except its nonce (RFC 9449 section 4.3).

    `access_token` is the token that the proof goes with, or None if there is none.
    """
    get = proof.claims.get
    token_id = get("jti")
    if not isinstance(token_id, str) or not 0 < len(token_id) <= MAX_ID_LENGTH or not values.is_printable(token_id):
        raise ProofInvalid(f"its jti must be a text with 1 to {MAX_ID_LENGTH} characters")
    if get("htm") != sent.method:
        raise ProofInvalid("its htm must be the method of the request")
    target = get("htu")
    if not isinstance(target, str) or (normalized := normalize_url(target)) is None or normalized != normalize_url(sent.url):
        raise ProofInvalid("its htu must be the URL of the request")
    issued_at = values.read_time(get("iat"))
    if issued_at is None:
        raise ProofInvalid("its iat must be a number of seconds")
    if abs(issued_at - now) > MAX_CLOCK_DIFFERENCE:
        raise ProofInvalid("its iat must be the present time")
    if access_token is not None:
        token_hash = get("ath")
        if not isinstance(token_hash, str) or token_hash != base64url(values.digest(access_token)):
            raise ProofInvalid("its ath must be the hash of the access token")


def normalize_url(url: str) -> str | None:
    """Return an http or https URL in normal form, without query and fragment, or None for other texts (RFC 3986 section 6.2).

    A slash at the end does not count, as for our routes.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme, host = parts.scheme, parts.hostname
    if scheme not in DEFAULT_PORTS or not host or "@" in parts.netloc or not values.is_printable(url):
        return None
    if ":" in host:
        host = f"[{host}]"
    authority = host if port in (None, DEFAULT_PORTS[scheme]) else f"{host}:{port}"
    path = _remove_dots(_ESCAPE.sub(_normalize_escape, parts.path)).rstrip("/")
    return f"{scheme}://{authority}{path}"


def _normalize_escape(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if letter in _UNRESERVED else match[0].upper()


def _remove_dots(path: str) -> str:
    """Return the path without segments of dots (RFC 3986 section 5.2.4)."""
    if "." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if len(segments) > 1:
                segments.pop()
        elif segment != ".":
            segments.append(segment)
    return "/".join(segments)

"""The keys that sign tokens, and the signatures on all token kinds: JWTs with RS256."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import jwt
import trio
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from jwt.algorithms import RSAAlgorithm

from core.applications.model.client_settings import thumbprint
from core.authentication.model import tokens
from core.kernel import errors
from core.kernel.values import base64url

ALGORITHM = "RS256"
ACCESS_TOKEN = "at+jwt"  # noqa: S105  # RFC 9068 section 2.1; each kind of token has its own type (RFC 8725 section 3.11)
PRE_AUTH_TOKEN = "pre-auth+jwt"  # noqa: S105
ID_TOKEN = "JWT"  # noqa: S105  # many clients accept no other type; the audience and the claims differ from those of other tokens
LOGOUT_TOKEN = "logout+jwt"  # noqa: S105
CLAIMS = "claims+jwt"  # at the userinfo endpoint
TYPES = (ACCESS_TOKEN, PRE_AUTH_TOKEN, ID_TOKEN, LOGOUT_TOKEN, CLAIMS)
MAX_TOKEN_LENGTH = 8 * 1024  # security J-7
NEVER = datetime.min.replace(tzinfo=UTC)
_KEY_SIZE = 2048
_PADDING, _HASH = padding.PKCS1v15(), hashes.SHA256()  # RS256 (RFC 7518 section 3.3)
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# Headers that contain or refer to a key, or require extensions that we do not implement (security
# J-1).
REFUSED_HEADERS = frozenset({"crit", "jku", "jwk", "x5u", "x5c"})


@dataclass(frozen=True, slots=True)
class LoadedKey:
    """A key that is ready to sign and to verify."""

    kid: str
    pem: bytes = field(repr=False)
    private: rsa.RSAPrivateKey = field(repr=False)
    public: rsa.RSAPublicKey
    headers: Mapping[str, str]  # by type: the first segment in every token that is signed with this key
    retires_at: datetime | None


class SignedTokens:
    """The signing keys, and methods that sign and verify a token's payload (security J-1, J-7)."""

    def __init__(self) -> None:
        # Only this algorithm is enabled, so no symmetric algorithm can ever be used with a public
        # key (RFC 8725 section 3.1).
        self._jws = jwt.PyJWS(algorithms=[ALGORITHM], options={"enforce_minimum_key_length": True, "verify_signature": True})
        self._key_generation = trio.CapacityLimiter(1)
        self._keys: dict[str, LoadedKey] = {}
        self._by_header: dict[str, tuple[str, LoadedKey]] = {}
        self._published: Sequence[tokens.SigningKey] = ()
        self._begun_loads = 0
        self._used_load = 0
        self._loaded_at = NEVER

    @property
    def loaded_at(self) -> datetime:
        """When `use` was last called, in UTC, or the earliest possible time."""
        return self._loaded_at

    def begin_load(self) -> int:
        self._begun_loads += 1
        return self._begun_loads

    def use(self, keys: Sequence[tokens.SigningKey], now: datetime, load: int | None = None) -> None:
        number = self.begin_load() if load is None else load
        if number < self._used_load:
            return
        self._used_load = number
        newest_first = sorted(keys, key=lambda key: key.created_at, reverse=True)
        parsed = [self._parse(key) for key in newest_first]
        self._keys = {key.kid: key for key in parsed}
        self._by_header = {header: (type_, key) for key in parsed for type_, header in key.headers.items()}
        self._published = [key for key in newest_first if key.retires_at is None or key.retires_at > now]
        self._loaded_at = now

    def signing_kid(self, now: datetime) -> str | None:
        chosen = tokens.choose_signing_key(self._published, now)
        return None if chosen is None else chosen.kid

    async def new_key(self, now: datetime) -> tokens.SigningKey:
        """Return a new RSA key with 2048 bits. The key id is the key's thumbprint (RFC 7638)."""
        private = await trio.to_thread.run_sync(rsa.generate_private_key, 65537, _KEY_SIZE, limiter=self._key_generation)
        pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        kid = thumbprint({"kty": "RSA", **_numbers(private.public_key())})
        return tokens.SigningKey(kid=kid, private_key=pem, created_at=now, retires_at=None)

    def jwks(self) -> dict[str, Any]:
        """Return the public keys that had not retired when they were loaded as a JWK set, newest first (RFC 7517)."""
        keys = [self._keys[key.kid] for key in self._published]
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": ALGORITHM, "kid": key.kid, **_numbers(key.public)} for key in keys]}

    def _sign(self, payload: Mapping[str, Any], type_: str, now: datetime) -> str:
        kid = self.signing_kid(now)
        if kid is None:
            raise LookupError("There is no signing key: `use` was not called, or all its keys have a retirement time.")
        key = self._keys[kid]
        # The compact serialization (RFC 7515 section 3.1).
        signed = f"{key.headers[type_]}.{base64url(_to_json(payload).encode())}"
        return f"{signed}.{base64url(key.private.sign(signed.encode(), _PADDING, _HASH))}"

    def _verify(self, token: str, type_: str, now: datetime) -> tuple[dict[str, Any], LoadedKey]:
        """Verify a token's signature and type, and return its payload and its key.

        Raises: TokenInvalid, WrongToken, UnknownKey.
        """
        if len(token) > MAX_TOKEN_LENGTH or "=" in token:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
            raise errors.TokenInvalid
        # Our own tokens start with a few known headers, so the key is found without parsing the
        # header twice.
        token_type, key = self._by_header.get(token.partition(".")[0]) or self._find_type_and_key(token)
        check_retirement(key, now)
        try:
            payload = json.loads(self._jws.decode(token, key.public, algorithms=[ALGORITHM]))
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise errors.TokenInvalid from None
        if token_type != type_:
            raise errors.WrongToken
        if not isinstance(payload, dict):
            raise errors.TokenInvalid
        return payload, key

    def _parse(self, key: tokens.SigningKey) -> LoadedKey:
        known = self._keys.get(key.kid)
        # Do not load a known key again: checking its primes takes tens of milliseconds.
        if known is not None and known.pem == key.private_key:
            private, headers = known.private, known.headers
        else:
            loaded = serialization.load_pem_private_key(key.private_key, password=None)
            if not isinstance(loaded, rsa.RSAPrivateKey) or loaded.key_size < _KEY_SIZE:
                raise ValueError(f"The signing key {key.kid} is not an RSA key of at least {_KEY_SIZE} bits.")
            private = loaded
            headers = {type_: base64url(_to_json({"alg": ALGORITHM, "kid": key.kid, "typ": type_}).encode()) for type_ in TYPES}
        return LoadedKey(key.kid, key.private_key, private, private.public_key(), headers, key.retires_at)

    def _find_type_and_key(self, token: str) -> tuple[str, LoadedKey]:
        """Return a token's type and key, if its header differs from ours in form.

        Raises: TokenInvalid, UnknownKey.
        """
        try:
            header = self._jws.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError):
            raise errors.TokenInvalid from None
        kid, type_ = header.get("kid"), header.get("typ")
        if header.get("alg") != ALGORITHM or type_ not in TYPES or not isinstance(kid, str):
            raise errors.TokenInvalid
        if not REFUSED_HEADERS.isdisjoint(header):
            raise errors.TokenInvalid
        key = self._keys.get(kid)
        if key is None:
            raise tokens.UnknownKey
        return type_, key


def check_retirement(key: LoadedKey, now: datetime) -> None:
    """Raises: UnknownKey if the key has retired."""
    if key.retires_at is not None and key.retires_at <= now:
        raise tokens.UnknownKey


def _numbers(public: rsa.RSAPublicKey) -> dict[str, str]:
    jwk = RSAAlgorithm.to_jwk(public, as_dict=True)
    return {"n": jwk["n"], "e": jwk["e"]}

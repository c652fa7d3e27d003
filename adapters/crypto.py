"""Passwords, access tokens and secrets at rest; the only module that imports a cryptographic library."""

import base64
import binascii
import hashlib
import json
import os
import re
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

import argon2
import jwt
import outcome
import trio
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jwt.algorithms import RSAAlgorithm

from core.access import Claims
from core.errors import Limited, TokenExpired, TokenInvalid
from core.signing_keys import SigningKey, UnknownKey
from core.values import Email
from ports.crypto import Place, SealBroken

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------------------- passwords

IDLE_AFTER = 60.0  # seconds after which a thread without work ends; the next hash starts one again
NICENESS = 10


class Argon2Passwords:
    """ports.crypto.Passwords with argon2id (security.md A-1, A-2, B-2).

    At most `concurrency` hashes run at once and at most `queue` more wait; whoever comes then is refused at once with Limited.
    """

    def __init__(self, memory_kib: int, time_cost: int, parallelism: int, concurrency: int, queue: int = 32) -> None:
        self._hasher = argon2.PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
        # What an unknown account is verified against: its parameters are those of every new hash, so its price is the same too.
        self._dummy = self._hasher.hash(secrets.token_bytes(32))
        self._threads = _LowPriorityThreads(concurrency, queue)

    async def hash(self, password: str) -> str:
        """The PHC string of a new hash. Raises Limited."""
        return await self._threads.run(partial(self._hasher.hash, password.encode()))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Whether the password is the one that was hashed; with None, false at the same price. Raises Limited."""
        compared = self._dummy if password_hash is None else password_hash
        matches = await self._threads.run(partial(self._matches, compared, password.encode()))
        return matches and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made with other parameters than those in use now."""
        return self._hasher.check_needs_rehash(password_hash)

    def _matches(self, password_hash: str, password: bytes) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except argon2.exceptions.VerifyMismatchError:
            return False  # any other error is a fault (a damaged hash, no memory), which must not pass for a wrong password


@dataclass(eq=False, slots=True, repr=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    token: trio.lowlevel.TrioToken
    done: trio.Event
    result: outcome.Outcome[T] | None = None


class _LowPriorityThreads:
    """A few threads that give way to the one that serves requests, and a bounded queue before them.

    The threads of trio.to_thread serve everybody in turn, and a thread cannot take its niceness back, so these are separate ones.
    They start when there is work and end when there is none for a while, so nothing has to be closed.
    """

    def __init__(self, count: int, queue: int) -> None:
        self._count = count
        self._queue = queue
        self._changed = threading.Condition()
        self._waiting: deque[_Job[Any]] = deque()
        self._alive = 0
        self._busy = 0

    async def run(self, work: Callable[[], T]) -> T:
        job = _Job(work, trio.lowlevel.current_trio_token(), trio.Event())
        self._admit(job)
        try:
            await job.done.wait()
        finally:
            # Whoever stops waiting gives its place to the next. Work that has begun cannot be stopped; it keeps its thread to the end.
            if not job.done.is_set():
                with self._changed, suppress(ValueError):
                    self._waiting.remove(job)
        assert job.result is not None  # noqa: S101  # set before `done`
        return job.result.unwrap()

    def _admit(self, job: _Job[Any]) -> None:
        with self._changed:
            if self._busy + len(self._waiting) >= self._count + self._queue:
                raise Limited(1)
            if self._alive < self._count and self._alive - self._busy <= len(self._waiting):
                threading.Thread(target=self._serve, name="argon2", daemon=True).start()
                self._alive += 1
            self._waiting.append(job)
            self._changed.notify()

    def _serve(self) -> None:
        _yield_to_others()
        while True:
            with self._changed:
                while not self._waiting:
                    if not self._changed.wait(IDLE_AFTER) and not self._waiting:
                        self._alive -= 1
                        return
                job = self._waiting.popleft()
                self._busy += 1
            job.result = outcome.capture(job.work)
            with self._changed:
                self._busy -= 1
            with suppress(trio.RunFinishedError):
                job.token.run_sync_soon(job.done.set)
            del job  # it holds a password; an idle thread must not


def _yield_to_others() -> None:
    """Let the scheduler prefer every other thread: on two cores, two hashes at equal priority would make each request wait for them."""
    if sys.platform == "linux":  # elsewhere niceness belongs to the whole process
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS))


# ------------------------------------------------------------------------------------------------------------------ tokens

ALGORITHM = "RS256"
ACCESS_TOKEN = "at+jwt"  # noqa: S105  # RFC 9068 section 2.1; what other tokens we sign get another type (RFC 8725 section 3.11)
MAX_TOKEN = 8 * 1024  # security.md J-7
MAX_LEEWAY = timedelta(seconds=30)  # security.md J-3
_KEY_SIZE = 2048
_LAST_SECOND = int(datetime.max.replace(tzinfo=UTC).timestamp())
_NEVER = datetime.min.replace(tzinfo=UTC)
# Headers that bring a key, point to one, or ask for rules that we do not know (security.md J-1).
_REFUSED_HEADERS = frozenset({"crit", "jku", "jwk", "x5u", "x5c"})


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str
    pem: bytes = field(repr=False)
    private: rsa.RSAPrivateKey = field(repr=False)
    public: rsa.RSAPublicKey
    header: str  # the first segment of every token signed with this key
    created_at: datetime
    retires_at: datetime | None


class JwtTokens:
    """ports.crypto.Tokens with PyJWT (security.md section 4).

    The base URL is issuer and audience. `leeway` is how far ahead the clock of the machine that issued a token may be; a token
    expires to the second, because its holder was told when (decisions, point 33).
    """

    def __init__(self, base_url: str, leeway: timedelta = timedelta(seconds=10)) -> None:
        if not timedelta(0) <= leeway <= MAX_LEEWAY:
            raise ValueError("The leeway of access tokens must be between 0 and 30 seconds.")
        self._base_url = base_url
        self._leeway = leeway
        # It knows this one algorithm and no other: none that is symmetric can ever share a verifier with it (RFC 8725 section 3.1).
        self._jws = jwt.PyJWS(algorithms=[ALGORITHM], options={"enforce_minimum_key_length": True, "verify_signature": True})
        self._key_generation = trio.CapacityLimiter(1)
        self._keys: dict[str, _Key] = {}
        self._by_header: dict[str, _Key] = {}
        self._signing: _Key | None = None
        self._loaded_at = _NEVER

    @property
    def loaded_at(self) -> datetime:
        """When `use` was last called, in UTC; the beginning of time if never."""
        return self._loaded_at

    def use(self, keys: Sequence[SigningKey], now: datetime) -> None:
        """Believe these keys from now on; sign with the newest that does not retire."""
        used = sorted((self._parsed(key) for key in keys), key=lambda key: key.created_at, reverse=True)
        self._keys = {key.kid: key for key in used}
        self._by_header = {key.header: key for key in used}
        self._signing = next((key for key in used if key.retires_at is None), None)
        self._loaded_at = now

    async def new_key(self, now: datetime) -> SigningKey:
        """A new RSA key of 2048 bits, its id the thumbprint of RFC 7638."""
        private = await trio.to_thread.run_sync(rsa.generate_private_key, 65537, _KEY_SIZE, limiter=self._key_generation)
        pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return SigningKey(kid=_thumbprint(private.public_key()), private_key=pem, created_at=now, retires_at=None)

    def sign(self, claims: Claims) -> str:
        """A signed access token. Raises LookupError when there is no key to sign with."""
        if self._signing is None:
            raise LookupError("There is no signing key: `use` was not called, or with keys that all retire.")
        payload: dict[str, Any] = {
            "iss": self._base_url,
            "aud": self._base_url,
            "sub": str(claims.user_id),
            "email": claims.email,
            "email_verified": claims.email_verified,
            "sid": str(claims.session_id),
            "jti": str(claims.token_id),
            "iat": int(claims.issued_at.timestamp()),
            "exp": int(claims.expires_at.timestamp()),
            "token_use": "access",
        }
        if claims.org:
            payload["org"] = claims.org
        if claims.org_id is not None:
            payload["org_id"] = str(claims.org_id)
        return self._encode(json.dumps(payload, separators=(",", ":")).encode(), self._signing.kid, self._signing.private)

    def read(self, token: str, now: datetime) -> Claims:
        """The claims of an access token. Raises TokenInvalid, TokenExpired, UnknownKey."""
        if len(token) > MAX_TOKEN:
            raise TokenInvalid
        # Every token of ours starts with one of a few headers, so its key is known without parsing; PyJWT parses it once, to verify.
        key = self._by_header.get(token.partition(".")[0]) or self._key_of(token)
        if key.retires_at is not None and key.retires_at <= now:
            raise UnknownKey
        try:
            payload = json.loads(self._jws.decode(token, key.public, algorithms=[ALGORITHM]))
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise TokenInvalid from None
        return self._claims(payload, now)

    def jwks(self) -> dict[str, Any]:
        """The public keys that are believed, as a JWK set (RFC 7517), the newest first."""
        return {
            "keys": [{"kty": "RSA", "use": "sig", "alg": ALGORITHM, "kid": key.kid, **_numbers(key.public)} for key in self._keys.values()]
        }

    def _parsed(self, key: SigningKey) -> _Key:
        kept = self._keys.get(key.kid)
        if kept is not None and kept.pem == key.private_key:  # reading a key and checking its primes takes tens of milliseconds
            private, header = kept.private, kept.header
        else:
            loaded = serialization.load_pem_private_key(key.private_key, password=None)
            if not isinstance(loaded, rsa.RSAPrivateKey) or loaded.key_size < _KEY_SIZE:
                raise ValueError(f"The signing key {key.kid} is not an RSA key of at least {_KEY_SIZE} bits.")
            private, header = loaded, self._encode(b"", key.kid, loaded).partition(".")[0]
        return _Key(key.kid, key.private_key, private, private.public_key(), header, key.created_at, key.retires_at)

    def _encode(self, payload: bytes, kid: str, key: rsa.RSAPrivateKey) -> str:
        return self._jws.encode(payload, key, algorithm=ALGORITHM, headers={"kid": kid, "typ": ACCESS_TOKEN})

    def _key_of(self, token: str) -> _Key:
        """The key of a token whose header is not written as ours are, if there is nothing wrong with that header."""
        try:
            header = self._jws.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError):
            raise TokenInvalid from None
        kid = header.get("kid")
        if header.get("alg") != ALGORITHM or header.get("typ") != ACCESS_TOKEN or not isinstance(kid, str):
            raise TokenInvalid
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise TokenInvalid
        key = self._keys.get(kid)
        if key is None:
            raise UnknownKey
        return key

    def _claims(self, payload: object, now: datetime) -> Claims:
        """What a token with a valid signature says. PyJWT's own checks ask the machine's clock, and take "123" for a time."""
        if not isinstance(payload, dict):
            raise TokenInvalid
        get = payload.get
        if get("iss") != self._base_url or get("aud") != self._base_url or get("token_use") != "access":
            raise TokenInvalid
        email, email_verified = get("email"), get("email_verified")
        if not isinstance(email, str) or not isinstance(email_verified, bool):
            raise TokenInvalid
        org, org_id = get("org", ""), None
        if not isinstance(org, str):
            raise TokenInvalid
        if "org" in payload or "org_id" in payload:
            org_id = _uuid(get("org_id"))
            if not org:  # one without the other says nothing (security.md J-6)
                raise TokenInvalid
        issued_at, expires_at = _time(get("iat")), _time(get("exp"))
        claims = Claims(
            user_id=_uuid(get("sub")),
            session_id=_uuid(get("sid")),
            email=Email(email),
            email_verified=email_verified,
            token_id=_uuid(get("jti")),
            issued_at=issued_at,
            expires_at=expires_at,
            org=org,
            org_id=org_id,
        )
        if issued_at > now + self._leeway or ("nbf" in payload and _time(get("nbf")) > now + self._leeway):
            raise TokenInvalid
        if expires_at <= now:  # last: only what was a token of ours can have expired
            raise TokenExpired
        return claims


def _uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise TokenInvalid
    try:
        parsed = UUID(value)
    except ValueError:
        raise TokenInvalid from None
    if str(parsed) != value:  # UUID() also reads braces, URNs and capitals
        raise TokenInvalid
    return parsed


def _time(value: object) -> datetime:
    if type(value) is not int or not 0 <= value <= _LAST_SECOND:  # True is an int too
        raise TokenInvalid
    return datetime.fromtimestamp(value, UTC)


def _numbers(public: rsa.RSAPublicKey) -> dict[str, str]:
    jwk = RSAAlgorithm.to_jwk(public, as_dict=True)
    return {"n": jwk["n"], "e": jwk["e"]}


def _thumbprint(public: rsa.RSAPublicKey) -> str:
    """RFC 7638 section 3: the required members in lexical order, without white space."""
    members = json.dumps({"kty": "RSA", **_numbers(public)}, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(members.encode()).digest()).rstrip(b"=").decode()


# ----------------------------------------------------------------------------------------------------------- secrets at rest

_VERSION = 1
_NONCE = 12  # 96 bits
_TAG = 16
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class AesVault:
    """ports.crypto.Vault with AES-256-GCM (security.md L-1, L-2).

    A sealed value is: version (1 byte), length of the key id (1 byte), key id, nonce (12 bytes), ciphertext with its tag. Where it
    is kept is part of what the tag covers, and every purpose, which is a table and a column, has a key of its own.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """The first key encrypts, all decrypt. Raises ValueError with a sentence for the operator."""
        if not keys:
            raise ValueError("There is no encryption key; at least one is needed.")
        for position, (key_id, key) in enumerate(keys, 1):
            if not _KEY_ID.fullmatch(key_id):
                raise ValueError(f"The id of encryption key {position} must be 1 to 32 of the characters A-Z a-z 0-9 _ . -")
            if len(key) != _KEY_BYTES:
                raise ValueError(f"Encryption key {key_id!r} has {len(key)} bytes; it must have {_KEY_BYTES}.")
        self._keys = dict(keys)
        if len(self._keys) != len(keys):
            raise ValueError("Two encryption keys have the same id.")
        self._active = keys[0][0]
        self._derived: dict[tuple[str, str, str], AESGCM] = {}

    def seal(self, plaintext: bytes, place: Place) -> bytes:
        """The value, encrypted under the active key."""
        nonce = os.urandom(_NONCE)
        head = bytes((_VERSION, len(self._active))) + self._active.encode()
        return head + nonce + self._cipher(self._active, place).encrypt(nonce, plaintext, _associated(place, self._active))

    def open(self, sealed: bytes, place: Place) -> bytes:
        """The plaintext. Raises SealBroken."""
        key_id, start = _key_id(sealed)
        if key_id is None:
            _broken(place, "is not a sealed value")
        if key_id not in self._keys:
            _broken(place, f"is sealed under the key {key_id!r}, which is not configured")
        nonce, ciphertext = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        try:
            return self._cipher(key_id, place).decrypt(nonce, ciphertext, _associated(place, key_id))
        except InvalidTag:
            _broken(place, f"does not open with the key {key_id!r}: it was changed, or comes from another place")

    def is_current(self, sealed: bytes) -> bool:
        """Whether the value was sealed under the active key."""
        return _key_id(sealed)[0] == self._active

    def _cipher(self, key_id: str, place: Place) -> AESGCM:
        purpose = (key_id, place.table, place.column)
        cipher = self._derived.get(purpose)
        if cipher is None:
            label = _prefixed(b"gatehouse vault", place.table.encode(), place.column.encode())
            derived = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=label).derive(self._keys[key_id])
            cipher = self._derived[purpose] = AESGCM(derived)
        return cipher


def parse_keys(text: str) -> tuple[tuple[str, bytes], ...]:
    """The keys of `id:base64,id:base64`. Raises ValueError with a sentence that repeats nothing secret."""
    keys = []
    for position, entry in enumerate(text.split(","), 1):
        key_id, colon, encoded = entry.strip().partition(":")
        # Both alphabets, with or without padding: what `openssl rand -base64 32` and Python's secrets module print.
        standard = encoded.replace("-", "+").replace("_", "/").rstrip("=")
        try:
            key = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        except (binascii.Error, ValueError):
            colon = ""
        if not colon:
            raise ValueError(f"Encryption key {position} is not of the form id:base64.")
        keys.append((key_id, key))
    return tuple(keys)


def generate_key() -> str:
    """A new encryption key as `parse_keys` reads it: `id:base64`, with a random id."""
    return f"{secrets.token_hex(4)}:{base64.b64encode(os.urandom(_KEY_BYTES)).decode()}"


def _key_id(sealed: bytes) -> tuple[str | None, int]:
    """The id of the key that a value is sealed under, and where its nonce starts; None for what is not a sealed value."""
    start = 2 + sealed[1] if len(sealed) > 1 else 0
    if len(sealed) < start + _NONCE + _TAG or sealed[0] != _VERSION:
        return None, 0
    key_id = sealed[2:start].decode("latin-1")
    return (key_id, start) if _KEY_ID.fullmatch(key_id) else (None, 0)


def _associated(place: Place, key_id: str) -> bytes:
    purpose = f"{place.table}.{place.column}"
    return bytes((_VERSION,)) + _prefixed(*(part.encode() for part in (purpose, place.table, place.row, place.column, key_id)))


def _prefixed(*parts: bytes) -> bytes:
    """Each part behind its length, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _broken(place: Place, fact: str) -> NoReturn:
    raise SealBroken(f"{place.table}.{place.column} of {place.row} {fact}.") from None

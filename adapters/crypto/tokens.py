"""Access tokens, ID tokens, pre-auth tokens and stamps: JWTs signed with RS256.

The module is longer than 400 lines because all kinds of tokens share their keys and their verification.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import jwt
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from core.applications.model.client_settings import thumbprint
from core.authentication.model.dpop import is_thumbprint
from core.authentication.model.openid import API_PATH, USERINFO_PATH, IdToken, IdTokenHint, LogoutToken, SignInStamp, at_hash
from core.authentication.model.signing_keys import SigningKey, UnknownKey, choose_signing_key
from core.kernel.claims import FRONTEND_CLIENT_ID, Claims, PreAuthClaims, ProgramClaims
from core.kernel.errors import PreAuthExpired, TokenExpired, TokenInvalid, WrongToken
from core.kernel.values import Email, digest

ALGORITHM = "RS256"
ACCESS_TOKEN = "at+jwt"  # noqa: S105  # RFC 9068 section 2.1; each kind of token has its own type (RFC 8725 section 3.11)
PRE_AUTH_TOKEN = "pre-auth+jwt"  # noqa: S105
STAMP = "stamp+jwt"
ID_TOKEN = "JWT"  # noqa: S105  # many clients accept no other type; the audience and the claims differ from those of other tokens
LOGOUT_TOKEN = "logout+jwt"  # noqa: S105
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPES = (ACCESS_TOKEN, PRE_AUTH_TOKEN, ID_TOKEN, STAMP, LOGOUT_TOKEN)
PRE_AUTH_PATH = "/api/auth/mfa/verify"  # the only path that accepts it; its audience (security J-2, J-8)
MAX_TOKEN_LENGTH = 8 * 1024  # security J-7
MAX_LEEWAY = timedelta(seconds=30)  # security J-3
MAX_REMEMBERED = 4096  # verified access tokens, of about 1 KiB each
_KEY_SIZE = 2048
_LAST_SECOND = int(datetime.max.replace(tzinfo=UTC).timestamp())
_NEVER = datetime.min.replace(tzinfo=UTC)
# Headers that contain a key, refer to one, or require extensions that we do not implement (security
# J-1).
REFUSED_HEADERS = frozenset({"crit", "jku", "jwk", "x5u", "x5c"})


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str
    pem: bytes = field(repr=False)
    private: rsa.RSAPrivateKey = field(repr=False)
    public: rsa.RSAPublicKey
    headers: Mapping[str, str]  # by type: the first segment of every token that is signed with this key
    retires_at: datetime | None


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """An access token with a valid signature and valid claims, except for its times, which are checked at each use."""

    key: _Key
    claims: Claims | ProgramClaims
    not_before: datetime


class JwtTokens:
    """Implements `ports.crypto.Tokens` with PyJWT (security J-1, J-2, J-3, J-6, J-7, J-8).

    The base URL is the issuer. The audience of tokens for our own API is `<base URL>/api`, or the
    base URL, as earlier releases spelled it. Both are accepted. `leeway` limits how far the clock of
    the issuing machine can be ahead. A token expires at exactly its expiry time, because its holder
    knows this time.

    Verified access tokens are remembered until the keys are next loaded (docs/adr/0024).
    """

    def __init__(self, base_url: str, leeway: timedelta = timedelta(seconds=10), *, api_audience: bool = True) -> None:
        """With `api_audience`, tokens are issued for `<base URL>/api`, or else for the base URL."""
        if not timedelta(0) <= leeway <= MAX_LEEWAY:
            raise ValueError("The leeway of access tokens must be between 0 and 30 seconds.")
        self._base_url = base_url
        self._audience = base_url + API_PATH if api_audience else base_url
        self._own_audiences = frozenset({base_url, base_url + API_PATH})
        self._userinfo = base_url + USERINFO_PATH
        self._accepted = self._own_audiences | {None, self._userinfo}
        self._leeway = leeway
        # Only this algorithm is enabled, so no symmetric algorithm can ever be used with a public
        # key (RFC 8725 section 3.1).
        self._jws = jwt.PyJWS(algorithms=[ALGORITHM], options={"enforce_minimum_key_length": True, "verify_signature": True})
        self._key_generation = trio.CapacityLimiter(1)
        self._keys: dict[str, _Key] = {}
        self._by_header: dict[str, tuple[str, _Key]] = {}
        self._published: Sequence[SigningKey] = ()
        self._begun_loads = 0
        self._used_load = 0
        self._loaded_at = _NEVER
        # By the hash of the token, because a dump of the memory must not contain all tokens in use.
        self._verified: dict[bytes, _VerifiedToken] = {}

    @property
    def loaded_at(self) -> datetime:
        """The time of the last call of `use`, in UTC, or the earliest possible time."""
        return self._loaded_at

    @property
    def issuer(self) -> str:
        """The issuer of all tokens, which is the base URL."""
        return self._base_url

    @property
    def api_audience(self) -> str:
        """The audience of tokens for our own API, as they are issued now."""
        return self._audience

    @property
    def userinfo_audience(self) -> str:
        """The URL of the userinfo endpoint."""
        return self._userinfo

    def begin_load(self) -> int:
        """Return the number of a load of the keys. The caller reads them after this call."""
        self._begun_loads += 1
        return self._begun_loads

    def use(self, keys: Sequence[SigningKey], now: datetime, load: int | None = None) -> None:
        """Replace the keys. `choose_signing_key` says which one signs. Those that have retired verify only hints.

        The keys of a load are ignored if those of a later one are used already: they can include a key
        that was removed. Without `load`, the keys were read just now.
        """
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
        self._verified = {}  # tokens of removed keys are invalid from now on

    def signing_kid(self, now: datetime) -> str | None:
        """Return the id of the key that signs at this time, or None if there is none."""
        chosen = choose_signing_key(self._published, now)
        return None if chosen is None else chosen.kid

    async def new_key(self, now: datetime) -> SigningKey:
        """Return a new RSA key of 2048 bits. Its id is its thumbprint (RFC 7638)."""
        private = await trio.to_thread.run_sync(rsa.generate_private_key, 65537, _KEY_SIZE, limiter=self._key_generation)
        pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        kid = thumbprint({"kty": "RSA", **_numbers(private.public_key())})
        return SigningKey(kid=kid, private_key=pem, created_at=now, retires_at=None)

    def sign(self, claims: Claims) -> str:
        """Return a signed access token. Raises: LookupError if no key can sign."""
        impersonator = None if claims.impersonator_id is None else str(claims.impersonator_id)
        payload: dict[str, Any] = {
            "iss": self._base_url,
            "aud": self._audience_of(claims),
            "client_id": FRONTEND_CLIENT_ID if claims.client_id is None else str(claims.client_id),
            "sub": str(claims.user_id),
            "sid": str(claims.session_id),
            "jti": str(claims.token_id),
            "iat": int(claims.issued_at.timestamp()),
            "exp": int(claims.expires_at.timestamp()),
            "token_use": "access",
            "email": claims.email,
            "email_verified": None if claims.email is None else claims.email_verified,
            "org": claims.org or None,
            "org_id": None if claims.org_id is None else str(claims.org_id),
            "service": claims.service or None,
            "impersonator": impersonator,
            "impersonation_session": impersonator and str(claims.session_id),
            "plan": claims.plan,
            "subscription_status": claims.subscription_status,
            "features": claims.features,
            "scope": " ".join(claims.scope) or None,
            "auth_time": None if claims.auth_time is None else int(claims.auth_time.timestamp()),
            "acr": None if claims.auth_time is None else claims.acr,
            "amr": claims.amr or None,
            "cnf": None if claims.key_thumbprint is None else {"jkt": claims.key_thumbprint},
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        return self._sign(payload, ACCESS_TOKEN, claims.issued_at)

    def sign_program(self, claims: ProgramClaims) -> str:
        """Return a signed access token of a program. Raises: LookupError if no key can sign."""
        payload: dict[str, Any] = {
            "iss": self._base_url,
            "aud": claims.audience,
            "sub": str(claims.client_id),
            "client_id": str(claims.client_id),
            "credential_id": str(claims.credential_id),
            "jti": str(claims.token_id),
            "iat": int(claims.issued_at.timestamp()),
            "exp": int(claims.expires_at.timestamp()),
            "scope": " ".join(claims.scope),
            "token_use": "program",
        }
        if claims.org_id is not None:
            payload |= {"org": claims.org, "org_id": str(claims.org_id)}
        if claims.key_thumbprint is not None:
            payload["cnf"] = {"jkt": claims.key_thumbprint}
        return self._sign(payload, ACCESS_TOKEN, claims.issued_at)

    def _audience_of(self, claims: Claims) -> str:
        if claims.audience is not None:
            return claims.audience
        return self._audience if claims.client_id is None else str(claims.client_id)

    def sign_id_token(self, token: IdToken) -> str:
        """Return a signed ID token. Raises: LookupError if no key can sign."""
        return self._sign(self.id_token_claims(token), ID_TOKEN, token.issued_at)

    def id_token_claims(self, token: IdToken) -> dict[str, Any]:
        """Return the claims of an ID token, without signing it."""
        payload: dict[str, Any] = {
            **token.claims,
            "iss": self._base_url,
            "sub": str(token.user_id),
            "aud": token.client_id,
            "azp": token.client_id,
            "iat": int(token.issued_at.timestamp()),
            "exp": int(token.expires_at.timestamp()),
            "auth_time": int(token.authentication.at.timestamp()),
            "acr": token.authentication.acr,
            "sid": str(token.session_id),
        }
        if token.access_token is not None:
            payload["at_hash"] = at_hash(token.access_token)
        if token.authentication.amr:
            payload["amr"] = token.authentication.amr
        if token.nonce is not None:
            payload["nonce"] = token.nonce
        if token.session_expiry is not None:
            payload["session_expiry"] = int(token.session_expiry.timestamp())
        return payload

    def sign_logout_token(self, token: LogoutToken) -> str:
        """Return a signed logout token. Without a nonce, no client takes it for an ID token. Raises: LookupError if no key can sign."""
        payload = {
            "iss": self._base_url,
            "sub": str(token.user_id),
            "aud": token.client_id,
            "iat": int(token.issued_at.timestamp()),
            "exp": int(token.expires_at.timestamp()),
            "jti": str(token.id),
            "sid": str(token.session_id),
            "events": {LOGOUT_EVENT: {}},
        }
        return self._sign(payload, LOGOUT_TOKEN, token.issued_at)

    def read(self, token: str, now: datetime, *, for_any_audience: bool = False) -> Claims | ProgramClaims:
        """Verify an access token of a user or a program and return its claims.

        Raises: TokenInvalid, WrongToken, TokenExpired, UnknownKey.
        """
        token_hash = digest(token)
        verified = self._verified.get(token_hash)
        if verified is None:
            payload, key = self._verify(token, ACCESS_TOKEN, now)
            read = self._read_program_claims if payload.get("token_use") == "program" else self._read_claims
            verified = read(payload, key)
        else:
            _check_retirement(verified.key, now)
        if verified.not_before > now + self._leeway:
            raise TokenInvalid
        if not for_any_audience and verified.claims.audience not in self._accepted:
            raise WrongToken
        if verified.claims.expires_at <= now:  # checked last: only a valid token can expire
            raise TokenExpired
        self._remember(token_hash, verified)
        return verified.claims

    def _remember(self, token_hash: bytes, verified: _VerifiedToken) -> None:
        if len(self._verified) >= MAX_REMEMBERED and token_hash not in self._verified:
            del self._verified[next(iter(self._verified))]  # the earliest one
        self._verified[token_hash] = verified

    def sign_pre_auth(self, claims: PreAuthClaims) -> str:
        """Return a signed pre-auth token. Raises: LookupError if no key can sign."""
        payload = {
            "iss": self._base_url,
            "aud": self._base_url + PRE_AUTH_PATH,
            "sub": str(claims.user_id),
            "sid": str(claims.id),
            "jti": str(claims.id),
            "iat": int(claims.issued_at.timestamp()),
            "exp": int(claims.expires_at.timestamp()),
            "token_use": "preauth",
        }
        if claims.saml_state is not None:
            payload["saml_state"] = claims.saml_state
        return self._sign(payload, PRE_AUTH_TOKEN, claims.issued_at)

    def sign_stamp(self, subject: bytes, stamp: SignInStamp) -> str:
        """Return a signed stamp for the thing with this hash. Raises: LookupError if no key can sign."""
        payload = {"iss": self._base_url, "at": stamp.at.timestamp(), "of": subject.hex(), "token_use": "stamp"}
        return self._sign(payload if stamp.session_id is None else payload | {"sid": str(stamp.session_id)}, STAMP, stamp.at)

    def read_stamp(self, stamp: str, subject: bytes, now: datetime) -> SignInStamp | None:
        """Return the stamp that was signed for this subject, or None if it is not valid. The caller checks its age."""
        try:
            payload, _ = self._verify(stamp, STAMP, now)
        except (TokenInvalid, WrongToken, UnknownKey):
            return None
        if payload.get("iss") != self._base_url or payload.get("token_use") != "stamp" or payload.get("of") != subject.hex():
            return None
        return SignInStamp(datetime.fromtimestamp(payload["at"], UTC), UUID(payload["sid"]) if "sid" in payload else None)

    def read_id_token_hint(self, token: str) -> IdTokenHint | None:
        """Return the user, session and client in an ID token of ours, even if it has expired. None: it is not one of ours."""
        try:
            payload, _ = self._verify(token, ID_TOKEN, _NEVER)  # also if its key has retired
            if payload.get("iss") != self._base_url or "token_use" in payload:
                return None
            return IdTokenHint(str(payload["aud"]), _uuid(payload.get("sub")), _uuid(payload.get("sid")))
        except (TokenInvalid, WrongToken, UnknownKey, KeyError):
            return None

    def read_pre_auth(self, token: str, now: datetime) -> PreAuthClaims:
        """Verify a pre-auth token and return its claims.

        Raises: TokenInvalid, WrongToken, PreAuthExpired, UnknownKey.
        """
        payload, _ = self._verify(token, PRE_AUTH_TOKEN, now)
        get = payload.get
        if get("iss") != self._base_url or get("aud") != self._base_url + PRE_AUTH_PATH or get("token_use") != "preauth":
            raise TokenInvalid
        claims = PreAuthClaims(
            id=_uuid(get("jti")),
            user_id=_uuid(get("sub")),
            issued_at=_time(get("iat")),
            expires_at=_time(get("exp")),
            saml_state=None if get("saml_state") is None else str(get("saml_state")),
        )
        if get("sid") != get("jti") or claims.issued_at > now + self._leeway:
            raise TokenInvalid
        if claims.expires_at <= now:
            raise PreAuthExpired
        return claims

    def _sign(self, payload: Mapping[str, Any], type_: str, now: datetime) -> str:
        kid = self.signing_kid(now)
        if kid is None:
            raise LookupError("There is no signing key: `use` was not called, or all its keys have a retirement time.")
        text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
        return self._encode(text.encode(), kid, self._keys[kid].private, type_)

    def _verify(self, token: str, type_: str, now: datetime) -> tuple[dict[str, Any], _Key]:
        """Verify the signature and the type of a token, and return its payload and its key.

        Raises: TokenInvalid, WrongToken, UnknownKey.
        """
        if len(token) > MAX_TOKEN_LENGTH or "=" in token:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
            raise TokenInvalid
        # Our own tokens start with one of a few known headers, so the key is found without parsing
        # the header twice.
        token_type, key = self._by_header.get(token.partition(".")[0]) or self._find_type_and_key(token)
        _check_retirement(key, now)
        try:
            payload = json.loads(self._jws.decode(token, key.public, algorithms=[ALGORITHM]))
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise TokenInvalid from None
        if token_type != type_:
            raise WrongToken
        if not isinstance(payload, dict):
            raise TokenInvalid
        return payload, key

    def jwks(self) -> dict[str, Any]:
        """Return the public keys that had not retired when they were loaded as a JWK set, newest first (RFC 7517)."""
        keys = [self._keys[key.kid] for key in self._published]
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": ALGORITHM, "kid": key.kid, **_numbers(key.public)} for key in keys]}

    def _parse(self, key: SigningKey) -> _Key:
        known = self._keys.get(key.kid)
        # Do not load a known key again: checking its primes takes tens of milliseconds.
        if known is not None and known.pem == key.private_key:
            private, headers = known.private, known.headers
        else:
            loaded = serialization.load_pem_private_key(key.private_key, password=None)
            if not isinstance(loaded, rsa.RSAPrivateKey) or loaded.key_size < _KEY_SIZE:
                raise ValueError(f"The signing key {key.kid} is not an RSA key of at least {_KEY_SIZE} bits.")
            private = loaded
            headers = {type_: self._encode(b"", key.kid, loaded, type_).partition(".")[0] for type_ in TYPES}
        return _Key(key.kid, key.private_key, private, private.public_key(), headers, key.retires_at)

    def _encode(self, payload: bytes, kid: str, key: rsa.RSAPrivateKey, type_: str) -> str:
        return self._jws.encode(payload, key, algorithm=ALGORITHM, headers={"kid": kid, "typ": type_})

    def _find_type_and_key(self, token: str) -> tuple[str, _Key]:
        """Return the type and the key of a token with a header that differs from ours in form.

        Raises: TokenInvalid, UnknownKey.
        """
        try:
            header = self._jws.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError):
            raise TokenInvalid from None
        kid, type_ = header.get("kid"), header.get("typ")
        if header.get("alg") != ALGORITHM or type_ not in TYPES or not isinstance(kid, str):
            raise TokenInvalid
        if not REFUSED_HEADERS.isdisjoint(header):
            raise TokenInvalid
        key = self._keys.get(kid)
        if key is None:
            raise UnknownKey
        return type_, key

    def _read_claims(self, payload: dict[str, Any], key: _Key) -> _VerifiedToken:
        """Check the claims of a token with a valid signature. The caller checks its times.

        The checks of PyJWT are not used: they read the system clock, and accept the string "123" as a time.
        """
        get = payload.get
        if get("iss") != self._base_url or get("token_use") != "access":
            raise TokenInvalid
        # Only a token of an application can lack the address, with its verification (decision 320).
        email, email_verified = get("email"), get("email_verified")
        may_lack_email = "service" in payload and "email" not in payload and "email_verified" not in payload
        if not (may_lack_email or (isinstance(email, str) and isinstance(email_verified, bool))):
            raise TokenInvalid
        org, org_id = get("org", ""), None
        if not isinstance(org, str):
            raise TokenInvalid
        if "org" in payload or "org_id" in payload:
            org_id = _uuid(get("org_id"))
            if not org:  # the claims are valid only together (security J-6)
                raise TokenInvalid
        # The audience is our API, or the client id of an application (security J-3). With OpenID
        # Connect it is the userinfo endpoint or another resource, and the client id is a claim of its
        # own. The same holds for an API resource, even without a scope. Its identifier has a colon, and a
        # client id has none. Tokens of applications name their service and its organization.
        service, client_id, audience, scope = get("service", ""), None, get("aud"), get("scope", "")
        if not isinstance(service, str) or not isinstance(scope, str) or not isinstance(audience, str):
            raise TokenInvalid
        is_for_resource = bool(service) and ":" in audience and audience not in self._accepted
        if scope or is_for_resource:
            client_id = None if get("client_id") == FRONTEND_CLIENT_ID else _uuid(get("client_id"))
        elif service or audience not in self._own_audiences:
            client_id = _uuid(audience)
        if (client_id is None) != (not service) or (service and not org):
            raise TokenInvalid
        issued_at, expires_at = _time(get("iat")), _time(get("exp"))
        claims = Claims(
            user_id=_uuid(get("sub")),
            session_id=_uuid(get("sid")),
            email=Email(email) if isinstance(email, str) else None,
            email_verified=email_verified is True,
            token_id=_uuid(get("jti")),
            issued_at=issued_at,
            expires_at=expires_at,
            org=org,
            org_id=org_id,
            service=service,
            client_id=client_id,
            audience=audience if scope or is_for_resource else None,
            scope=tuple(scope.split(" ")) if scope else (),
            impersonator_id=_uuid(get("impersonator")) if "impersonator" in payload else None,
            key_thumbprint=_key_thumbprint(payload["cnf"]) if "cnf" in payload else None,
        )
        not_before = max(issued_at, _time(get("nbf"))) if "nbf" in payload else issued_at
        return _VerifiedToken(key, claims, not_before)

    def _read_program_claims(self, payload: dict[str, Any], key: _Key) -> _VerifiedToken:
        """Check the claims of a program's token with a valid signature. The caller checks its times."""
        get = payload.get
        audience, scope, org = get("aud"), get("scope"), get("org", "")
        texts_are_valid = isinstance(audience, str) and isinstance(scope, str) and isinstance(org, str)
        if (
            get("iss") != self._base_url
            or not texts_are_valid
            or get("client_id") != get("sub")
            or ("org" in payload) != ("org_id" in payload)
        ):
            raise TokenInvalid
        claims = ProgramClaims(
            client_id=_uuid(get("sub")),
            credential_id=_uuid(get("credential_id")),
            token_id=_uuid(get("jti")),
            issued_at=_time(get("iat")),
            expires_at=_time(get("exp")),
            audience=str(audience),
            scope=tuple(str(scope).split(" ")) if scope else (),
            is_of_api=audience in self._own_audiences,
            org=str(org),
            org_id=_uuid(get("org_id")) if "org_id" in payload else None,
            key_thumbprint=_key_thumbprint(payload["cnf"]) if "cnf" in payload else None,
        )
        return _VerifiedToken(key, claims, claims.issued_at)


def _key_thumbprint(confirmation: object) -> str:
    """Return the thumbprint in the claim `cnf`. We issue no other confirmation of the holder (RFC 7800). Raises: TokenInvalid."""
    match confirmation:
        case {"jkt": str(thumbprint), **others} if not others and is_thumbprint(thumbprint):
            return thumbprint
    raise TokenInvalid


def _check_retirement(key: _Key, now: datetime) -> None:
    """Raises: UnknownKey if the key has retired."""
    if key.retires_at is not None and key.retires_at <= now:
        raise UnknownKey


def _uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise TokenInvalid
    try:
        parsed = UUID(value)
    except ValueError:
        raise TokenInvalid from None
    if str(parsed) != value:  # UUID() also accepts braces, URNs and upper case
        raise TokenInvalid
    return parsed


def _time(value: object) -> datetime:
    if type(value) is not int or not 0 <= value <= _LAST_SECOND:  # excludes True, which is an int
        raise TokenInvalid
    return datetime.fromtimestamp(value, UTC)


def _numbers(public: rsa.RSAPublicKey) -> dict[str, str]:
    jwk = RSAAlgorithm.to_jwk(public, as_dict=True)
    return {"n": jwk["n"], "e": jwk["e"]}

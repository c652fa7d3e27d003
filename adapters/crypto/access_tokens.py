"""Access tokens for users and programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from adapters.crypto import signed_tokens
from core.applications.model.evaluation import API_PATH as DECISIONS_PATH
from core.authentication.model import openid
from core.authentication.model.dpop import is_thumbprint
from core.authentication.model.tokens import SigningKey
from core.kernel import errors, values
from core.kernel.claims import FRONTEND_CLIENT_ID, Accepts, Claims, ProgramClaims, external_client_id

MAX_LEEWAY = timedelta(seconds=30)  # security J-3
MAX_REMEMBERED = 4096  # verified access tokens, about 1 KiB per token
_LAST_SECOND = int(datetime.max.replace(tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """An access token with a valid signature and valid claims, except for its times, which are checked at every use."""

    key: signed_tokens.LoadedKey
    claims: Claims | ProgramClaims
    not_before: datetime


class AccessTokens(signed_tokens.SignedTokens):
    """Access tokens (security J-2, J-3, J-6). Verified tokens are remembered until the keys are next loaded (docs/adr/0024).

    The base URL is the issuer. The audience in tokens for our own API is `<base URL>/api`, or the base URL itself.
    Either audience is accepted. `leeway` limits how far the clock of the issuing machine can be ahead. A token expires
    at exactly its expiry time, because its holder knows this time.
    """

    def __init__(self, base_url: str, leeway: timedelta = timedelta(seconds=10), *, api_audience: bool = True) -> None:
        """With `api_audience`, tokens are issued for `<base URL>/api`, or else for the base URL."""
        if not timedelta(0) <= leeway <= MAX_LEEWAY:
            raise ValueError("The leeway of access tokens must be between 0 and 30 seconds.")
        super().__init__()
        self._base_url = base_url
        self._audience = base_url + openid.API_PATH if api_audience else base_url
        self._own_audiences = frozenset({base_url, base_url + openid.API_PATH})
        self._platform_audiences = self._own_audiences | {base_url + DECISIONS_PATH}
        self._userinfo = base_url + openid.USERINFO_PATH
        self._accepted = self._own_audiences | {None, self._userinfo}
        self._leeway = leeway
        # By token hash, because a memory dump must not contain all tokens in use.
        self._verified: dict[bytes, _VerifiedToken] = {}

    @property
    def issuer(self) -> str:
        return self._base_url

    @property
    def api_audience(self) -> str:
        return self._audience

    @property
    def userinfo_audience(self) -> str:
        return self._userinfo

    @property
    def claims_audience(self) -> str:
        return self._base_url + openid.CLAIMS_AUDIENCE

    def use(self, keys: Sequence[SigningKey], now: datetime, load: int | None = None) -> None:
        present = self._keys
        super().use(keys, now, load)
        if self._keys is not present:
            self._verified = {}  # tokens signed with removed keys are invalid from now on

    def sign(self, claims: Claims) -> str:
        """Return a signed access token. Raises: LookupError if no key can sign."""
        impersonator = None if claims.impersonator_id is None else str(claims.impersonator_id)
        payload: dict[str, Any] = {
            "iss": self._base_url,
            "aud": self._audience_of(claims),
            "client_id": claims.client_name,
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
        # An application's claim never replaces our own claim, not even a claim that this token lacks.
        further = {name: value for name, value in claims.further.items() if name not in payload and name != "nbf"}
        payload = {name: value for name, value in payload.items() if value is not None}
        return self._sign({**further, **payload}, signed_tokens.ACCESS_TOKEN, claims.issued_at)

    def sign_program(self, claims: ProgramClaims) -> str:
        """Return a signed access token for a program. Raises: LookupError if no key can sign."""
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
        return self._sign(payload, signed_tokens.ACCESS_TOKEN, claims.issued_at)

    def _audience_of(self, claims: Claims) -> str:
        if claims.audience is not None:
            return claims.audience
        return self._audience if claims.client_id is None else str(claims.client_id)

    def read(self, token: str, now: datetime, *, accepts: Accepts = Accepts.OWN) -> Claims | ProgramClaims:
        token_hash = values.digest(token)
        verified = self._verified.get(token_hash)
        if verified is None:
            payload, key = self._verify(token, signed_tokens.ACCESS_TOKEN, now)
            read = self._read_program_claims if payload.get("token_use") == "program" else self._read_claims
            verified = read(payload, key)
        else:
            signed_tokens.check_retirement(verified.key, now)
        if verified.not_before > now + self._leeway:
            raise errors.TokenInvalid
        audience = verified.claims.audience
        if audience == self.claims_audience:
            is_accepted = accepts is Accepts.CLAIMS
        else:
            is_accepted = accepts is Accepts.RESOURCES or audience in self._accepted
        if not is_accepted:
            raise errors.WrongToken
        if verified.claims.expires_at <= now:  # checked last: only a valid token can expire
            raise errors.TokenExpired
        self._remember(token_hash, verified)
        return verified.claims

    def _remember(self, token_hash: bytes, verified: _VerifiedToken) -> None:
        if len(self._verified) >= MAX_REMEMBERED and token_hash not in self._verified:
            del self._verified[next(iter(self._verified))]  # the earliest token
        self._verified[token_hash] = verified

    def _read_claims(self, payload: dict[str, Any], key: signed_tokens.LoadedKey) -> _VerifiedToken:
        """Check the claims in a token with a valid signature. The caller checks its times.

        PyJWT's checks are not used: they read the system clock, and accept the string "123" as a time.
        """
        get = payload.get
        if get("iss") != self._base_url or get("token_use") != "access":
            raise errors.TokenInvalid
        # Only an application's token can lack the address, with its verification.
        email, email_verified = get("email"), get("email_verified")
        may_lack_email = "service" in payload and "email" not in payload and "email_verified" not in payload
        if not (may_lack_email or (isinstance(email, str) and isinstance(email_verified, bool))):
            raise errors.TokenInvalid
        org, org_id = get("org", ""), None
        if not isinstance(org, str):
            raise errors.TokenInvalid
        if "org" in payload or "org_id" in payload:
            org_id = to_uuid(get("org_id"))
            if not org:  # the claims are valid only together (security J-6)
                raise errors.TokenInvalid
        # The audience is our API, or an application's client id (security J-3). With OpenID Connect the audience is the
        # userinfo endpoint or another resource, and the client id is a separate claim. The same holds for an API
        # resource, even without a scope. An API resource's identifier has a colon, and a client id has none. Tokens for
        # applications name their service and its organization.
        service, client_id, audience, scope = get("service", ""), None, get("aud"), get("scope", "")
        client_uri = None
        if not isinstance(service, str) or not isinstance(scope, str) or not isinstance(audience, str):
            raise errors.TokenInvalid
        is_for_resource = bool(service) and ":" in audience and audience not in self._accepted
        if scope or is_for_resource:
            client_id, client_uri = _read_client(get("client_id"), org_id)
        elif service or audience not in self._own_audiences:
            client_id = to_uuid(audience)
        if (client_id is None) != (not service) or (service and not org):
            raise errors.TokenInvalid
        issued_at, expires_at = to_time(get("iat")), to_time(get("exp"))
        claims = Claims(
            user_id=to_uuid(get("sub")),
            session_id=to_uuid(get("sid")),
            email=values.Email(email) if isinstance(email, str) else None,
            email_verified=email_verified is True,
            token_id=to_uuid(get("jti")),
            issued_at=issued_at,
            expires_at=expires_at,
            org=org,
            org_id=org_id,
            service=service,
            client_id=client_id,
            client_uri=client_uri,
            audience=audience if scope or is_for_resource else None,
            scope=tuple(scope.split(" ")) if scope else (),
            impersonator_id=to_uuid(get("impersonator")) if "impersonator" in payload else None,
            key_thumbprint=_key_thumbprint(payload["cnf"]) if "cnf" in payload else None,
        )
        not_before = max(issued_at, to_time(get("nbf"))) if "nbf" in payload else issued_at
        return _VerifiedToken(key, claims, not_before)

    def _read_program_claims(self, payload: dict[str, Any], key: signed_tokens.LoadedKey) -> _VerifiedToken:
        """Check the claims in a program's token with a valid signature. The caller checks its times."""
        get = payload.get
        audience, scope, org = get("aud"), get("scope"), get("org", "")
        texts_are_valid = isinstance(audience, str) and isinstance(scope, str) and isinstance(org, str)
        if (
            get("iss") != self._base_url
            or not texts_are_valid
            or get("client_id") != get("sub")
            or ("org" in payload) != ("org_id" in payload)
        ):
            raise errors.TokenInvalid
        claims = ProgramClaims(
            client_id=to_uuid(get("sub")),
            credential_id=to_uuid(get("credential_id")),
            token_id=to_uuid(get("jti")),
            issued_at=to_time(get("iat")),
            expires_at=to_time(get("exp")),
            audience=str(audience),
            scope=tuple(str(scope).split(" ")) if scope else (),
            is_of_platform=audience in self._platform_audiences,
            org=str(org),
            org_id=to_uuid(get("org_id")) if "org_id" in payload else None,
            key_thumbprint=_key_thumbprint(payload["cnf"]) if "cnf" in payload else None,
        )
        return _VerifiedToken(key, claims, claims.issued_at)


def _read_client(name: object, org_id: UUID | None) -> tuple[UUID | None, str | None]:
    """Return the client's id by its name, and its address if it is external. Raises: TokenInvalid."""
    if name == FRONTEND_CLIENT_ID:
        return None, None
    if isinstance(name, str) and ":" in name and org_id is not None:
        return external_client_id(org_id, name), name
    return to_uuid(name), None


def _key_thumbprint(confirmation: object) -> str:
    """Return the thumbprint in the claim `cnf`. We issue no other confirmation for the holder (RFC 7800). Raises: TokenInvalid."""
    match confirmation:
        case {"jkt": str(thumbprint), **others} if not others and is_thumbprint(thumbprint):
            return thumbprint
    raise errors.TokenInvalid


def to_uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise errors.TokenInvalid
    try:
        parsed = UUID(value)
    except ValueError:
        raise errors.TokenInvalid from None
    if str(parsed) != value:  # UUID() also accepts braces, URNs and upper case
        raise errors.TokenInvalid
    return parsed


def to_time(value: object) -> datetime:
    if type(value) is not int or not 0 <= value <= _LAST_SECOND:  # excludes True, which is an int
        raise errors.TokenInvalid
    return datetime.fromtimestamp(value, UTC)

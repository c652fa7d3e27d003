"""OpenID providers of organizations: our requests to them, their answers, and the faults for which an answer is refused.

Sources: OpenID Connect Core section 3.1, OpenID Connect Discovery, OpenID Connect Back-Channel Logout 1.0, RFC 7636, RFC 9207.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from core.authentication.model.openid import LOGOUT_EVENT
from core.federation.connections.model.answers import CLOCK_SKEW, AnswerRefused, to_seconds_off
from core.federation.connections.model.settings import ProviderAuthentication
from core.federation.oauth.model.authorization import s256_challenge
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel import connections, outbound, uris
from core.kernel.errors import Invalid
from core.kernel.values import is_printable

MAX_ANSWER_SIZE: Final = 256 * 1024  # bytes of metadata, a JWK set, tokens, or userinfo
MAX_HEADER_TOKEN: Final = 16 * 1024  # characters of an access token that userinfo endpoints accept, whatever their server is
MAX_HINT: Final = 4000  # characters of an ID token in a URL
LOGOUT_SKEW: Final = timedelta(minutes=1)  # between the provider's clock and ours, in logout tokens
LOGOUT_TOKEN_TTL: Final = timedelta(minutes=5)  # after which we refuse it
MAX_TOKEN_ID: Final = 255
# No symmetric algorithm: with one, anyone who knows the client secret could sign (RFC 8725 section 3.1).
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")
# The claims about the token and the session. Only the signed ID token gives them.
PROTOCOL_CLAIMS: Final = frozenset(
    {"iss", "aud", "azp", "exp", "iat", "nbf", "jti", "nonce", "at_hash", "c_hash", "s_hash", "sid", "sub"}
    | {"acr", "amr", "auth_time", "session_expiry"}
)
# The error codes of authorization endpoints that are repeated (RFC 6749 section 4.1.2.1, OpenID Connect Core section 3.1.2.6).
ERROR_CODES: Final = frozenset(
    {"invalid_request", "unauthorized_client", "access_denied", "unsupported_response_type", "invalid_scope", "server_error"}
    | {"temporarily_unavailable", "interaction_required", "login_required", "account_selection_required", "consent_required"}
)


class OpenIdFault(StrEnum):
    """The reason for which an answer of an OpenID provider is refused. The sign-in log and the metric have its value."""

    UNREACHABLE = "unreachable"
    STATUS = "status"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    METADATA_ISSUER = "metadata_issuer"
    METADATA_ENDPOINTS = "metadata_endpoints"
    METADATA_FLOW = "metadata_flow"
    METADATA_ALGORITHMS = "metadata_algorithms"
    METADATA_AUTHENTICATION = "metadata_authentication"
    JWKS = "jwks"
    RESPONSE_ISSUER = "response_issuer"
    RESPONSE = "response"
    CLIENT = "client"
    CODE = "code"
    REQUEST = "request"
    TOKENS = "tokens"
    FORM = "form"
    ALGORITHM = "algorithm"
    SIGNING_KEY = "signing_key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    NONCE = "nonce"
    TIME = "time"
    SUBJECT = "subject"
    LOGOUT = "logout"
    AUTH_TIME = "auth_time"
    USERINFO = "userinfo"
    USERINFO_SUBJECT = "userinfo_subject"
    LONG_ACCESS_TOKEN = "long_access_token"  # noqa: S105  (a fault)


# The sentence for admins about each fault.
OPENID_FAULTS: Final[Mapping[OpenIdFault, str]] = MappingProxyType(
    {
        OpenIdFault.UNREACHABLE: "The identity provider did not answer within 10 seconds. Check that its host is public.",
        OpenIdFault.STATUS: "The identity provider answered with an error or a redirect. Check the issuer of the connection.",
        OpenIdFault.TOO_LARGE: (
            "The answer of the identity provider is too large. If the user has many groups, leave them out of the tokens and send "
            "them at the userinfo endpoint, or send only those that are assigned to the application. Otherwise, send fewer claims or keys."
        ),
        OpenIdFault.MALFORMED: "The answer of the identity provider is not a JSON object. Check the issuer of the connection.",
        OpenIdFault.METADATA_ISSUER: (
            "The metadata has another issuer. Copy the issuer from the metadata of your own tenant, with or without the slash at its end."
        ),
        OpenIdFault.METADATA_ENDPOINTS: "The metadata lacks an endpoint, or one has no https URL. Report this to the identity provider.",
        OpenIdFault.METADATA_FLOW: "The identity provider does not offer the authorization code flow. Turn it on.",
        OpenIdFault.METADATA_ALGORITHMS: "The identity provider offers no accepted signature of ID tokens. Sign with RS256.",
        OpenIdFault.METADATA_AUTHENTICATION: (
            "The identity provider does not offer the client authentication of the connection. Choose another one."
        ),
        OpenIdFault.JWKS: "The keys of the identity provider cannot be read. Check its address for keys (jwks_uri).",
        OpenIdFault.RESPONSE_ISSUER: "The answer came from another issuer, or did not name its issuer. Start the sign-in again.",
        OpenIdFault.RESPONSE: "The answer has no usable code. Start the sign-in again.",
        OpenIdFault.CLIENT: (
            "The identity provider does not accept our credentials. Correct the client id, the client secret or the key, or choose "
            "another way to authenticate."
        ),
        OpenIdFault.CODE: "The identity provider does not accept its code. Check the redirect URI, and start the sign-in again.",
        OpenIdFault.REQUEST: "The token endpoint refused the request. Check the settings of the application at the identity provider.",
        OpenIdFault.TOKENS: "The token endpoint returned no ID token. Allow the scope openid.",
        OpenIdFault.FORM: "The token is not a signed JWT of the expected type (typ). If tokens are encrypted, turn that off.",
        OpenIdFault.ALGORITHM: "The algorithm of the token's signature is not accepted. Sign with RS256.",
        OpenIdFault.SIGNING_KEY: "The key of the token is not published, or is too weak. Sign with a published RSA key of 2048 bits.",
        OpenIdFault.SIGNATURE: "The signature of the token is wrong. Report this to the identity provider.",
        OpenIdFault.ISSUER: "The token has another issuer. Copy the issuer from the metadata of your own tenant.",
        OpenIdFault.AUDIENCE: "The token is for another client. Correct the client id of the connection.",
        OpenIdFault.NONCE: "The token does not belong to this sign-in. Start again.",
        OpenIdFault.TIME: "The token has expired, or is from the future. Check the clock of the identity provider.",
        OpenIdFault.SUBJECT: "The token has no subject that is a text of at most 255 characters.",
        OpenIdFault.LOGOUT: "The token is not a logout token. It needs the logout event, iat, exp, a jti, a sub or sid, and no nonce.",
        OpenIdFault.AUTH_TIME: "The identity provider did not confirm a new sign-in. It must send auth_time if a request has max_age.",
        OpenIdFault.USERINFO: "The userinfo endpoint returned no claims. Send plain JSON, or put the claims into the ID token.",
        OpenIdFault.USERINFO_SUBJECT: "The userinfo endpoint returned another user. Report this to the identity provider.",
        OpenIdFault.LONG_ACCESS_TOKEN: (
            "The userinfo endpoint refused an access token of more than 16 KiB. Leave the groups out of access tokens."
        ),
    }
)


class OpenIdAnswerRefused(AnswerRefused):
    """Your organization's identity provider sent an answer that can't be accepted. Try again, or contact your IT department."""

    def __init__(self, fault: OpenIdFault, seconds_off: int | None = None) -> None:
        super().__init__(
            "Your organization's identity provider sent an answer that can't be accepted. "
            f"Try again, or give your IT department this code: {fault}."
        )
        self.fault = fault
        self.seconds_off = seconds_off

    @property
    def reason(self) -> str:
        """The sentence for admins."""
        return OPENID_FAULTS[self.fault]


class OpenIdProviderUnreachable(Invalid):
    """Your organization's identity provider can't be reached. Try again in a few minutes, or contact your IT department."""

    fault = OpenIdFault.UNREACHABLE

    def __init__(self, reason: outbound.SendFailure) -> None:
        super().__init__()
        self.reason = reason


class OpenIdErrorReturned(Invalid):
    """Your organization's identity provider didn't sign you in. Try again, or contact your IT department."""

    def __init__(self, error: str, message: str | None = None) -> None:
        """`error` is the code of the answer. Unknown codes are `unknown_error`."""
        self.error = error if error in ERROR_CODES else "unknown_error"
        super().__init__(
            message
            or f"Your organization's identity provider didn't sign you in. Try again, or give your IT department this code: {self.error}."
        )


class OpenIdAccessDenied(OpenIdErrorReturned):
    """Your organization's identity provider didn't let you in. Ask an admin of the organization to assign the application to you there."""

    def __init__(self, organization: str) -> None:
        """`organization` is its name."""
        super().__init__(
            "access_denied",
            f"The identity provider of {organization} didn't let you in. Ask an admin of {organization} to assign the application to you "
            "there, and sign in again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdClient:
    """Our client at the OpenID provider of a connection."""

    connection_id: UUID
    issuer: str
    client_id: str
    authentication: ProviderAuthentication
    org_id: UUID | None = None  # requests count for this organization's limit; None: only for the connection's limit
    provider: connections.ConnectionSlug | None = None  # set for a platform provider, whose failures are for the operator
    metadata: "OpenIdProviderMetadata | None" = None  # from the operator's settings; None: the issuer publishes the metadata
    client_secret: str | None = field(default=None, repr=False)
    key: SamlCertificate | None = field(default=None, repr=False)  # it signs our client assertions
    clock_skew: timedelta = CLOCK_SKEW


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdProviderMetadata:
    """The parts of a provider's metadata that we use (OpenID Connect Discovery section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str  # empty with plain OAuth
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    algorithms: tuple[str, ...]  # of ID tokens: those that we accept, too
    authentications: frozenset[str]  # at the token endpoint
    names_issuer: bool  # in each answer of the authorization endpoint (RFC 9207)
    emails_endpoint: str = ""  # only with plain OAuth

    @property
    def is_openid(self) -> bool:
        """Whether the provider returns an ID token. With plain OAuth, it does not."""
        return not self.emails_endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """The parameters of a redirect to a provider. The answer is checked against them.

    With `fresh_since`, the provider is asked to authenticate the user after that time, in UTC. The answer must confirm it,
    unless `accepts_silent` is set.
    """

    redirect_uri: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    code_verifier: str = field(repr=False)
    scopes: Sequence[str] = ()  # besides openid
    fresh_since: datetime | None = None
    accepts_silent: bool = False
    hints: Mapping[str, str] = field(default_factory=dict)  # further parameters, such as `login_hint`


@dataclass(frozen=True, slots=True)
class OpenIdAnswer:
    """The verified claims about a user, and the ID token, which a later sign-out names."""

    claims: Mapping[str, Any]
    id_token: str = field(repr=False)  # empty with plain OAuth
    end_session_endpoint: str | None = None  # of the provider
    tokens: connections.ProviderTokens | None = None  # for a platform provider's API

    @property
    def subject(self) -> str:
        return str(self.claims["sub"])

    @property
    def session(self) -> str | None:
        """The id of the session at the provider, which a logout token can name."""
        session = self.claims.get("sid")
        return session if isinstance(session, str) and len(session) <= MAX_TOKEN_ID and is_printable(session) else None


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """A key that a provider publishes, with the reason for which it cannot verify tokens, if there is one."""

    kid: str | None
    kind: str | None  # the `kty`
    is_usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLogout:
    """The sign-out that a logout token reports. Times are UTC. A subject, a session, or both are given."""

    token_id: str  # `jti`, which works once
    subject: str | None
    session: str | None  # the `sid` of ID tokens
    valid_until: datetime  # the token must count as used until then


def parse_metadata(issuer: str, document: Mapping[str, Any]) -> OpenIdProviderMetadata:
    """Return the metadata that the issuer publishes."""
    # Otherwise the metadata of one issuer could stand for another (OpenID Connect Discovery section 4.3). Microsoft's "common"
    # metadata names no tenant in its issuer, so any tenant could sign users in.
    if document.get("issuer") != issuer:
        raise OpenIdAnswerRefused(OpenIdFault.METADATA_ISSUER)
    responses = document.get("response_types_supported", ["code"])
    if "code" not in _texts(responses):
        raise OpenIdAnswerRefused(OpenIdFault.METADATA_FLOW)
    offered = _texts(document.get("id_token_signing_alg_values_supported", ["RS256"]))
    algorithms = tuple(algorithm for algorithm in ALGORITHMS if algorithm in offered)
    if not algorithms:
        raise OpenIdAnswerRefused(OpenIdFault.METADATA_ALGORITHMS)
    has_no_userinfo = document.get("userinfo_endpoint") is None
    has_no_logout = document.get("end_session_endpoint") is None
    return OpenIdProviderMetadata(
        issuer=issuer,
        authorization_endpoint=_endpoint(issuer, document, "authorization_endpoint"),
        token_endpoint=_endpoint(issuer, document, "token_endpoint"),
        jwks_uri=_endpoint(issuer, document, "jwks_uri"),
        userinfo_endpoint=None if has_no_userinfo else _endpoint(issuer, document, "userinfo_endpoint"),
        end_session_endpoint=None if has_no_logout else _endpoint(issuer, document, "end_session_endpoint"),
        algorithms=algorithms,
        authentications=_texts(document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])),
        names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def is_provider_url(issuer: str, url: str) -> bool:
    """Return whether we may send requests or browsers to this URL of a provider."""
    # Answers that come over http could be exchanged on their way. `is_web_url` accepts http on the loopback interface, and the
    # guard refuses it, unless the operator allows it.
    is_downgrade = issuer.startswith("https://") and not url.startswith("https://")
    return len(url) <= outbound.LONGEST_URL and uris.is_web_url(url) and uris.target_flaw(url) is None and not is_downgrade


def authorization_url(client: OpenIdClient, metadata: OpenIdProviderMetadata, request: CodeRequest) -> str:
    """Return the URL that a browser is sent to, and from which it returns to the redirect URI with a code."""
    fields = {
        **request.hints,
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": request.redirect_uri,
        "scope": " ".join(requested_scopes(metadata, request)),
        "state": request.state,
        "code_challenge": s256_challenge(request.code_verifier),
        "code_challenge_method": "S256",
    }
    if request.fresh_since is not None:
        fields |= {"prompt": "login", "max_age": "0"}
    if metadata.is_openid:
        fields["nonce"] = request.nonce
    url, _, configured = metadata.authorization_endpoint.partition("?")
    kept = [field for field in configured.split("&") if field and field.partition("=")[0] not in fields]
    return f"{url}?{'&'.join((*kept, urlencode(fields)))}"


def requested_scopes(metadata: OpenIdProviderMetadata, request: CodeRequest) -> tuple[str, ...]:
    """Return a request's scopes without duplicates."""
    return tuple(dict.fromkeys(("openid", *request.scopes) if metadata.is_openid else request.scopes))


def claim_names(claims: Iterable[str]) -> Iterator[str]:
    """Return the names of the claims about the user."""
    return (name for name in claims if name not in PROTOCOL_CLAIMS)


def check_response_issuer(metadata: OpenIdProviderMetadata, issuer: str | None) -> None:
    """Check the `iss` parameter in the authorization endpoint's answer (RFC 9207 section 2.4). Plain OAuth defines no issuer."""
    if not metadata.is_openid and issuer is not None:
        issuer = metadata.issuer if uris.origin_of(issuer) == uris.origin_of(metadata.authorization_endpoint) else ""
    if issuer != metadata.issuer and (issuer is not None or metadata.names_issuer):
        raise OpenIdAnswerRefused(OpenIdFault.RESPONSE_ISSUER)


def check_authentication_time(claims: Mapping[str, Any], since: datetime, now: datetime, skew: timedelta = CLOCK_SKEW) -> None:
    """Check that the user authenticated after `since` (OpenID Connect Core section 3.1.3.7, step 13).

    A time in the future is refused, because every application would accept it as recent.
    """
    at = read_time(claims.get("auth_time"))
    if not is_new_sign_in(at, since, now, skew):
        off = None if at is None else to_seconds_off((at - (now if at > now else since)).total_seconds())
        raise OpenIdAnswerRefused(OpenIdFault.AUTH_TIME, off)


def is_new_sign_in(authenticated_at: datetime | None, since: datetime, now: datetime, skew: timedelta = CLOCK_SKEW) -> bool:
    """Return whether a provider says that the user authenticated after `since`. `skew` is tolerated between the clocks."""
    return authenticated_at is not None and since - skew <= authenticated_at <= now + skew


def add_userinfo(claims: Mapping[str, Any], userinfo: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of an ID token, with further claims of the userinfo endpoint."""
    # Without this check the answer could describe another user (OpenID Connect Core section 5.3.2).
    if userinfo.get("sub") != claims["sub"]:
        raise OpenIdAnswerRefused(OpenIdFault.USERINFO_SUBJECT)
    kept, added = dict(claims), dict(userinfo)
    # An address and the statement that it is verified belong together.
    (kept if kept.get("email") is None else added).pop("email_verified", None)
    return kept | {name: value for name, value in added.items() if name not in PROTOCOL_CLAIMS and kept.get(name) is None}


def read_time(value: object) -> datetime | None:
    """Return the time (UTC) of a claim in seconds since 1970, or None if it is not a time."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def algorithm_of(token: str) -> str:
    """Return the algorithm in the header of a verified token."""
    header = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["alg"])


def parse_logout(claims: Mapping[str, Any], now: datetime) -> ProviderLogout:
    """Return the sign-out that this issuer's logout token asks for (Back-Channel Logout sections 2.4 and 2.6)."""
    issued_at, expires_at = read_time(claims.get("iat")), read_time(claims.get("exp"))
    if issued_at is None or expires_at is None:
        raise OpenIdAnswerRefused(OpenIdFault.LOGOUT)
    if not now - LOGOUT_TOKEN_TTL < issued_at <= now + LOGOUT_SKEW or expires_at <= now - LOGOUT_SKEW:
        raise OpenIdAnswerRefused(OpenIdFault.TIME)
    events, token_id = claims.get("events"), _identifier(claims, "jti")
    has_event = isinstance(events, dict) and isinstance(events.get(LOGOUT_EVENT), dict)
    subject, session = _identifier(claims, "sub"), _identifier(claims, "sid")
    # With a nonce, it could be an ID token.
    if not has_event or token_id is None or "nonce" in claims or (subject is None and session is None):
        raise OpenIdAnswerRefused(OpenIdFault.LOGOUT)
    return ProviderLogout(token_id=token_id, subject=subject, session=session, valid_until=issued_at + LOGOUT_TOKEN_TTL)


def _identifier(claims: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a claim, or None if it is missing. Raises: OpenIdAnswerRefused if it has another type."""
    value = claims.get(name)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_ID and is_printable(value)):
        raise OpenIdAnswerRefused(OpenIdFault.LOGOUT)
    return value


def _endpoint(issuer: str, document: Mapping[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or not is_provider_url(issuer, url):
        raise OpenIdAnswerRefused(OpenIdFault.METADATA_ENDPOINTS)
    return url


def _texts(value: object) -> frozenset[str]:
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()

"""Authorization requests, also pushed ones (RFC 9126), codes and consents.

Sources: RFC 6749 (authorization code grant), RFC 7636 (PKCE), RFC 8252 (native apps), RFC 9207 (`iss` in
responses), OpenID Connect Core section 3.1.2.4 (consent); security O-1, O-2, O-3 and O-4.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from core.applications.model import services
from core.authentication.model.openid import OpenIdGrant
from core.kernel import callers, errors, uris, values
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.programs.model.api_resources import ApiResource

AUTHORIZE_PATH: Final = "/auth/authorize"
MAX_STATE_LENGTH: Final = 4096
CODE_TTL: Final = timedelta(seconds=60)


class ResponseMode(StrEnum):
    """How the browser brings the response to the application (OAuth 2.0 Multiple Response Type Encoding Practices)."""

    QUERY = "query"
    FRAGMENT = "fragment"
    FORM_POST = "form_post"


class OrgOrServiceMissing(errors.Invalid):
    """To sign in to an application, send both org and service. To sign in to your account, send neither."""


class ClientIdMismatch(errors.Invalid):
    """The client_id belongs to a different application than org and service. Send either client_id, or org and service."""


class AuthorizationCodeInvalid(errors.GrantInvalid):
    """The code is unknown, expired or used, or is for another client, redirect_uri, code_challenge or DPoP key. Request a new code."""


class RedirectUriMissing(errors.Invalid):
    """Send redirect_uri. Only an application with exactly one registered redirect URI can leave it out."""


class RedirectUriNotRegistered(services.UriNotRegistered):
    """This redirect URI is not registered for the application, so nothing is sent to it. Send a registered redirect URI."""


class AuthorizationRefused(errors.Invalid):
    """The browser returns to the application with an error: the request is not valid, or it cannot be fulfilled."""


class CodeChallengeMissing(AuthorizationRefused):
    """This application must send code_challenge, with code_challenge_method S256 (PKCE, RFC 7636)."""


class CodeChallengeInvalid(AuthorizationRefused):
    """The code_challenge must be 43 characters of base64url, and code_challenge_method must be S256 (PKCE, RFC 7636)."""


class KeyThumbprintInvalid(AuthorizationRefused):
    """The dpop_jkt must be the thumbprint of a key with SHA-256: 43 characters of base64url (RFC 9449 section 10)."""


class OAuthStateInvalid(AuthorizationRefused):
    """The state must have at most 4096 characters, without control characters."""


class RequestedOrganizationUnknown(AuthorizationRefused):
    """The organization is unknown, or not that of the application. Send the slug or the id of an active organization."""


class RequestedConnectionUnknown(AuthorizationRefused):
    """The organization has no active connection with this slug. Correct it. A request that names no application also needs organization."""


class DomainHintInvalid(AuthorizationRefused):
    """The domain_hint must be a domain, such as example.com."""


class AuthorizationRequestTooLong(AuthorizationRefused):
    """The authorization request is too long for the address of the sign-in page. Send shorter parameters, for example a shorter state."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """The parameters of an authorization request, before they are validated.

    `org` and `service` are slugs. OAuth clients that do not know them send `client_id` instead. All
    three are None for the platform itself.
    """

    org: str | None = None
    service: str | None = None
    redirect_uri: str | None = None
    state: str | None = None
    code_challenge: str | None = None
    code_challenge_method: str | None = None
    client_id: str | None = None
    response_type: str | None = None
    response_mode: str | None = None
    scope: str | None = None
    nonce: str | None = None
    prompt: str | None = None
    max_age: str | None = None
    login_hint: str | None = None
    ui_locales: str | None = None
    acr_values: str | None = None
    id_token_hint: str | None = None
    claims: str | None = None
    resource: str | None = None
    request: str | None = None
    request_uri: str | None = None
    registration: str | None = None
    dpop_jkt: str | None = None  # the thumbprint of the key that may redeem the code (RFC 9449 section 10)
    # The identity provider at which the user signs in. They name no client, as `org` and `service` do.
    organization: str | None = None  # its slug or id
    connection: str | None = None  # its slug
    domain_hint: str | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Return the request with the parameters in these query or form fields.

        Empty and unknown fields are ignored (RFC 6749 section 3.1).
        """
        return cls(**{name: fields[name] for name in AuthorizationRequest.__slots__ if fields.get(name)})

    @property
    def query(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return urlencode({name: value for name, value in fields.items() if value is not None})

    @property
    def path(self) -> str:
        """The path and query of this request at our authorization endpoint."""
        return f"{AUTHORIZE_PATH}?{self.query}" if self.query else AUTHORIZE_PATH


@dataclass(frozen=True, slots=True)
class Authorization:
    """An authorization request with a valid application and redirect URI.

    `service` and `context` are None for the platform's own frontend. `api` is the requested API resource
    of the organization, if the application may ask for it.
    """

    request: AuthorizationRequest
    service: services.Service | None
    context: callers.ServiceContext | None
    # The requested redirect URI, or the only registered one. None if the user signs in to the
    # platform itself and it has no frontend: then the browser continues at our account page. None
    # for an external client until its document is loaded.
    redirect_uri: str | None
    api: ApiResource | None = None

    @property
    def external_for(self) -> UUID | None:
        """The API resource of an external client, or None for applications."""
        return None if self.context is None or not self.context.is_external or self.api is None else self.api.id


@dataclass(frozen=True, slots=True)
class AuthorizationCode:
    """A new authorization code: its user, browser session, and the values that the token request must repeat. Times are UTC."""

    service: callers.ServiceContext | None  # None for the platform's frontend
    user_id: UUID
    browser_session_id: UUID
    redirect_uri: str | None  # None if the request had none
    code_challenge: str | None
    created_at: datetime
    expires_at: datetime
    openid: OpenIdGrant | None = None
    nonce: str | None = None
    key_thumbprint: str | None = None  # of the only key that may redeem it, or None for any


@dataclass(frozen=True, slots=True)
class PresentedCode:
    """An authorization code as a client presents it, with the values of its token request."""

    hash: bytes
    service: callers.ServiceContext | None  # the client; None for the platform's frontend
    redirect_uri: str | None
    challenge: str | None
    is_registered: bool  # the redirect URI: it can stand for one that the authorization request left out


@dataclass(frozen=True, slots=True)
class RequestedAccess:
    """The part of a grant that a token request asks for: its resource (RFC 8707 section 2.2), and fewer scopes (RFC 6749 section 6).

    None stands for all that was granted. Scopes that were not granted are left out, or refused in a refresh.
    """

    resource: str | None = None
    scope: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeemedAuthorizationCode:
    """The browser session that a redeemed code was issued to, with its IP address and user agent, and the grant."""

    address: str | None
    agent: str | None
    browser: callers.BrowserSession
    openid: OpenIdGrant | None = None
    nonce: str | None = None


def choose_redirect_uri(service: services.Service, requested: str | None) -> str:
    """Return the redirect URI for the code: the requested one, or else the only registered one.

    The requested URI must equal a registered one character by character, or with its host in Unicode
    (security O-2). The browser is sent to the registered one. Only native applications may use another
    port on the loopback interface (RFC 8252 section 7.3).
    """
    if requested is None:
        if len(service.redirect_uris) != 1:
            raise RedirectUriMissing
        return service.redirect_uris[0]
    if (registered_uri := uris.find_registered(service.redirect_uris, requested)) is not None:
        return registered_uri
    if service.service_type.is_native and any(
        uris.equals_except_loopback_port(registered, requested) for registered in service.redirect_uris
    ):
        return requested
    raise RedirectUriNotRegistered(services.UnregisteredUri(requested, services.REDIRECT_URIS, service))


def s256_challenge(verifier: str) -> str:
    """Return the S256 challenge of a code verifier (RFC 7636 section 4.6)."""
    return values.base64url(values.digest(verifier))


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """The parameters that the browser brings to the application's redirect URI, and the mode.

    Sources: RFC 6749 section 4.1.2, RFC 9207, OAuth 2.0 Form Post Response Mode.
    """

    redirect_uri: str
    mode: ResponseMode
    parameters: Mapping[str, str]

    @property
    def url(self) -> str:
        """The redirect URI with the parameters in its query or fragment."""
        if self.mode is ResponseMode.FRAGMENT:
            return f"{self.redirect_uri}#{urlencode(self.parameters)}"
        return uris.add_parameters(self.redirect_uri, self.parameters)


def respond(authorization: Authorization, base_url: str, **parameters: str) -> AuthorizationResponse:
    """Return the response with these parameters, the request's state and our issuer.

    The authorization must have a redirect URI. A response mode that does not exist is reported in the query.
    """
    assert authorization.redirect_uri is not None, "callers check this: a sign-in to our own pages has no redirect URI"
    if authorization.request.state is not None:
        parameters["state"] = authorization.request.state
    mode = authorization.request.response_mode
    return AuthorizationResponse(
        authorization.redirect_uri,
        ResponseMode(mode) if mode in tuple(ResponseMode) else ResponseMode.QUERY,
        {**parameters, "iss": base_url},
    )


def refusal_response(authorization: Authorization, refusal: AuthorizationRefused, base_url: str) -> AuthorizationResponse:
    """Return the response that reports the refusal to the application.

    If the application sent a request object, the state and the response mode in it count, so that it
    understands the answer. No signature is needed for that: the redirect URI is a registered one.
    """
    if authorization.request.request is not None:
        members = _read_request_object(authorization.request.request)
        authorization = replace(authorization, request=replace(authorization.request, **members))
    return respond(authorization, base_url, error=refusal.oauth_error, error_description=refusal.message)


def _read_request_object(text: str) -> dict[str, str]:
    """Return the state and the response mode in a request object, unverified."""
    try:
        payload = text.split(".")[1]
        members = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    if not isinstance(members, dict):
        return {}
    fields: dict[str, str] = {}
    if isinstance(state := members.get("state"), str) and len(state) <= MAX_STATE_LENGTH and values.is_printable(state):
        fields["state"] = state
    if isinstance(mode := members.get("response_mode"), str):
        fields["response_mode"] = mode
    return fields


PAR_PATH: Final = "/auth/par"
PREFIX: Final = "urn:ietf:params:oauth:request_uri:"
PRESENTED_WITHIN: Final = timedelta(seconds=60)


class RequestUriInvalid(errors.Invalid):
    """This request_uri is unknown, expired or used, or belongs to another client or browser. Start again at the application."""

    oauth_error = "invalid_request_uri"


class RequestUriPushed(errors.Invalid):
    """A pushed request cannot contain a request_uri. Push the parameters themselves (RFC 9126 section 2.1)."""


class PushedRedirectUriMissing(errors.Invalid):
    """Send redirect_uri. A pushed request needs it, even if the application has only one (FAPI 2.0 section 5.3.2.2)."""


class PushRefused(errors.Invalid):
    """Service accounts and API resources sign no users in. Push the request with the credentials of an application."""

    oauth_error = "unauthorized_client"


class PushedRequestRequired(AuthorizationRefused):
    """This application must push its authorization requests, and send the browser with the request_uri (RFC 9126)."""


@dataclass(frozen=True, slots=True)
class PushedRequest(AuthorizationRequest):
    """An authorization request that its client has pushed. `request_uri` is ours.

    The URL in the browser contains only the client id and the request_uri.
    """

    @property
    def query(self) -> str:
        fields_in_url = {"client_id": self.client_id, "request_uri": self.request_uri}
        return urlencode({name: value for name, value in fields_in_url.items() if value is not None})

    @property
    def parameters(self) -> str:
        """The parameters that the client has pushed, as a query string."""
        pushed = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "request_uri"}
        return urlencode({name: value for name, value in pushed.items() if value is not None})

    @classmethod
    def from_parameters(cls, parameters: str, request_uri: str) -> PushedRequest:
        """Return the request with these stored parameters."""
        return cls.from_fields({**dict(parse_qsl(parameters)), "request_uri": request_uri})

    @property
    def hash(self) -> bytes:
        """The hash by which the request is stored."""
        return hash_of(self.request_uri or "")


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A pushed request to store. Times are UTC."""

    request_hash: bytes
    service: callers.ServiceContext | None  # None for the platform's frontend
    parameters: str
    created_at: datetime
    expires_at: datetime


def is_pushed(request_uri: str | None) -> bool:
    """Return whether the request_uri has the form of ours."""
    return request_uri is not None and request_uri.startswith(PREFIX)


def hash_of(request_uri: str) -> bytes:
    """Return the hash by which a request is stored."""
    return values.digest(request_uri.removeprefix(PREFIX))


def parse_client_id(client_id: str | None) -> UUID | None:
    """Return the client id of a request that names a pushed request. None: the platform's frontend."""
    return None if client_id == FRONTEND_CLIENT_ID else values.parse_id(client_id or "") or errors.refuse(RequestUriInvalid)

"""The parameters of an authorization request (OpenID Connect Core section 3.1.2.1, RFC 6749, RFC 7636)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from core.authentication.model.dpop import is_thumbprint
from core.authentication.model.openid import (
    API_PATH,
    SESSION_EXPIRY,
    USER_CLAIMS,
    USERINFO_PATH,
    OpenIdGrant,
    RequestedClaims,
    ResourceGrant,
    Scope,
    asked_scopes,
    parse_scope,
    split_scope,
)
from core.federation.oauth.model.authorization import (
    MAX_STATE_LENGTH,
    Authorization,
    AuthorizationRefused,
    AuthorizationRequestTooLong,
    CodeChallengeInvalid,
    CodeChallengeMissing,
    KeyThumbprintInvalid,
    OAuthStateInvalid,
    PushedRequest,
    ResponseMode,
)
from core.kernel import uris
from core.kernel.callers import ServiceContext
from core.kernel.errors import Invalid
from core.kernel.proofs import Acr
from core.kernel.values import is_printable, parse_id
from core.programs.model.api_resources import ApiResource
from core.programs.model.client_policy import USER_SCOPES

MAX_NONCE_LENGTH: Final = 1024
MAX_CLAIMS_LENGTH: Final = 4096
RESPONSE_TYPE: Final = "code"
_S256_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636 section 4.2
MAX_REQUEST_LENGTH: Final = 8192  # in the sign-in page's address, where the request is percent-encoded again
_MAX_AGE: Final = timedelta(days=3650)
# The scopes that external clients can get. Roles and groups are for applications that the organization knows.
EXTERNAL_SCOPES: Final = frozenset({Scope.OPENID, Scope.PROFILE, Scope.EMAIL, Scope.OFFLINE_ACCESS})
_KNOWN_CLAIMS: Final = USER_CLAIMS | {SESSION_EXPIRY, "acr", "sub"}


class ResponseTypeRefused(AuthorizationRefused):
    """Only response_type=code is supported: tokens never appear in a URL (RFC 9700 section 2.1.2)."""

    oauth_error = "unsupported_response_type"


class ResponseModeRefused(AuthorizationRefused):
    """The response_mode must be query, fragment or form_post."""


class RequestObjectRefused(AuthorizationRefused):
    """The parameter `request` is not supported. Send the parameters themselves."""

    oauth_error = "request_not_supported"


class RequestUriRefused(AuthorizationRefused):
    """Only a request_uri from the endpoint for pushed requests is supported (RFC 9126). Push the request, or send its parameters."""

    oauth_error = "request_uri_not_supported"


class RegistrationRefused(AuthorizationRefused):
    """The parameter `registration` is not supported. An admin registers the application."""

    oauth_error = "registration_not_supported"


class PromptInvalid(AuthorizationRefused):
    """The prompt must be none, or some of login, consent, select_account and create."""


class MaxAgeInvalid(AuthorizationRefused):
    """The max_age must be a number of seconds."""


class NonceInvalid(AuthorizationRefused):
    """The nonce must have at most 1024 characters, without control characters."""


class ClaimsInvalid(AuthorizationRefused):
    """The parameter `claims` must be a JSON object as in OpenID Connect Core section 5.5, of at most 4096 characters."""


class IdTokenHintInvalid(AuthorizationRefused):
    """The id_token_hint is not an ID token that was issued to this application."""


class ResourceUnknown(AuthorizationRefused):
    """This client may not use this resource, or the request names more than one. Name one resource that an admin has allowed."""

    oauth_error = "invalid_target"


class ResourceNotGranted(ResourceUnknown):
    """This resource was not granted, or the request names two. Leave it out, or name the resource of the authorization request."""


class ResourceMissing(ResourceUnknown):
    """Send the API resource in the parameter resource. Applications get no tokens of their own for the API of Gatehouse."""


class ResourceScopeUnknown(AuthorizationRefused):
    """The resource has none of these scopes. Leave the scope out, or send scopes that the documentation of the API names."""

    oauth_error = "invalid_scope"


class ScopeNotGranted(Invalid):
    """These scopes were not granted. Leave the scope out, or send granted ones."""

    oauth_error = "invalid_scope"


class ScopeNotAsked(ScopeNotGranted):
    """One of these scopes is not in the authorization request. Send only scopes that the authorization request asked for."""


class SignInRequired(AuthorizationRefused):
    """The user must sign in, which prompt=none forbids."""

    oauth_error = "login_required"


class ConsentRequired(AuthorizationRefused):
    """The user must agree first, which prompt=none forbids."""

    oauth_error = "consent_required"


class AuthenticationUnmet(AuthorizationRefused):
    """The user cannot authenticate as the application requires, for example because they have no second factor."""

    oauth_error = "unmet_authentication_requirements"


class AccessDenied(AuthorizationRefused):
    """The user declined, or may not use this application."""

    oauth_error = "access_denied"


class Prompt(StrEnum):
    """The pages that the user must see, or `none` (OpenID Connect Core section 3.1.2.1, Initiating User Registration 1.0)."""

    NONE = "none"
    LOGIN = "login"
    CONSENT = "consent"
    SELECT_ACCOUNT = "select_account"
    CREATE = "create"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdRequest:
    """The parameters of a request, checked.

    `grant` is the requested grant, or None for a request of OAuth without a resource. `required_acr` must be met, while
    `wished_acr` is met if the user can. `subject` is the user that the answer must be about.
    """

    grant: OpenIdGrant | None = None
    prompt: frozenset[Prompt] = frozenset()
    max_age: timedelta | None = None
    required_acr: Acr | None = None
    wished_acr: Acr | None = None
    subject: UUID | None = None
    asked: tuple[str, ...] = ()  # the names in the scope parameter


@dataclass(frozen=True, slots=True)
class _RequestedMember:
    """One member of the parameter `claims` (section 5.5.1)."""

    is_essential: bool
    values: tuple[str, ...]


def parse(authorization: Authorization, base_url: str, hint_subject: UUID | None) -> OpenIdRequest:
    """Return the checked parameters, and the additions from the application's settings.

    `hint_subject` is the user of `id_token_hint`. A request that names an API resource needs no scope `openid`.

    Raises: the subclasses of AuthorizationRefused.
    """
    request, api = authorization.request, authorization.api
    if request.request is not None:
        raise RequestObjectRefused
    if request.request_uri is not None and not isinstance(request, PushedRequest):
        raise RequestUriRefused
    if request.registration is not None:
        raise RegistrationRefused
    if request.response_mode not in (None, *ResponseMode):
        raise ResponseModeRefused
    if request.response_type not in (None, RESPONSE_TYPE):
        raise ResponseTypeRefused
    service = authorization.service
    is_external = service is not None and service.is_external
    scope = parse_openid_scope(request.scope, authorization.context, authorization.api)
    is_openid = Scope.OPENID in scope
    if is_openid and request.response_type is None:
        raise ResponseTypeRefused("Send response_type=code.")
    if request.nonce is not None and (len(request.nonce) > MAX_NONCE_LENGTH or not is_printable(request.nonce)):
        raise NonceInvalid
    id_token, userinfo = _parse_claims(request.claims if is_openid and not is_external else None)
    asked_acr, wished_acr = _acr(request.acr_values, id_token.get("acr"))
    required_acr = _above_password(asked_acr[:1])
    if service is not None and service.required_acr is not None:
        required_acr = max((Acr(service.required_acr), required_acr or Acr.PASSWORD), key=lambda acr: acr.strength)
    if service is not None and service.enterprise:
        id_token[SESSION_EXPIRY] = _RequestedMember(is_essential=False, values=())
    grant = OpenIdGrant(
        scope=scope if is_openid else (),
        claims=RequestedClaims(_user_claims(id_token), _user_claims(userinfo)),
        resource=parse_own_resource(request.resource, base_url, is_openid=is_openid) if api is None else api.identifier,
        api=None if api is None else parse_resource_scope(request.scope, api, is_openid=is_openid),
        acr=asked_acr,
    )
    openid = OpenIdRequest(
        grant=grant if is_openid or api is not None else None,
        prompt=_parse_prompt(request.prompt),
        max_age=_parse_max_age(request.max_age),
        required_acr=required_acr,
        wished_acr=wished_acr,
        asked=asked_scopes(request.scope),
        subject=_subject(id_token.get("sub"), userinfo.get("sub"), hint_subject),
    )
    check_request(authorization)
    return openid


def parse_openid_scope(text: str | None, service: ServiceContext | None, api: ApiResource | None) -> tuple[Scope, ...]:
    """Return the known scopes in a scope parameter that the application can get.

    An external client gets the scopes in the policy of `api`.
    """
    if service is None or not service.is_external:
        return parse_scope(text)
    listed = None if api is None else api.external_clients.scopes
    refused = () if listed is None else {*USER_SCOPES} - {*listed}
    return tuple(scope for scope in parse_scope(text) if scope in EXTERNAL_SCOPES and scope not in refused)


def check_request(authorization: Authorization) -> None:
    """Check the parameters of RFC 6749 and RFC 7636, other than the redirect URI."""
    request, service = authorization.request, authorization.service
    if request.dpop_jkt is not None and not is_thumbprint(request.dpop_jkt):
        raise KeyThumbprintInvalid
    if request.state is not None and (len(request.state) > MAX_STATE_LENGTH or not is_printable(request.state)):
        raise OAuthStateInvalid
    if len(quote(request.path, safe="")) > MAX_REQUEST_LENGTH:
        raise AuthorizationRequestTooLong
    if authorization.redirect_uri is not None:
        is_required = service is not None and (service.enterprise or service.is_external)
        check_code_challenge(authorization.context, request.code_challenge, request.code_challenge_method, is_required=is_required)


def check_code_challenge(service: ServiceContext | None, challenge: str | None, method: str | None, *, is_required: bool = False) -> None:
    """Check the PKCE parameters.

    Public clients must send a challenge, and so must others if it `is_required`. The platform's
    frontend (`service` is None) is one of the public clients.
    """
    if challenge is None and method is None:
        if service is None or service.is_public or is_required:
            raise CodeChallengeMissing
    elif method != "S256" or challenge is None or not _S256_CHALLENGE.fullmatch(challenge):
        raise CodeChallengeInvalid  # a missing method would mean `plain` (RFC 7636 section 4.3)


def _parse_prompt(text: str | None) -> frozenset[Prompt]:
    """Return the prompts. Unknown prompts are refused."""
    try:
        prompt = frozenset(Prompt(name) for name in (text or "").split(" ") if name)
    except ValueError:
        raise PromptInvalid from None
    if Prompt.NONE in prompt and len(prompt) > 1:
        raise PromptInvalid
    return prompt


def _parse_max_age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise MaxAgeInvalid
    return min(timedelta(seconds=int(text)), _MAX_AGE)


def parse_own_resource(text: str | None, base_url: str, *, is_openid: bool) -> str | None:
    """Return the audience of a request without an API resource, or None for the userinfo endpoint."""
    if text is None:
        return None
    canonical = uris.normalize(text)
    if is_openid and canonical == uris.normalize(base_url + USERINFO_PATH):
        return None
    if is_openid and canonical == uris.normalize(base_url + API_PATH):
        return base_url + API_PATH
    raise ResourceUnknown


def parse_resource_scope(text: str | None, api: ApiResource, *, is_openid: bool) -> ResourceGrant:
    """Return the requested access to an API resource, with the scopes that requested ones imply.

    Scopes that it does not have are ignored, also scopes of OpenID Connect.

    Raises: ResourceScopeUnknown if no requested scope is known.
    """
    names = split_scope(text)
    scope = api.granted_scopes(names)
    if names and not scope and not is_openid:
        raise ResourceScopeUnknown
    return ResourceGrant(api.id, scope, api.token_seconds)


def _parse_claims(text: str | None) -> tuple[dict[str, _RequestedMember], dict[str, _RequestedMember]]:
    """Return the members for the ID token and for the userinfo endpoint. Unknown parts are ignored."""
    if text is None:
        return {}, {}
    if len(text) > MAX_CLAIMS_LENGTH:
        raise ClaimsInvalid
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        raise ClaimsInvalid from None
    if not isinstance(members, dict):
        raise ClaimsInvalid
    return _parse_members(members.get("id_token")), _parse_members(members.get("userinfo"))


def _parse_members(members: Any) -> dict[str, _RequestedMember]:
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise ClaimsInvalid
    return {name: _parse_member(member) for name, member in members.items() if name in _KNOWN_CLAIMS}


def _parse_member(member: Any) -> _RequestedMember:
    if member is None:
        return _RequestedMember(is_essential=False, values=())
    if not isinstance(member, dict):
        raise ClaimsInvalid
    values = member.get("values", [member["value"]] if "value" in member else [])
    if not isinstance(values, list):
        raise ClaimsInvalid
    return _RequestedMember(member.get("essential") is True, tuple(value for value in values if isinstance(value, str)))


def _user_claims(members: Mapping[str, _RequestedMember]) -> tuple[str, ...]:
    return tuple(sorted(name for name in members if name in USER_CLAIMS or name == SESSION_EXPIRY))


def _acr(acr_values: str | None, member: _RequestedMember | None) -> tuple[tuple[Acr, ...], Acr | None]:
    """Return the classes of which one must be met, the weakest first, and the wished one.

    Unknown classes are ignored, unless an unknown class must be met.
    """
    essential: tuple[str, ...] = ()
    wished = tuple((acr_values or "").split(" "))
    if member is not None and member.is_essential:
        essential = member.values
    elif member is not None and member.values:
        wished = member.values
    asked = tuple(acr for acr in Acr if acr in essential)
    if essential and not asked:
        raise AuthenticationUnmet
    return asked, _above_password(tuple(Acr(value) for value in wished if value in tuple(Acr)))


def _above_password(classes: tuple[Acr, ...]) -> Acr | None:
    """Return the first class, or None if it is always met."""
    return None if classes[:1] in ((), (Acr.PASSWORD,)) else classes[0]


def _subject(in_id_token: _RequestedMember | None, in_userinfo: _RequestedMember | None, hint_subject: UUID | None) -> UUID | None:
    """Return the user that the answer must be about. Only our ids name a user."""
    subjects = {hint_subject} if hint_subject is not None else set()
    for member in (in_id_token, in_userinfo):
        if member is not None and member.values:
            subjects.add(parse_id(member.values[0]) or UUID(int=0))
    if len(subjects) > 1:
        raise ClaimsInvalid("The parameters name different users.")
    return next(iter(subjects), None)

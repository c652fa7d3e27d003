"""Access decorators. Every route has exactly one, directly below the route decorator, so that it runs first.

Each decorator checks the rate limits (429), then the credentials (401), then the caller's rights
(404, 403). SCIM requests count per organization, after the credentials. All of this happens before
the request is parsed. The module is longer than 400 lines, because all decorators share
these steps.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache, partial, wraps
from typing import Any, Final, TypedDict, Unpack, cast, overload
from urllib.parse import urlencode

import trio
from quart import Response, g, request
from werkzeug.datastructures import Headers

from core.applications import api_keys
from core.applications.model import api_keys as api_keys_model
from core.authentication import browser, callers, impersonation
from core.authentication.model.dpop import NonceMissing, NonceRequired, PresentedToken, ProofInvalid, ProofRefused
from core.authentication.model.reauthentication import KeptFormEnded
from core.authentication.tokens import signing_keys
from core.billing.model import provider_events
from core.eventing import refusals
from core.eventing.refusals import RefusedChange
from core.kernel.access import (
    AddressNotVerified,
    NotAPlatformOwner,
    NotForApplications,
    NotWhileImpersonating,
    NotWithOpenId,
    OwnMembershipNotConfirmed,
    Requirement,
    require_sign_in,
)
from core.kernel.api_scopes import Area, find_scope, scope_of
from core.kernel.callers import Person, ScimClient, ServiceAccountCaller
from core.kernel.errors import Refusal, SessionEnded, Unauthenticated, refuse
from core.kernel.page_paths import ACCOUNT_PATH, ORGANIZATIONS_PATH, SIGN_IN_PATH
from core.kernel.rate_limits import BILLING, Bucket
from core.kernel.roles import GRANTABLE, Capability, Permission
from core.kernel.sign_in_age import SignInAge, SignInNotRecent
from entrypoints.http.edge.context import agent, anonymous, app_context, caller, current_request, ports, request_record, requested_path
from entrypoints.http.edge.cookies import session_cookie
from entrypoints.http.edge.directory.log import authenticate_directory
from entrypoints.http.edge.limits import take_directory_token, take_token
from entrypoints.http.edge.proofs import read_proof
from entrypoints.http.edge.protocol.connection import LazyBody
from entrypoints.http.edge.queries import check_query, repeatable_parameters
from entrypoints.http.edge.reauthentication import to_ended_form, to_reauthentication

View = Callable[..., Awaitable[Any]]
Authenticate = Callable[["Access"], Awaitable[Response | None]]


class ApplicationTokens(Enum):
    """The access tokens of applications that a route accepts (security J-9)."""

    NONE = auto()
    WITHOUT_OPENID = auto()  # no scope of OpenID Connect gives what the response has
    ALL = auto()  # the response leaves out what the scopes of the token do not give


@dataclass(frozen=True, slots=True)
class Access:
    """The access rule of a route. `security` is the security scheme of the API description, None without credentials."""

    name: str
    security: str | None = None
    optional: bool = False  # the credentials may be missing
    or_cookie: bool = False  # the session cookie of our pages is accepted too
    limited: bool = True  # before anything else; the view of a route without it decides which limit counts
    limit: Bucket | tuple[Bucket, ...] = ()  # the route's own limits, in addition to those of its path
    # The effect or the response gives or takes access, secrets or connections, also after an
    # impersonation, which is refused (security I-4).
    outlives: bool | None = None
    verified: bool = False  # requires a verified email address
    capability: Capability | None = None  # required of a member of the organization in the path
    inactive: bool = False  # the organization need not be active
    applications: ApplicationTokens = ApplicationTokens.NONE
    permission: Permission | None = None  # required of an API key
    needs_person: bool = False  # a user with a session, and not a service account or a personal access token
    only_users: bool = False  # needs a person because it acts on the user who calls, so that no grant opens it
    area: Area | None = None  # of the scope that tokens with scopes need, if no capability names the area
    # The sign-in that the route needs. None: a recent one for a change that outlives the session, else any.
    sign_in: SignInAge | None = None

    @property
    def limits(self) -> tuple[Bucket, ...]:
        """Return the limits as a tuple."""
        return (self.limit,) if isinstance(self.limit, Bucket) else self.limit

    @property
    def is_of_api(self) -> bool:
        """Return whether the route is part of our own API, which is a protected resource (RFC 9728)."""
        return self.security == "bearer" and self.name != "pre_auth"

    @property
    def is_of_platform(self) -> bool:
        """Return whether only platform owners can use the route."""
        return self.name in ("platform_owner", "platform_page")

    @property
    def opens_to_service_accounts(self) -> bool:
        """Return whether a service account can use the route, at least if an owner granted it the capability by name."""
        if self.capability is None or self.only_users:
            return False
        return self.capability in GRANTABLE or not (self.needs_person or self.outlives)

    @property
    def opens_to_personal_tokens(self) -> bool:
        """Return whether a personal access token can use the route."""
        is_of_platform = self.capability is not None and self.capability.is_of_platform
        return not (self.needs_person or is_of_platform)

    def sign_in_age(self, method: str) -> SignInAge:
        """Return the sign-in that a request with this method needs."""
        if self.sign_in is not None:
            return self.sign_in
        return SignInAge.RECENT if self.outlives and method not in SAFE_METHODS else SignInAge.ANY

    def requirement(self, method: str) -> Requirement:
        """Return the requirement on a caller who sends a request with this method.

        Its scope is that of the challenge, of the API description and of docs/reference/scopes.md.
        """
        return _requirement(self, method not in SAFE_METHODS)


@cache
def _requirement(access: Access, changes: bool) -> Requirement:
    scope = None
    if access.opens_to_service_accounts or access.opens_to_personal_tokens:
        if access.area is not None:
            scope = find_scope(access.area, changes=changes)
        elif access.capability is not None:
            scope = scope_of(access.capability, changes=changes)
    return Requirement(
        capability=access.capability,
        scope=scope,
        inactive=access.inactive,
        needs_person=access.needs_person,
        outlives=bool(access.outlives),
    )


class NotSignedIn(Unauthenticated):
    """Sign in first. Send an access token, or open this page in a browser and sign in there."""


ACCESS_ATTRIBUTE: Final = "_access_rule"
METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
FAILURE_RECORDED_WITHIN: Final = 5  # seconds
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# The header that Stripe uses, so that Stripe can call this endpoint directly.
SIGNATURE_OF_STRIPE: Final = "Stripe-Signature"


class Changes(TypedDict, total=False):
    """The parts of an access rule that a single route can change."""

    limited: bool
    limit: Bucket | tuple[Bucket, ...]
    outlives: bool
    applications: ApplicationTokens
    needs_person: bool
    area: Area
    sign_in: SignInAge


class AccessDecorator:
    """A decorator such as `@anyone`. `@anyone(limit=LOGIN)` changes parts of its access rule for one route."""

    def __init__(self, access: Access, authenticate: Authenticate) -> None:
        """Create a decorator. `authenticate` identifies and authorizes the caller, or returns a redirect."""
        self._access = access
        self._authenticate = authenticate

    @overload
    def __call__(self, view: View, /) -> View: ...
    @overload
    def __call__(self, /, **changes: Unpack[Changes]) -> Callable[[View], View]: ...
    def __call__(self, view: View | None = None, /, **changes: Unpack[Changes]) -> View | Callable[[View], View]:
        if view is not None:
            return _guard(view, self._access, self._authenticate)
        return AccessDecorator(replace(self._access, **changes), self._authenticate)


def _guard(view: View, access: Access, authenticate: Authenticate) -> View:
    listed = repeatable_parameters(view)

    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await run_audited(*args, **kwargs)
        except BaseException:  # also a cancellation, because the body was too slow or too large
            if "impersonation_entry" in g:
                with trio.fail_after(FAILURE_RECORDED_WITHIN, shield=True):
                    await impersonation.record_failure(ports(), g.impersonation_entry)
            raise

    async def run_audited(*args: Any, **kwargs: Any) -> Any:
        try:
            return await run(*args, **kwargs)
        except Refusal as refusal:
            if refusal.audited and request.method not in SAFE_METHODS:
                arguments = {name: value for name, value in (request.view_args or {}).items() if name != "org_slug"}
                change = RefusedChange(request.method, request_record().route, arguments)
                await refusals.record(ports(), g.get("caller"), change, refusal)
            raise

    async def run(*args: Any, **kwargs: Any) -> Any:
        if access.limited:
            await take_token(access.limits)
        try:
            return await respond(*args, **kwargs)
        except SessionEnded:
            if access.security != "cookie":
                raise
            return to_sign_in()  # the session ended during the request
        except KeptFormEnded:
            return await to_ended_form()

    async def respond(*args: Any, **kwargs: Any) -> Any:
        try:
            redirect = await authenticate(access)
            if redirect is not None:
                return redirect
            check_query(listed)
            client = caller()
            if isinstance(client, ScimClient):
                body = cast("LazyBody", request.body)
                with app_context().directory_turns.admit(client.org_id) as turns:
                    if request.method in METHODS_WITH_BODY and request.is_json and not body.is_large:
                        await body  # before the turn: slow clients must not stop the other requests of their organization
                    async with turns:
                        return await view(*args, **kwargs)
            return await view(*args, **kwargs)
        except SignInNotRecent:  # of the route, or of a part of it that the view knows
            if access.security != "cookie":
                raise
            return await to_reauthentication()

    # The value contains the function: `functools.wraps` copies attributes, so a plain mark would
    # also appear on every decorator around this one.
    setattr(guarded, ACCESS_ATTRIBUTE, (guarded, access))
    return guarded


async def _as_anyone(_: Access) -> None:
    g.caller = anonymous()


def bearer_token(headers: Headers | None = None) -> str:
    """Return the token of the Authorization header. Tokens are accepted nowhere else (security J-7).

    Raises: Unauthenticated.
    """
    scheme, _, token = (current_request().headers if headers is None else headers).get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated
    return token


async def presented_token() -> PresentedToken:
    """Return the access token of the request: with the scheme Bearer, or with the scheme DPoP and a proof (RFC 9449 section 7).

    Raises: Unauthenticated, ProofRefused, NonceRequired.
    """
    scheme, _, token = current_request().headers.get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "dpop" or not token:
        return PresentedToken(bearer_token())
    try:
        proof = await read_proof(token)
    except ProofInvalid as refusal:
        raise ProofRefused(refusal.message) from None
    except NonceMissing as refusal:
        raise NonceRequired(refusal.nonce) from None
    return PresentedToken(token, proof or refuse(ProofRefused("Send a DPoP proof together with the access token.")))


def _required(access: Access) -> Requirement:
    return access.requirement(current_request().method)


async def _as_person(access: Access, *, allow_former_users: bool = False) -> None:
    user = await callers.authenticate(
        ports(),
        await presented_token(),
        _required(access),
        address=request_record().address,
        agent=agent(),
        allow_former_users=allow_former_users,
    )
    _record_organization(user)
    await _authorize_user(user, access)


async def _as_person_with_profile(access: Access) -> None:
    user, g.own_profile = await callers.authenticate_with_profile(
        ports(), await presented_token(), _required(access), address=request_record().address, agent=agent()
    )
    _record_organization(user)
    await _authorize_user(user, access)


def _record_organization(user: Person) -> None:
    if user.organization is not None:
        request_record().organization = user.organization.slug
    elif user.service is not None:
        request_record().organization = user.service.org_slug


async def _as_person_if_present(access: Access) -> None:
    if "Authorization" in request.headers:
        await _as_person(access, allow_former_users=True)
    else:
        g.caller = anonymous()


async def _as_pre_auth(_: Access) -> None:
    claims = await signing_keys.read_pre_auth(ports(), bearer_token())
    request_record().caller = str(claims.user_id)
    g.pre_auth = claims
    g.caller = anonymous()  # the user is not signed in until the second factor is verified


async def _as_browser(access: Access, load: Callable[..., Awaitable[Person]] = browser.authenticate) -> Response | None:
    cookie = session_cookie()
    if cookie is None:
        return to_sign_in()
    try:
        user = await load(ports(), cookie, address=request_record().address, agent=agent())
    except SessionEnded:
        return to_sign_in()
    await _authorize_user(user, access)
    return None


_as_console_user = partial(_as_browser, load=browser.authenticate_in_console)


async def _as_browser_of_platform_owner(access: Access) -> Response | None:
    return await _as_console_user(access)


async def _as_browser_of_member(access: Access) -> Response | None:
    assert access.capability is not None, "the access of a member has a capability"
    cookie, slug = session_cookie(), (request.view_args or {})["org_slug"]
    if cookie is None:
        return to_sign_in()
    request_record().organization = slug
    try:
        user = await browser.authenticate_member(
            ports(), cookie, slug, access.capability, inactive=access.inactive, address=request_record().address, agent=agent()
        )
    except SessionEnded:
        return to_sign_in()
    except OwnMembershipNotConfirmed:
        return Response(b"", 303, {"Location": ORGANIZATIONS_PATH, "Cache-Control": "no-store"})
    await _authorize_user(user, access)
    return None


async def _as_person_or_browser(access: Access) -> Response | None:
    if "Authorization" in request.headers:
        await _as_person(access, allow_former_users=True)
        return None
    redirect = await _as_browser(access)
    if redirect is not None and (request.method != "GET" or "text/html" not in request.accept_mimetypes.values()):
        raise NotSignedIn
    return redirect


def to_sign_in() -> Response:
    """Return a redirect to the sign-in page, which leads back here. The data of a submitted form is lost."""
    target = requested_path() if request.method in ("GET", "HEAD") else ACCOUNT_PATH
    return Response(b"", 303, {"Location": f"{SIGN_IN_PATH}?{urlencode({'next': target})}", "Cache-Control": "no-store"})


async def _as_member(access: Access) -> None:
    assert access.capability is not None, "the access of a member has a capability"
    slug = (request.view_args or {})["org_slug"]
    request_record().organization = slug
    user = await callers.authenticate_member(
        ports(), await presented_token(), slug, _required(access), address=request_record().address, agent=agent()
    )
    await _authorize(user, access)


async def _as_platform_owner(access: Access) -> None:
    user = await callers.authenticate_on_platform(
        ports(), await presented_token(), _required(access), address=request_record().address, agent=agent()
    )
    if isinstance(user, Person):
        _record_organization(user)
    await _authorize(user, access)


async def _as_service_key(access: Access) -> None:
    assert access.permission is not None, "the access of an API key has a permission"
    # API keys are accepted only in this header.
    key = request.headers.get("X-Api-Key") or refuse(api_keys_model.ApiKeyInvalid)
    program = await api_keys.authenticate(ports(), key, access.permission, address=request_record().address, agent=agent())
    request_record().caller, request_record().organization = str(program.key_id), program.service.org_slug
    g.caller = program


async def _as_scim_client(_: Access) -> None:
    directory = await authenticate_directory(bearer_token())
    request_record().caller, request_record().organization = str(directory.token_id), directory.org_slug
    g.caller = directory
    # First without a statement: refusing large bodies must be cheap.
    cast("LazyBody", request.body).admit_with(partial(app_context().large_bodies.admit, directory.org_id))
    await take_directory_token(directory.org_id)


async def _as_billing(_: Access) -> None:
    headers = request.headers
    header = headers.get("billing-signature") or headers.get(SIGNATURE_OF_STRIPE)
    raw = bytes(await request.get_data(as_text=False, parse_form_data=False))  # type: ignore[arg-type]  # bytes, because as_text is False
    provider_events.verify(app_context().billing_secrets, header, raw, ports().clock.now())
    request_record().caller = "billing"
    g.caller = anonymous()


async def _authorize(user: Person | ServiceAccountCaller, access: Access) -> None:
    if isinstance(user, Person):
        await _authorize_user(user, access)
    else:  # `callers` has checked its rights
        request_record().caller = str(user.account_id)
        g.caller = user


async def _authorize_user(user: Person, access: Access) -> None:
    request_record().caller = str(user.user_id)
    if user.impersonator_id is not None:
        request_record().impersonator = str(user.impersonator_id)
        g.impersonation_entry = await impersonation.record_request(
            ports(), user, request.method, request_record().route, request.view_args or {}
        )
    if user.service is not None and access.applications is ApplicationTokens.NONE:
        raise NotForApplications
    if user.openid_scope and access.applications is ApplicationTokens.WITHOUT_OPENID:
        raise NotWithOpenId
    if user.impersonator_id is not None and access.outlives:
        raise NotWhileImpersonating
    if access.is_of_platform and not user.is_platform_owner:
        raise NotWhileImpersonating if user.impersonator_id is not None else NotAPlatformOwner
    if access.verified and not user.email_verified:
        raise AddressNotVerified
    g.caller = user
    require_sign_in(user, access.sign_in_age(current_request().method), ports().policy, ports().clock.now())


anyone = AccessDecorator(Access("anyone"), _as_anyone)
# OAuth clients. The body names the client; the route authenticates it and counts its requests.
application = AccessDecorator(Access("application", limited=False), _as_anyone)
# Health checks and metrics. They have no rate limit, so that load balancers and scrapers always get
# a response.
operations = AccessDecorator(Access("operations", limited=False), _as_anyone)
person = AccessDecorator(Access("person", "bearer"), _as_person)
# The statement that reads the session also reads the profile, for `own_profile()`.
person_with_profile = AccessDecorator(Access("person", "bearer"), _as_person_with_profile)
# The organization of a token is only context. Routes outside organizations, such as
# signing out, must work even if the user has left the organization of the token.
person_anywhere = AccessDecorator(Access("person_anywhere", "bearer"), partial(_as_person, allow_former_users=True))
verified_person = AccessDecorator(Access("verified_person", "bearer", verified=True), partial(_as_person, allow_former_users=True))
# The token may be missing. If one is sent, it must be valid.
person_if_present = AccessDecorator(Access("person_if_present", "bearer", optional=True), _as_person_if_present)

# Signed-in users with an access token, or with the session cookie of our pages. Forms of our pages
# carry a form token; a GET must be safe to open from any page. It redirects to the sign-in page.
person_or_browser = AccessDecorator(Access("person_or_browser", "bearer", or_cookie=True), _as_person_or_browser)
# A pending sign-in, with its pre-auth token (security J-8).
pre_auth = AccessDecorator(Access("pre_auth", "bearer", outlives=False), _as_pre_auth)
# The payment provider, authenticated by the signature over the raw body (security H-1).
signed_by_billing = AccessDecorator(Access("signed_by_billing", "billing_signature", limit=BILLING), _as_billing)
# A directory with a SCIM token. Its requests count per organization, after authentication.
scim_client = AccessDecorator(Access("scim_client", "scim_token"), _as_scim_client)
# A browser with a session on our pages. Other browsers are redirected to the sign-in page. In the
# console, a platform owner can act as another user; the pages of a sign-in know only the browser's own user.
sign_in_session = AccessDecorator(Access("sign_in_session", "cookie"), _as_browser)
page_session = AccessDecorator(Access("page_session", "cookie"), _as_console_user)
platform_page = AccessDecorator(Access("platform_page", "cookie", outlives=True), _as_browser_of_platform_owner)


def member(
    capability: Capability,
    *,
    outlives: bool | None = None,
    inactive: bool = False,
    needs_person: bool = False,
    only_users: bool = False,
    sign_in: SignInAge | None = None,
) -> AccessDecorator:
    """Return the decorator for members and service accounts of the organization `<org_slug>` with the capability."""
    access = Access(
        "member",
        "bearer",
        capability=capability,
        outlives=outlives,
        inactive=inactive,
        needs_person=needs_person or only_users,
        only_users=only_users,
        sign_in=sign_in,
    )
    return AccessDecorator(access, _as_member)


def platform_owner(
    capability: Capability,
    *,
    outlives: bool | None = None,
    needs_person: bool = False,
    limit: Bucket | tuple[Bucket, ...] = (),
    sign_in: SignInAge | None = None,
) -> AccessDecorator:
    """Return the decorator for platform owners, and for service accounts of the platform with a scope for the capability."""
    access = Access(
        "platform_owner", "bearer", capability=capability, outlives=outlives, needs_person=needs_person, limit=limit, sign_in=sign_in
    )
    return AccessDecorator(access, _as_platform_owner)


def member_page(
    capability: Capability, *, outlives: bool | None = None, inactive: bool = False, sign_in: SignInAge | None = None
) -> AccessDecorator:
    """Return the decorator for browsers of members who have the capability in the organization `<org_slug>`.

    Other browsers are redirected to the sign-in page, and members who have not confirmed their
    membership to the page on which they can. The rule is that of the API's route that does the same.
    """
    access = Access("member_page", "cookie", capability=capability, outlives=outlives, inactive=inactive, sign_in=sign_in)
    return AccessDecorator(access, _as_browser_of_member)


def service_key(permission: Permission) -> AccessDecorator:
    """Return the decorator for API keys with the permission."""
    return AccessDecorator(Access("service_key", "api_key", permission=permission), _as_service_key)


def access_of(view: Callable[..., Any]) -> Access:
    """Return the access rule of a registered view.

    Raises: ValueError unless the view has exactly one access decorator, which is the outermost decorator.
    """
    rules_found: list[tuple[Callable[..., Any], Access]] = []
    layer: Callable[..., Any] | None = view
    while layer is not None:
        guarded, access = layer.__dict__.get(ACCESS_ATTRIBUTE, (None, None))
        if guarded is layer:
            rules_found.append((layer, access))
        layer = getattr(layer, "__wrapped__", None)
    if not rules_found:
        raise ValueError("it has no access decorator")
    if len(rules_found) > 1:
        raise ValueError("it has more than one access decorator")
    [(outermost, access)] = rules_found
    if outermost is not view:
        raise ValueError("its access decorator is not the outermost one")
    return access

"""Who may call what: exactly one of these decorators stands on every route, right below it, so that it runs first.

They are the table of access. Each takes the rate limits first (429), then the credentials (401), then what they allow (404, 403), and
all of that before anything of the request is parsed (decisions, point 16).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final, TypedDict, Unpack, overload
from urllib.parse import urlencode

from quart import Quart, Response, g, request
from werkzeug.datastructures import Headers

from core.applications import api_keys, api_keys_rules
from core.authentication import browser, impersonation, sessions, signing_keys
from core.billing import provider_events_rules
from core.kernel import principals as rules
from core.kernel.errors import SessionEnded, Unauthenticated, refuse
from core.kernel.principals import Capability, NotAPlatformOwner, Permission, Person
from core.kernel.rate_limits import BILLING, Bucket
from core.provisioning import tokens as scim_tokens
from entrypoints.http.edge.bodies import check_query
from entrypoints.http.edge.context import agent, anonymous, app_context, ports, request_record, signed_in
from entrypoints.http.edge.cookies import session_cookie
from entrypoints.http.edge.limits import admit

View = Callable[..., Awaitable[Any]]
Enter = Callable[["Access"], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of its caller. `security` names the scheme of the interface description, if it asks for credentials."""

    name: str
    security: str | None = None
    optional: bool = False  # the credentials
    or_cookie: bool = False  # whether the cookie of a browser on our own pages is as good
    limited: bool = True
    limit: Bucket | tuple[Bucket, ...] = ()  # the route's own, besides those of its address
    impersonated: bool = True  # whether somebody who impersonates the caller may do it, too (security.md I-4)
    verified: bool = False  # whether the caller's email address must be
    capability: Capability | None = None  # of a member, in the organization of the path
    inactive: bool = False  # whether that organization may be anything but active
    applications: bool = False  # whether an application may do it with the token that it has of a person (security.md J-9)
    permission: Permission | None = None  # of an API key

    @property
    def limits(self) -> tuple[Bucket, ...]:
        return (self.limit,) if isinstance(self.limit, Bucket) else self.limit


class NotSignedIn(Unauthenticated):
    """Sign in first: send an access token, or open this page again in a browser and sign in there."""


SIGN_IN: Final = "/app/sign-in"
ACCOUNT: Final = "/app/account"
GUARDED_BY: Final = "_guarded_by"
# Where those have it whose language the payment provider speaks, so that they can be pointed at us without anybody in between.
SIGNATURE_OF_STRIPE: Final = "Stripe-Signature"


class Changes(TypedDict, total=False):
    """In what a route may differ from others of its kind."""

    limit: Bucket | tuple[Bucket, ...]
    impersonated: bool
    applications: bool


class AccessDecorator:
    """Stands on a route as `@anyone`, or as `@anyone(limit=LOGIN)` where the route differs from others of its kind."""

    def __init__(self, access: Access, enter: Enter) -> None:
        """`enter` finds out who calls and whether they may, or has an answer for whoever must go elsewhere first."""
        self._access = access
        self._enter = enter

    @overload
    def __call__(self, view: View, /) -> View: ...
    @overload
    def __call__(self, /, **changes: Unpack[Changes]) -> Callable[[View], View]: ...
    def __call__(self, view: View | None = None, /, **changes: Unpack[Changes]) -> View | Callable[[View], View]:
        if view is not None:
            return _guard(view, self._access, self._enter)
        return AccessDecorator(replace(self._access, **changes), self._enter)


def _guard(view: View, access: Access, enter: Enter) -> View:
    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        if access.limited:
            await admit(access.limits)
        elsewhere = await enter(access)
        if elsewhere is not None:
            return elsewhere
        check_query()
        try:
            return await view(*args, **kwargs)
        except SessionEnded:
            if access.security != "cookie":
                raise
            return to_sign_in()  # it ended meanwhile

    # Keyed by the function itself: `functools.wraps` copies attributes outward, so a mere mark would also show on whatever
    # another decorator wrapped around this one.
    setattr(guarded, GUARDED_BY, (guarded, access))
    return guarded


async def _as_anybody(_: Access) -> None:
    g.caller = anonymous()


def bearer_token(headers: Headers | None = None) -> str:
    """The token of the Authorization header, which is the only place one is taken from (security.md J-7)."""
    scheme, _, token = (request.headers if headers is None else headers).get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated
    return token


async def _as_person(access: Access, *, anywhere: bool = False) -> None:
    found = await sessions.authenticate(ports(), bearer_token(), address=request_record().address, agent=agent(), anywhere=anywhere)
    await _let_in(found, access)
    if found.organization is not None:
        request_record().organization = found.organization.slug
    elif found.service is not None:
        request_record().organization = found.service.org_slug


async def _as_person_if_present(access: Access) -> None:
    if "Authorization" in request.headers:
        await _as_person(access, anywhere=True)
    else:
        g.caller = anonymous()


async def _as_pre_auth(_: Access) -> None:
    claims = await signing_keys.read_pre_auth(ports(), bearer_token())
    request_record().caller = str(claims.user_id)
    g.pre_auth = claims
    g.caller = anonymous()  # until the second factor is shown, nobody is signed in


async def _as_browser(_: Access) -> Response | None:
    cookie = session_cookie()
    if cookie is None:
        return to_sign_in()
    try:
        found = await browser.authenticate(ports(), cookie, address=request_record().address, agent=agent())
    except SessionEnded:
        return to_sign_in()
    request_record().caller = str(found.user_id)
    g.caller = found
    return None


async def _as_person_or_browser(access: Access) -> None:
    if "Authorization" in request.headers:
        await _as_person(access, anywhere=True)
    elif await _as_browser(access) is not None:
        raise NotSignedIn


def to_sign_in() -> Response:
    """Whoever is not signed in does that first, and comes back; a form that was sent meanwhile is not sent again."""
    query = request.query_string.decode("ascii", "replace")
    wanted = (f"{request.path}?{query}" if query else request.path) if request.method in ("GET", "HEAD") else ACCOUNT
    return Response(b"", 303, {"Location": f"{SIGN_IN}?{urlencode({'next': wanted})}", "Cache-Control": "no-store"})


async def _as_member(access: Access) -> None:
    assert access.capability is not None, "a member's access names one"
    slug = (request.view_args or {})["org_slug"]
    request_record().organization = slug
    found = await sessions.authenticate_member(
        ports(), bearer_token(), slug, access.capability, inactive=access.inactive, address=request_record().address, agent=agent()
    )
    await _let_in(found, access)


async def _as_platform_owner(access: Access) -> None:
    await _as_person(access, anywhere=True)
    if not signed_in().is_platform_owner:
        raise NotAPlatformOwner


async def _as_service_key(access: Access) -> None:
    assert access.permission is not None, "a key's access names one"
    # The one header that is looked at (decisions, point 120).
    key = request.headers.get("X-Api-Key") or refuse(api_keys_rules.ApiKeyInvalid)
    found = await api_keys.authenticate(ports(), key, access.permission, address=request_record().address, agent=agent())
    request_record().caller, request_record().organization = str(found.key_id), found.service.org_slug
    g.caller = found


async def _as_scim_client(_: Access) -> None:
    found = await scim_tokens.authenticate(ports(), bearer_token(), address=request_record().address, agent=agent())
    request_record().caller, request_record().organization = str(found.token_id), found.org_slug
    g.caller = found


async def _as_billing(_: Access) -> None:
    headers = request.headers
    header = headers.get("billing-signature") or headers.get(SIGNATURE_OF_STRIPE)
    raw = bytes(await request.get_data(as_text=False, parse_form_data=False))  # type: ignore[arg-type]  # never text, so asked
    provider_events_rules.verify(app_context().billing_secrets, header, raw, ports().clock.now())
    request_record().caller = "billing"
    g.caller = anonymous()


async def _let_in(found: Person, access: Access) -> None:
    request_record().caller = str(found.user_id)
    if found.impersonator_id is not None:
        request_record().impersonator = str(found.impersonator_id)
        await impersonation.record_request(ports(), found, request.method, request_record().route, request.view_args or {})
    if found.service is not None and not access.applications:
        raise rules.NotForApplications
    if found.impersonator_id is not None and not access.impersonated:
        raise rules.NotWhileImpersonating
    if access.verified and not found.email_verified:
        raise rules.AddressNotVerified
    g.caller = found


anyone = AccessDecorator(Access("anyone"), _as_anybody)
# An application, which says in the body which one it is; the route finds out, and counts it (decisions, point 100).
application = AccessDecorator(Access("application", limited=False), _as_anybody)
# Load balancers and scrapers must always get an answer (organizations.md section 4.11).
operations = AccessDecorator(Access("operations", limited=False), _as_anybody)
person = AccessDecorator(Access("person", "bearer"), _as_person)
# The organization of a token is only context (decisions, point 54): what is beside all organizations, ending one's own session above all,
# must work even where that one does not let its holder in any more.
person_anywhere = AccessDecorator(Access("person_anywhere", "bearer"), partial(_as_person, anywhere=True))
verified_person = AccessDecorator(Access("verified_person", "bearer", verified=True), partial(_as_person, anywhere=True))
# Whoever sends no token is anybody; one that is sent must be good.
person_if_present = AccessDecorator(Access("person_if_present", "bearer", optional=True), _as_person_if_present)
platform_owner = AccessDecorator(Access("platform_owner", "bearer", impersonated=False), _as_platform_owner)


# Whoever has signed in, in a program or in a browser on our own pages, whose forms have to show that they are ours.
person_or_browser = AccessDecorator(Access("person_or_browser", "bearer", or_cookie=True), _as_person_or_browser)
# A sign-in that waits for the second factor (security.md J-8).
pre_auth = AccessDecorator(Access("pre_auth", "bearer"), _as_pre_auth)
# The payment provider, by the signature of the very bytes that it sends (security.md H-1).
signed_by_billing = AccessDecorator(Access("signed_by_billing", "billing_signature", limit=BILLING), _as_billing)
# A directory, with a SCIM token of its organization.
scim_client = AccessDecorator(Access("scim_client", "scim_token"), _as_scim_client)
# A browser that is signed in on our own pages; another one is sent to sign in.
page_session = AccessDecorator(Access("page_session", "cookie"), _as_browser)


def member(capability: Capability, *, impersonated: bool = True, inactive: bool = False) -> AccessDecorator:
    """For members of the organization `<org_slug>` of the path whose role has the capability."""
    access = Access("member", "bearer", capability=capability, impersonated=impersonated, inactive=inactive)
    return AccessDecorator(access, _as_member)


def service_key(permission: Permission) -> AccessDecorator:
    """For programs with an API key that has the permission."""
    return AccessDecorator(Access("service_key", "api_key", permission=permission), _as_service_key)


def access_of(view: Callable[..., Any]) -> Access:
    """The access of a registered view. Raises ValueError unless exactly one access decorator is there, and outermost."""
    found: list[tuple[Callable[..., Any], Access]] = []
    layer: Callable[..., Any] | None = view
    while layer is not None:
        guarded, access = layer.__dict__.get(GUARDED_BY, (None, None))
        if guarded is layer:
            found.append((layer, access))
        layer = getattr(layer, "__wrapped__", None)
    if not found:
        raise ValueError("it has no access decorator")
    if len(found) > 1:
        raise ValueError("it has more than one access decorator")
    [(outermost, access)] = found
    if outermost is not view:
        raise ValueError("its access decorator is not the outermost one")
    return access


def check_every_route(app: Quart) -> None:
    """Refuse to start with a route that does not say who may call it. Raises ValueError naming the routes."""
    wrong = []
    for rule in app.url_map.iter_rules():
        try:
            access_of(app.view_functions[rule.endpoint])
        except ValueError as error:
            wrong.append(f"{rule.rule}: {error}")
    if wrong:
        raise ValueError("; ".join(sorted(wrong)))

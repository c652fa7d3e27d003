"""The end of every sign-in: tokens for an API client, or the cookie of a browser session.

`prove` verifies the factors. This is in the area of federation because a sign-in can continue an OAuth
request or a SAML sign-on.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from core.accounts import passkeys
from core.accounts.model.devices import PresentedDevice
from core.authentication import admissions, joining
from core.authentication.admissions import UserSession
from core.authentication.flow.facts import opened_by
from core.authentication.flow.methods import SignInMethod
from core.authentication.flow.model import Flow, FlowEnded, FlowTarget, new_flow
from core.authentication.flow.prove import confirm_membership_if_admitted, prove
from core.authentication.joining import InvitationSignIn
from core.authentication.methods import second_factor
from core.authentication.model import login
from core.authentication.model.policy import DueEnrollment, PolicyPlace
from core.authentication.model.sessions import TokenPair
from core.authentication.service_access import find_password_service
from core.authentication.session_start import issue_first_tokens
from core.authentication.sessions import end_replaced
from core.federation import targets
from core.federation.connections import people, platform_requests
from core.federation.connections.routing import KnownRoutes
from core.federation.destination import Destination
from core.federation.oauth.model.authorization import OrgOrServiceMissing
from core.federation.oauth.model.client_registration import SealedClientInvalid
from core.federation.saml import target as saml_target
from core.kernel import proofs
from core.kernel.callers import ServiceContext
from core.kernel.causes import Caller
from core.kernel.claims import PreAuthClaims
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Invalid
from core.kernel.sign_in_policy.rules import PROVIDER_PREFIX, Concerned, Rules
from core.tenancy import branding
from core.tenancy.model.settings import Design
from ports import Ports


class SamlStateAndService(Invalid):
    """A SAML sign-on already names its application. Send saml_state without org_slug and service_slug."""


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """The target of a sign-in over the API: a service, a pending SAML sign-on, or, without either, the platform itself."""

    org_slug: str | None = None
    service_slug: str | None = None
    saml_state: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ApiSignIn:
    """The tokens of a completed sign-in over the API.

    With `device_token`, the device can skip the second factor for a while. `next_path` is the path
    where the browser of a pending SAML sign-on continues, or None for other sign-ins. `enrollment` is the
    factor that the sign-in policy of the application requires later, if any.
    """

    tokens: TokenPair
    device_token: str | None = field(repr=False)
    next_path: str | None = field(repr=False)
    enrollment: DueEnrollment | None = None


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """The session cookie of a completed sign-in on our pages. With `device_token`, the device can skip the second factor for a while."""

    cookie: str = field(repr=False)
    expires_at: datetime  # UTC
    device_token: str | None = field(repr=False)
    offers_passkey: bool = False  # a page offers to create a passkey first
    is_linked: bool | None = None  # whether the user's account was linked to a connection; None: the user agreed to no link


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInOptions:
    """The contents of a sign-in page. It offers only ways that the sign-in policies and the request of the application accept.

    Where these are neither passwords nor emails, a user may have none of them yet. Then the page has the other ways, too, folded:
    the user signs in with one, and sets a passkey up (security SP-5).
    """

    destination: Destination
    providers: list[ConnectionSlug]  # the available identity providers
    design: Design | None  # of the service's organization
    email_sign_in: bool  # whether users can sign in by email
    password: bool = True
    passkey: bool = True
    password_at_sign_up: bool = True  # the application accepts the password that a new user chooses
    is_folded: bool = False  # passwords and emails are not accepted
    folded_providers: list[ConnectionSlug] = field(default_factory=list)
    hides_providers: bool = False  # some cannot ask their users again, which this sign-in needs


# Over the API


async def sign_in_over_api(
    ports: Ports, caller: Caller, method: SignInMethod, target: ApiTarget, client: PresentedDevice
) -> ApiSignIn | login.PreAuthToken:
    """Verify one factor, and return tokens, or a pre-auth token if the second factor is still required."""
    service = await check_target(ports, target)
    waiting = service if target.saml_state is None else await saml_target.find_service(ports, target.saml_state)
    org_id, service_id = (None, None) if waiting is None else (waiting.org_id, waiting.id)
    flow = new_flow(ports.clock.now(), FlowTarget.API, target.saml_state or "", org_id=org_id, service_id=service_id, service=service)
    return await continue_over_api(ports, caller, flow, method, client)


async def complete_over_api(
    ports: Ports, caller: Caller, claims: PreAuthClaims, second: second_factor.Code | second_factor.SecondPasskey, client: PresentedDevice
) -> ApiSignIn:
    """Verify the second factor of the flow with this pre-auth token."""
    if claims.saml_state is not None:
        await saml_target.check_pending(ports, claims.saml_state)
    flow = Flow(
        id=claims.id,
        browser_hash=None,
        target=FlowTarget.API,
        request=claims.saml_state or "",
        user_id=claims.user_id,
        begun_at=claims.issued_at,
        expires_at=claims.expires_at,
    )
    outcome = await continue_over_api(ports, caller, flow, second, client)
    assert isinstance(outcome, ApiSignIn), "a second factor is the last one"
    return outcome


async def continue_over_api(
    ports: Ports, caller: Caller, flow: Flow, method: SignInMethod, client: PresentedDevice
) -> ApiSignIn | login.PreAuthToken:
    """Verify one factor of an API client's flow."""
    outcome = await prove(ports, caller, flow, method, client)
    if isinstance(outcome, Flow):
        return _pre_auth_token(ports, outcome, await second_factor.load_options(ports, caller, outcome, client))
    next_path = await saml_target.complete_sign_in(ports, caller, outcome.request, outcome) if outcome.request else None
    return ApiSignIn(await issue_first_tokens(ports, outcome), outcome.device_token, next_path, outcome.enrollment)


def _pre_auth_token(ports: Ports, flow: Flow, options: login.SecondFactorOptions) -> login.PreAuthToken:
    assert flow.user_id is not None, "a flow with proofs has a user"
    assert flow.proofs_expire_at is not None, "and a time until which they count"
    issued_at = flow.proofs_expire_at - ports.policy.pre_auth_ttl
    claims = PreAuthClaims(
        id=flow.id, user_id=flow.user_id, issued_at=issued_at, expires_at=flow.proofs_expire_at, saml_state=flow.request or None
    )
    expires_in = int(claims.expires_at.timestamp()) - int(issued_at.timestamp())
    return login.PreAuthToken(ports.tokens.sign_pre_auth(claims), expires_in, options)


async def check_target(ports: Ports, target: ApiTarget) -> ServiceContext | None:
    """Check the target before any password is verified, and return the service that an API client names, if any."""
    if target.saml_state is not None:
        if target.org_slug is not None or target.service_slug is not None:
            raise SamlStateAndService
        await saml_target.check_pending(ports, target.saml_state)
    if target.org_slug is None and target.service_slug is None:
        return None
    if target.org_slug is None or target.service_slug is None:
        raise OrgOrServiceMissing("To sign in to an application, send org_slug and service_slug. To sign in to your account, send neither.")
    return await find_password_service(ports, target.org_slug, target.service_slug)


# In a browser


async def sign_in_browser(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    method: SignInMethod,
    cookie: str | None,
    client: PresentedDevice,
    *,
    can_passkey: bool = False,
    present_id: UUID | None = None,
) -> BrowserSignIn | Flow:
    """Verify one factor. Return a browser session, or the flow that still needs the second factor. `present_id`: see `prove`.

    `can_passkey`: the browser can create passkeys. After a sign-in with a password, one is offered once in a while.
    `cookie` is that of the session to replace, if any, as in `prove`. The user's membership is confirmed if they sign in to an
    application of that organization, with any method but an identity provider. Where the user has a session
    there, opening a link can be enough to sign in, so that does not show that they want the membership.

    Raises: the errors of `prove`.
    """
    linking = people.with_link(ports, flow, method)
    external_for = await _find_external(ports, flow)
    outcome = await prove(ports, caller, flow, linking, client, present_id, cookie, external_for)
    if isinstance(outcome, Flow):
        return outcome
    is_meant = flow.target is not FlowTarget.PAGE and not proofs.is_by_provider(proofs.in_session(outcome.session.proofs))
    if is_meant and flow.org_id is not None and flow.service_id is not None:
        await confirm_membership_if_admitted(ports, outcome, flow.org_id, flow.service_id)
    expires_at = outcome.session.expires_at
    if cookie is not None:
        expires_at = await end_replaced(ports, caller, cookie, outcome.session)
    user_id, session_id = outcome.session.user_id, outcome.session.id
    offers = can_passkey and proofs.first_method_of(proofs.in_session(outcome.session.proofs)) == proofs.Method.PASSWORD
    offers = offers and await passkeys.is_offer_due(ports, user_id, session_id, outcome.session.created_at)
    offers = offers and not (await admissions.preview(ports, opened_by(flow, external_for), UserSession(user_id, session_id))).decision.asks
    return BrowserSignIn(outcome.secret, expires_at, outcome.device_token, offers, people.made_link(linking, outcome.session.proofs))


async def _find_external(ports: Ports, flow: Flow) -> UUID | None:
    """Return the API resource that an external client asks for in the request of the flow, or None."""
    if flow.external_client is None:
        return None
    try:
        return (await targets.find_destination(ports, flow, ports.tokens.issuer)).needs.external_for
    except (FlowEnded, SealedClientInvalid):  # the next page says so
        return None


async def join(
    ports: Ports, caller: Caller, flow: Flow, method: InvitationSignIn, cookie: str | None, client: PresentedDevice
) -> tuple[BrowserSignIn | Flow, str | None]:
    """Sign in with an invitation.

    Also return the place to continue at, if it is not the flow's page.

    It is the URL of `joining.launch_url`. Without one, users who chose no password first set up a factor that the sign-in policy accepts.
    """
    # Load the place before the change, so that a failure afterwards cannot hide that it was made.
    opened = await joining.find_invitation(ports, method.token, None)
    place = await joining.launch_url(ports, opened.received.invitation.org_id)
    if place is None and method.password is None:
        place = admissions.enrollment_path(PolicyPlace(opened.received.organization_slug), next=flow.request)
    return await sign_in_browser(ports, caller, flow, method, cookie, client), place


async def load_options(
    ports: Ports, known: KnownRoutes, flow: Flow, base_url: str, destination: Destination | None = None
) -> SignInOptions:
    """Return the contents for the sign-in page in a flow to this destination, which is loaded if it is missing. Raises: FlowEnded."""
    destination = destination or await targets.find_destination(ports, flow, base_url)
    if people.address_to_link(ports, flow) is not None:  # each way of the account makes the link, and the application asks afterwards
        destination = replace(destination, required=proofs.Strength.ONE, has_sign_in_policy=False)
    service = destination.service
    providers = every = await platform_requests.available_providers(ports, known, flow, service)
    if flow.wants_fresh:
        every = await platform_requests.available_providers(ports, known, replace(flow, wants_fresh=False), service)
    options = SignInOptions(
        destination=destination,
        providers=providers,
        hides_providers=len(every) > len(providers),
        design=None if service is None else await branding.get_design(ports, service.org_id),
        email_sign_in=ports.policy.offers_email(None if service is None else service.email_sign_in),
    )
    return _accepted(options, await _load_rules(ports, destination))


async def _load_rules(ports: Ports, destination: Destination) -> Rules:
    """Return the rules of the application's sign-ins, together with the strength that the application requires."""
    service, policy = destination.service, None
    if service is not None and destination.has_sign_in_policy:
        async with ports.storage.reading() as read:
            policy = await read.sign_in_policies.effective(service.org_id, service.id)
    rules = Rules() if policy is None else policy.in_force(ports.clock.now())
    if destination.required is proofs.Strength.PHISHING_RESISTANT:
        return replace(rules, phishing_resistant=frozenset({Concerned.EVERYONE}))
    return rules


def _accepted(options: SignInOptions, rules: Rules) -> SignInOptions:
    """Return the ways that these rules accept of every user."""
    if Concerned.EVERYONE in rules.phishing_resistant:
        rules = replace(rules, methods=frozenset({proofs.Method.PASSKEY.value}))
    password, email = rules.may_use(proofs.Method.PASSWORD), options.email_sign_in and rules.may_use(proofs.Method.EMAIL)
    is_folded, passkey = not password and not email, rules.may_use(proofs.Method.PASSKEY)
    providers = [slug for slug in options.providers if rules.may_use(PROVIDER_PREFIX + slug)]
    if is_folded:
        others = [slug for slug in options.providers if slug not in providers]
        return replace(options, providers=providers, passkey=passkey, password_at_sign_up=False, is_folded=True, folded_providers=others)
    return replace(options, providers=providers, password=password, password_at_sign_up=password, email_sign_in=email, passkey=passkey)

"""The sign-in flow of the API and of our pages.

Every sign-in with a password, with a code of the second factor, or with the answer of an identity
provider goes through `sign_in`. A sign-in by email has a flow of its own (`email_sign_in`), and ends
here too. The result is a challenge if the second factor is still required (security A-10). Otherwise
it is tokens for an API client, or the cookie of a browser session. The flow is in this area because a
sign-in can continue an OAuth request or a SAML sign-on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, overload

from core.accounts.model.devices import PresentedDevice
from core.applications.model.services import Service
from core.applications.model.users import AccessPolicy
from core.authentication import joining, login, owner_recovery
from core.authentication.model.login import EMAIL, PASSWORD, PreAuthToken, SignedIn, is_on
from core.authentication.model.sessions import TokenPair
from core.authentication.service_access import find_password_service
from core.authentication.session_start import issue_first_tokens
from core.authentication.sessions import end_replaced
from core.federation.model.sign_in import ProviderState
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_steps
from core.federation.oauth.model.authorization import Authorization, OrgOrServiceMissing
from core.federation.saml import pending as saml_pending
from core.federation.upstream import social
from core.kernel.callers import ServiceContext
from core.kernel.causes import Caller
from core.kernel.claims import PreAuthClaims
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Invalid
from core.kernel.proofs import first_method_of
from core.kernel.providers import FederatedIdentity
from core.kernel.values import Email, digest
from core.tenancy import branding
from core.tenancy.model.settings import Design

if TYPE_CHECKING:
    from ports import Ports


class SamlStateAndService(Invalid):
    """A SAML sign-on already names its application. Send saml_state without org_slug and service_slug."""


@dataclass(frozen=True, slots=True)
class PasswordCredentials:
    """The email address and the password of an account: a first factor."""

    email: Email
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CodeCredentials:
    """A code of the second factor, for the pending sign-in of this pre-auth token."""

    pre_auth: PreAuthClaims
    code: str = field(repr=False)
    trust_device: bool = False  # skip the second factor on this device for a while


@dataclass(frozen=True, slots=True)
class ProviderCredentials:
    """A user authenticated by an identity provider: a first factor. `state` was stored when the browser went to the provider."""

    state: ProviderState
    identity: FederatedIdentity


@dataclass(frozen=True, slots=True)
class SignUpCredentials:
    """The verification link of a sign-up, opened in the browser of the sign-up: a first factor (`joining.sign_in_after_sign_up`)."""

    token: str = field(repr=False)
    device_cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RecoveryCredentials:
    """The token of a link of `gatehouse owner recover`: a first factor."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InvitationCredentials:
    """The token of an invitation's email, and the first password of its recipient: a first factor (`joining.accept_with_password`)."""

    token: str = field(repr=False)
    password: str = field(repr=False)
    name: str


SignInCredentials: TypeAlias = (
    PasswordCredentials | CodeCredentials | ProviderCredentials | SignUpCredentials | RecoveryCredentials | InvitationCredentials
)


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """The target of a sign-in over the API: a service, a pending SAML sign-on, or, without either, the platform itself.

    Only a sign-in with a password names a service here. A code belongs to a pending sign-in, which has its service already.
    """

    org_slug: str | None = None
    service_slug: str | None = None
    saml_state: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class BrowserTarget:
    """A browser session on our own pages. `next_path` is the page to continue at, and `cookie` the session cookie to replace."""

    next_path: str
    cookie: str | None = field(repr=False)

    def restrict_trust(self, client: PresentedDevice) -> PresentedDevice:
        """Return the device data for this sign-in. If an application asked for the sign-in, a trusted device skips no factor."""
        return replace(client, needs_second_factor=authorization_steps.is_stamped(self.next_path))


@dataclass(frozen=True, slots=True)
class ApiSignIn:
    """The tokens of a completed sign-in over the API.

    With `device_token`, the device can skip the second factor for a while. `next_path` is the path
    where the browser of a pending SAML sign-on continues, or None for other sign-ins.
    """

    tokens: TokenPair
    device_token: str | None = field(repr=False)
    next_path: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """The session cookie of a completed sign-in on our pages. With `device_token`, the device can skip the second factor for a while."""

    cookie: str = field(repr=False)
    expires_at: datetime  # UTC
    device_token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInOptions:
    """The contents of a sign-in page."""

    providers: dict[ConnectionSlug, str]  # the path that starts the sign-in at each available identity provider
    service: Service | None  # the application that the user is signing in to
    org_slug: str | None  # of the organization of the OAuth request
    design: Design | None  # of the service's organization
    needs_fresh_sign_in: bool  # the application does not accept an existing session
    offers_sign_up: bool  # a new user can get access to the application by signing up
    login_hint: str | None  # the email address to fill in
    email_sign_in: bool  # whether users can sign in by email


@overload
async def sign_in(
    ports: Ports, caller: Caller, credentials: SignInCredentials, target: ApiTarget, client: PresentedDevice
) -> ApiSignIn | PreAuthToken: ...
@overload
async def sign_in(
    ports: Ports, caller: Caller, credentials: SignInCredentials, target: BrowserTarget, client: PresentedDevice
) -> BrowserSignIn | PreAuthToken: ...
async def sign_in(
    ports: Ports, caller: Caller, credentials: SignInCredentials, target: ApiTarget | BrowserTarget, client: PresentedDevice
) -> ApiSignIn | BrowserSignIn | PreAuthToken:
    """Verify one factor, and return tokens, a browser session, or a challenge if the second factor is still required.

    Identity providers sign users in to our pages only, because API clients get their tokens by the authorization code flow.

    Raises: SamlStateAndService, OrgOrServiceMissing; the errors of `find_password_service`,
    `saml.pending.check_pending`, `saml.pending.complete_sign_in`, `login.sign_in_with_password`,
    `login.sign_in_with_code`, `social.sign_in`, `joining.sign_in_after_sign_up`,
    `joining.accept_with_password` and `owner_recovery.sign_in`.
    """
    service = await check_target(ports, target)
    saml_state = target.saml_state if isinstance(target, ApiTarget) else None
    in_browser = isinstance(target, BrowserTarget)
    if isinstance(target, BrowserTarget):
        client = target.restrict_trust(client)
    outcome: SignedIn | PreAuthToken
    match credentials:
        case PasswordCredentials(email, password):
            outcome = await login.sign_in_with_password(
                ports, caller, email, password, client, service, in_browser=in_browser, saml_state=saml_state
            )
        case CodeCredentials(pre_auth, code, trust_device):
            outcome = await login.sign_in_with_code(ports, caller, pre_auth, code, client, trust_device=trust_device, in_browser=in_browser)
        case ProviderCredentials(state, identity):
            assert in_browser, "identity providers redirect browsers to our pages"
            outcome = await social.sign_in(ports, caller, state, identity, client)
        case SignUpCredentials(token, device_cookie):
            assert in_browser, "the link is bound to a browser"
            outcome = await joining.sign_in_after_sign_up(ports, caller, token, device_cookie, client)
        case RecoveryCredentials(token):
            assert in_browser, "the link opens our page"
            outcome = await owner_recovery.sign_in(ports, caller, token, client)
        case InvitationCredentials(token, password, name):
            assert in_browser, "the user chooses the password on our page"
            outcome = await joining.accept_with_password(ports, caller, token, password, name, client)
    if isinstance(outcome, PreAuthToken):
        return outcome
    if isinstance(target, BrowserTarget):
        return await finish_in_browser(ports, caller, target, outcome)
    return await finish_in_api(ports, caller, outcome, saml_state)


async def join(
    ports: Ports, caller: Caller, credentials: InvitationCredentials, target: BrowserTarget, client: PresentedDevice
) -> tuple[BrowserSignIn | PreAuthToken, str | None]:
    """Sign in with an invitation, and return the result with the URL of `joining.launch_url`."""
    # Load the URL before the change, so that a failure afterwards cannot hide that it was made.
    opened = await joining.find_invitation(ports, credentials.token, None)
    launch_url = await joining.launch_url(ports, opened.received.invitation.org_id)
    return await sign_in(ports, caller, credentials, target, client), launch_url


async def finish_in_api(ports: Ports, caller: Caller, signed_in: SignedIn, saml_state: str | None) -> ApiSignIn:
    """Return the tokens of a session, and complete the SAML sign-on with this state, if any. Raises: SignOnNotFound."""
    next_path = None if saml_state is None else await saml_pending.complete_sign_in(ports, caller, saml_state, signed_in)
    return ApiSignIn(issue_first_tokens(ports, signed_in), signed_in.device_token, next_path)


async def check_target(ports: Ports, target: ApiTarget | BrowserTarget) -> ServiceContext | None:
    """Check the target before any password is verified, and return the service that an API client names, if any.

    Raises: SamlStateAndService, OrgOrServiceMissing.
    """
    if isinstance(target, BrowserTarget):
        return None
    if target.saml_state is not None:
        if target.org_slug is not None or target.service_slug is not None:
            raise SamlStateAndService
        await saml_pending.check_pending(ports, target.saml_state)
    if target.org_slug is None and target.service_slug is None:
        return None
    if target.org_slug is None or target.service_slug is None:
        raise OrgOrServiceMissing("To sign in to an application, send org_slug and service_slug. To sign in to your account, send neither.")
    return await find_password_service(ports, target.org_slug, target.service_slug)


async def finish_in_browser(ports: Ports, caller: Caller, target: BrowserTarget, signed_in: SignedIn) -> BrowserSignIn:
    """Confirm the user's membership if they sign in to a service of that organization, and end the replaced session.

    Only a sign-in with a password, also with one that the user chose in this browser just before
    (`core.authentication.joining`), or by email confirms a membership. At an identity provider where
    the user has a session, opening a link can be enough to sign in, so such a sign-in does not show
    that they want the membership.
    """
    if first_method_of(signed_in.session.proofs) in (PASSWORD, EMAIL):
        service = await service_at(ports, target.next_path)
        if service is not None:
            await login.confirm_membership_if_admitted(ports, signed_in, service.org_id, service.id)
    if target.cookie is not None:
        await end_replaced(ports, caller, target.cookie, signed_in.session)
    return BrowserSignIn(signed_in.secret, signed_in.session.expires_at, signed_in.device_token)


async def load_options(ports: Ports, next_path: str) -> SignInOptions:
    """Return the contents of the sign-in page that continues at this path of ours."""
    authorization = await oauth.authorization_at(ports, next_path)
    needs_fresh_sign_in = await social.fresh_sign_in_since(ports, next_path) is not None
    providers = await social.available_providers(ports, next_path, authorization, fresh_only=needs_fresh_sign_in)
    service = await _service_at(ports, next_path, authorization)
    design = None if service is None else await branding.get_design(ports, service.org_id)
    return SignInOptions(
        providers=providers,
        service=service,
        org_slug=authorization.context.org_slug if authorization and authorization.context else None,
        design=design,
        needs_fresh_sign_in=needs_fresh_sign_in,
        # SAML has no sign-up. Under the other policies, users come by invitation or from the directory.
        offers_sign_up=service is None or (authorization is not None and service.access.policy is AccessPolicy.ANYONE),
        login_hint=None if authorization is None else authorization.request.login_hint,
        email_sign_in=is_on(ports.policy, None if service is None else service.email_sign_in),
    )


async def service_at(ports: Ports, path: str) -> Service | None:
    """Return the service of the OAuth request or of the pending SAML sign-on at this path, if any."""
    return await _service_at(ports, path, await oauth.authorization_at(ports, path))


async def service_of_sign_on(ports: Ports, saml_state: str) -> Service | None:
    """Return the service of the pending SAML sign-on with this state, if any."""
    async with ports.storage.reading() as read:
        pending = await read.saml_sign_ons.pending_service(digest(saml_state), ports.clock.now())
    return None if pending is None else pending[0]


async def _service_at(ports: Ports, path: str, authorization: Authorization | None) -> Service | None:
    return authorization.service if authorization else await saml_pending.service_at(ports, path)

"""Sign-in by email for API clients, and links in emails: to sign in, to verify an address, and to reset a password.

`core.authentication.methods.email` verifies the answers to a sign-in by email.
"""

from dataclasses import dataclass, field

from core.accounts import accounts
from core.accounts.model import email_queue
from core.accounts.model.accounts import VerifiedEmail
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import EmailChallenge, Flow, FlowTarget, new_flow
from core.authentication.methods import email as email_method
from core.authentication.methods import sign_up
from core.authentication.methods.email import EmailCode
from core.authentication.model import login
from core.federation import sign_in
from core.federation import sign_in as sign_in_flow
from core.federation.saml import target as saml_target
from core.kernel import values
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.tenancy import branding
from core.tenancy.model.settings import Design
from ports import Ports


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """The link of an email, as the page shows it. In another browser than the one that asked, it has an origin and no flow."""

    challenge: EmailChallenge
    flow: Flow | None  # continues in this browser
    origin: login.EmailSignInOrigin | None


async def request(ports: Ports, caller: Caller, email: values.Email, target: sign_in.ApiTarget) -> str:
    """Queue an email for an API client, and return the secret with which only this client can use the code.

    Raises: EmailSignInOff; the errors of `check_target`.
    """
    context, secret = await sign_in_flow.check_target(ports, target), values.new_secret()
    service = None
    if context is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(context.org_id, context.id)
    elif target.saml_state is not None:
        service = await saml_target.find_service(ports, target.saml_state)
    flow = new_flow(ports.clock.now(), FlowTarget.API, target.saml_state or "", secret_hash=values.digest(secret))
    await email_method.start(ports, caller, flow, email, service)
    return secret


async def sign_in_with_code(
    ports: Ports, caller: Caller, secret: str, code: str, client: PresentedDevice
) -> sign_in.ApiSignIn | login.PreAuthToken:
    """Complete an API client's sign-in with the code of the email."""
    flow = new_flow(ports.clock.now(), FlowTarget.API, "", secret_hash=values.digest(secret))
    return await sign_in_flow.continue_over_api(ports, caller, flow, EmailCode(code), client)


async def open_link(ports: Ports, token: str, device_cookie: str) -> OpenedLink:
    """Return what the page of a link shows in the browser with this device cookie. Nothing is used up. Raises: LinkInvalid."""
    challenge = await email_method.find_by_link(ports, token)
    flow = challenge.flow
    if flow.browser_hash != values.digest(device_cookie):
        return OpenedLink(challenge, None, email_method.describe_origin(ports, challenge))
    return OpenedLink(challenge, flow if flow.is_open(ports.clock.now()) else None, None)


@dataclass(frozen=True, slots=True)
class AccountLink:
    """A link in an email about an account. It may be used, expired or unknown."""

    token: str = field(repr=False)
    continuation: email_queue.LinkContinuation
    design: Design | None  # of the page behind the link; None for the platform's design


async def find_account_link(ports: Ports, purpose: email_queue.TokenPurpose, token: str) -> AccountLink:
    """Return the link with this token. It is not used up."""
    design = await branding.get_design_of_link(ports, purpose, token)
    return AccountLink(token, await accounts.find_continuation(ports, purpose, token), design)


async def verify_account_link(
    ports: Ports, caller: Caller, link: AccountLink, user: Visitor | None, flow: Flow, cookie: str | None, client: PresentedDevice
) -> VerifiedEmail | sign_in.BrowserSignIn | Flow:
    """Verify the address that the link was sent to. In the browser of the sign-up, also sign the user in.

    `user` is signed in in this browser already, and stays so. `cookie` is that of a session to replace, if any.

    Raises: the errors of `accounts.verify_email` and `prove`.
    """
    device = client.device_id
    if user is None and device is not None and sign_up.is_of_browser(link.continuation, device):
        return await sign_in.sign_in_browser(ports, caller, flow, sign_up.SignUpLink(link.token, device), cookie, client)
    return await accounts.verify_email(ports, caller, link.token)

"""The links of verification and reset emails, as the pages behind them use them."""

from dataclasses import dataclass, field

from core.accounts import accounts
from core.accounts.model import email_queue
from core.accounts.model.accounts import VerifiedEmail
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import Flow
from core.authentication.methods import sign_up
from core.federation import sign_in
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.tenancy import branding
from core.tenancy.model.settings import Design
from ports import Ports


@dataclass(frozen=True, slots=True)
class AccountLink:
    """A link in an email about an account. It may be used, expired or unknown."""

    token: str = field(repr=False)
    continuation: email_queue.LinkContinuation
    design: Design | None  # of the page behind the link; None for the platform's design


async def find(ports: Ports, purpose: email_queue.TokenPurpose, token: str) -> AccountLink:
    """Return the link with this token. It is not used up."""
    design = await branding.get_design_of_link(ports, purpose, token)
    return AccountLink(token, await accounts.find_continuation(ports, purpose, token), design)


async def verify(
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

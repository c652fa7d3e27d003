"""The links of verification and reset emails, as the pages behind them use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.accounts import accounts
from core.accounts.model.accounts import VerifiedEmail
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import LinkContinuation, TokenPurpose
from core.authentication import joining
from core.authentication.model.login import PreAuthToken
from core.federation.sign_in import BrowserSignIn, BrowserTarget, SignUpCredentials, sign_in
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.tenancy import branding
from core.tenancy.model.settings import Design

if TYPE_CHECKING:
    from ports import Ports


@dataclass(frozen=True, slots=True)
class EmailLink:
    """A link in an email about an account. It may be used, expired or unknown."""

    token: str = field(repr=False)
    continuation: LinkContinuation
    design: Design | None  # of the page behind the link; None for the platform's design


async def find(ports: Ports, purpose: TokenPurpose, token: str) -> EmailLink:
    """Return the link with this token. It is not used up."""
    design = await branding.get_design_of_link(ports, purpose, token)
    return EmailLink(token, await accounts.find_continuation(ports, purpose, token), design)


async def verify(
    ports: Ports, caller: Caller, link: EmailLink, user: Visitor | None, target: BrowserTarget, client: PresentedDevice
) -> VerifiedEmail | BrowserSignIn | PreAuthToken:
    """Verify the address that the link was sent to. In the browser of the sign-up, also sign the user in.

    `user` is signed in in this browser already, and stays so.

    Raises: the errors of `accounts.verify_email` and `joining.sign_in_after_sign_up`.
    """
    device = client.device_id
    if user is None and device is not None and joining.is_of_browser(link.continuation, device):
        return await sign_in(ports, caller, SignUpCredentials(link.token, device), target, client)
    return await accounts.verify_email(ports, caller, link.token)

"""The flow of sign-ins by email, in the API and in our pages: request an email, then enter its code or open its link.

The service of the sign-in decides whether it is offered, or the platform if the service chooses
nothing. This is checked again when the code or link is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.accounts.model.devices import PresentedDevice
from core.applications.model.services import Service
from core.authentication import email_sign_in
from core.authentication.model import login as email_sign_in_model
from core.authentication.model.login import EmailSignIn, EmailSignInOff, EmailSignInOrigin, PreAuthToken, RequestedEmailSignIn
from core.federation import sign_in as sign_in_flow
from core.federation.sign_in import ApiSignIn, ApiTarget, BrowserSignIn, BrowserTarget
from core.kernel.causes import Caller
from core.kernel.page_paths import ACCOUNT_PATH
from core.kernel.values import Email

if TYPE_CHECKING:
    from ports import Ports


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """The link of an email, as the page shows it. `origin` is None in the browser that asked."""

    sign_in: EmailSignIn
    origin: EmailSignInOrigin | None
    after: str  # the path where this browser continues


async def request_in_browser(ports: Ports, caller: Caller, email: Email, next_path: str) -> RequestedEmailSignIn:
    """Queue an email for a browser that continues at this path. Raises: EmailSignInOff, ServiceNotFound."""
    service = await sign_in_flow.service_at(ports, next_path)
    _check_is_on(ports, service)
    return await email_sign_in.add_request(ports, caller, email, service, in_browser=True, after=next_path)


async def request(ports: Ports, caller: Caller, email: Email, target: ApiTarget) -> RequestedEmailSignIn:
    """Queue an email for an API client. Raises: EmailSignInOff, ServiceNotFound."""
    context = await sign_in_flow.check_target(ports, target)
    service = None
    if context is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(context.org_id, context.id)
    elif target.saml_state is not None:
        service = await sign_in_flow.service_of_sign_on(ports, target.saml_state)
    _check_is_on(ports, service)
    return await email_sign_in.add_request(
        ports, caller, email, service, in_browser=False, after=ACCOUNT_PATH, saml_state=target.saml_state
    )


async def sign_in_with_code(ports: Ports, caller: Caller, secret: str, code: str, client: PresentedDevice) -> ApiSignIn | PreAuthToken:
    """Complete an API client's sign-in with the code of the email. Raises: EmailSignInOff."""
    sign_in = await email_sign_in.verify_code(ports, caller, secret, code, client, in_browser=False)
    await _check_is_still_on(ports, sign_in)
    outcome = await email_sign_in.complete(ports, caller, sign_in, client, in_browser=False)
    return outcome if isinstance(outcome, PreAuthToken) else await sign_in_flow.finish_in_api(ports, caller, outcome, sign_in.saml_state)


async def sign_in_browser_with_code(
    ports: Ports, caller: Caller, secret: str, code: str, target: BrowserTarget, client: PresentedDevice
) -> BrowserSignIn | PreAuthToken:
    """Complete a browser's sign-in with the code of the email.

    Raises: EmailSignInOff; the errors of `email_sign_in.verify_code` and `email_sign_in.complete`.
    """
    sign_in = await email_sign_in.verify_code(ports, caller, secret, code, client, in_browser=True)
    return await _complete_in_browser(ports, caller, sign_in, target, client)


async def open_link(ports: Ports, token: str, secret: str | None) -> OpenedLink:
    """Return what the page of a link shows. Nothing is used up. `secret` belongs to the browser's own request, if any.

    Another browser continues at the account page: the application waits in the browser that asked.

    Raises: LinkInvalid.
    """
    sign_in = await email_sign_in.find_by_link(ports, token)
    own = None if secret is None else await email_sign_in.find_in_browser(ports, secret)
    if own is not None and own.id == sign_in.id:
        return OpenedLink(sign_in, None, sign_in.after)
    return OpenedLink(sign_in, email_sign_in.describe_origin(ports, sign_in), ACCOUNT_PATH)


async def sign_in_browser_with_link(
    ports: Ports, caller: Caller, link: OpenedLink, cookie: str | None, client: PresentedDevice
) -> BrowserSignIn | PreAuthToken:
    """Sign in the browser that opened the link, after the user confirmed it.

    Raises: EmailSignInOff; the errors of `email_sign_in.complete`.
    """
    return await _complete_in_browser(ports, caller, link.sign_in, BrowserTarget(link.after, cookie), client)


async def _complete_in_browser(
    ports: Ports, caller: Caller, sign_in: EmailSignIn, target: BrowserTarget, client: PresentedDevice
) -> BrowserSignIn | PreAuthToken:
    await _check_is_still_on(ports, sign_in)
    outcome = await email_sign_in.complete(ports, caller, sign_in, target.restrict_trust(client), in_browser=True)
    return outcome if isinstance(outcome, PreAuthToken) else await sign_in_flow.finish_in_browser(ports, caller, target, outcome)


def _check_is_on(ports: Ports, service: Service | None) -> None:
    if not email_sign_in_model.is_on(ports.policy, None if service is None else service.email_sign_in):
        raise EmailSignInOff


async def _check_is_still_on(ports: Ports, sign_in: EmailSignIn) -> None:
    service = None
    if sign_in.org_id is not None and sign_in.service_id is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(sign_in.org_id, sign_in.service_id)
    _check_is_on(ports, service)

"""The flow of sign-ins by email, in the API and in our pages: request an email, then enter its code or open its link.

The service of the sign-in decides whether it is offered, or the platform if the service chooses
nothing. This is checked again when the code or link is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.accounts.model.devices import PresentedDevice
from core.applications.model.services import Service, ServiceNotFound
from core.authentication import email_sign_in
from core.authentication.email_sign_in import EmailProof
from core.authentication.flow.model import Flow, Target, new_flow
from core.authentication.model import login as email_sign_in_model
from core.authentication.model.login import EmailSignIn, EmailSignInOff, EmailSignInOrigin, PreAuthToken, RequestedEmailSignIn
from core.federation import sign_in as sign_in_flow
from core.federation.saml import target as saml_target
from core.federation.sign_in import ApiSignIn, ApiTarget, BrowserSignIn
from core.kernel.causes import Caller
from core.kernel.errors import refuse
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


async def request_in_browser(ports: Ports, caller: Caller, email: Email, service: Service | None, path: str) -> RequestedEmailSignIn:
    """Queue an email for a browser that signs in to this service and continues at this path. Raises: EmailSignInOff, ServiceNotFound."""
    _check_is_on(ports, service)
    return await email_sign_in.add_request(ports, caller, email, service, in_browser=True, after=path)


async def request(ports: Ports, caller: Caller, email: Email, target: ApiTarget) -> RequestedEmailSignIn:
    """Queue an email for an API client. Raises: EmailSignInOff, ServiceNotFound."""
    context = await sign_in_flow.check_target(ports, target)
    service = None
    if context is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(context.org_id, context.id)
    elif target.saml_state is not None:
        service = await saml_target.find_service(ports, target.saml_state)
    _check_is_on(ports, service)
    return await email_sign_in.add_request(
        ports, caller, email, service, in_browser=False, after=ACCOUNT_PATH, saml_state=target.saml_state
    )


async def sign_in_with_code(ports: Ports, caller: Caller, secret: str, code: str, client: PresentedDevice) -> ApiSignIn | PreAuthToken:
    """Complete an API client's sign-in with the code of the email. Raises: EmailSignInOff."""
    sign_in = await email_sign_in.verify_code(ports, caller, secret, code, client, in_browser=False)
    await _check_is_still_on(ports, sign_in)
    service = None
    if sign_in.service_id is not None and sign_in.saml_state is None:
        async with ports.storage.reading() as read:
            service = await read.services.context_by_id(sign_in.service_id) or refuse(ServiceNotFound)
    org_id, service_id = (None, None) if service is None else (service.org_id, service.id)
    state, now = sign_in.saml_state or "", ports.clock.now()
    flow = new_flow(now, Target.API, state, org_id=org_id, service_id=service_id, service=service)
    return await sign_in_flow.continue_over_api(ports, caller, flow, EmailProof(sign_in), client)


async def sign_in_browser_with_code(
    ports: Ports, caller: Caller, flow: Flow, secret: str, code: str, cookie: str | None, client: PresentedDevice
) -> BrowserSignIn | Flow:
    """Complete a browser's sign-in with the code of the email.

    Raises: EmailSignInOff; the errors of `email_sign_in.verify_code` and `sign_in_browser`.
    """
    sign_in = await email_sign_in.verify_code(ports, caller, secret, code, client, in_browser=True)
    await _check_is_still_on(ports, sign_in)
    return await sign_in_flow.sign_in_browser(ports, caller, flow, EmailProof(sign_in), cookie, client)


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
    ports: Ports, caller: Caller, flow: Flow, link: OpenedLink, cookie: str | None, client: PresentedDevice
) -> BrowserSignIn | Flow:
    """Sign in the browser that opened the link, after the user confirmed it.

    Raises: EmailSignInOff; the errors of `sign_in_browser`.
    """
    await _check_is_still_on(ports, link.sign_in)
    return await sign_in_flow.sign_in_browser(ports, caller, flow, EmailProof(link.sign_in), cookie, client)


def _check_is_on(ports: Ports, service: Service | None) -> None:
    if not email_sign_in_model.is_on(ports.policy, None if service is None else service.email_sign_in):
        raise EmailSignInOff


async def _check_is_still_on(ports: Ports, sign_in: EmailSignIn) -> None:
    service = None
    if sign_in.org_id is not None and sign_in.service_id is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(sign_in.org_id, sign_in.service_id)
    _check_is_on(ports, service)

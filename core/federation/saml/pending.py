"""Pending SAML sign-ons, as the sign-in pages, the API and the identity providers see them.

A pending sign-on continues at one path, which contains its state: see `continuation_path`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.flow.prove import confirm_membership_if_admitted
from core.authentication.model.login import SignedIn
from core.federation.saml.model.configuration import endpoint_path
from core.federation.saml.model.sign_on import SignOnNotFound
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.values import digest, new_secret

if TYPE_CHECKING:
    from ports import Ports
    from ports.storage import Transaction


# The address that users can bookmark
_BOOKMARK: Final = re.compile(r"/api/organizations/([a-z0-9-]+)/services/([a-z0-9-]+)/saml/login")


def continuation_path(org_slug: str, service_slug: str, state: str, ticket: str | None = None) -> str:
    """Return the path where the browser continues a sign-on. `ticket` comes from a sign-in through the API, if any."""
    fields = {"saml_state": state} | ({} if ticket is None else {"ticket": ticket})
    return f"{endpoint_path(org_slug, service_slug, 'authenticate')}?{urlencode(fields)}"


async def check_pending(ports: Ports, state: str) -> None:
    """Check that a sign-on with this state is pending (security T-5). Raises: SignOnNotFound, OrganizationNotActive."""
    async with ports.storage.reading() as read:
        _, service = await read.saml_sign_ons.pending_service(digest(state), ports.clock.now()) or refuse(SignOnNotFound)
    if service.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


async def service_at(ports: Ports, path: str) -> Service | None:
    """Return the service of the sign-on that continues or starts at this path, or None."""
    bookmark = _BOOKMARK.fullmatch(path.partition("?")[0])
    if bookmark is not None:
        async with ports.storage.reading() as read:
            client = await read.services.client_by_slug(*bookmark.groups())
        return client[0] if client is not None and client[1].status is OrganizationStatus.ACTIVE else None
    state = _state_in(path)
    if state is None:
        return None
    async with ports.storage.reading() as read:
        pending = await read.saml_sign_ons.pending_service(digest(state), ports.clock.now())
    if pending is None:
        return None
    service, context = pending
    return service if path.partition("?")[0] == endpoint_path(context.org_slug, context.slug, "authenticate") else None


def _state_in(path: str) -> str | None:
    return dict(parse_qsl(path.partition("?")[2])).get("saml_state")


async def fresh_sign_in_since(ports: Ports, path: str) -> datetime | None:
    """Return the time after which the user must have signed in to continue at this path.

    None means that no pending sign-on requires a fresh sign-in.
    """
    state = _state_in(path)
    if state is None:
        return None
    async with ports.storage.reading() as read:
        return await read.saml_sign_ons.fresh_sign_in_since(digest(state), ports.clock.now())


async def record_fresh_sign_in(tx: Transaction, path: str, user_id: UUID) -> None:
    """Record that an identity provider reauthenticated this user for the sign-on at this path, if any. The account is locked."""
    state = _state_in(path)
    if state is not None:
        await tx.saml_sign_ons.record_fresh_sign_in(digest(state), user_id)


async def complete_sign_in(ports: Ports, caller: Caller, state: str, signed_in: SignedIn) -> str:
    """Attach a sign-in through the API, with all factors verified, to a pending sign-on.

    Return the path where its browser continues.

    The path contains a ticket, because this call does not see the browser's cookie. Only a browser
    with the cookie and the ticket gets the assertion, so it is the browser in which the user signed
    in. Otherwise an attacker could make a victim complete the attacker's own sign-on.

    Raises: SignOnNotFound.
    """
    ticket, session = new_secret(), signed_in.session
    async with ports.storage.transaction(by=caller) as tx:
        completed = await tx.saml_sign_ons.complete_sign_in(digest(state), session.user_id, session.id, digest(ticket), ports.clock.now())
    org_id, org_slug, service_id, service_slug = completed or refuse(SignOnNotFound)
    await confirm_membership_if_admitted(ports, signed_in, org_id, service_id)
    return continuation_path(org_slug, service_slug, state, ticket)

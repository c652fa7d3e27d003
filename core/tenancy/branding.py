"""Name, logo and colour of an organization, and where they are seen: in its mails and on the pages that their links lead to (decisions,
points 66 and 209; security.md E-1).

Anybody may ask for the design of any active organization by its slug, so it changes nothing but how a mail and a page look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.kernel.principals import Capability
from core.kernel.values import KEEP, Keep, digest, given
from core.tenancy import events, organizations
from core.tenancy.colors import Color

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.one_time_tokens import Purpose
    from core.kernel.principals import Member
    from ports import Ports
from core.tenancy.branding_rules import NOTHING_CHOSEN, Branding, Design, NothingToChange, check_logo


async def current(ports: Ports, caller: Member) -> Branding:
    """What the organization that the caller acts in has chosen."""
    async with ports.storage.reading() as read:
        return await read.branding.of(caller.acts_in.id) or NOTHING_CHOSEN


async def update(
    ports: Ports,
    caller: Member,
    *,
    logo_url: str | Keep | None = KEEP,
    primary_color: str | Keep | None = KEEP,
    product_name: str | Keep | None = KEEP,
) -> Branding:
    """What is chosen from now on; None removes. Raises NothingToChange, LogoInvalid, ColorInvalid, and what organizations.enter raises."""
    wanted = given(logo_url=logo_url, primary_color=primary_color, product_name=product_name)
    if not wanted:
        raise NothingToChange
    if wanted.get("logo_url") is not None:
        check_logo(wanted["logo_url"])
    if wanted.get("primary_color") is not None:
        wanted["primary_color"] = str(Color.parse(wanted["primary_color"]))
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.ORGANIZATION_MANAGE)
        old = await tx.branding.of(organization.id) or NOTHING_CHOSEN
        new = replace(old, **wanted)
        if new != old:
            await tx.branding.put(organization.id, new, ports.clock.now())
            tx.record(events.branding_updated(organization.id, old, new))
    return new


async def of_organization(ports: Ports, org_id: UUID) -> Design | None:
    """How pages of this organization look; None where they look like the platform's own, as they do while it is not active."""
    async with ports.storage.reading() as read:
        return await read.branding.design(org_id)


async def of_link(ports: Ports, purpose: Purpose, token: str) -> Design | None:
    """How the page looks that the link of a mail leads to, be the link still good or not; None where it looks like the platform's own."""
    async with ports.storage.reading() as read:
        return await read.branding.design_of_link(digest(token), purpose)

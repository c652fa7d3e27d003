"""Name, logo and colour of an organization, and where they are seen: in its mails and on the pages that their links lead to (decisions,
points 66 and 209; security.md E-1).

Anybody may ask for the design of any active organization by its slug, so it changes nothing but how a mail and a page look.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from core import events, organizations, uris
from core.access import Capability
from core.colors import Color
from core.errors import Invalid
from core.values import KEEP, Keep, digest, given, is_host_name

if TYPE_CHECKING:
    from uuid import UUID

    from core.access import Member
    from core.one_time_tokens import Purpose
    from ports import Ports

LONGEST_URL = 2048


class NothingToChange(Invalid):
    """Say what to change: logo_url, primary_color or product_name; null removes it."""


class LogoInvalid(Invalid):
    """The address of a logo must be absolute, in ASCII, https (or http on localhost), without user name and fragment."""


@dataclass(frozen=True, slots=True)
class Branding:
    """What an organization has chosen; None where it has chosen nothing. `primary_color` is written `#rrggbb`, in lower case."""

    logo_url: str | None = None
    primary_color: str | None = None
    product_name: str | None = None


NOTHING_CHOSEN = Branding()


@dataclass(frozen=True, slots=True)
class Design:
    """How mails and pages of an active organization look."""

    organization: str  # its name
    branding: Branding = NOTHING_CHOSEN

    @property
    def name(self) -> str:
        """Whose mail or page it is."""
        return self.branding.product_name or self.organization

    @property
    def color(self) -> Color | None:
        return None if self.branding.primary_color is None else Color.parse(self.branding.primary_color)

    @property
    def logo_origin(self) -> str | None:
        """From where the logo is loaded, as a content security policy says it. What cannot be chosen widens none."""
        url = self.branding.logo_url
        if url is None or not _can_be_logo(url):
            return None
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


def check_logo(url: str) -> None:
    """Raises LogoInvalid."""
    if not _can_be_logo(url):
        raise LogoInvalid


def _can_be_logo(url: str) -> bool:
    # A content security policy can name neither IPv6 addresses nor hosts with underscores.
    return len(url) <= LONGEST_URL and uris.is_web(url) and is_host_name(urlsplit(url).hostname or "")


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

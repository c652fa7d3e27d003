"""The design for an organization's emails, and for the pages that they link to.

By its slug, anyone can request an email or a page in an active organization's design. Branding must therefore change
nothing except the look.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from core.accounts import images
from core.accounts.model.email_queue import TokenPurpose
from core.kernel import values
from core.kernel.callers import OrganizationCaller
from core.kernel.images import ImageOwner
from core.kernel.roles import Capability
from core.tenancy import events, organizations
from core.tenancy.model import settings
from ports import Ports
from ports.storage import Transaction


async def get_settings(ports: Ports, caller: OrganizationCaller) -> settings.BrandingSettings:
    """Return the branding settings for the caller's organization."""
    async with ports.storage.reading() as read:
        return await read.branding.settings(caller.acts_in.id) or settings.NO_BRANDING


async def update(
    ports: Ports,
    caller: OrganizationCaller,
    *,
    logo_url: str | values.Keep | None = values.KEEP,
    primary_color: str | values.Keep | None = values.KEEP,
    product_name: str | values.Keep | None = values.KEEP,
) -> settings.BrandingSettings:
    """Change the branding settings, and return them.

    A change to None removes the value. Raises: EmptyBrandingUpdate, LogoInvalid, ColorInvalid.
    """
    changes = _check(values.provided(logo_url=logo_url, primary_color=primary_color, product_name=product_name))
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_MANAGE)
        return await _save(ports, tx, organization.id, changes)


def _check(changes: dict[str, str | None]) -> dict[str, str | None]:
    if not changes:
        raise settings.EmptyBrandingUpdate
    if (logo := changes.get("logo_url")) is not None:
        changes["logo_url"] = settings.parse_logo(logo)
    if (color := changes.get("primary_color")) is not None:
        changes["primary_color"] = str(settings.Color.parse(color))
    return changes


async def preview(ports: Ports, caller: OrganizationCaller, **changes: str | values.Keep | None) -> settings.BrandingSettings:
    """Return the branding as `update` would leave it, and change nothing. Raises: EmptyBrandingUpdate, LogoInvalid, ColorInvalid."""
    checked = _check(values.provided(**changes))
    return replace(await get_settings(ports, caller), **checked)


async def set_logo(ports: Ports, caller: OrganizationCaller, content: bytes, content_type: str | None = None) -> settings.BrandingSettings:
    """Make an uploaded image the organization's logo, and return the branding."""
    image = await images.reencode(ports, content, content_type)
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_MANAGE)
        await tx.images.put(ImageOwner(org_id=organization.id), image, ports.clock.now())
        return await _save(ports, tx, organization.id, {"logo_url": ports.images.url(image.key)})


async def _save(ports: Ports, tx: Transaction, org_id: UUID, changes: Mapping[str, str | None]) -> settings.BrandingSettings:
    old = await tx.branding.settings(org_id) or settings.NO_BRANDING
    new = replace(old, **changes)
    if new != old:
        await tx.branding.put(org_id, new, ports.clock.now())
        tx.record(events.branding_updated(org_id, old, new))
    return new


async def get_design(ports: Ports, org_id: UUID) -> settings.Design | None:
    """Return the design for this organization's pages, or None for the platform's design.

    An organization that is not active has the platform's design.
    """
    async with ports.storage.reading() as read:
        return await read.branding.design(org_id)


async def get_design_of_link(ports: Ports, purpose: TokenPurpose, token: str) -> settings.Design | None:
    """Return the design for the page behind an emailed link, or None for the platform's design. The link may be used or expired."""
    async with ports.storage.reading() as read:
        return await read.branding.design_of_link(values.digest(token), purpose)

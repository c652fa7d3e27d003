"""Facts for the pages about URIs that are not registered."""

from dataclasses import dataclass, replace

from core.applications.model.services import UnregisteredUri
from core.authentication import browser
from core.kernel import errors
from core.kernel.access import OrganizationNotFound
from core.kernel.causes import Caller
from core.kernel.roles import Capability
from ports import Ports


@dataclass(frozen=True, slots=True)
class UnregisteredUriFacts:
    """The organization of the application, and whether the user may change the application's settings."""

    organization_name: str
    org_slug: str
    may_register: bool


async def load_facts(ports: Ports, caller: Caller, cookie: str | None, unregistered: UnregisteredUri) -> UnregisteredUriFacts:
    """Return the facts for the user of the browser session with this cookie, who need not be signed in."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(unregistered.service.org_id) or errors.refuse(OrganizationNotFound)
    facts = UnregisteredUriFacts(organization.name, organization.slug, may_register=False)
    if cookie is None:
        return facts
    try:
        await browser.authenticate_member(ports, caller, cookie, organization.slug, Capability.SERVICES_MANAGE)
    except errors.Refusal:
        return facts
    return replace(facts, may_register=True)

"""The demo's single sign-on: a draft connection, a domain's route, and a set-up link."""

from typing import Final

from core.federation.connections import connections
from core.federation.connections.connections import ConnectionDraft
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.settings import OidcSettings
from core.kernel import callers, values
from core.kernel.connections import TEST_PROVIDER, WEBSUITE
from core.setup import links
from core.setup.links import SetupLinkDraft
from core.setup.model.links import SetupLinkKind
from core.tenancy import domains
from ports import Ports
from ports.storage import Transaction

SLUG: Final = values.Slug("trial")
NAME: Final = "Trial"
LINK_NAME: Final = "Globex IT"
LINK_PARTS: Final = (callers.SetupPart.CONNECTION, callers.SetupPart.DOMAIN, callers.SetupPart.DIRECTORY)


async def ensure_connection(ports: Ports, tx: Transaction, caller: callers.Member) -> OrganizationConnection:
    """Return the connection, in which an admin plays the identity provider. Create it if necessary."""
    draft = ConnectionDraft(slug=SLUG, name=NAME, preset=TEST_PROVIDER, settings=OidcSettings())
    return await tx.connections.by_slug(caller.acts_in.id, SLUG) or await connections.create(ports, caller, draft)


async def ensure_route(ports: Ports, caller: callers.Member) -> values.Domain:
    """Let a domain lead to an identity provider, as soon as it is verified, and return the domain."""
    domain = values.Domain(f"partner.{caller.acts_in.slug}.example")
    await domains.set_route(ports, caller, domain, WEBSUITE)
    return domain


async def replace_link(ports: Ports, tx: Transaction, caller: callers.Member) -> str:
    """Create a set-up link that opens within five minutes, in place of the link from an earlier run. Return its secret."""
    for link in await tx.setup_links.of_org(caller.acts_in.id):
        if link.name == LINK_NAME and link.is_live(ports.clock.now()):
            await links.end(ports, caller, link.id)
    _, secret = await links.create(ports, caller, SetupLinkDraft(name=LINK_NAME, kind=SetupLinkKind.EMBEDDED, parts=LINK_PARTS))
    return secret

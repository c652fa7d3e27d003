"""The platform's identity providers: settings, names, and the logos that platform owners upload."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.accounts import images, platform
from core.authentication import events
from core.authentication.model.identities import parse_provider
from core.kernel import connections
from core.kernel.callers import PlatformCaller
from core.kernel.causes import SYSTEM
from core.kernel.images import ImageOwner
from ports import Ports


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """An identity provider with the operator's name for it, and its uploaded logo."""

    slug: connections.ConnectionSlug
    name: str
    logo_url: str | None


async def list_all(ports: Ports) -> Sequence[NamedConnection]:
    """Return the platform's connections, also those without credentials."""
    keys = await images.find_keys(ports, [id_ for id_, _ in connections.PLATFORM_CONNECTIONS.values()])
    return [
        NamedConnection(slug, ports.policy.provider_names[slug], ports.images.url(key) if (key := keys.get(id_)) else None)
        for slug, (id_, _) in connections.PLATFORM_CONNECTIONS.items()
    ]


async def fill(ports: Ports, configured: Iterable[connections.PlatformCredentials]) -> None:
    """Store the connections that the operator has set up, and clear the settings for all further platform connections."""
    by_slug = {each.connection.slug: each for each in configured}
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for slug in connections.PLATFORM_CONNECTIONS:
            await tx.oauth_credentials.save_connection(slug, by_slug.get(slug), ports.clock.now())


async def find(ports: Ports, slug: str) -> NamedConnection:
    """Return a connection of the platform."""
    connection = parse_provider(slug)
    return next(each for each in await list_all(ports) if each.slug == connection)


async def set_logo(ports: Ports, caller: PlatformCaller, slug: str, content: bytes, content_type: str | None = None) -> NamedConnection:
    """Make an uploaded image the logo of a connection, and return it."""
    owner, connection = _find(slug)
    image = await images.reencode(ports, content, content_type)
    async with ports.storage.transaction(by=caller) as tx:
        await platform.lock_rights(tx, caller)
        await tx.images.put(owner, image, ports.clock.now())
        tx.record(events.connection_updated(connection, "set"))
    return await find(ports, slug)


async def remove_logo(ports: Ports, caller: PlatformCaller, slug: str) -> None:
    """Remove a connection's logo, if any."""
    owner, connection = _find(slug)
    async with ports.storage.transaction(by=caller) as tx:
        await platform.lock_rights(tx, caller)
        if await tx.images.remove(owner):
            tx.record(events.connection_updated(connection, "removed"))


def _find(slug: str) -> tuple[ImageOwner, connections.ConnectionSlug]:
    connection = parse_provider(slug)
    return ImageOwner(connection_id=connections.PLATFORM_CONNECTIONS[connection][0]), connection

"""The start of a sign-in at the identity provider of an email domain (decisions 103, 423)."""

from urllib.parse import urlencode

from core.authentication import oauth_credentials
from core.kernel.callers import OrganizationStatus
from core.kernel.page_paths import connection_start_path
from core.kernel.values import Email
from core.tenancy.model.domains import HomeRealmMatch
from ports import Ports
from ports.storage import Reading


async def find_sign_in(ports: Ports, email: Email, org_slug: str | None, service_slug: str | None) -> tuple[HomeRealmMatch, str] | None:
    """Return the organization and the identity provider for this address, and the path that starts a sign-in there.

    If the application with these slugs may use the identity provider, the path names it. Otherwise the path names
    the organization that has proved the domain. The result is None if no route applies. It does not
    depend on accounts (security B-4).
    """
    async with ports.storage.reading() as read:
        match = await read.home_realm.match(email.domain)
        if match is None:
            return None
        target = {"org": match.org_slug}
        if org_slug and service_slug and await _may_use(ports, read, org_slug, service_slug, match):
            target = {"org": org_slug, "service": service_slug}
    if match.connection is not None:
        return match, connection_start_path(match.connection.id, **target)
    return match, f"/auth/{match.provider}?{urlencode(target)}"


async def _may_use(ports: Ports, read: Reading, org_slug: str, service_slug: str, match: HomeRealmMatch) -> bool:
    """Return whether users can sign in to this service through this identity provider.

    A session that began at a connection is good in its organization only (security S-10).
    """
    client = await read.services.client_by_slug(org_slug, service_slug)
    if client is None or client[1].status is not OrganizationStatus.ACTIVE:
        return False
    if match.provider is None:
        return org_slug == match.org_slug
    own = await read.oauth_credentials.list_of_service(client[1].org_id, client[1].id)
    return match.provider in own or match.provider in oauth_credentials.platform_providers(ports)

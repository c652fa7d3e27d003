"""An organization's mail server, for the organization's own emails only.

Emails with links that give access to an account always use the platform's server. If its own server sent them, an
organization could read other users' password reset links (security E-1). The password is stored encrypted, and only
sent to the mail server (security W-7).
"""

from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import events, organizations
from core.tenancy.model import settings
from ports import Ports


async def configure(ports: Ports, caller: OrganizationCaller, server: settings.MailServer) -> settings.SmtpSettings:
    """Replace the organization's mail server, and return its settings. Emails in the queue use the new server, too."""
    server = settings.validate(server)
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        await tx.smtp.put(server, ports.clock.now())
        tx.record(events.smtp_configured(server))
    return server


async def get_settings(ports: Ports, caller: OrganizationCaller) -> settings.SmtpSettings:
    """Return the organization's mail server settings. Raises: MailServerNotSet."""
    async with ports.storage.reading() as read:
        return await read.smtp.settings(caller.acts_in.id) or refuse(settings.MailServerNotSet)


async def remove(ports: Ports, caller: OrganizationCaller) -> None:
    """Remove the organization's mail server. The organization's emails use the platform's server again."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        removed = await tx.smtp.remove(organization.id) or refuse(settings.MailServerNotSet)
        tx.record(events.smtp_removed(removed))

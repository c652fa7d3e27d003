"""The mail server of an organization (decisions, points 30 and 208): its own mails go through it, and nobody else's.

Mails with a link that opens an account go through the platform's server all the same, or an organization could read the reset links of
other people (security.md E-1). Its password is kept sealed, and told to nobody but the server (W-7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.errors import refuse
from core.kernel.principals import Capability
from core.tenancy import events, organizations

if TYPE_CHECKING:
    from core.kernel.principals import Member
    from ports import Ports
from core.tenancy.mail_server_rules import MailServer, MailServerNotSet, SmtpSettings, MailServerCheck


async def configure(ports: Ports, caller: Member, server: MailServer) -> None:
    """Send the organization's mails through this server from now on, those that wait included. Raises what organizations.lock_organization_for raises."""
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        await tx.smtp.put(server, ports.clock.now())
        tx.record(events.smtp_configured(server))


async def current(ports: Ports, caller: Member) -> SmtpSettings:
    """The organization's settings. Raises MailServerNotSet."""
    async with ports.storage.reading() as read:
        return await read.smtp.settings(caller.acts_in.id) or refuse(MailServerNotSet)


async def remove(ports: Ports, caller: Member) -> None:
    """Send the organization's mails through the platform's server again. Raises MailServerNotSet, and what organizations.lock_organization_for raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        removed = await tx.smtp.remove(organization.id) or refuse(MailServerNotSet)
        tx.record(events.smtp_removed(removed))


async def try_out(ports: Ports, caller: Member) -> MailServerCheck:
    """Connect to the organization's server and sign in, but send nothing. Raises MailServerNotSet."""
    async with ports.storage.reading() as read:
        server = await read.smtp.server(caller.acts_in.id) or refuse(MailServerNotSet)
    return await ports.mail.try_out(server)

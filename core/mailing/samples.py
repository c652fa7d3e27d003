"""Emails without a place in the queue: the test for an organization's mail server, and the example in its design."""

from core.accounts.model.email_queue import EmailKind
from core.kernel.callers import Member
from core.kernel.errors import refuse
from core.kernel.values import new_id
from core.mailing.model.emails import PreparedEmail
from core.tenancy.model.settings import Design, MailServerCheck, MailServerNotSet
from ports import Ports
from ports.outside import EmailMessage

EXAMPLE_TOKEN = "example"  # in a link that does not work  # noqa: S105


async def send_test(ports: Ports, caller: Member) -> MailServerCheck:
    """Send an email to the caller's own address through the organization's mail server, with the organization's design."""
    async with ports.storage.reading() as read:
        server = await read.smtp.server(caller.acts_in.id) or refuse(MailServerNotSet)
        design = await read.branding.design(caller.acts_in.id)
    return await ports.mail.check_server(server, _compose(ports, caller, EmailKind.MAIL_SERVER_TEST, design))


def compose_example(ports: Ports, caller: Member, design: Design) -> EmailMessage:
    """Return an email to the caller in this design. The email is not sent, and its link does not work."""
    return _compose(ports, caller, EmailKind.RESET_PASSWORD, design)


def _compose(ports: Ports, caller: Member, kind: EmailKind, design: Design | None) -> EmailMessage:
    now = ports.clock.now()
    mail = PreparedEmail(id=new_id(), kind=kind, address=caller.email, created_at=now, due_at=now, token=EXAMPLE_TOKEN, design=design)
    return ports.email_templates.compose(mail)

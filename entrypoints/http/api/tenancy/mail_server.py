"""The mail server of an organization (decisions, point 208)."""

from typing import Annotated

from pydantic import WithJsonSchema
from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.kernel.principals import Capability
from core.kernel.values import Email
from core.tenancy import mail_server, mail_server_rules
from core.tenancy.mail_server_rules import DEFAULT_PORT, SmtpSettings
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import EmailAddress, Name, PasswordText, RequestModel, ResponseModel, Text
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes

routes = Blueprint("smtp", __name__)

# Which of them may be used, and why not all, is the use case's to say.
Port = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 25, "maximum": 65535})]


class NewSmtp(RequestModel):
    """All of the settings; those that were there before are gone, the password included.

    With `tls`, mails are encrypted or not sent: from the first byte at port 465, by STARTTLS at others. Without it they are not encrypted.
    """

    host: Text
    port: Port = DEFAULT_PORT
    username: Text | None = None
    password: PasswordText | None = None
    from_email: EmailAddress
    from_name: Name | None = None
    tls: bool = True


class SmtpShown(ResponseModel):
    """Through which server the mails of the organization go, and who they are from. The password is told to nobody."""

    host: str
    port: int
    username: str | None
    has_password: bool
    from_email: str
    from_name: str | None
    tls: bool


def _show(settings: SmtpSettings) -> SmtpShown:
    return SmtpShown(
        host=settings.host,
        port=settings.port,
        username=settings.username,
        has_password=settings.has_password,
        from_email=settings.from_email,
        from_name=settings.from_name,
        tls=settings.tls,
    )


@routes.post("/api/organizations/<org_slug>/smtp")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_request(NewSmtp)
@validate_response(SmtpShown)
async def configure(org_slug: str, data: NewSmtp) -> SmtpShown:
    """Send the organization's own mails, such as invitations, through a server of your own. Mails about accounts never go through it."""
    me = acting_member()
    server = mail_server_rules.new_server(
        me.acts_in.id,
        host=data.host,
        port=data.port,
        username=data.username,
        password=data.password,
        from_email=Email(data.from_email),
        from_name=data.from_name,
        tls=data.tls,
    )
    await mail_server.configure(ports(), me, server)
    return _show(server)


@routes.get("/api/organizations/<org_slug>/smtp")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(SmtpShown)
async def settings(org_slug: str) -> SmtpShown:
    """Show the organization's mail server, without its password."""
    return _show(await mail_server.current(ports(), acting_member()))


@routes.delete("/api/organizations/<org_slug>/smtp")
@member(Capability.INTEGRATIONS_MANAGE)
@describes({204: "The organization's mails go through the platform's server again."})
async def remove(org_slug: str) -> Response:
    """Forget the organization's mail server."""
    await mail_server.remove(ports(), acting_member())
    return no_content()


class Tried(ResponseModel):
    """Whether the mail server can be used, and if not, why."""

    success: bool
    message: str


@routes.post("/api/organizations/<org_slug>/smtp/test")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(Tried)
async def test(org_slug: str) -> Tried:
    """Connect to the organization's mail server and sign in. Nothing is sent."""
    trial = await mail_server.try_out(ports(), acting_member())
    return Tried(success=trial is mail_server_rules.MailServerCheck.GOOD, message=trial.value)

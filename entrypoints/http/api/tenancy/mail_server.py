"""The API for an organization's mail server."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.kernel.roles import Capability
from core.kernel.values import Email
from core.mailing import preparation
from core.tenancy import mail_server
from core.tenancy.model import settings
from entrypoints.http import kit

routes = Blueprint("smtp", __name__)

# The use case checks the exact ports, with a better error message.
Port = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 25, "maximum": 65535})]


class MailServerRequest(kit.RequestModel):
    """An organization's mail server.

    It replaces all earlier settings, including the password.
    """

    host: kit.Text = Field(description="A host name such as `mail.example.com`, or an IP address.")
    port: Port = Field(settings.DEFAULT_PORT, description="25, 465, 587, or between 1024 and 65535.")
    username: kit.Text | None = Field(None, description="The username for SMTP authentication. Send it together with `password`.")
    password: kit.PasswordText | None = Field(None, description="The password for SMTP authentication. No response contains it.")
    from_email: kit.EmailAddress = Field(description="The sender's address.")
    from_name: kit.Name | None = Field(None, description="The sender's display name.")
    tls: bool = Field(
        True,
        description="Whether to encrypt the connection. If true, emails are encrypted or not sent: port 465 uses TLS from the first byte, "
        "other ports use STARTTLS. If false, nothing is encrypted.",
    )

    def build(self, org_id: UUID) -> settings.MailServer:
        """Return this organization's mail server."""
        return settings.MailServer(**{**dict(self), "org_id": org_id, "from_email": Email(self.from_email)})


class MailServerResponse(kit.ResponseModel):
    """An organization's mail server, without the password."""

    host: str = Field(description="The host name or IP address.")
    port: int = Field(description="The port.")
    username: str | None = Field(description="The username for SMTP authentication, or null.")
    has_password: bool = Field(description="Whether a password is stored.")
    from_email: str = Field(description="The sender's address.")
    from_name: str | None = Field(description="The sender's display name, or null.")
    tls: bool = Field(description="Whether the connection is encrypted.")


@routes.post("/api/organizations/<org_slug>/smtp")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def configure(org_slug: str, data: MailServerRequest) -> MailServerResponse:
    """Set the organization's mail server.

    The organization's own emails, such as invitations, are sent through it, also emails that are
    already queued. Emails about accounts, such as password resets, always use the platform's server.
    """
    return MailServerResponse.of(await mail_server.configure(kit.ports(), kit.acting(), data.build(kit.acting().acts_in.id)))


@routes.get("/api/organizations/<org_slug>/smtp")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get_mail_server(org_slug: str) -> MailServerResponse:
    """Get the organization's mail server.

    The response does not contain the password. 404 if the organization has not set up a mail
    server.
    """
    return MailServerResponse.of(await mail_server.get_settings(kit.ports(), kit.acting()))


@routes.delete("/api/organizations/<org_slug>/smtp")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The organization's emails use the platform's server again."})
async def remove(org_slug: str) -> None:
    """Remove the organization's mail server.

    The organization's emails use the platform's server again.
    """
    await mail_server.remove(kit.ports(), kit.acting())


class MailServerTestResponse(kit.ResponseModel):
    """A connection test's result."""

    success: bool = Field(description="Whether the mail server can be used.")
    message: str = Field(
        description="The result to show to the user. If the mail server cannot be used: the reason, and what the server answered."
    )


@routes.post("/api/organizations/<org_slug>/smtp/test")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.SHOWS_PEOPLE)
async def test(org_slug: str) -> MailServerTestResponse:
    """Test the organization's mail server.

    Sends an email to your own address through the mail server. The status is also 200 if the test
    fails: see `success`.
    """
    trial = await preparation.send_test(kit.ports(), kit.acting_member())
    return MailServerTestResponse(success=trial.result is settings.MailServerCheck.GOOD, message=trial.message)

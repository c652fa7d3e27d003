"""The email with all data that its template needs."""

from dataclasses import dataclass
from datetime import datetime

from core.accounts.model.email_queue import QueuedEmail
from core.authentication.model.login import IssuedEmailSignIn
from core.billing.model.subscriptions import Purchase
from core.kernel.values import Email
from core.provisioning.model.users import WelcomeContext
from core.tenancy.model import settings
from core.tenancy.model.invitations import ReceivedInvitation
from core.tenancy.model.organizations import Organization


@dataclass(frozen=True, slots=True)
class PreparedEmail(QueuedEmail):
    """An email that is ready to be rendered and sent."""

    purchase: Purchase | None = None  # for emails about a subscription
    invitation: ReceivedInvitation | None = None  # for invitations
    welcome: WelcomeContext | None = None  # for welcome emails from active organizations
    sign_in: IssuedEmailSignIn | None = None  # for sign-ins by email
    organization: Organization | None = None  # for ORGANIZATION_EMAILS
    resembles: tuple[str, ...] = ()  # for ORGANIZATION_WAITING, the names that the organization's name contains
    owner: Email | None = None  # its owner's address, if the owner's account is usable
    link_until: datetime | None = None  # when the link that proves a new address expires
    detail: str | None = None  # what the security notice is about; for RECOVERY_LINK the issuer
    factors: str | None = None  # for RECOVERY_LINK, the factors that the recovery can set up
    undo_until: datetime | None = None  # when a security notice's undo link expires
    server: settings.MailServer | None = None  # the organization's mail server; None for the platform's
    design: settings.Design | None = None  # the organization's branding; None for the platform's

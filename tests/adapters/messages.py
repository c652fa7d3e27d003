"""Emails to compose, and the parser for their HTML parts."""

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from uuid import UUID

from adapters.email.message import EmailTemplates
from core.accounts.model.email_queue import EmailKind, NoticedSecret, SecretNotice
from core.authentication.model.login import EmailSignInOrigin, IssuedEmailSignIn
from core.kernel.callers import OrganizationStatus
from core.kernel.policy import Policy
from core.kernel.roles import ADMIN
from core.kernel.values import Email, Slug
from core.mailing.model.emails import PreparedEmail
from core.tenancy.model.invitations import Invitation, InvitationStatus, ReceivedInvitation
from core.tenancy.model.organizations import Organization

TOKEN = "0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52"
BASE_URL = "https://id.example.com/sso"
RECEIVED = ReceivedInvitation(
    Invitation(
        id=UUID("4e7b1c52-90b1-4a6e-8e0b-6a0f1f7d2a33"),
        org_id=UUID("c1f4b8a0-2f6e-4f0e-9d0a-3f1c9a7b5e44"),
        email=Email("ada+o'neil&co@example.com"),
        role=ADMIN,
        invited_by=UUID("9a5d3a60-6b1f-4b5e-8a52-0d9c3b7e1f55"),
        status=InvitationStatus.PENDING,
        token_hash=b"hash",
        expires_at=datetime(2026, 3, 11, 5, 6, 7, tzinfo=UTC),
        created_at=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
    ),
    "acme",
    "Acme & <Sons>",
    Email("grace@example.com"),
)
EMAIL_REQUESTED_AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
MAIL = PreparedEmail(
    id=UUID("6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11"),
    kind=EmailKind.VERIFY_EMAIL,
    address=Email("ada+o'neil&co@example.com"),
    created_at=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
    due_at=datetime(2026, 3, 4, 5, 8, 7, tzinfo=UTC),
    claims=1,
    attempts=0,
    token=TOKEN,
    invitation=RECEIVED,
    organization=Organization(
        id=RECEIVED.invitation.org_id,
        slug=Slug("acme"),
        name=RECEIVED.organization_name,
        status=OrganizationStatus.PENDING,
        tier=None,
        max_services=None,
        max_users=None,
        device_trust_days=30,
        personal_tokens=True,
        members_see_end_users=True,
        member_count=1,
        created_at=EMAIL_REQUESTED_AT,
        updated_at=EMAIL_REQUESTED_AT,
        approved_at=None,
        rejected_reason=None,
        suspended_reason=None,
    ),
    owner=Email("grace@example.com"),
    sign_in=IssuedEmailSignIn(
        "012345",
        "Portal & <Shop>",
        EmailSignInOrigin("Firefox on Linux", "Saint-Remy-en-Bouzemont-Saint-Genest-et-Isson, FR", "2001:db8::1", EMAIL_REQUESTED_AT),
    ),
    link_until=datetime(2026, 3, 7, 5, 6, 7, tzinfo=UTC),
    undo_until=datetime(2026, 3, 7, 5, 6, 7, tzinfo=UTC),
    detail="codehost",
    factors="passkey or authenticator app",
    secret=SecretNotice(
        kind=NoticedSecret.API_KEY,
        name="Nightly & <Export>",
        label="sk_live_k2v7qa",
        holder="Shop & <Portal>",
        organization="Acme & <Sons>",
        expires_at=datetime(2026, 4, 3, 5, 6, 7, tzinfo=UTC),
        path="/app/organizations/acme/applications/shop/api-keys",
    ),
)
TEMPLATES = EmailTemplates(BASE_URL, Policy())
PATHS = {
    EmailKind.VERIFY_EMAIL: "/auth/verify-email",
    EmailKind.RESET_PASSWORD: "/auth/reset-password",
    EmailKind.MEMBER_RESET: "/auth/reset-password",
    EmailKind.RECOVERY_LINK: "/auth/recover",
    EmailKind.INVITATION: "/invitations/accept",
    EmailKind.SETUP_LINK: "/setup",
    EmailKind.WELCOME: "/auth/reset-password",
    EmailKind.EMAIL_SIGN_IN: "/auth/email-sign-in",
    EmailKind.CONFIRM_EMAIL_CHANGE: "/auth/verify-email",
}


class Page(HTMLParser):
    """The visible text, links and images in an HTML part. Every element must be closed."""

    VOID = ("meta", "br", "img")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.headings = 0
        self.visible_text = ""
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "a":
            self.links.extend(value or "" for name, value in attrs if name == "href")
        if tag == "img":
            self.images.append(dict(attrs))
        if tag == "table":
            assert ("role", "presentation") in attrs, "a layout table is hidden from screen readers"
        self.headings += tag == "h1"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "title" not in self.open:
            self.visible_text += data


def normalize(text: str) -> str:
    return " ".join(text.split())


INVITATION = replace(MAIL, kind=EmailKind.INVITATION)

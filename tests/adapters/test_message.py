"""The texts, links and designs of emails.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import email
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import policy
from email.headerregistry import Address
from html.parser import HTMLParser
from uuid import UUID

import pytest

from adapters.email.message import EmailTemplates, format_duration
from adapters.email.mime import to_mime
from core.accounts.email_queue_rules import EmailKind
from core.billing.provider_objects import MAX_PAGE_URL_LENGTH
from core.billing.subscriptions_rules import Purchase
from core.email_preparation_rules import PreparedEmail
from core.kernel.policy import Policy
from core.kernel.principals import Role
from core.kernel.values import Email
from core.tenancy.branding_rules import BrandingSettings, Design
from core.tenancy.colors import TEXT, Color, contrast
from core.tenancy.invitations_rules import Invitation, InvitationStatus, ReceivedInvitation
from ports.outside import EmailMessage

TOKEN = "0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52"
BASE_URL = "https://id.example.com/sso"
RECEIVED = ReceivedInvitation(
    Invitation(
        id=UUID("4e7b1c52-90b1-4a6e-8e0b-6a0f1f7d2a33"),
        org_id=UUID("c1f4b8a0-2f6e-4f0e-9d0a-3f1c9a7b5e44"),
        email=Email("ada+o'neil&co@example.com"),
        role=Role.ADMIN,
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
)
TEMPLATES = EmailTemplates(BASE_URL, Policy())
PATHS = {
    EmailKind.VERIFY_EMAIL: "/auth/verify-email",
    EmailKind.RESET_PASSWORD: "/auth/reset-password",
    EmailKind.INVITATION: "/invitations/accept",
    EmailKind.WELCOME: "/auth/reset-password",
}
LIFETIMES = {EmailKind.VERIFY_EMAIL: "90 minutes", EmailKind.RESET_PASSWORD: "45 minutes", EmailKind.WELCOME: "45 minutes"}
NOTICES = [kind for kind in EmailKind if kind not in PATHS]
# Notices whose reader may have to set a new password.
RECOVERY = (
    *(EmailKind.PASSWORD_CHANGED, EmailKind.UNUSUAL_SIGN_IN, EmailKind.MFA_DISABLED),
    *(EmailKind.BACKUP_CODES_REGENERATED, EmailKind.BACKUP_CODE_USED),
)


class Page(HTMLParser):
    """The visible text, links and images of an HTML part. Every element must be closed."""

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


@pytest.mark.parametrize("kind", PATHS)
def test_the_link_is_on_the_base_url_in_both_parts(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    link = f"{BASE_URL}{PATHS[kind]}?token={TOKEN}"
    assert link in message.text.splitlines(), "on a line of its own"
    page = Page(message.html)
    assert page.links == [link, link]
    assert link in page.visible_text, "to read and copy, too"


@pytest.mark.parametrize("kind", RECOVERY)
def test_a_notice_links_to_the_page_that_starts_a_password_reset(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    link = f"{BASE_URL}/app/forgot-password"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links == [link, link]


@pytest.mark.parametrize("kind", [kind for kind in NOTICES if kind not in RECOVERY])
def test_other_notices_have_no_link(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    assert "http" not in message.text
    assert Page(message.html).links == []


@pytest.mark.parametrize("kind", NOTICES)
def test_a_notice_states_the_time(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    for part in (message.text, Page(message.html).visible_text):
        assert "4 March 2026 at 05:06 UTC" in normalize(part)


@pytest.mark.parametrize("kind", EmailKind)
def test_both_parts_name_sender_and_recipient_and_advise_other_readers(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    for part in (message.text, Page(message.html).visible_text):
        assert "Gatehouse" in part
        assert MAIL.address in part
        assert re.search("If (this wasn't you|you didn't)|Don't recognize this", normalize(part))
    assert message.subject.endswith(" - Gatehouse")
    assert message.to == MAIL.address
    assert message.date == MAIL.created_at


@pytest.mark.parametrize("kind", LIFETIMES)
def test_both_parts_state_the_lifetime_of_the_link_and_that_the_email_can_be_ignored(kind: EmailKind) -> None:
    lifetimes = Policy(verification_ttl=timedelta(minutes=90), reset_ttl=timedelta(minutes=45))
    message = EmailTemplates(BASE_URL, lifetimes).compose(replace(MAIL, kind=kind))
    for part in (message.text, Page(message.html).visible_text):
        assert f"The link works once and expires {LIFETIMES[kind]} after the request" in normalize(part)
        assert "ignore this email" in normalize(part)


INVOICE = "https://invoice.provider.example/i/acct_1/live_2?s=ap&a=%3C"


def test_a_payment_email_links_to_the_invoice_if_its_url_is_known() -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=INVOICE))
    assert INVOICE in message.text.splitlines(), "on a line of its own"
    page = Page(message.html)
    assert page.links == [INVOICE, INVOICE]
    assert INVOICE in page.visible_text
    other_message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=None))
    for part, other in ((message.text, other_message.text), (page.visible_text, Page(other_message.html).visible_text)):
        assert "Confirm the payment on the payment provider's page" in normalize(part)
        assert "Open the application that you subscribed to" in normalize(other)
    longest = TEMPLATES.compose(
        replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=f"{INVOICE}{'x' * (MAX_PAGE_URL_LENGTH - len(INVOICE))}")
    )
    assert max(map(len, (longest.text + longest.html).splitlines())) <= 998


@pytest.mark.parametrize("kind", [EmailKind.TRIAL_ENDS, EmailKind.PAYMENT_ACTION])
def test_an_email_about_a_subscription_names_the_plan_if_it_is_known(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None, purchase=Purchase(plan="Gold & <More>", service="Shop")))
    other_message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    for part, other in ((message.text, other_message.text), (Page(message.html).visible_text, Page(other_message.html).visible_text)):
        assert f"subscription of {MAIL.address} to the plan Gold & <More> of Shop" in normalize(part)
        assert "the plan" not in normalize(other)


# The subject of each notice about the second factor, and a sentence of its text (security M-6).
SECOND_FACTOR = {
    EmailKind.MFA_ENABLED: ("Two-factor authentication is on", "You now need a code from your authenticator app to sign in"),
    EmailKind.MFA_DISABLED: ("Two-factor authentication is off", "You now sign in without a code"),
    EmailKind.MFA_REMOVED: ("Your two-factor authentication was removed", "You've been signed out on all devices"),
    EmailKind.BACKUP_CODES_REGENERATED: ("You have new backup codes", "Your earlier backup codes no longer work"),
    EmailKind.BACKUP_CODE_USED: ("A backup code was used", "This backup code no longer works"),
}


@pytest.mark.parametrize("kind", SECOND_FACTOR)
def test_a_notice_about_the_second_factor_states_the_change(kind: EmailKind) -> None:
    subject, change = SECOND_FACTOR[kind]
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    assert message.subject == f"{subject} - Gatehouse"
    assert subject in Page(message.html).visible_text
    for part in (message.text, Page(message.html).visible_text):
        assert change in normalize(part)


INVITATION = replace(MAIL, kind=EmailKind.INVITATION)


def test_an_invitation_names_inviter_organization_role_and_expiry() -> None:
    message = TEMPLATES.compose(INVITATION)
    assert message.subject == "You are invited to Acme & <Sons> - Gatehouse"
    for part in (message.text, Page(message.html).visible_text):
        text = normalize(part)
        assert f"grace@example.com has invited you ({MAIL.address}) to join Acme & <Sons> on Gatehouse as an administrator." in text
        assert "The link works once and expires on 11 March 2026 at 05:06 UTC." in text
        assert "ignore this email" in text
    assert "<Sons>" not in message.html


def test_an_invitation_names_the_role_of_a_member() -> None:
    message = TEMPLATES.compose(
        replace(INVITATION, invitation=replace(RECEIVED, invitation=replace(RECEIVED.invitation, role=Role.MEMBER)))
    )
    for part in (message.text, Page(message.html).visible_text):
        assert "to join Acme & <Sons> on Gatehouse as a member" in normalize(part)


def test_an_invitation_from_a_deleted_account_names_no_inviter() -> None:
    message = TEMPLATES.compose(replace(INVITATION, invitation=replace(RECEIVED, inviter_email=None)))
    for part in (message.text, Page(message.html).visible_text):
        assert f"You've been invited ({MAIL.address}) to join Acme" in normalize(part)


def test_the_name_of_an_organization_is_not_rendered_as_a_template() -> None:
    message = TEMPLATES.compose(replace(INVITATION, invitation=replace(RECEIVED, organization_name="{address} {{ product }} {0}")))
    assert message.subject == "You are invited to {address} {{ product }} {0} - Gatehouse"
    for part in (message.text, Page(message.html).visible_text):
        assert "{address} {{ product }} {0}" in normalize(part)


@pytest.mark.parametrize(
    ("minutes", "text"), [(60, "1 hour"), (1440, "24 hours"), (1, "1 minute"), (90, "90 minutes"), (0.5, "30 seconds")]
)
def test_durations_use_the_largest_exact_unit(minutes: float, text: str) -> None:
    assert format_duration(timedelta(minutes=minutes)) == text


@pytest.mark.parametrize("kind", EmailKind)
def test_an_email_loads_nothing_from_elsewhere(kind: EmailKind) -> None:
    html = TEMPLATES.compose(replace(MAIL, kind=kind)).html
    assert not re.search(r"<(?:img|link|script|iframe|form|object|svg|video|base)\b|url\(|@import|@font-face", html, re.IGNORECASE)
    assert {attribute for attribute in Page(html).attributes if attribute.startswith("on") or attribute in ("src", "background")} == set()


@pytest.mark.parametrize("kind", EmailKind)
def test_the_html_part_is_accessible_and_supports_dark_mode(kind: EmailKind) -> None:
    html = TEMPLATES.compose(replace(MAIL, kind=kind)).html
    assert '<html lang="en">' in html
    assert "prefers-color-scheme: dark" in html
    assert '<meta name="color-scheme" content="light dark">' in html
    assert Page(html).headings == 1


def test_variables_are_escaped_in_html() -> None:
    message = TEMPLATES.compose(replace(MAIL, address=Email("<i>&'@example.com")))
    assert "<i>" not in message.html
    assert "<i>&'@example.com" in Page(message.html).visible_text
    assert "<i>&'@example.com" in message.text


@pytest.mark.parametrize("kind", EmailKind)
def test_parts_are_plain_ascii_with_short_lines(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    for part in (message.text, message.html):
        assert part.isascii()
        assert max(map(len, part.splitlines())) <= 998  # RFC 5322 section 2.1.1: within it, no transfer encoding changes the link


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://[::1]:8080", "[::1]"),
        ("https://id.example.com", "id.example.com"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_message_id_depends_only_on_the_email_and_the_base_url(base_url: str, host: str) -> None:
    templates = EmailTemplates(base_url, Policy())
    message = templates.compose(MAIL)
    assert message.message_id == f"<{MAIL.id}@{host}>"
    assert message.message_id == templates.compose(replace(MAIL, attempts=3, claims=9)).message_id


def test_the_representation_of_a_message_omits_its_link() -> None:
    assert TOKEN not in repr(TEMPLATES.compose(MAIL))


# Emails in the design of an organization (decision 66; security E-1, E-4)

LINKED = list(PATHS)
LOGO = "https://cdn.acme.example/logo.svg?size=2&v=7"
PORTAL = Design("Acme & <Sons>", BrandingSettings(LOGO, "#7a1fa2", "Acme Portal"))
HOSTILE = [
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "'><img src=x onerror=alert(1)>",
    "</title></style><b>",
    "=?utf-8?q?x=0D=0ABcc:eve@example.com?=",
    "{{ product }} {address} {% raw %}",
    "שלום עולם",
    "مرحبا 42 <b>",
    "x" * 100,
]


def branded(kind: EmailKind, design: Design = PORTAL) -> EmailMessage:
    return TEMPLATES.compose(replace(MAIL, kind=kind, design=design))


def without(text: str, name: str) -> str:
    """Return the text without this name, which it must contain."""
    assert name in text
    return text.replace(name, "")


@pytest.mark.parametrize("kind", LINKED)
def test_a_design_adds_the_name_and_does_not_change_the_text(kind: EmailKind) -> None:
    plain, message = TEMPLATES.compose(replace(MAIL, kind=kind)), branded(kind)
    assert message.subject == plain.subject.removesuffix("Gatehouse") + "Acme Portal"
    assert normalize(message.text).endswith("-- This is an automated message from Gatehouse for Acme Portal. Replies aren't read.")
    assert normalize(message.text).replace("Gatehouse for Acme Portal.", "Gatehouse.") == normalize(plain.text)
    assert replace(message, subject="", text="", html="") == replace(plain, subject="", text="", html="")
    visible_text = normalize(Page(message.html).visible_text)
    assert visible_text.startswith("Acme Portal ")
    assert visible_text.endswith(f"This is an automated message from Gatehouse for Acme Portal to {MAIL.address}. Replies aren't read.")
    assert Page(message.html).links == Page(plain.html).links
    for part in (LOGO, "cdn.acme", "#7a1fa2"):
        assert part not in message.text


@pytest.mark.parametrize("kind", LINKED)
def test_the_logo_is_one_image_of_fixed_height(kind: EmailKind) -> None:
    [image] = Page(branded(kind).html).images
    assert (image["src"], image["height"], image["alt"]) == (LOGO, "32", "Logo")
    assert branded(kind).html.count("cdn.acme.example") == 1
    unmarked = branded(kind, replace(PORTAL, branding=replace(PORTAL.branding, logo_url=None)))
    assert Page(unmarked.html).images == []


def colors_of(html: str) -> dict[str, dict[str, Color]]:
    """Return the colors of the link, the button and its label by color scheme."""
    patterns_of_scheme = {
        "light": {
            "button": r'class="button" style="background:(#\w+);',
            "label": r'class="label"[^>]* style="[^"]*;color:(#\w+);',
            "link": r'class="link"[^>]* style="color:(#\w+);',
        },
        "dark": {name: rf"\.{name} {{ (?:background|color): (#\w+) !important" for name in ("button", "label", "link")},
    }
    return {
        scheme: {name: Color.parse(re.findall(pattern, html)[0]) for name, pattern in patterns.items()}
        for scheme, patterns in patterns_of_scheme.items()
    }


@pytest.mark.parametrize("color", [None, "#ffffff", "#fff6d5", "#ffcc00", "#7a1fa2", "#767676", "#00112a", "#000000"])
@pytest.mark.parametrize("kind", LINKED)
def test_colors_have_enough_contrast_in_both_schemes(kind: EmailKind, color: str | None) -> None:
    design = None if color is None else Design("Acme", BrandingSettings(primary_color=color))
    for scheme, colors in colors_of(TEMPLATES.compose(replace(MAIL, kind=kind, design=design)).html).items():
        assert contrast(colors["label"], colors["button"]) >= TEXT
        assert contrast(colors["link"], Color.parse("#ffffff" if scheme == "light" else "#172024")) >= TEXT
        assert color is None or colors["button"] == Color.parse(color)


@pytest.mark.parametrize("kind", LINKED)
def test_a_design_without_settings_adds_only_the_name(kind: EmailKind) -> None:
    plain, message = TEMPLATES.compose(replace(MAIL, kind=kind)), branded(kind, Design("Acme Ltd."))
    assert message.subject == plain.subject.removesuffix("Gatehouse") + "Acme Ltd."
    assert normalize(Page(message.html).visible_text).startswith("Acme Ltd. ")
    assert colors_of(message.html) == colors_of(plain.html)
    assert Page(message.html).images == []


def test_the_subject_of_an_invitation_names_the_organization_once() -> None:
    assert branded(EmailKind.INVITATION, Design(RECEIVED.organization_name)).subject == TEMPLATES.compose(INVITATION).subject
    assert branded(EmailKind.INVITATION).subject == "You are invited to Acme & <Sons> - Acme Portal"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", LINKED)
def test_a_hostile_name_changes_no_markup_and_no_header(kind: EmailKind, name: str) -> None:
    plain = Page(branded(kind, Design("Acme", replace(PORTAL.branding, product_name="N"))).html)
    message = branded(kind, Design("Acme", replace(PORTAL.branding, product_name=name)))
    page = Page(message.html)
    assert without(message.text, name) == branded(kind).text.replace("Acme Portal", "")
    assert normalize(page.visible_text).startswith(normalize(f"{name} "))
    assert (page.links, page.images, page.attributes, page.headings) == (plain.links, plain.images, plain.attributes, plain.headings)
    assert message.html.count("</title>") == message.html.count("</style>") == 1
    mime = to_mime(message, Address("Gatehouse", addr_spec="signin@id.example.com"))
    read = email.message_from_bytes(bytes(mime), policy=policy.default)
    assert read.keys() == mime.keys()
    assert read["Subject"].strip() == message.subject.replace("=?", "= ?")
    for part, body in zip(read.iter_parts(), (message.text, message.html), strict=True):
        assert part.get_content().splitlines() == body.splitlines()


@pytest.mark.parametrize("name", ["שלום", "مرحبا 42"])
def test_a_right_to_left_name_is_isolated_from_the_text_around_it(name: str) -> None:
    body = branded(EmailKind.INVITATION, Design(name)).html.partition("</title>")[2]
    assert body.count(f"<bdi>{name}</bdi>") == body.count(name) == 2
    assert "<bdi>Acme &amp; &lt;Sons&gt;</bdi></h1>" in body

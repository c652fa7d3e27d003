"""What mails say, where their links lead, and what they do not contain."""

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
OFFER = ReceivedInvitation(
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
    invitation=OFFER,
)
LETTERS = EmailTemplates(BASE_URL, Policy())
PATHS = {
    EmailKind.VERIFY_EMAIL: "/auth/verify-email",
    EmailKind.RESET_PASSWORD: "/auth/reset-password",
    EmailKind.INVITATION: "/invitations/accept",
    EmailKind.WELCOME: "/auth/reset-password",
}
LIFETIMES = {EmailKind.VERIFY_EMAIL: "90 minutes", EmailKind.RESET_PASSWORD: "45 minutes", EmailKind.WELCOME: "45 minutes"}
NOTICES = [kind for kind in EmailKind if kind not in PATHS]


class Page(HTMLParser):
    """What an HTML part shows and refers to; every element must be closed."""

    VOID = ("meta", "br", "img")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.headings = 0
        self.shown = ""
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
            assert ("role", "presentation") in attrs, "a table that lays out is none to a screen reader"
        self.headings += tag == "h1"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "title" not in self.open:
            self.shown += data


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("kind", PATHS)
def test_the_link_is_on_the_base_url_in_both_parts(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind))
    link = f"{BASE_URL}{PATHS[kind]}?token={TOKEN}"
    assert link in letter.text.splitlines(), "on a line of its own"
    page = Page(letter.html)
    assert page.links == [link, link]
    assert link in page.shown, "to read and copy, too"


@pytest.mark.parametrize("kind", NOTICES)
def test_a_notice_has_no_link(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind, token=None))
    assert "http" not in letter.text
    assert Page(letter.html).links == []


@pytest.mark.parametrize("kind", NOTICES)
def test_a_notice_says_when(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind, token=None))
    for part in (letter.text, Page(letter.html).shown):
        assert "4 March 2026 at 05:06 UTC" in words(part)


@pytest.mark.parametrize("kind", EmailKind)
def test_both_parts_say_who_writes_to_whom_and_what_to_do_if_it_was_somebody_else(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind))
    for part in (letter.text, Page(letter.html).shown):
        assert "Gatehouse" in part
        assert MAIL.address in part
        assert re.search("If (it was not you|you do not know who)", part)
    assert letter.subject.endswith(" - Gatehouse")
    assert letter.to == MAIL.address
    assert letter.date == MAIL.created_at


@pytest.mark.parametrize("kind", LIFETIMES)
def test_both_parts_say_how_long_the_link_lives_and_that_the_mail_may_be_ignored(kind: EmailKind) -> None:
    lifetimes = Policy(verification_ttl=timedelta(minutes=90), reset_ttl=timedelta(minutes=45))
    letter = EmailTemplates(BASE_URL, lifetimes).compose(replace(MAIL, kind=kind))
    for part in (letter.text, Page(letter.html).shown):
        assert f"The link works once, within {LIFETIMES[kind]} of the request" in words(part)
        assert "ignore this mail" in words(part)


INVOICE = "https://invoice.provider.example/i/acct_1/live_2?s=ap&a=%3C"


def test_a_payment_is_completed_on_the_page_of_the_provider_where_it_is_known() -> None:
    letter = LETTERS.compose(replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=INVOICE))
    assert INVOICE in letter.text.splitlines(), "on a line of its own"
    page = Page(letter.html)
    assert page.links == [INVOICE, INVOICE]
    assert INVOICE in page.shown
    without = LETTERS.compose(replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=None))
    for part, other in ((letter.text, without.text), (page.shown, Page(without.html).shown)):
        assert "Complete the payment on the page of the payment provider" in words(part)
        assert "Open the application that you subscribed to" in words(other)
    longest = LETTERS.compose(replace(MAIL, kind=EmailKind.PAYMENT_ACTION, token=f"{INVOICE}{'x' * (MAX_PAGE_URL_LENGTH - len(INVOICE))}"))
    assert max(map(len, (longest.text + longest.html).splitlines())) <= 998


@pytest.mark.parametrize("kind", [EmailKind.TRIAL_ENDS, EmailKind.PAYMENT_ACTION])
def test_what_somebody_has_bought_is_named_where_it_is_known(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind, token=None, purchase=Purchase(plan="Gold & <More>", service="Shop")))
    without = LETTERS.compose(replace(MAIL, kind=kind, token=None))
    for part, other in ((letter.text, without.text), (Page(letter.html).shown, Page(without.html).shown)):
        assert f"subscription of {MAIL.address} to the plan Gold & <More> of Shop" in words(part)
        assert "the plan" not in words(other)


# What a notice of the second factor is about, and what follows from it (security.md M-6).
SECOND_FACTOR = {
    EmailKind.MFA_ENABLED: ("Two-factor authentication is on", "signing in takes a code of your authenticator app as well"),
    EmailKind.MFA_DISABLED: ("Two-factor authentication is off", "the password alone is enough to sign in"),
    EmailKind.MFA_REMOVED: ("An administrator removed your two-factor authentication", "You were signed out everywhere"),
    EmailKind.BACKUP_CODES_REGENERATED: ("You have new backup codes", "All earlier backup codes are no longer valid"),
    EmailKind.BACKUP_CODE_USED: ("A backup code was used", "The code is used up"),
}


@pytest.mark.parametrize("kind", SECOND_FACTOR)
def test_a_notice_of_the_second_factor_says_what_has_changed(kind: EmailKind) -> None:
    subject, change = SECOND_FACTOR[kind]
    letter = LETTERS.compose(replace(MAIL, kind=kind, token=None))
    assert letter.subject == f"{subject} - Gatehouse"
    assert subject in Page(letter.html).shown
    for part in (letter.text, Page(letter.html).shown):
        assert change in words(part)


INVITATION = replace(MAIL, kind=EmailKind.INVITATION)


def test_an_invitation_says_who_invites_to_what_as_what_and_until_when() -> None:
    letter = LETTERS.compose(INVITATION)
    assert letter.subject == "You are invited to Acme & <Sons> - Gatehouse"
    for part in (letter.text, Page(letter.html).shown):
        said = words(part)
        assert f"grace@example.com invites you, {MAIL.address}, to be an administrator of Acme & <Sons> on Gatehouse." in said
        assert "The link works once, until 11 March 2026 at 05:06 UTC." in said
        assert "ignore this mail" in said
    assert "<Sons>" not in letter.html


def test_an_invitation_says_the_role() -> None:
    letter = LETTERS.compose(replace(INVITATION, invitation=replace(OFFER, invitation=replace(OFFER.invitation, role=Role.MEMBER))))
    for part in (letter.text, Page(letter.html).shown):
        assert "to be a member of Acme" in words(part)


def test_an_invitation_of_somebody_who_is_gone_names_nobody() -> None:
    letter = LETTERS.compose(replace(INVITATION, invitation=replace(OFFER, inviter_email=None)))
    for part in (letter.text, Page(letter.html).shown):
        assert f"You are invited, {MAIL.address}, to be an administrator" in words(part)


def test_the_name_of_an_organization_is_no_template() -> None:
    letter = LETTERS.compose(replace(INVITATION, invitation=replace(OFFER, organization_name="{address} {{ product }} {0}")))
    assert letter.subject == "You are invited to {address} {{ product }} {0} - Gatehouse"
    for part in (letter.text, Page(letter.html).shown):
        assert "{address} {{ product }} {0}" in words(part)


@pytest.mark.parametrize(
    ("minutes", "said"), [(60, "1 hour"), (1440, "24 hours"), (1, "1 minute"), (90, "90 minutes"), (0.5, "30 seconds")]
)
def test_lifetimes_are_spoken(minutes: float, said: str) -> None:
    assert format_duration(timedelta(minutes=minutes)) == said


@pytest.mark.parametrize("kind", EmailKind)
def test_nothing_is_loaded_from_elsewhere(kind: EmailKind) -> None:
    html = LETTERS.compose(replace(MAIL, kind=kind)).html
    assert not re.search(r"<(?:img|link|script|iframe|form|object|svg|video|base)\b|url\(|@import|@font-face", html, re.IGNORECASE)
    assert {attribute for attribute in Page(html).attributes if attribute.startswith("on") or attribute in ("src", "background")} == set()


@pytest.mark.parametrize("kind", EmailKind)
def test_html_is_accessible_and_follows_the_colour_scheme(kind: EmailKind) -> None:
    html = LETTERS.compose(replace(MAIL, kind=kind)).html
    assert '<html lang="en">' in html
    assert "prefers-color-scheme: dark" in html
    assert '<meta name="color-scheme" content="light dark">' in html
    assert Page(html).headings == 1


def test_what_comes_from_outside_is_escaped_in_html() -> None:
    letter = LETTERS.compose(replace(MAIL, address=Email("<i>&'@example.com")))
    assert "<i>" not in letter.html
    assert "<i>&'@example.com" in Page(letter.html).shown
    assert "<i>&'@example.com" in letter.text


@pytest.mark.parametrize("kind", EmailKind)
def test_parts_are_plain_ascii_with_short_lines(kind: EmailKind) -> None:
    letter = LETTERS.compose(replace(MAIL, kind=kind))
    for part in (letter.text, letter.html):
        assert part.isascii()
        assert max(map(len, part.splitlines())) <= 998  # RFC 5322 section 2.1.1; then no encoding hides the link


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://[::1]:8080", "[::1]"),
        ("https://id.example.com", "id.example.com"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_message_id_is_the_mails_own(base_url: str, host: str) -> None:
    letters = EmailTemplates(base_url, Policy())
    letter = letters.compose(MAIL)
    assert letter.message_id == f"<{MAIL.id}@{host}>"
    assert letter.message_id == letters.compose(replace(MAIL, attempts=3, claims=9)).message_id


def test_a_letter_does_not_show_its_link() -> None:
    assert TOKEN not in repr(LETTERS.compose(MAIL))


# In the design of an organization (decisions, point 66; security.md E-1, E-4)

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
    return LETTERS.compose(replace(MAIL, kind=kind, design=design))


def within(text: str, name: str) -> str:
    """The text without a name."""
    assert name in text
    return text.replace(name, "")


@pytest.mark.parametrize("kind", LINKED)
def test_an_organization_adds_its_name_and_nothing_to_what_is_said(kind: EmailKind) -> None:
    plain, letter = LETTERS.compose(replace(MAIL, kind=kind)), branded(kind)
    assert letter.subject == plain.subject.removesuffix("Gatehouse") + "Acme Portal"
    assert words(letter.text).endswith("-- Gatehouse sent this mail by itself, for Acme Portal. Nobody reads the answers.")
    assert words(letter.text).replace("itself, for Acme Portal.", "itself.") == words(plain.text)
    assert replace(letter, subject="", text="", html="") == replace(plain, subject="", text="", html="")
    shown = words(Page(letter.html).shown)
    assert shown.startswith("Acme Portal ")
    assert shown.endswith(f"Gatehouse sent this mail by itself, for Acme Portal, to {MAIL.address}. Nobody reads the answers.")
    assert Page(letter.html).links == Page(plain.html).links
    for part in (LOGO, "cdn.acme", "#7a1fa2"):
        assert part not in letter.text


@pytest.mark.parametrize("kind", LINKED)
def test_its_logo_is_an_image_of_a_fixed_height_that_says_nothing(kind: EmailKind) -> None:
    [image] = Page(branded(kind).html).images
    assert (image["src"], image["height"], image["alt"]) == (LOGO, "32", "Logo")
    assert branded(kind).html.count("cdn.acme.example") == 1
    unmarked = branded(kind, replace(PORTAL, branding=replace(PORTAL.branding, logo_url=None)))
    assert Page(unmarked.html).images == []


def colors_of(html: str) -> dict[str, dict[str, Color]]:
    """What the link, the button and its label are coloured in, by scheme."""
    found = {
        "light": {
            "button": r'class="button" style="background:(#\w+);',
            "label": r'class="label"[^>]* style="[^"]*;color:(#\w+);',
            "link": r'class="link"[^>]* style="color:(#\w+);',
        },
        "dark": {name: rf"\.{name} {{ (?:background|color): (#\w+) !important" for name in ("button", "label", "link")},
    }
    return {
        scheme: {name: Color.parse(re.findall(pattern, html)[0]) for name, pattern in patterns.items()}
        for scheme, patterns in found.items()
    }


@pytest.mark.parametrize("color", [None, "#ffffff", "#fff6d5", "#ffcc00", "#7a1fa2", "#767676", "#00112a", "#000000"])
@pytest.mark.parametrize("kind", LINKED)
def test_what_is_coloured_can_be_read_in_both_schemes(kind: EmailKind, color: str | None) -> None:
    design = None if color is None else Design("Acme", BrandingSettings(primary_color=color))
    for scheme, found in colors_of(LETTERS.compose(replace(MAIL, kind=kind, design=design)).html).items():
        assert contrast(found["label"], found["button"]) >= TEXT
        assert contrast(found["link"], Color.parse("#ffffff" if scheme == "light" else "#172024")) >= TEXT
        assert color is None or found["button"] == Color.parse(color)


@pytest.mark.parametrize("kind", LINKED)
def test_an_organization_that_has_chosen_nothing_adds_its_name_alone(kind: EmailKind) -> None:
    plain, letter = LETTERS.compose(replace(MAIL, kind=kind)), branded(kind, Design("Acme Ltd."))
    assert letter.subject == plain.subject.removesuffix("Gatehouse") + "Acme Ltd."
    assert words(Page(letter.html).shown).startswith("Acme Ltd. ")
    assert colors_of(letter.html) == colors_of(plain.html)
    assert Page(letter.html).images == []


def test_the_subject_of_an_invitation_does_not_name_the_organization_twice() -> None:
    assert branded(EmailKind.INVITATION, Design(OFFER.organization_name)).subject == LETTERS.compose(INVITATION).subject
    assert branded(EmailKind.INVITATION).subject == "You are invited to Acme & <Sons> - Acme Portal"


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", LINKED)
def test_no_name_does_harm(kind: EmailKind, name: str) -> None:
    plain = Page(branded(kind, Design("Acme", replace(PORTAL.branding, product_name="N"))).html)
    letter = branded(kind, Design("Acme", replace(PORTAL.branding, product_name=name)))
    page = Page(letter.html)
    assert within(letter.text, name) == branded(kind).text.replace("Acme Portal", "")
    assert words(page.shown).startswith(words(f"{name} "))
    assert (page.links, page.images, page.attributes, page.headings) == (plain.links, plain.images, plain.attributes, plain.headings)
    assert letter.html.count("</title>") == letter.html.count("</style>") == 1
    message = to_mime(letter, Address("Gatehouse", addr_spec="signin@id.example.com"))
    read = email.message_from_bytes(bytes(message), policy=policy.default)
    assert read.keys() == message.keys()
    assert read["Subject"].strip() == letter.subject.replace("=?", "= ?")
    for part, body in zip(read.iter_parts(), (letter.text, letter.html), strict=True):
        assert part.get_content().splitlines() == body.splitlines()


@pytest.mark.parametrize("name", ["שלום", "مرحبا 42"])
def test_a_name_that_is_written_from_right_to_left_turns_nothing_round_it(name: str) -> None:
    body = branded(EmailKind.INVITATION, Design(name)).html.partition("</title>")[2]
    assert body.count(f"<bdi>{name}</bdi>") == body.count(name) == 2
    assert "<bdi>Acme &amp; &lt;Sons&gt;</bdi></h1>" in body

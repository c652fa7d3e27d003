"""The texts and links in emails."""

import re
from dataclasses import replace
from datetime import timedelta

from adapters.email.message import EmailTemplates, format_duration
from core.accounts.model.email_queue import CONNECTION_EMAILS, EmailKind, NoticedSecret
from core.authentication.model.login import EmailSignInOrigin, IssuedEmailSignIn
from core.billing.model.provider_objects import MAX_PAGE_URL_LENGTH
from core.billing.model.subscriptions import Purchase
from core.kernel.policy import Policy, SupportContact
from core.kernel.roles import MEMBER
from core.kernel.values import Email
from core.provisioning.model.users import WelcomeContext
from tests.adapters.messages import BASE_URL, INVITATION, MAIL, PATHS, RECEIVED, TEMPLATES, TOKEN, Page, normalize
from tests.tables import table

LIFETIMES = {
    EmailKind.VERIFY_EMAIL: "expires 90 minutes after the request",
    EmailKind.RESET_PASSWORD: "expires 45 minutes after the request",
    EmailKind.MEMBER_RESET: "expires 45 minutes after the request",
    EmailKind.WELCOME: "expires after 3 days",
}
ACCOUNT = f"a Gatehouse account for you: {MAIL.address}."
NOTICES = [kind for kind in EmailKind if kind not in PATHS]
# Notices after which the reader may have to set a new password.
# Notices with an undo link, if the address is verified.
UNDOABLE = (
    *(EmailKind.PASSWORD_CHANGED, EmailKind.MFA_ENABLED, EmailKind.MFA_DISABLED, EmailKind.BACKUP_CODES_REGENERATED),
    *(EmailKind.EMAIL_CHANGE_REQUESTED, EmailKind.IDENTITY_LINKED, EmailKind.IDENTITY_UNLINKED),
    *(EmailKind.PASSKEY_ADDED, EmailKind.PASSKEY_REMOVED, EmailKind.PASSKEY_WAIT_STARTED, EmailKind.PASSKEY_WAIT_OVER),
)
RECOVERY = (*UNDOABLE, EmailKind.UNUSUAL_SIGN_IN, EmailKind.BACKUP_CODE_USED, EmailKind.REAUTHENTICATION)
ABOUT_SECRETS = (EmailKind.PERSONAL_TOKEN_CREATED, EmailKind.SECRET_EXPIRES)
ENDED = (EmailKind.SECRET_ENDED, EmailKind.PROGRAM_ENDED, EmailKind.PROGRAMS_END)
NAME_ANOTHER_TIME = (
    *(EmailKind.SECRET_EXPIRES, EmailKind.SECRET_ENDED, EmailKind.REAUTHENTICATION, EmailKind.CONNECTION_CERTIFICATE_EXPIRES),
    EmailKind.SETUP_CODE,
)
USABLE = (EmailKind.ORGANIZATION_APPROVED, EmailKind.ORGANIZATION_ACTIVATED)


@table("kind", PATHS)
def test_the_link_is_on_the_base_url_in_both_parts(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    link = f"{BASE_URL}{PATHS[kind]}?token={TOKEN}"
    assert link in message.text.splitlines(), "on a line of its own"
    page = Page(message.html)
    assert page.links == [link, link]
    assert link in page.visible_text, "to read and copy, too"


@table("kind", RECOVERY)
def test_a_notice_links_to_the_page_that_starts_a_password_reset(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    link = f"{BASE_URL}/app/forgot-password"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links == [link, link]


@table("kind", [*UNDOABLE, EmailKind.PERSONAL_TOKEN_CREATED, EmailKind.ACCOUNT_DELETED])
def test_a_notice_about_a_way_into_the_account_has_an_undo_link_and_its_end(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, notice_id=MAIL.id))
    link = f"{BASE_URL}/auth/undo?token={TOKEN}"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links[-2:] == [link, link]
    for part in (message.text, Page(message.html).visible_text):
        assert "If this wasn't you, undo this and everything that was changed since." in normalize(part)
        assert "The link works once and expires on 7 March 2026 at 05:06 UTC." in normalize(part)
        assert "/app/forgot-password" not in part


@table("kind", USABLE)
def test_a_notice_about_a_usable_organization_links_to_the_sign_in_page(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    link = f"{BASE_URL}/app/sign-in"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links == [link, link]


REASONED = {
    EmailKind.ORGANIZATION_REJECTED: "Acme & <Sons> was rejected",
    EmailKind.ORGANIZATION_SUSPENDED: "Acme & <Sons> was suspended",
    EmailKind.ADMIN_NETWORKS_REMOVED: "Admins of Acme & <Sons> can act from any network",
}


@table("kind", REASONED)
def test_a_notice_about_an_organization_states_the_reason_if_there_is_one(kind: EmailKind) -> None:
    for reason in ("Not a company & <late>", None):
        message = TEMPLATES.compose(replace(MAIL, kind=kind, token=reason))
        assert message.subject == f"{REASONED[kind]} - Gatehouse"
        for part in (message.text, Page(message.html).visible_text):
            assert "Acme & <Sons>" in normalize(part)
            assert ("The reason: Not a company & <late>" in normalize(part), "reason" in part) == (reason is not None,) * 2


def test_platform_owners_learn_which_organization_waits_and_how_to_approve_it() -> None:
    for owner, creator in ((Email("grace@example.com"), "grace@example.com created"), (None, "A user created")):
        message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.ORGANIZATION_WAITING, owner=owner))
        for part in (message.text, Page(message.html).visible_text):
            assert f"{creator} the organization Acme & <Sons> (acme) on" in normalize(part)
            assert f"POST /api/platform/organizations/{RECEIVED.invitation.org_id}/approve" in part


@table(
    "kind",
    [
        kind
        for kind in NOTICES
        if kind not in (*RECOVERY, *USABLE, *ABOUT_SECRETS, *ENDED, *CONNECTION_EMAILS, EmailKind.POLICY_DUE, EmailKind.RULES_IMPOSED)
    ],
)
def test_other_notices_have_no_link(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    assert "http" not in message.text
    assert Page(message.html).links == []


def test_the_reminder_of_platform_owners_names_the_day_and_links_to_the_page_that_sets_a_factor_up() -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.POLICY_DUE, token="5 March 2026"))
    link = f"{BASE_URL}/app/enroll"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links == [link, link]
    for part in (message.text, Page(message.html).visible_text):
        assert "Set up a second factor by 5 March 2026." in normalize(part)


@table("kind", ABOUT_SECRETS)
def test_a_notice_about_a_secret_names_it_and_its_end_and_links_to_its_page(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    link = f"{BASE_URL}/app/organizations/acme/applications/shop/api-keys"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links[:2] == [link, link]
    for part in (message.text, Page(message.html).visible_text):
        for fact in ("Nightly & <Export>", "sk_live_k2v7qa", "Acme & <Sons>", "expires on 3 April 2026 at 05:06 UTC"):
            assert fact in normalize(part)


@table("kind", ENDED)
def test_a_notice_about_the_end_of_a_secret_names_it_and_links_to_the_page_of_its_program(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    link = f"{BASE_URL}/app/organizations/acme/applications/shop/api-keys"
    assert link in message.text.splitlines(), "on a line of its own"
    assert Page(message.html).links[:2] == [link, link]
    for part in (message.text, Page(message.html).visible_text):
        for fact in ("Nightly & <Export>", "Acme & <Sons>", "If you didn't expect"):
            assert fact in normalize(part)


@table(
    ("kind", "holder", "subject", "text"),
    [
        (NoticedSecret.PERSONAL_TOKEN, None, "personal access token Nightly", "personal access token"),
        (NoticedSecret.API_KEY, "Shop", "API key Nightly of Shop", "API key of the application Shop"),
        (NoticedSecret.SCIM_TOKEN, None, "SCIM token Nightly", "SCIM token"),
        (NoticedSecret.REGISTRATION_TOKEN, None, "registration token Nightly", "registration token"),
        (NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL, "Deploy", "credential Nightly of Deploy", "credential of the service account Deploy"),
        (NoticedSecret.API_RESOURCE_CREDENTIAL, "Orders", "credential Nightly of Orders", "credential of the API resource Orders"),
    ],
)
def test_the_announcement_says_what_expires(kind: NoticedSecret, holder: str | None, subject: str, text: str) -> None:
    assert MAIL.secret is not None
    secret = replace(MAIL.secret, kind=kind, holder=holder, name="Nightly", label=None, organization=None)
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.SECRET_EXPIRES, secret=secret))
    assert message.subject == f"The {subject} expires soon - Gatehouse"
    for part in (message.text, Page(message.html).visible_text):
        assert f"The {text}, named Nightly, expires on 3 April 2026" in normalize(part)


@table("kind", [kind for kind in NOTICES if kind not in NAME_ANOTHER_TIME])
def test_a_notice_states_the_time(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    for part in (message.text, Page(message.html).visible_text):
        assert "4 March 2026 at 05:06 UTC" in normalize(part)


@table("kind", EmailKind)
def test_both_parts_name_sender_and_recipient_and_advise_other_readers(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    for part in (message.text, Page(message.html).visible_text):
        assert "Gatehouse" in part
        assert MAIL.address in part
        assert re.search("If (this wasn't you|you didn't)|Don't recognize this", normalize(part))
    assert message.subject.endswith(" - Gatehouse")
    assert message.to == MAIL.address
    assert message.date == MAIL.created_at


@table(
    ("contact", "url"),
    [("https://example.com/help", "https://example.com/help"), ("help+id@example.com", "mailto:help%2Bid@example.com")],
)
def test_the_footer_of_every_email_shows_the_support_address(contact: str, url: str) -> None:
    templates = EmailTemplates(BASE_URL, Policy(support=SupportContact(contact)))
    for kind in EmailKind:
        message, plain = (each.compose(replace(MAIL, kind=kind)) for each in (templates, TEMPLATES))
        assert message.text.splitlines()[-1] == f"Get help at {contact}"
        assert Page(message.html).links == [*Page(plain.html).links, url]
        assert f"Get help at {contact}." in normalize(Page(message.html).visible_text)
        assert "Get help" not in plain.text + plain.html


@table("kind", LIFETIMES)
def test_both_parts_state_the_lifetime_of_the_link_and_that_the_email_can_be_ignored(kind: EmailKind) -> None:
    lifetimes = Policy(verification_ttl=timedelta(minutes=90), reset_ttl=timedelta(minutes=45), welcome_ttl=timedelta(days=3))
    message = EmailTemplates(BASE_URL, lifetimes).compose(replace(MAIL, kind=kind))
    for part in (message.text, Page(message.html).visible_text):
        assert f"The link works once and {LIFETIMES[kind]}" in normalize(part)
        assert "ignore this email" in normalize(part)


@table(
    ("welcome", "text"),
    [
        (WelcomeContext("Acme & <Sons>", "The Shop"), f"Acme & <Sons> has created {ACCOUNT} You can sign in to The Shop with it."),
        (WelcomeContext("Acme & <Sons>", None), f"Acme & <Sons> has created {ACCOUNT} Set a password"),
        (None, f"Your organization has created {ACCOUNT} Set a password"),
    ],
)
def test_a_welcome_email_names_the_organization_and_its_only_application(welcome: WelcomeContext | None, text: str) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.WELCOME, welcome=welcome))
    for part in (message.text, Page(message.html).visible_text):
        assert text in normalize(part)


def test_a_sign_in_email_has_the_code_and_says_where_the_request_came_from() -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.EMAIL_SIGN_IN))
    assert "012345" in message.text.splitlines(), "on a line of its own"
    for part in (message.text, Page(message.html).visible_text):
        text = normalize(part)
        for expected in (
            "012345",
            "sign in to Portal & <Shop>",
            "Firefox on Linux",
            "2001:db8::1",
            "4 March 2026 at 05:06 UTC",
            "15 minutes",
        ):
            assert expected in text, expected
    without = replace(
        MAIL, kind=EmailKind.EMAIL_SIGN_IN, sign_in=IssuedEmailSignIn("1", None, EmailSignInOrigin("x", None, None, MAIL.due_at))
    )
    assert "sign in to your Gatehouse account" in normalize(TEMPLATES.compose(without).text)


def test_an_email_that_proves_an_address_states_when_its_link_expires() -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=EmailKind.CONFIRM_EMAIL_CHANGE, invitation=None))
    for part in (message.text, Page(message.html).visible_text):
        assert "The link works once and expires on 7 March 2026 at 05:06 UTC." in normalize(part)


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


@table("kind", [EmailKind.TRIAL_ENDS, EmailKind.PAYMENT_ACTION])
def test_an_email_about_a_subscription_names_the_plan_if_it_is_known(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None, purchase=Purchase(plan="Gold & <More>", service="Shop")))
    other_message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    for part, other in ((message.text, other_message.text), (Page(message.html).visible_text, Page(other_message.html).visible_text)):
        assert f"subscription of {MAIL.address} to the plan Gold & <More> of Shop" in normalize(part)
        assert "the plan" not in normalize(other)


# The subject and a sentence from the text, for every notice about the second factor (security M-6).
SECOND_FACTOR = {
    EmailKind.MFA_ENABLED: ("Two-factor authentication is on", "You now need a code from your authenticator app to sign in"),
    EmailKind.MFA_DISABLED: ("Two-factor authentication is off", "You now sign in without a code"),
    EmailKind.MFA_REMOVED: ("Your two-factor authentication was removed", "You've been signed out on all devices"),
    EmailKind.BACKUP_CODES_REGENERATED: ("You have new backup codes", "Your earlier backup codes no longer work"),
    EmailKind.PASSKEY_ADDED: ("A passkey was added", "It signs in to your account without a password"),
    EmailKind.PASSKEY_REMOVED: ("A passkey was deleted", "It no longer signs in to your account"),
    EmailKind.BACKUP_CODE_USED: ("A backup code was used", "This backup code no longer works"),
}


@table("kind", SECOND_FACTOR)
def test_a_notice_about_the_second_factor_states_the_change(kind: EmailKind) -> None:
    subject, change = SECOND_FACTOR[kind]
    message = TEMPLATES.compose(replace(MAIL, kind=kind, token=None))
    assert message.subject == f"{subject} - Gatehouse"
    assert subject in Page(message.html).visible_text
    for part in (message.text, Page(message.html).visible_text):
        assert change in normalize(part)


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
    message = TEMPLATES.compose(replace(INVITATION, invitation=replace(RECEIVED, invitation=replace(RECEIVED.invitation, role=MEMBER))))
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


@table(
    ("minutes", "text"),
    [(60, "1 hour"), (1440, "24 hours"), (10080, "7 days"), (1500, "25 hours"), (1, "1 minute"), (90, "90 minutes"), (0.5, "30 seconds")],
)
def test_durations_use_the_largest_exact_unit(minutes: float, text: str) -> None:
    assert format_duration(timedelta(minutes=minutes)) == text


@table("kind", EmailKind)
def test_an_email_loads_nothing_from_elsewhere(kind: EmailKind) -> None:
    html = TEMPLATES.compose(replace(MAIL, kind=kind)).html
    assert not re.search(r"<(?:img|link|script|iframe|form|object|svg|video|base)\b|url\(|@import|@font-face", html, re.IGNORECASE)
    assert {attribute for attribute in Page(html).attributes if attribute.startswith("on") or attribute in ("src", "background")} == set()


@table("kind", EmailKind)
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


@table("kind", EmailKind)
@table("with_link", [True, False])
def test_sentences_are_separated_with_and_without_an_undo_link(kind: EmailKind, with_link: bool) -> None:
    notice_id = MAIL.id if with_link else None
    text = TEMPLATES.compose(replace(MAIL, kind=kind, notice_id=notice_id, undo_until=MAIL.created_at)).text
    assert re.findall(r"[a-z0-9][.:][A-Z]\w+|\n\n\n.*|.+\nIf this wasn't you.*", text) == []


@table("kind", EmailKind)
def test_parts_are_plain_ascii_with_short_lines(kind: EmailKind) -> None:
    message = TEMPLATES.compose(replace(MAIL, kind=kind))
    for part in (message.text, message.html):
        assert part.isascii()
        assert max(map(len, part.splitlines())) <= 998  # RFC 5322 section 2.1.1: within it, no transfer encoding changes the link


@table(
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

"""Wording and design of mails: two templates for each kind, text and HTML, around one layout."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape

from core.accounts.email_queue_rules import EmailKind
from core.email_preparation_rules import PreparedEmail
from core.kernel.display import PRODUCT, ROLES, format_utc
from core.kernel.policy import Policy
from core.tenancy.branding_rules import Design
from core.tenancy.colors import Color, ColorScheme, Palette, derive_palette
from core.tenancy.invitations_rules import ReceivedInvitation
from ports.outside import EmailMessage

# Where the link of a mail leads, below the base URL, and what a mail is about.
PATHS: Final = MappingProxyType(
    {
        EmailKind.VERIFY_EMAIL: "/auth/verify-email",
        EmailKind.RESET_PASSWORD: "/auth/reset-password",
        EmailKind.INVITATION: "/invitations/accept",
        EmailKind.WELCOME: "/auth/reset-password",
    }
)
SIGN_IN: Final = "/app/sign-in"
SUBJECTS: Final = MappingProxyType(
    {
        EmailKind.VERIFY_EMAIL: "Confirm your email address",
        EmailKind.RESET_PASSWORD: "Choose a new password",
        EmailKind.PASSWORD_CHANGED: "Your password was changed",
        EmailKind.EMAIL_CHANGED: "Your email address was changed",
        EmailKind.UNUSUAL_SIGN_IN: "An unusual sign-in to your account",
        EmailKind.MFA_ENABLED: "Two-factor authentication is on",
        EmailKind.MFA_DISABLED: "Two-factor authentication is off",
        EmailKind.MFA_REMOVED: "An administrator removed your two-factor authentication",
        EmailKind.BACKUP_CODES_REGENERATED: "You have new backup codes",
        EmailKind.BACKUP_CODE_USED: "A backup code was used",
        EmailKind.INVITATION: "You are invited to {organization}",
        EmailKind.WELCOME: "Your new account",
        EmailKind.TRIAL_ENDS: "Your trial ends soon",
        EmailKind.PAYMENT_ACTION: "A payment needs your confirmation",
    }
)


def _scheme(button: str, label: str, hover: str) -> ColorScheme:
    color, over = Color.parse(button), Color.parse(hover)
    return ColorScheme(accent=color, accent_hover=over, button=color, button_hover=over, label=Color.parse(label), edge=color)


# As in `pages.css`.
COLORS: Final = Palette(light=_scheme("#0b5d66", "#ffffff", "#084850"), dark=_scheme("#6cc9d2", "#06262a", "#8fdae1"))


class EmailTemplates:
    """ports.outside.Letters. Links begin with the configured base URL and with nothing else (security.md E-1, E-2), but for that to an
    invoice at the payment provider, which its signed event told.

    An organization adds its name to the head, the subject and the foot, and its logo and colours. What a mail says stays what the platform
    says, and the foot says that it is the platform who sends it.
    """

    def __init__(self, base_url: str, policy: Policy) -> None:
        """`policy` is whose lifetimes the mails tell. All templates are read now, so that a missing or broken one shows at start."""
        self._base_url = base_url.rstrip("/")
        self._lifetimes = {
            EmailKind.VERIFY_EMAIL: policy.verification_ttl,
            EmailKind.RESET_PASSWORD: policy.reset_ttl,
            EmailKind.WELCOME: policy.reset_ttl,
        }
        host = urlsplit(self._base_url).hostname or "localhost"
        self._message_id_host = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
        self._templates = _templates()

    def compose(self, mail: PreparedEmail) -> EmailMessage:
        words: dict[str, Any] = {"product": PRODUCT, "address": mail.address, "moment": format_utc(mail.created_at)}
        words |= _design(mail.design)
        if mail.kind in PATHS:
            words["link"] = self._link(mail)
        if mail.kind is EmailKind.PAYMENT_ACTION:
            words["link"] = mail.token
        if mail.kind in (EmailKind.TRIAL_ENDS, EmailKind.PAYMENT_ACTION):
            words["purchase"] = mail.purchase
        if mail.kind in self._lifetimes:
            words["lifetime"] = format_duration(self._lifetimes[mail.kind])
        if mail.kind is EmailKind.WELCOME:
            words["sign_in"] = f"{self._base_url}{SIGN_IN}"
        if mail.invitation is not None:
            words |= _invitation(mail.invitation)
        about = SUBJECTS[mail.kind].format_map(words)
        # The name of an organization is not said twice.
        subject = words["subject"] = f"{about} - {PRODUCT if words['brand'] in (None, words.get('organization')) else words['brand']}"
        return EmailMessage(
            message_id=f"<{mail.id}@{self._message_id_host}>",
            date=mail.created_at,
            to=mail.address,
            subject=subject,
            text=self._templates[mail.kind, "txt"].render(words),
            html=self._templates[mail.kind, "html"].render(words),
        )

    def _link(self, mail: PreparedEmail) -> str:
        assert mail.token is not None, "a mail with a link is prepared before it is composed"
        return f"{self._base_url}{PATHS[mail.kind]}?{urlencode({'token': mail.token})}"


@cache
def _templates() -> Mapping[tuple[EmailKind, str], Template]:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return {(kind, form): environment.get_template(f"{kind.value}.{form}") for kind in EmailKind for form in ("txt", "html")}


def _design(design: Design | None) -> dict[str, Any]:
    if design is None:
        return {"brand": None, "logo": None, "colors": COLORS}
    colors = COLORS if design.color is None else derive_palette(design.color)
    return {"brand": design.name, "logo": design.branding.logo_url, "colors": colors}


def _invitation(offer: ReceivedInvitation) -> dict[str, str | None]:
    return {
        "organization": offer.organization_name,
        "inviter": offer.inviter_email,
        "role": ROLES[offer.invitation.role],
        "until": format_utc(offer.invitation.expires_at),
    }


def format_duration(time: timedelta) -> str:
    """A span in the largest unit that says it exactly: 1 hour, 24 hours, 90 minutes."""
    seconds = round(time.total_seconds())
    count, unit = next(
        (seconds // length, unit) for length, unit in ((3600, "hour"), (60, "minute"), (1, "second")) if seconds % length == 0
    )
    return f"{count} {unit}{'' if count == 1 else 's'}"

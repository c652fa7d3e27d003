"""Email texts and their design. Every kind has a text and an HTML template, and all HTML templates share a layout."""

from datetime import timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from core.accounts.model.email_queue import (
    CONNECTION_EMAILS,
    IMPOSED_RULE_EMAILS,
    ORGANIZATION_EMAILS,
    OWNER_CHANGE_EMAILS,
    EmailKind,
    NoticedSecret,
    OwnerChange,
    SecretNotice,
)
from core.accounts.model.passkeys import SECURITY_KEY_MARK
from core.accounts.model.security_notices import ASKS_FOR_FACTORS, NEEDS_RECOVERY, PASSWORD_REMOVED, RESTORES_BY_UNDO
from core.authentication.model.sessions import CODE_TTL
from core.federation.connections.model.health import ConnectionNotice
from core.kernel.connections import ConnectionSlug
from core.kernel.display import PRODUCT, format_utc
from core.kernel.page_paths import (
    EMAIL_SIGN_IN_LINK_PATH,
    ENROLL_PATH,
    FORGOT_PASSWORD_PATH,
    IMPOSED_RULES_PATH,
    RECOVER_PATH,
    SETUP_PATH,
    SIGN_IN_PATH,
    UNDO_PATH,
)
from core.kernel.policy import Policy
from core.kernel.proofs import FactorKind
from core.kernel.sign_in_policy.explanations import LABELS
from core.mailing.model.emails import PreparedEmail
from core.setup.model.links import CODE_TTL as SETUP_CODE_TTL
from core.tenancy.model.settings import Color, ColorScheme, Palette, derive_palette
from ports.outside import EmailMessage

# The paths in email links, below the base URL.
LINK_PATHS: Final = MappingProxyType(
    {
        EmailKind.VERIFY_EMAIL: "/auth/verify-email",
        EmailKind.RESET_PASSWORD: "/auth/reset-password",
        EmailKind.EMAIL_SIGN_IN: EMAIL_SIGN_IN_LINK_PATH,
        EmailKind.MEMBER_RESET: "/auth/reset-password",
        EmailKind.RECOVERY_LINK: RECOVER_PATH,
        EmailKind.INVITATION: "/invitations/accept",
        EmailKind.SETUP_LINK: SETUP_PATH,
        EmailKind.WELCOME: "/auth/reset-password",
        EmailKind.CONFIRM_EMAIL_CHANGE: "/auth/verify-email",
    }
)
_CREATED_OR_OWNED: Final = "you created it, or own the organization"
# The names for the kinds of secrets, and why the owners get an email about them.
SECRET_TEXTS: Final = MappingProxyType(
    {
        NoticedSecret.PERSONAL_TOKEN: ("personal access token", "you created the token"),
        NoticedSecret.API_KEY: ("API key of the application", _CREATED_OR_OWNED),
        NoticedSecret.SCIM_TOKEN: ("SCIM token", _CREATED_OR_OWNED),
        NoticedSecret.REGISTRATION_TOKEN: ("registration token", _CREATED_OR_OWNED),
        NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: (
            "credential of the service account",
            "you are the owner of the service account",
        ),
        NoticedSecret.API_RESOURCE_CREDENTIAL: ("credential of the API resource", _CREATED_OR_OWNED),
    }
)
ABOUT_SECRETS: Final = frozenset(
    {EmailKind.PERSONAL_TOKEN_CREATED, EmailKind.SECRET_EXPIRES, EmailKind.SECRET_ENDED, EmailKind.PROGRAM_ENDED, EmailKind.PROGRAMS_END}
)
SUBJECTS: Final = MappingProxyType(
    {
        EmailKind.VERIFY_EMAIL: "Confirm your email address",
        EmailKind.RESET_PASSWORD: "Set a new password",
        EmailKind.EMAIL_SIGN_IN: "Your sign-in code",
        EmailKind.MEMBER_RESET: "Set a new password",
        EmailKind.PASSWORD_CHANGED: "Your password was {change}",
        EmailKind.CONFIRM_EMAIL_CHANGE: "Confirm your new email address",
        EmailKind.EMAIL_CHANGE_REQUESTED: "Your email address is about to change",
        EmailKind.IDENTITY_LINKED: "An account was linked to yours",
        EmailKind.IDENTITY_UNLINKED: "An account was unlinked from yours",
        EmailKind.EMAIL_CHANGED: "Your email address was changed",
        EmailKind.REAUTHENTICATION: "Your confirmation code",
        EmailKind.UNUSUAL_SIGN_IN: "An unusual sign-in to your account",
        EmailKind.MFA_ENABLED: "Two-factor authentication is on",
        EmailKind.MFA_DISABLED: "{change}",
        EmailKind.MFA_REMOVED: "Your two-factor authentication was removed",
        EmailKind.PASSKEY_ADDED: "A {noun} was added",
        EmailKind.PASSKEY_REMOVED: "A {noun} was deleted",
        EmailKind.PASSKEY_REFUSED: "A passkey was refused",
        EmailKind.PASSKEY_WAIT_STARTED: "Your passkeys were reported as lost",
        EmailKind.PASSKEY_WAIT_OVER: "Your lost passkeys can be removed now",
        EmailKind.ACCOUNT_DEACTIVATED: "Your account was deactivated",
        EmailKind.ACCOUNT_REACTIVATED: "Your account is active again",
        EmailKind.BACKUP_CODES_REGENERATED: "You have new backup codes",
        EmailKind.BACKUP_CODE_USED: "A backup code was used",
        EmailKind.ACCOUNT_DELETED: "Your account was deleted",
        EmailKind.INVITATION: "You are invited to {organization}",
        EmailKind.WELCOME: "Your new account",
        EmailKind.TRIAL_ENDS: "Your trial ends soon",
        EmailKind.PAYMENT_ACTION: "A payment needs your confirmation",
        EmailKind.ORGANIZATION_APPROVED: "{organization} was approved",
        EmailKind.ORGANIZATION_REJECTED: "{organization} was rejected",
        EmailKind.ORGANIZATION_SUSPENDED: "{organization} was suspended",
        EmailKind.ORGANIZATION_ACTIVATED: "{organization} is active again",
        EmailKind.ORGANIZATION_WAITING: "An organization waits for approval",
        EmailKind.ORGANIZATION_TRANSFERRED: "{organization} has a new owner",
        EmailKind.ADMIN_NETWORKS_REMOVED: "Admins of {organization} can act from any network",
        EmailKind.RULES_IMPOSED: "New sign-in rules at {organization}",
        EmailKind.IMPOSED_RULES_REMOVED: "Sign-in rules of {organization} were removed",
        EmailKind.BREAK_GLASS_USED: "Break glass was used at {organization}",
        EmailKind.CONNECTION_CERTIFICATE_EXPIRES: "A certificate of {connection.name} expires soon",
        EmailKind.CONNECTION_FAILING: "Sign-in through {connection.name} fails",
        EmailKind.CONNECTION_LINKED: "{organization} can sign you in",
        EmailKind.PERSONAL_TOKEN_CREATED: "A new personal access token",
        EmailKind.SECRET_EXPIRES: "The {secret_title} expires soon",
        EmailKind.SECRET_ENDED: "The {secret_title} has ended",
        EmailKind.PROGRAM_ENDED: "The service account {secret_title} left secrets behind",
        EmailKind.PROGRAMS_END: "{secret_title} will end in 72 hours",
        EmailKind.OWNER_RECOVERY: "A sign-in link for a platform owner",
        EmailKind.OWNER_RESET: "A link that removes the factors of a platform owner",
        EmailKind.OWNER_RESET_USED: "The factors of a platform owner were removed",
        EmailKind.RECOVERY_LINK: "Recover your account",
        EmailKind.RECOVERY_ISSUED: "The recovery of an account has started",
        EmailKind.RECOVERED: "Your account was recovered",
        EmailKind.SETUP_LINK: "A set-up link for your IT department",
        EmailKind.SETUP_CODE: "Your code for the set-up link",
        EmailKind.PLATFORM_OWNER_ADDED: "A new platform owner",
        EmailKind.PLATFORM_OWNER_REMOVED: "A platform owner was removed",
        EmailKind.POLICY_DUE: "Set up a second factor",
        EmailKind.MAIL_SERVER_TEST: "Your mail server works",
    }
)


def _color_scheme(button: str, label: str, hover: str) -> ColorScheme:
    color, hover_color = Color.parse(button), Color.parse(hover)
    return ColorScheme(accent=color, accent_hover=hover_color, button=color, button_hover=hover_color, label=Color.parse(label), edge=color)


# The same colors as in `pages.css`.
COLORS: Final = Palette(light=_color_scheme("#0b5d66", "#ffffff", "#084850"), dark=_color_scheme("#6cc9d2", "#06262a", "#8fdae1"))


class EmailTemplates:
    """Implements `ports.outside.EmailTemplates`.

    Links start with the configured base URL (security E-1, E-2). The only exception is the link to
    an invoice at the payment provider, which comes from a signed event.

    An organization's design adds its name to the header, the subject and the footer, and sets the logo and the colors.
    A design cannot change the text. The footer always names the platform as the sender.
    """

    def __init__(self, base_url: str, policy: Policy) -> None:
        """The emails state the lifetimes in `policy`."""
        self._base_url = base_url.rstrip("/")
        self._lifetimes = {
            EmailKind.VERIFY_EMAIL: policy.verification_ttl,
            EmailKind.RESET_PASSWORD: policy.reset_ttl,
            EmailKind.MEMBER_RESET: policy.reset_ttl,
            EmailKind.WELCOME: policy.welcome_ttl,
            EmailKind.EMAIL_SIGN_IN: policy.email_sign_in_ttl,
            EmailKind.REAUTHENTICATION: CODE_TTL,
            EmailKind.SETUP_CODE: SETUP_CODE_TTL,
        }
        host = urlsplit(self._base_url).hostname or "localhost"
        self._support = policy.support
        self._provider_names = policy.provider_names
        self._message_id_host = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")

    def compose(self, mail: PreparedEmail) -> EmailMessage:
        variables = self._variables(mail)
        topic = SUBJECTS[mail.kind].format_map(variables)
        # The subject does not repeat an inviting organization's name.
        sender = PRODUCT if variables["brand"] in (None, variables.get("organization")) else variables["brand"]
        subject = variables["subject"] = f"{topic} - {sender}"
        return EmailMessage(
            message_id=f"<{mail.id}@{self._message_id_host}>",
            date=mail.created_at,
            to=mail.address,
            subject=subject,
            text=_environment().get_template(f"{mail.kind.value}.txt").render(variables),
            html=_environment().get_template(f"{mail.kind.value}.html").render(variables),
        )

    def _variables(self, mail: PreparedEmail) -> dict[str, Any]:
        """Return the variables in this email's templates."""
        is_undoable = mail.notice_id is not None and mail.token is not None
        lifetime = self._lifetimes.get(mail.kind)
        variables: dict[str, Any] = {
            "product": PRODUCT,
            "support": self._support,
            "address": mail.address,
            "time": format_utc(mail.created_at),
            "sign_in": f"{self._base_url}{SIGN_IN_PATH}",
            "forgot_password": f"{self._base_url}{FORGOT_PASSWORD_PATH}",
            "undo": f"{self._base_url}{UNDO_PATH}?{urlencode({'token': mail.token})}" if is_undoable else None,
            "undo_until": None if mail.undo_until is None else format_utc(mail.undo_until),
            "purchase": mail.purchase,
            "welcome": mail.welcome,
            "provider": self._provider_names.get(ConnectionSlug(mail.detail or ""), "an identity provider"),
        }
        # A template that uses a variable which its email does not have is an error.
        if mail.link_until is not None:
            variables["until"] = format_utc(mail.link_until)
        if lifetime is not None:
            variables["lifetime"] = format_duration(lifetime)
        if mail.kind in LINK_PATHS:
            variables["link"] = self._link(mail)
        design = mail.design
        variables["brand"] = None if design is None else design.name
        variables["logo"] = design.branding.logo_url if design is not None and design.logo_origin else None
        variables["colors"] = COLORS if design is None or design.color is None else derive_palette(design.color)
        variables |= self._kind_variables(mail)
        if mail.sign_in is not None:
            origin = mail.sign_in.origin
            place = ", ".join(filter(None, (origin.location, origin.address)))
            variables |= {"code": mail.sign_in.code, "service": mail.sign_in.service_name, "browser": origin.browser, "place": place}
        if mail.invitation is not None:
            variables |= {
                "organization": mail.invitation.organization_name,
                "inviter": mail.invitation.inviter_email,
                "role": mail.invitation.invitation.role_phrase,
                "until": format_utc(mail.invitation.invitation.expires_at),
            }
        if mail.secret is not None and mail.kind in ABOUT_SECRETS:
            variables |= self._secret_variables(mail.kind, mail.secret)
        return variables

    def _kind_variables(self, mail: PreparedEmail) -> dict[str, Any]:
        """Return the variables that only some email kinds have. For some kinds, the token is not a token but data."""
        match mail.kind:
            case EmailKind.PAYMENT_ACTION:
                return {"link": mail.token}
            case EmailKind.PASSKEY_ADDED | EmailKind.PASSKEY_REMOVED:
                detail = mail.detail or ""
                noun = "security key" if detail.startswith(SECURITY_KEY_MARK) else "passkey"
                return {"noun": noun, "keeper": detail.removeprefix(SECURITY_KEY_MARK)}
            case EmailKind.MFA_ENABLED | EmailKind.MFA_DISABLED:
                factor, _, stays_on = (mail.detail or "").partition(":")
                return {
                    "is_passkey": factor == FactorKind.PASSKEY,
                    "stays_on": bool(stays_on),
                    "change": "A second factor was removed" if stays_on else "Two-factor authentication is off",
                }
            case EmailKind.PASSWORD_CHANGED:
                detail = mail.detail or ""
                count = detail.rstrip(RESTORES_BY_UNDO + ASKS_FOR_FACTORS + NEEDS_RECOVERY)
                return {
                    "passkeys": int(count) if count.isdecimal() else 0,
                    "keeps_factors": ASKS_FOR_FACTORS in detail,
                    "restores_by_undo": RESTORES_BY_UNDO in detail,
                    "needs_recovery": NEEDS_RECOVERY in detail,
                    "change": "removed" if detail == PASSWORD_REMOVED else "changed",
                }
            case EmailKind.REAUTHENTICATION:
                return {"code": mail.token}
            case EmailKind.SETUP_LINK | EmailKind.SETUP_CODE:
                return {**_organization_variables(mail), "code": mail.token}
            case EmailKind.POLICY_DUE:
                return {"due": mail.token, "link": f"{self._base_url}{ENROLL_PATH}"}
            case EmailKind.OWNER_RECOVERY | EmailKind.OWNER_RESET | EmailKind.OWNER_RESET_USED | EmailKind.RECOVERY_ISSUED:
                return {"recovered": mail.token}
            case EmailKind.RECOVERY_LINK:
                return {"issuer": mail.detail, "factors": mail.factors}
            case kind if kind in OWNER_CHANGE_EMAILS:
                return {"change": OwnerChange.parse(mail.token)}
            case kind if kind in IMPOSED_RULE_EMAILS:
                organization = _organization_variables(mail)
                change, path = OwnerChange.parse(mail.token), IMPOSED_RULES_PATH.format(org_slug=organization["slug"])
                names = ", ".join(LABELS.get(name, name) for name in change.reason.split(", "))
                return {**organization, "by": change.by, "rules": names, "link": f"{self._base_url}{path}"}
            case kind if kind in CONNECTION_EMAILS:
                notice = ConnectionNotice.parse(mail.token)
                end = None if notice.certificate_end is None else format_utc(notice.certificate_end)
                return {**_organization_variables(mail), "connection": notice, "end": end, "link": f"{self._base_url}{notice.path}"}
            case kind if kind in ORGANIZATION_EMAILS:
                return _organization_variables(mail)
        return {}

    def _secret_variables(self, kind: EmailKind, secret: SecretNotice) -> dict[str, Any]:
        variables = {"secret": secret, "link": f"{self._base_url}{secret.path}", "until": format_utc(secret.expires_at)}
        if kind in (EmailKind.PROGRAM_ENDED, EmailKind.PROGRAMS_END):
            return variables | {"secret_title": secret.name}
        what, reason = SECRET_TEXTS[secret.kind]
        noun = what.partition(" of ")[0]  # "credential": the email names its holder elsewhere
        title = f"{noun} {secret.name}" if secret.holder is None else f"{noun} {secret.name} of {secret.holder}"
        return variables | {"secret_title": title, "what": what, "reason": reason}

    def _link(self, mail: PreparedEmail) -> str:
        assert mail.token is not None, "the email was prepared with a token"
        return f"{self._base_url}{LINK_PATHS[mail.kind]}?{urlencode({'token': mail.token})}"


@cache
def _environment() -> Environment:
    """Return the templates. A template is compiled on first use, because all templates take 70 ms."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # otherwise every email checks the template files
    )


def _organization_variables(mail: PreparedEmail) -> dict[str, Any]:
    assert mail.organization is not None, "the email was prepared with its organization"
    organization = mail.organization
    return {
        "organization": organization.name,
        "slug": organization.slug,
        "id": organization.id,
        "owner": mail.owner,
        "reason": mail.token,
        "resembles": ", ".join(mail.resembles),
    }


def format_duration(duration: timedelta) -> str:
    """Return the duration in the largest unit that is exact: 7 days, 24 hours, 1 hour, 90 minutes. A single day is 24 hours."""
    seconds = round(duration.total_seconds())
    units = [(3600, "hour"), (60, "minute"), (1, "second")]
    if seconds > 86400:
        units.insert(0, (86400, "day"))
    count, unit = next((seconds // length, unit) for length, unit in units if seconds % length == 0)
    return f"{count} {unit}{'' if count == 1 else 's'}"

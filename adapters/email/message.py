"""Email texts and their design. Every kind has a text and an HTML template, and all HTML templates share a layout."""

from datetime import timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from core.accounts.model import email_queue, security_notices
from core.accounts.model.passkeys import SECURITY_KEY_MARK
from core.authentication.model.sessions import CODE_TTL
from core.federation.connections.model.health import ConnectionNotice
from core.kernel import display, page_paths
from core.kernel.connections import ConnectionSlug
from core.kernel.page_paths import ENROLL_PATH, FORGOT_PASSWORD_PATH, SIGN_IN_PATH, UNDO_PATH
from core.kernel.policy import Policy
from core.kernel.proofs import FactorKind
from core.kernel.sign_in_policy.explanations import LABELS
from core.mailing.model.emails import PreparedEmail
from core.setup.model.links import CODE_TTL as SETUP_CODE_TTL
from core.tenancy.model import settings
from ports.outside import EmailMessage

# The paths in email links, below the base URL.
LINK_PATHS: Final = MappingProxyType(
    {
        email_queue.EmailKind.VERIFY_EMAIL: "/auth/verify-email",
        email_queue.EmailKind.RESET_PASSWORD: "/auth/reset-password",
        email_queue.EmailKind.EMAIL_SIGN_IN: page_paths.EMAIL_SIGN_IN_LINK_PATH,
        email_queue.EmailKind.MEMBER_RESET: "/auth/reset-password",
        email_queue.EmailKind.RECOVERY_LINK: page_paths.RECOVER_PATH,
        email_queue.EmailKind.INVITATION: "/invitations/accept",
        email_queue.EmailKind.SETUP_LINK: page_paths.SETUP_PATH,
        email_queue.EmailKind.WELCOME: "/auth/reset-password",
        email_queue.EmailKind.CONFIRM_EMAIL_CHANGE: "/auth/verify-email",
    }
)
_CREATED_OR_OWNED: Final = "you created it, or own the organization"
# The names for the kinds of secrets, and why the owners get an email about them.
SECRET_TEXTS: Final = MappingProxyType(
    {
        email_queue.NoticedSecret.PERSONAL_TOKEN: ("personal access token", "you created the token"),
        email_queue.NoticedSecret.API_KEY: ("API key of the application", _CREATED_OR_OWNED),
        email_queue.NoticedSecret.SCIM_TOKEN: ("SCIM token", _CREATED_OR_OWNED),
        email_queue.NoticedSecret.REGISTRATION_TOKEN: ("registration token", _CREATED_OR_OWNED),
        email_queue.NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: (
            "credential of the service account",
            "you are the owner of the service account",
        ),
        email_queue.NoticedSecret.API_RESOURCE_CREDENTIAL: ("credential of the API resource", _CREATED_OR_OWNED),
    }
)
ABOUT_SECRETS: Final = frozenset(
    {
        email_queue.EmailKind.PERSONAL_TOKEN_CREATED,
        email_queue.EmailKind.SECRET_EXPIRES,
        email_queue.EmailKind.SECRET_ENDED,
        email_queue.EmailKind.PROGRAM_ENDED,
        email_queue.EmailKind.PROGRAMS_END,
    }
)
SUBJECTS: Final = MappingProxyType(
    {
        email_queue.EmailKind.VERIFY_EMAIL: "Confirm your email address",
        email_queue.EmailKind.RESET_PASSWORD: "Set a new password",
        email_queue.EmailKind.EMAIL_SIGN_IN: "Your sign-in code",
        email_queue.EmailKind.MEMBER_RESET: "Set a new password",
        email_queue.EmailKind.PASSWORD_CHANGED: "Your password was {change}",
        email_queue.EmailKind.CONFIRM_EMAIL_CHANGE: "Confirm your new email address",
        email_queue.EmailKind.EMAIL_CHANGE_REQUESTED: "Your email address is about to change",
        email_queue.EmailKind.IDENTITY_LINKED: "An account was linked to yours",
        email_queue.EmailKind.IDENTITY_UNLINKED: "An account was unlinked from yours",
        email_queue.EmailKind.EMAIL_CHANGED: "Your email address was changed",
        email_queue.EmailKind.REAUTHENTICATION: "Your confirmation code",
        email_queue.EmailKind.UNUSUAL_SIGN_IN: "An unusual sign-in to your account",
        email_queue.EmailKind.MFA_ENABLED: "Two-factor authentication is on",
        email_queue.EmailKind.MFA_DISABLED: "{change}",
        email_queue.EmailKind.MFA_REMOVED: "Your two-factor authentication was removed",
        email_queue.EmailKind.PASSKEY_ADDED: "A {noun} was added",
        email_queue.EmailKind.PASSKEY_REMOVED: "A {noun} was deleted",
        email_queue.EmailKind.PASSKEY_REFUSED: "A passkey was refused",
        email_queue.EmailKind.PASSKEY_WAIT_STARTED: "Your passkeys were reported as lost",
        email_queue.EmailKind.PASSKEY_WAIT_OVER: "Your lost passkeys can be removed now",
        email_queue.EmailKind.ACCOUNT_DEACTIVATED: "Your account was deactivated",
        email_queue.EmailKind.ACCOUNT_REACTIVATED: "Your account is active again",
        email_queue.EmailKind.BACKUP_CODES_REGENERATED: "You have new backup codes",
        email_queue.EmailKind.BACKUP_CODE_USED: "A backup code was used",
        email_queue.EmailKind.ACCOUNT_DELETED: "Your account was deleted",
        email_queue.EmailKind.INVITATION: "You are invited to {organization}",
        email_queue.EmailKind.WELCOME: "Your new account",
        email_queue.EmailKind.TRIAL_ENDS: "Your trial ends soon",
        email_queue.EmailKind.PAYMENT_ACTION: "A payment needs your confirmation",
        email_queue.EmailKind.ORGANIZATION_APPROVED: "{organization} was approved",
        email_queue.EmailKind.ORGANIZATION_REJECTED: "{organization} was rejected",
        email_queue.EmailKind.ORGANIZATION_SUSPENDED: "{organization} was suspended",
        email_queue.EmailKind.ORGANIZATION_ACTIVATED: "{organization} is active again",
        email_queue.EmailKind.ORGANIZATION_WAITING: "An organization waits for approval",
        email_queue.EmailKind.ORGANIZATION_TRANSFERRED: "{organization} has a new owner",
        email_queue.EmailKind.ADMIN_NETWORKS_REMOVED: "Admins of {organization} can act from any network",
        email_queue.EmailKind.RULES_IMPOSED: "New sign-in rules at {organization}",
        email_queue.EmailKind.IMPOSED_RULES_REMOVED: "Sign-in rules of {organization} were removed",
        email_queue.EmailKind.BREAK_GLASS_USED: "Break glass was used at {organization}",
        email_queue.EmailKind.CONNECTION_CERTIFICATE_EXPIRES: "A certificate of {connection.name} expires soon",
        email_queue.EmailKind.CONNECTION_FAILING: "Sign-in through {connection.name} fails",
        email_queue.EmailKind.CONNECTION_LINKED: "{organization} can sign you in",
        email_queue.EmailKind.PERSONAL_TOKEN_CREATED: "A new personal access token",
        email_queue.EmailKind.SECRET_EXPIRES: "The {secret_title} expires soon",
        email_queue.EmailKind.SECRET_ENDED: "The {secret_title} has ended",
        email_queue.EmailKind.PROGRAM_ENDED: "The service account {secret_title} left secrets behind",
        email_queue.EmailKind.PROGRAMS_END: "{secret_title} will end in 72 hours",
        email_queue.EmailKind.OWNER_RECOVERY: "A sign-in link for a platform owner",
        email_queue.EmailKind.OWNER_RESET: "A link that removes the factors of a platform owner",
        email_queue.EmailKind.OWNER_RESET_USED: "The factors of a platform owner were removed",
        email_queue.EmailKind.RECOVERY_LINK: "Recover your account",
        email_queue.EmailKind.RECOVERY_ISSUED: "The recovery of an account has started",
        email_queue.EmailKind.RECOVERED: "Your account was recovered",
        email_queue.EmailKind.SETUP_LINK: "A set-up link for your IT department",
        email_queue.EmailKind.SETUP_CODE: "Your code for the set-up link",
        email_queue.EmailKind.PLATFORM_OWNER_ADDED: "A new platform owner",
        email_queue.EmailKind.PLATFORM_OWNER_REMOVED: "A platform owner was removed",
        email_queue.EmailKind.POLICY_DUE: "Set up a second factor",
        email_queue.EmailKind.MAIL_SERVER_TEST: "Your mail server works",
    }
)


def _color_scheme(button: str, label: str, hover: str) -> settings.ColorScheme:
    color, hover_color = settings.Color.parse(button), settings.Color.parse(hover)
    return settings.ColorScheme(
        accent=color, accent_hover=hover_color, button=color, button_hover=hover_color, label=settings.Color.parse(label), edge=color
    )


# The same colors as in `pages.css`.
COLORS: Final = settings.Palette(light=_color_scheme("#0b5d66", "#ffffff", "#084850"), dark=_color_scheme("#6cc9d2", "#06262a", "#8fdae1"))


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
            email_queue.EmailKind.VERIFY_EMAIL: policy.verification_ttl,
            email_queue.EmailKind.RESET_PASSWORD: policy.reset_ttl,
            email_queue.EmailKind.MEMBER_RESET: policy.reset_ttl,
            email_queue.EmailKind.WELCOME: policy.welcome_ttl,
            email_queue.EmailKind.EMAIL_SIGN_IN: policy.email_sign_in_ttl,
            email_queue.EmailKind.REAUTHENTICATION: CODE_TTL,
            email_queue.EmailKind.SETUP_CODE: SETUP_CODE_TTL,
        }
        host = urlsplit(self._base_url).hostname or "localhost"
        self._support = policy.support
        self._provider_names = policy.provider_names
        self._message_id_host = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")

    def compose(self, mail: PreparedEmail) -> EmailMessage:
        variables = self._variables(mail)
        topic = SUBJECTS[mail.kind].format_map(variables)
        # The subject does not repeat an inviting organization's name.
        sender = display.PRODUCT if variables["brand"] in (None, variables.get("organization")) else variables["brand"]
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
            "product": display.PRODUCT,
            "support": self._support,
            "address": mail.address,
            "time": display.format_utc(mail.created_at),
            "sign_in": f"{self._base_url}{SIGN_IN_PATH}",
            "forgot_password": f"{self._base_url}{FORGOT_PASSWORD_PATH}",
            "undo": f"{self._base_url}{UNDO_PATH}?{urlencode({'token': mail.token})}" if is_undoable else None,
            "undo_until": None if mail.undo_until is None else display.format_utc(mail.undo_until),
            "purchase": mail.purchase,
            "welcome": mail.welcome,
            "provider": self._provider_names.get(ConnectionSlug(mail.detail or ""), "an identity provider"),
        }
        # A template that uses a variable which its email does not have is an error.
        if mail.link_until is not None:
            variables["until"] = display.format_utc(mail.link_until)
        if lifetime is not None:
            variables["lifetime"] = format_duration(lifetime)
        if mail.kind in LINK_PATHS:
            variables["link"] = self._link(mail)
        design = mail.design
        variables["brand"] = None if design is None else design.name
        variables["logo"] = design.branding.logo_url if design is not None and design.logo_origin else None
        variables["colors"] = COLORS if design is None or design.color is None else settings.derive_palette(design.color)
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
                "until": display.format_utc(mail.invitation.invitation.expires_at),
            }
        if mail.secret is not None and mail.kind in ABOUT_SECRETS:
            variables |= self._secret_variables(mail.kind, mail.secret)
        return variables

    def _kind_variables(self, mail: PreparedEmail) -> dict[str, Any]:
        """Return the variables that only some email kinds have. For some kinds, the token is not a token but data."""
        match mail.kind:
            case email_queue.EmailKind.PAYMENT_ACTION:
                return {"link": mail.token}
            case email_queue.EmailKind.PASSKEY_ADDED | email_queue.EmailKind.PASSKEY_REMOVED:
                detail = mail.detail or ""
                noun = "security key" if detail.startswith(SECURITY_KEY_MARK) else "passkey"
                return {"noun": noun, "keeper": detail.removeprefix(SECURITY_KEY_MARK)}
            case email_queue.EmailKind.MFA_ENABLED | email_queue.EmailKind.MFA_DISABLED:
                factor, _, stays_on = (mail.detail or "").partition(":")
                return {
                    "is_passkey": factor == FactorKind.PASSKEY,
                    "stays_on": bool(stays_on),
                    "change": "A second factor was removed" if stays_on else "Two-factor authentication is off",
                }
            case email_queue.EmailKind.PASSWORD_CHANGED:
                detail = mail.detail or ""
                count = detail.rstrip(
                    security_notices.RESTORES_BY_UNDO + security_notices.ASKS_FOR_FACTORS + security_notices.NEEDS_RECOVERY
                )
                return {
                    "passkeys": int(count) if count.isdecimal() else 0,
                    "keeps_factors": security_notices.ASKS_FOR_FACTORS in detail,
                    "restores_by_undo": security_notices.RESTORES_BY_UNDO in detail,
                    "needs_recovery": security_notices.NEEDS_RECOVERY in detail,
                    "change": "removed" if detail == security_notices.PASSWORD_REMOVED else "changed",
                }
            case email_queue.EmailKind.REAUTHENTICATION:
                return {"code": mail.token}
            case email_queue.EmailKind.SETUP_LINK | email_queue.EmailKind.SETUP_CODE:
                return {**_organization_variables(mail), "code": mail.token}
            case email_queue.EmailKind.POLICY_DUE:
                return {"due": mail.token, "link": f"{self._base_url}{ENROLL_PATH}"}
            case (
                email_queue.EmailKind.OWNER_RECOVERY
                | email_queue.EmailKind.OWNER_RESET
                | email_queue.EmailKind.OWNER_RESET_USED
                | email_queue.EmailKind.RECOVERY_ISSUED
            ):
                return {"recovered": mail.token}
            case email_queue.EmailKind.RECOVERY_LINK:
                return {"issuer": mail.detail, "factors": mail.factors}
            case kind if kind in email_queue.OWNER_CHANGE_EMAILS:
                return {"change": email_queue.OwnerChange.parse(mail.token)}
            case kind if kind in email_queue.IMPOSED_RULE_EMAILS:
                organization = _organization_variables(mail)
                change, path = (
                    email_queue.OwnerChange.parse(mail.token),
                    page_paths.IMPOSED_RULES_PATH.format(org_slug=organization["slug"]),
                )
                names = ", ".join(LABELS.get(name, name) for name in change.reason.split(", "))
                return {**organization, "by": change.by, "rules": names, "link": f"{self._base_url}{path}"}
            case kind if kind in email_queue.CONNECTION_EMAILS:
                notice = ConnectionNotice.parse(mail.token)
                end = None if notice.certificate_end is None else display.format_utc(notice.certificate_end)
                return {**_organization_variables(mail), "connection": notice, "end": end, "link": f"{self._base_url}{notice.path}"}
            case kind if kind in email_queue.ORGANIZATION_EMAILS:
                return _organization_variables(mail)
        return {}

    def _secret_variables(self, kind: email_queue.EmailKind, secret: email_queue.SecretNotice) -> dict[str, Any]:
        variables = {"secret": secret, "link": f"{self._base_url}{secret.path}", "until": display.format_utc(secret.expires_at)}
        if kind in (email_queue.EmailKind.PROGRAM_ENDED, email_queue.EmailKind.PROGRAMS_END):
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

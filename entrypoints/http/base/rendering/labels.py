"""The labels for values that pages show. A value without a label is shown in a readable form, so that no page depends on a table."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from core.accounts.model.mfa import MfaEvent
from core.accounts.model.platform import MfaAlertType
from core.accounts.model.protection import HeldFactor, Protection
from core.applications.model.access_reasons import AccessReason
from core.applications.model.plans import SubscriptionStatus
from core.applications.model.services import ServiceType
from core.applications.model.users import EnrollmentOrigin
from core.authentication.model import sign_in_log
from core.authentication.model.login import LoginFailure
from core.federation.connections.model.connections import MissingPart
from core.federation.saml.model.sign_on import LOGIN_PROVIDER
from core.kernel import display
from core.kernel.api_scopes import Area
from core.kernel.callers import SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.proofs import Method
from core.kernel.roles import Permission
from core.programs.model.credentials import CredentialKind
from core.tenancy.model.attributes import AttributeKind
from entrypoints.http.base.context import ports

Labels = Mapping[Any, str]  # by value: an enumeration member, or its text
# The labels for enumerations with values that users do not know as words.
LABELS: Final[Mapping[type[StrEnum], Labels]] = MappingProxyType(
    {
        ConnectionProtocol: {
            ConnectionProtocol.OAUTH: "OAuth 2.0",
            ConnectionProtocol.OIDC: "OpenID Connect",
            ConnectionProtocol.SAML: "SAML 2.0",
        },
        MissingPart: {part: part.label for part in MissingPart},
        SetupPart: {
            SetupPart.CONNECTION: "Single sign-on",
            SetupPart.DOMAIN: "Domain",
            SetupPart.DIRECTORY: "User directory (SCIM)",
            SetupPart.CERTIFICATE: "Renewed certificate",
            SetupPart.SIEM: "SIEM",
        },
        AttributeKind: {
            AttributeKind.TEXT: "Text",
            AttributeKind.NUMBER: "Number",
            AttributeKind.BOOLEAN: "Yes or no",
            AttributeKind.DATE: "Date",
            AttributeKind.LIST: "List of texts",
        },
        Permission: {
            Permission.READ_USERS: "Read users",
            Permission.WRITE_USERS: "Write users",
            Permission.DELETE_USERS: "Delete users",
            Permission.READ_SUBSCRIPTIONS: "Read subscriptions",
            Permission.WRITE_SUBSCRIPTIONS: "Write subscriptions",
            Permission.DELETE_SUBSCRIPTIONS: "Delete subscriptions",
            Permission.READ_ANALYTICS: "Read analytics",
            Permission.READ_SERVICE: "Read the application",
            Permission.WRITE_SERVICE: "Change the application",
            Permission.WRITE_ROLES: "Give and take roles",
            Permission.EVALUATE_ACCESS: "Ask whether users may do something",
        },
        Area: {
            Area.ORGANIZATION: "Organization",
            Area.MEMBERS: "Members",
            Area.WEBHOOKS: "Webhooks",
            Area.INTEGRATIONS: "Integrations",
            Area.ANALYTICS: "Analytics",
            Area.SERVICES: "Applications",
            Area.RESOURCES: "API resources",
            Area.API_KEYS: "API keys",
            Area.END_USERS: "Users of applications",
            Area.BILLING: "Plans",
            Area.AUDIT: "Audit log",
            Area.SIGN_INS: "Sign-in log",
            Area.ACCOUNT: "Your own account",
            Area.PLATFORM_ORGANIZATIONS: "Organizations",
            Area.PLATFORM_USERS: "Users",
            Area.PLATFORM_AUDIT: "Log",
            Area.PLATFORM_SIGN_INS: "Sign-ins",
            Area.PLATFORM_INSTALLATION: "Installation",
        },
        ServiceType: {
            ServiceType.WEB: "Web application",
            ServiceType.SPA: "Single-page application",
            ServiceType.MOBILE: "Mobile app",
            ServiceType.DESKTOP: "Desktop app",
            ServiceType.API: "API",
        },
        AccessReason: {
            AccessReason.ANYONE: "Open to everyone with an account",
            AccessReason.MEMBER: "Open to members",
            AccessReason.ASSIGNED: "Assigned",
            AccessReason.SUBSCRIPTION: "Subscribed",
            AccessReason.GROUP: "In an assigned group",
            AccessReason.NOT_MEMBER: "Only for members",
            AccessReason.NOT_ASSIGNED: "Neither assigned, nor subscribed",
            AccessReason.BLOCKED_BY_DIRECTORY: "Blocked by your directory",
            AccessReason.BLOCKED_BY_ADMIN: "Blocked by an admin",
            AccessReason.DEACTIVATED: "Account deactivated",
        },
        Protection: {
            Protection.PASSWORD_ALONE: "Password alone signs in",
            Protection.PROTECTED: "Protected",
            Protection.MISSING: "Asked for and missing",
        },
        HeldFactor: {
            HeldFactor.PASSKEY: "Passkey",
            HeldFactor.APP: "Authenticator app",
            HeldFactor.KEY: "Security key",
            HeldFactor.NONE: "None",
        },
        EnrollmentOrigin: {
            EnrollmentOrigin.SELF: "The user",
            EnrollmentOrigin.SUBSCRIPTION: "Subscription",
            EnrollmentOrigin.DIRECTORY: "Directory",
            EnrollmentOrigin.ADMIN: "Admin",
            EnrollmentOrigin.API_KEY: "API key",
        },
        SubscriptionStatus: {
            SubscriptionStatus.ACTIVE: "Active",
            SubscriptionStatus.PAST_DUE: "Payment due",
            SubscriptionStatus.CANCELLED: "Canceled",
            SubscriptionStatus.EXPIRED: "Expired",
        },
        CredentialKind: {CredentialKind.SECRET: "Client secret", CredentialKind.KEY: "Public key", CredentialKind.FEDERATED: "Pipeline"},
        MfaEvent: {
            MfaEvent.SETUP_INITIATED: "Set-up began",
            MfaEvent.SETUP_COMPLETED: "Set-up finished",
            MfaEvent.SETUP_FAILED: "Wrong code at the set-up",
            MfaEvent.ENABLED: "Turned on",
            MfaEvent.DISABLED: "Turned off",
            MfaEvent.FORCE_DISABLED: "Removed by platform support",
            MfaEvent.VERIFY_ATTEMPT: "Code asked for",
            MfaEvent.VERIFY_SUCCESS: "Right code",
            MfaEvent.VERIFY_FAILED: "Wrong code",
            MfaEvent.BACKUP_CODES_GENERATED: "New backup codes",
            MfaEvent.BACKUP_CODE_USED: "Backup code used",
            MfaEvent.PASSKEY_ADDED: "Passkey added",
            MfaEvent.PASSKEY_REMOVED: "Passkey deleted",
            MfaEvent.PASSKEY_REFUSED: "Passkey refused",
            MfaEvent.PASSKEY_ENABLED: "Passkeys became a second factor",
            MfaEvent.PASSKEY_DISABLED: "Passkeys are no second factor now",
            MfaEvent.PASSKEY_FORCE_DISABLED: "Passkeys as a second factor removed by platform support",
            MfaEvent.PASSKEY_USED: "Passkey used",
            MfaEvent.RECOVERY_ISSUED: "Recovery started",
            MfaEvent.RECOVERY_FAILED: "Wrong recovery code",
            MfaEvent.RECOVERY_ENDED: "Recovery ended by a sign-in",
            MfaEvent.RECOVERED: "Account recovered",
        },
        MfaAlertType: {
            MfaAlertType.REPEATED_FAILURES: "Many wrong codes",
            MfaAlertType.BACKUP_CODE_BURST: "Many backup codes used",
            MfaAlertType.DISABLED_AFTER_LOGIN: "Turned off right after a sign-in",
        },
    }
)


# Why a sign-in failed, for admins.
FAILURE_REASONS: Final[Labels] = {
    LoginFailure.CREDENTIALS: "Wrong password",
    LoginFailure.LOCKED: "Blocked after wrong attempts",
    LoginFailure.EMAIL_CODE: "Wrong code from the email",
    LoginFailure.MFA: "Wrong second factor",
    LoginFailure.PASSKEY: "Passkey refused",
    LoginFailure.UNVERIFIED: "Email address not verified",
    LoginFailure.CLOSED: "Account deactivated",
    LoginFailure.ACCESS: "Refused by the access policy",
    LoginFailure.POLICY: "Refused by the sign-in policy",
    LoginFailure.DIRECTORY: "Blocked by the directory",
    LoginFailure.BLOCKED: "Blocked by an admin",
    LoginFailure.SAML: "Refused by SAML rules",
    LoginFailure.PROVIDER: "Error at the identity provider",
    LoginFailure.LOGOUT: "Sign-out of the identity provider refused",
    LoginFailure.STATE: "Came back from the identity provider too late, or in another browser",
    LoginFailure.ADDRESS: "Email address at the identity provider missing or taken",
    LoginFailure.AUTHORIZATION_CODE: "Authorization code wrong, expired or already used",
    LoginFailure.DEVICE_CODE: "Device code wrong, used or denied",
    sign_in_log.UNKNOWN_ACCOUNT: "No account known here",
    sign_in_log.MANY_ATTEMPTS: "Many attempts at once, counted together",
}
# The labels for ways to sign in. `to_words` shows all other ways as words.
WAYS: Final[Labels] = {
    Method.OWNER_RECOVERY: "Link from the server",
    Method.TOTP: "Authenticator app",
    Method.CONNECTION: "Single sign-on of an organization",
    LOGIN_PROVIDER: "SAML",
}


def label(value: str, labels: Labels | None = None) -> str:
    """Return the label for a value: from `labels`, or else from its enumeration's labels, or else the value as words."""
    if isinstance(value, StrEnum) and labels is None:
        labels = LABELS.get(type(value))
    return (labels or {}).get(value) or display.to_words(value)


def failure_label(sign_in: sign_in_log.SignIn) -> str:
    """Return why a sign-in failed, such as "Blocked for 30 s after wrong attempts"."""
    if sign_in.reason is None:
        return "Reason not recorded"
    if sign_in.reason == LoginFailure.LOCKED and sign_in.blocked_seconds is not None:
        return f"Blocked for {sign_in.blocked_seconds} s after wrong attempts"
    return label(sign_in.reason, FAILURE_REASONS)


def application_of(sign_in: sign_in_log.SignIn, *, in_sentence: bool = False) -> str:
    """Return the name of the application that a sign-in was for, or the platform's name."""
    if sign_in.service_name is not None:
        return sign_in.service_name
    if sign_in.service_id is None and not sign_in.is_of_unknown_client:
        return display.PRODUCT
    nameless = "an external client" if sign_in.service_id is None else "a deleted application"
    return nameless if in_sentence else nameless.partition(" ")[2].capitalize()


def sign_in_methods() -> Labels:
    """Return the labels for the ways to sign in that have a label: our own ways, and the identity providers."""
    return {**WAYS, **ports().policy.provider_names}

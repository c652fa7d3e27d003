"""Paths for hosted pages that the core and emails link to."""

from typing import Final
from urllib.parse import urlencode
from uuid import UUID

HOME_PATH: Final = "/app"
SIGN_IN_PATH: Final = "/app/sign-in"
EMAIL_SIGN_IN_LINK_PATH: Final = "/auth/email-sign-in"
PASSKEY_OFFER_PATH: Final = "/app/passkey"
REAUTHENTICATION_PATH: Final = "/app/reauthenticate"
ORGANIZATION_PATH: Final = "/app/organizations/{org_slug}"
IMPOSED_RULES_PATH: Final = f"{ORGANIZATION_PATH}/sign-in-policy/imposed-rules"
ENROLL_PATH: Final = "/app/enroll"
FORGOT_PASSWORD_PATH: Final = "/app/forgot-password"  # noqa: S105  (a path)
UNDO_PATH: Final = "/auth/undo"
RECOVER_PATH: Final = "/auth/recover"
RECOVER_OWNER_PATH: Final = "/auth/recover-owner"
SETUP_PATH: Final = "/setup"
CONNECTIONS_PATH: Final = "/auth/connections"  # above the endpoints for all connections
SETUP_STEPS_PATH: Final = f"{SETUP_PATH}/steps"
ACCOUNT_PATH: Final = "/app/account"
SECURITY_PATH: Final = "/app/account/security"
ORGANIZATIONS_PATH: Final = "/app/account/organizations"
EMAIL_PATH: Final = "/app/account/email"
IDENTITIES_PATH: Final = "/app/account/identities"
PERSONAL_TOKENS_PATH: Final = "/app/account/personal-tokens"
# `holder` is a program's id, or an application's slug.
PLATFORM_CREDENTIALS_PATH: Final = "/app/platform/service-accounts/{holder}/credentials"
SERVICE_ACCOUNTS_PATH: Final = "/app/organizations/{org_slug}/service-accounts"
SERVICE_ACCOUNT_CREDENTIALS_PATH: Final = "/app/organizations/{org_slug}/service-accounts/{holder}/credentials"
RESOURCE_CREDENTIALS_PATH: Final = "/app/organizations/{org_slug}/api-resources/{holder}/credentials"
CREATED_SECRETS_PATH: Final = "/app/organizations/{org_slug}/service-accounts/{holder}/created-secrets"
API_KEYS_PATH: Final = "/app/organizations/{org_slug}/applications/{holder}/api-keys"
REGISTRATION_TOKENS_PATH: Final = "/app/organizations/{org_slug}/registration-tokens"
CONNECTION_HEALTH_PATH: Final = "/app/organizations/{org_slug}/connections/{connection}/health"
DIRECTORY_PATH: Final = "/app/organizations/{org_slug}/directory"
RESEND_VERIFICATION_PATH: Final = "/app/resend-verification"


def connection_endpoint_path(connection_id: UUID, endpoint: str = "") -> str:
    """Return the path for an endpoint that a connection's identity provider uses: `callback`, `acs`. Without: the entity ID."""
    return f"{CONNECTIONS_PATH}/{connection_id}{'/' if endpoint else ''}{endpoint}"


def connection_start_path(connection_id: UUID, **query: str | None) -> str:
    """Return the path at which a browser begins a sign-in through an organization's connection, with these parameters."""
    sent = {name: value for name, value in query.items() if value}
    return connection_endpoint_path(connection_id, "start") + (f"?{urlencode(sent)}" if sent else "")

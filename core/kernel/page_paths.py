"""Paths of hosted pages that the core and emails link to."""

from typing import Final

HOME_PATH: Final = "/app"
SIGN_IN_PATH: Final = "/app/sign-in"
EMAIL_SIGN_IN_LINK_PATH: Final = "/auth/email-sign-in"
PASSKEY_OFFER_PATH: Final = "/app/passkey"
REAUTHENTICATION_PATH: Final = "/app/reauthenticate"
ENROLL_PATH: Final = "/app/enroll"
FORGOT_PASSWORD_PATH: Final = "/app/forgot-password"  # noqa: S105  (a path)
UNDO_PATH: Final = "/auth/undo"
RECOVER_PATH: Final = "/auth/recover"
RECOVER_OWNER_PATH: Final = "/auth/recover-owner"
ACCOUNT_PATH: Final = "/app/account"
SECURITY_PATH: Final = "/app/account/security"
ORGANIZATIONS_PATH: Final = "/app/account/organizations"
EMAIL_PATH: Final = "/app/account/email"
IDENTITIES_PATH: Final = "/app/account/identities"
PERSONAL_TOKENS_PATH: Final = "/app/account/personal-tokens"
# `holder` is the id of a program, or the slug of an application.
PLATFORM_CREDENTIALS_PATH: Final = "/app/platform/service-accounts/{holder}/credentials"
SERVICE_ACCOUNT_CREDENTIALS_PATH: Final = "/app/organizations/{org_slug}/service-accounts/{holder}/credentials"
RESOURCE_CREDENTIALS_PATH: Final = "/app/organizations/{org_slug}/api-resources/{holder}/credentials"
CREATED_SECRETS_PATH: Final = "/app/organizations/{org_slug}/service-accounts/{holder}/created-secrets"
API_KEYS_PATH: Final = "/app/organizations/{org_slug}/applications/{holder}/api-keys"
REGISTRATION_TOKENS_PATH: Final = "/app/organizations/{org_slug}/registration-tokens"
DIRECTORY_PATH: Final = "/app/organizations/{org_slug}/directory"
RESEND_VERIFICATION_PATH: Final = "/app/resend-verification"

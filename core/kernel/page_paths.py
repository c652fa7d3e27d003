"""Paths of hosted pages that the core and emails link to."""

from typing import Final

HOME_PATH: Final = "/app"
SIGN_IN_PATH: Final = "/app/sign-in"
EMAIL_SIGN_IN_LINK_PATH: Final = "/auth/email-sign-in"
FORGOT_PASSWORD_PATH: Final = "/app/forgot-password"  # noqa: S105  (a path)
RECOVER_OWNER_PATH: Final = "/auth/recover-owner"
ACCOUNT_PATH: Final = "/app/account"
ORGANIZATIONS_PATH: Final = "/app/account/organizations"
EMAIL_PATH: Final = "/app/account/email"
IDENTITIES_PATH: Final = "/app/account/identities"
PERSONAL_TOKENS_PATH: Final = "/app/account/personal-tokens"
SIGN_UP_PATH: Final = "/app/sign-up"
RESEND_VERIFICATION_PATH: Final = "/app/resend-verification"

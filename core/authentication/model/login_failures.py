"""The reasons of failed sign-ins, for the metrics."""

from enum import StrEnum


class LoginFailure(StrEnum):
    """The values of the metric label `reason`. They are few, and none contains user input (security L-4)."""

    CREDENTIALS = "credentials"
    UNVERIFIED = "unverified"
    CLOSED = "closed"  # the account is closed
    MFA = "mfa"
    EMAIL_CODE = "email_code"  # the code of a sign-in by email
    AUTHORIZATION_CODE = "authorization_code"
    DEVICE_CODE = "device_code"
    STATE = "state"  # a browser returned from an identity provider with a wrong state
    PROVIDER = "provider"  # the identity provider did not authenticate a user
    ADDRESS = "address"  # the email address from the identity provider cannot be used
    SAML = "saml"  # a signed-in user may not use the application

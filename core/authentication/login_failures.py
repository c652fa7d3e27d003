"""Why sign-ins are refused, for those who count them (organizations.md section 4.11)."""

from enum import StrEnum


class LoginFailure(StrEnum):
    """The values of the label `reason`: few, and none of them from outside (security.md L-4)."""

    CREDENTIALS = "credentials"
    UNVERIFIED = "unverified"
    CLOSED = "closed"  # the account
    MFA = "mfa"
    AUTHORIZATION_CODE = "authorization_code"
    DEVICE_CODE = "device_code"
    STATE = "state"  # of a browser that comes back from an identity provider
    PROVIDER = "provider"  # vouches for nobody
    ADDRESS = "address"  # that it gives cannot be used
    SAML = "saml"  # no assertion for somebody who is signed in

"""Why something did not happen: the rules said no (Refusal), or a port failed (Outage).

    Refusal                    the rules say no; the caller can do something about it
    |-- Invalid                400   the request makes no sense, or not now
    |   `-- GrantInvalid               ... what is to be exchanged for tokens
    |-- Unauthenticated        401   who is calling is not known
    |   |-- ClientInvalid              ... which application
    |   |-- TokenExpired             ... any more
    |   `-- TokenInvalid             ... and the token is not one of ours
    |-- Forbidden              403   known, and not allowed
    |   `-- OrganizationNotActive
    |-- NotFound               404
    |-- Conflict               409
    |-- Limited                429   too often; says when to come back
    `-- Unsupported            501
    Outage                     a port failed; the caller did nothing wrong
    |-- StorageDown            500 DATABASE_ERROR, with Retry-After
    |-- AuditFailed            500 AUDIT_ERROR
    |-- ProviderFailed         500 OAUTH_ERROR
    `-- PaymentsFailed         500 BILLING_ERROR

A refusal names a fact, and its docstring is the sentence that the caller reads. Codes and statuses:
organizations.md section 7 and decisions, point 2. HTTP meets them once, in `entrypoints/http/errors.py`.
"""

from typing import ClassVar, NoReturn


class Refusal(Exception):
    """The request was refused."""

    code: ClassVar[str]
    # What OAuth calls it (RFC 6749 sections 4.1.2.1 and 5.2, RFC 8628 section 3.5), for those who speak that.
    oauth_error: ClassVar[str] = "invalid_request"
    # And what SCIM calls it (RFC 7644 section 3.12), where it has a word for that.
    scim_type: ClassVar[str | None] = None

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)


class Invalid(Refusal):
    """The request is not valid."""

    code = "BAD_REQUEST"
    scim_type: ClassVar[str | None] = "invalidValue"


class GrantInvalid(Invalid):
    """What you want to exchange for tokens is not valid: it is unknown, has expired, was used before, or is not for this application."""

    oauth_error = "invalid_grant"


class Unauthenticated(Refusal):
    """Authentication is required."""

    code = "UNAUTHORIZED"
    # RFC 6750 section 3.1: `error="invalid_token"` goes out only when a token came in.
    token_sent: bool = False


class TokenExpired(Unauthenticated):
    """The access token has expired. Exchange the refresh token at POST /api/auth/refresh."""

    code = "TOKEN_EXPIRED"
    token_sent = True


class TokenInvalid(Unauthenticated):
    """The access token is not valid."""

    code = "JWT_ERROR"
    token_sent = True


class PreAuthExpired(TokenExpired):
    """This sign-in has expired. Sign in again."""


class WrongToken(Unauthenticated):
    """This token is for something else: a sign-in is continued with a pre-auth token, and everything else asks for an access token."""

    token_sent = True


class SessionEnded(Unauthenticated):
    """The session of this token has ended. Sign in again."""

    token_sent = True


class ClientInvalid(Unauthenticated):
    """This application is not known by that, or its client secret is missing or wrong."""

    oauth_error = "invalid_client"


class Forbidden(Refusal):
    """You are not allowed to do this."""

    code = "FORBIDDEN"
    oauth_error = "access_denied"


class OrganizationNotActive(Forbidden):
    """The organization is not active."""

    code = "ORGANIZATION_NOT_ACTIVE"


class NotFound(Refusal):
    """There is nothing here."""

    code = "NOT_FOUND"


class Conflict(Refusal):
    """This is in conflict with something that exists."""

    code = "CONFLICT"
    scim_type = "uniqueness"


class Limited(Refusal):
    """Too many requests."""

    code = "RATE_LIMIT_EXCEEDED"
    oauth_error = "temporarily_unavailable"

    def __init__(self, retry_after: float, message: str | None = None) -> None:
        self.retry_after = max(1, -int(-retry_after // 1))  # whole seconds, rounded up, at least one (RFC 9110 section 10.2.3)
        super().__init__(message or f"Too many requests. Try again in {self.retry_after} s.")


class Unsupported(Refusal):
    """This is not supported."""

    code = "NOT_IMPLEMENTED"


class Outage(Exception):
    """Something the service depends on failed."""

    code: ClassVar[str] = "INTERNAL_SERVER_ERROR"


class StorageDown(Outage):
    """The database cannot be reached or did not answer. Nothing was changed; try again."""

    code = "DATABASE_ERROR"


class AuditFailed(Outage):
    """What you ask for must be recorded, and could not be. Nothing was done; try again."""

    code = "AUDIT_ERROR"


class ProviderFailed(Outage):
    """The identity provider failed. Try again, or sign in in another way."""

    code = "OAUTH_ERROR"


# Whoever reads this was about to pay: what else is done at the provider is done again by itself, and nobody is told.
class PaymentsFailed(Outage):
    """The payment provider failed. Try again in a while; nothing has been bought."""

    code = "BILLING_ERROR"


def refuse(refusal: Refusal | type[Refusal]) -> NoReturn:
    """`raise` as an expression, so that `await tx.find(...) or refuse(NotFound)` reads as it works."""
    raise refusal

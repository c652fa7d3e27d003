"""Refusals (a rule says no) and outages (a port failed).

    Refusal                    a rule says no; the caller can change something
    |-- Invalid                400   the request is wrong, or comes at the wrong time
    |   `-- GrantInvalid             the OAuth grant is not valid
    |-- Unauthenticated        401   the caller is unknown
    |   |-- ClientInvalid            the OAuth client is unknown
    |   |-- TokenExpired             the token was valid once
    |   `-- TokenInvalid             the token was not issued here, or was altered
    |-- Forbidden              403   the caller is known, and not allowed to do this
    |   `-- OrganizationNotActive
    |-- NotFound               404
    |-- Conflict               409
    |-- PreconditionFailed     412
    |-- Limited                429   too many requests; says when to try again
    `-- Unsupported            501
    Outage                     a port failed; the caller did nothing wrong
    |-- StorageDown            500 DATABASE_ERROR, with Retry-After
    |-- AuditFailed            500 AUDIT_ERROR
    |-- ProviderFailed         500 OAUTH_ERROR
    `-- PaymentsFailed         500 BILLING_ERROR

A refusal is named after a fact, and its docstring is the message for the caller. The HTTP statuses
are set in one place, `entrypoints/http/edge/errors.py`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from core.kernel.causes import Caller


class Refusal(Exception):
    """The request was refused."""

    code: ClassVar[str]
    # The error code for OAuth clients (RFC 6749 sections 4.1.2.1 and 5.2, RFC 8628 section 3.5).
    oauth_error: ClassVar[str] = "invalid_request"
    # The scimType for SCIM clients (RFC 7644 section 3.12), if SCIM defines one for this error.
    scim_type: ClassVar[str | None] = None
    # Whether a refused change has an entry in the audit log of the caller's organization.
    audited: ClassVar[bool] = False
    # The caller without sufficient rights, if the action had not begun yet.
    caller: Caller | None = None
    # Further members in the error body, for programs.
    fields: Mapping[str, Any] = {}

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)


class Invalid(Refusal):
    """The request is not valid."""

    code = "BAD_REQUEST"
    scim_type: ClassVar[str | None] = "invalidValue"


class GrantInvalid(Invalid):
    """This code or token is not valid: it is unknown, expired, already used, or issued to another application. Start a new sign-in."""

    oauth_error = "invalid_grant"


class Unauthenticated(Refusal):
    """Authentication is required."""

    code = "UNAUTHORIZED"
    oauth_error = "invalid_token"
    # `error="invalid_token"` is sent only if the request had a token (RFC 6750 section 3.1).
    token_sent: bool = False


class TokenExpired(Unauthenticated):
    """The access token has expired. Exchange the refresh token at POST /api/auth/refresh."""

    code = "TOKEN_EXPIRED"
    token_sent = True


class TokenInvalid(Unauthenticated):
    """The access token is not valid. Sign in again."""

    code = "JWT_ERROR"
    token_sent = True


class PreAuthExpired(TokenExpired):
    """This sign-in has expired. Sign in again."""


class WrongToken(Unauthenticated):
    """This is the wrong kind of token. Use a pre-auth token to continue a sign-in, or an access token that was issued for this API."""

    token_sent = True


class SessionEnded(Unauthenticated):
    """The session of this token has ended. Sign in again."""

    token_sent = True


class ProgramStopped(Unauthenticated):
    """The credential of this token has ended, or its service account has stopped. Ask an admin of the organization, or a platform owner."""

    token_sent = True


class ClientInvalid(Unauthenticated):
    """The client id is unknown, or the client secret is missing or wrong. Check the credentials of the application."""

    oauth_error = "invalid_client"


class Forbidden(Refusal):
    """You are not allowed to do this."""

    code = "FORBIDDEN"
    oauth_error = "access_denied"


class OrganizationNotActive(Forbidden):
    """The organization is not active. Ask the operator of Gatehouse about its status."""

    code = "ORGANIZATION_NOT_ACTIVE"


class NotFound(Refusal):
    """This does not exist."""

    code = "NOT_FOUND"


class Conflict(Refusal):
    """This conflicts with something that already exists."""

    code = "CONFLICT"
    scim_type = "uniqueness"


class PreconditionFailed(Refusal):
    """This was changed in the meantime. Load it again, and repeat your change."""

    code = "PRECONDITION_FAILED"


class Limited(Refusal):
    """Too many requests."""

    code = "RATE_LIMIT_EXCEEDED"
    oauth_error = "temporarily_unavailable"

    def __init__(self, retry_after: float, message: str | None = None) -> None:
        self.retry_after = max(1, -int(-retry_after // 1))  # whole seconds, rounded up, at least one (RFC 9110 section 10.2.3)
        super().__init__(message or (f"Too many requests. Try again in {self.wait}." if type(self) is Limited else None))

    @property
    def wait(self) -> str:
        """The time until the next attempt, as people say it. The text is not shorter than `retry_after`."""
        return f"{self.retry_after} s" if self.retry_after < 120 else f"{-(-self.retry_after // 60)} minutes"


class Unsupported(Refusal):
    """This is not supported."""

    code = "NOT_IMPLEMENTED"


class Outage(Exception):
    """A dependency of the service failed. The caller did nothing wrong."""

    code: ClassVar[str] = "INTERNAL_SERVER_ERROR"


class StorageDown(Outage):
    """The database cannot be reached or did not respond. If you made a change, check whether it was saved, then try again."""

    code = "DATABASE_ERROR"


class AuditFailed(Outage):
    """This action must be recorded in the audit log, and could not be. Nothing was done. Try again."""

    code = "AUDIT_ERROR"


class ProviderFailed(Outage):
    """The identity provider failed. Try again, or sign in another way."""

    code = "OAUTH_ERROR"


# Only the checkout endpoint returns this error. All other calls to the payment provider are retried
# in the background.
class PaymentsFailed(Outage):
    """The payment provider failed. Nothing was bought. Try again in a few minutes."""

    code = "BILLING_ERROR"


def refuse(refusal: Refusal | type[Refusal]) -> NoReturn:
    """Raise `refusal`. Unlike `raise`, this can be part of an expression, as in `await tx.find(...) or refuse(NotFound)`."""
    raise refusal

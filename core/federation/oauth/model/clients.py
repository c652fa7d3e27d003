"""OAuth clients at the endpoints for programs.

They present assertions (RFC 7523 section 3), get tokens of their own (RFC 6749 section 4.4), or present
tokens of a pipeline (RFC 7521 section 4.2, OpenID Connect Core section 3.1.3.7). The provider of the
pipeline issues a token about a job, so its issuer and subject are not the client. The pipeline may present
it several times until it expires, because it gets one token for all steps of a job.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.model.sessions import Presenter
from core.kernel import errors
from core.kernel.callers import ServiceContext
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.values import is_printable, read_time
from core.programs.model.credentials import PipelineTrust

TOKEN_PATH: Final = "/auth/token"  # noqa: S105  (a path)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The credentials of the client in a request. At most one of `secrets` and `assertion` is present.

    An external client is found by the code or token in the request (`grant`). Without one, the API resource that it names decides.
    """

    client_id: str | None
    # The client secret as sent, and form-decoded: some clients encode it and others do not.
    secrets: tuple[str, ...] = field(default=(), repr=False)
    assertion: str | None = field(default=None, repr=False)  # a JWT (RFC 7523)
    grant: str | None = field(default=None, repr=False)
    resource: str | None = None

    @property
    def are_proof(self) -> bool:
        """Return whether the credentials claim to prove who the client is."""
        return bool(self.secrets) or self.assertion is not None


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client of a token request: a service, or the platform's frontend (`service` is None).

    `authenticated` is true if the client sent valid credentials or needs none. `relies_on_pkce` is true
    if it sent none. `wait` is the number of seconds until the client may send a request, or None if
    the request was not counted against the client's own limit.
    """

    service: Service | None
    context: ServiceContext | None
    authenticated: bool
    relies_on_pkce: bool
    wait: float | None = None

    @property
    def service_id(self) -> UUID | None:
        return None if self.service is None else self.service.id

    @property
    def client_id(self) -> UUID | None:
        """The client id of the service, or None for the frontend, which uses FRONTEND_CLIENT_ID."""
        return None if self.service is None else self.service.client_id

    @property
    def presenter(self) -> Presenter:
        return Presenter(is_named=True, service_id=self.service_id, is_authenticated=self.authenticated)

    @property
    def is_bound_only(self) -> bool:
        """Whether all tokens of the client are bound to a key (RFC 9449 section 5.2)."""
        return self.context is not None and self.context.dpop_bound_access_tokens


def client_id_text(client: OAuthClient) -> str:
    """Return the client id as in requests: the name of the client, or of the platform's frontend."""
    return FRONTEND_CLIENT_ID if client.context is None else client.context.client_name


ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"  # RFC 7523 section 2.2
MAX_LIFETIME: Final = timedelta(minutes=10)
LEEWAY: Final = timedelta(seconds=30)  # tolerated difference between the client's clock and ours
MAX_ID_LENGTH: Final = 255


class ClientAssertionInvalid(errors.ClientInvalid):
    """The client assertion is not valid. Check its claims and its signature."""

    def __init__(self, reason: str) -> None:
        """`reason` continues a sentence, and quotes nothing from the assertion."""
        super().__init__(f"The client assertion is not valid: {reason}.")


class AssertionKeyUnknown(ClientAssertionInvalid):
    """The client assertion is not signed with a registered key. Register its key, or sign with a registered one."""

    def __init__(self) -> None:
        errors.ClientInvalid.__init__(self)


def check_claims(claims: Mapping[str, Any], client_id: str, audiences: Collection[str], now: datetime) -> tuple[str, datetime]:
    """Check the claims in this client's assertion.

    Return its `jti`, and the time from which it is refused as expired.

    `aud` must be one of the audiences. An assertion with several values is refused, because another
    server among them could present it here.
    """
    get = claims.get
    if get("iss") != client_id or get("sub") != client_id:
        raise ClientAssertionInvalid("its iss and sub must be the client id")
    audience = get("aud")
    values = [audience] if isinstance(audience, str) else audience
    if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str) or values[0] not in audiences:
        raise ClientAssertionInvalid("its aud must be exactly one value, the issuer of this server")
    expires_at, token_id = read_time(get("exp")), get("jti")
    if expires_at is None or expires_at + LEEWAY <= now:
        raise ClientAssertionInvalid("its exp is missing or has passed")
    if expires_at > now + MAX_LIFETIME + LEEWAY:
        raise ClientAssertionInvalid("its exp must be at most 10 minutes ahead")
    for name in ("iat", "nbf"):
        starts_at = read_time(claims[name]) if name in claims else now
        if starts_at is None or starts_at > now + LEEWAY:
            raise ClientAssertionInvalid("its iat or nbf is not a time, or is in the future")
    issued_at = read_time(get("iat"))
    if issued_at is not None and expires_at > issued_at + MAX_LIFETIME + LEEWAY:
        raise ClientAssertionInvalid("its exp must be at most 10 minutes after its iat")
    if not isinstance(token_id, str) or not 0 < len(token_id) <= MAX_ID_LENGTH or not is_printable(token_id):
        raise ClientAssertionInvalid(f"its jti must be a text with 1 to {MAX_ID_LENGTH} characters")
    return token_id, expires_at + LEEWAY


class ClientCredentialsRefused(errors.Invalid):
    """This client cannot get tokens for itself. Use a service account, or send the secret of a confidential application."""

    oauth_error = "unauthorized_client"


class ScopeNotAllowed(errors.Invalid):
    """One of these scopes is not granted to this client. Ask for fewer, or ask an admin of the organization to grant them."""

    oauth_error = "invalid_scope"


class NoScope(ScopeNotAllowed):
    """This client has no scopes at this API resource. Ask an admin to grant some, or name another one in the parameter resource."""


@dataclass(frozen=True, slots=True)
class ProgramToken:
    """An access token of a program, its lifetime in seconds and its scopes. With `is_bound`, each use needs a DPoP proof (RFC 9449)."""

    access_token: str = field(repr=False)
    expires_in: int
    scope: str
    is_bound: bool = False


# GitHub's tokens live 5 minutes. Those of GitLab live as long as the longest job.
MAX_PIPELINE_LIFETIME: Final = timedelta(hours=24)


class PipelineTokenRefused(ClientAssertionInvalid):
    """The pipeline's token is not accepted. Check its issuer, audience and subject against the credential of the service account."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the pipeline's token {reason}")


def check_times(claims: Mapping[str, Any], now: datetime) -> None:
    """Check that a token is valid now."""
    expires_at, issued_at = read_time(claims.get("exp")), read_time(claims.get("iat"))
    if expires_at is None or issued_at is None:
        raise PipelineTokenRefused("has no exp or no iat")
    if expires_at + LEEWAY <= now:
        raise PipelineTokenRefused("has expired")
    if expires_at > issued_at + MAX_PIPELINE_LIFETIME:
        raise PipelineTokenRefused("is valid for longer than 24 hours")
    for name in ("iat", "nbf"):
        starts_at = read_time(claims[name]) if name in claims else now
        if starts_at is None or starts_at > now + LEEWAY:
            raise PipelineTokenRefused("has an iat or nbf that is not a time, or is in the future")


def is_trusted(claims: Mapping[str, Any], trust: PipelineTrust) -> bool:
    """Return whether a token with a signature of the trust's issuer belongs to a pipeline that is trusted.

    A token with several audiences is not trusted, because another server among them could present it here.
    """
    subject, audience = claims.get("sub"), claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    return (
        claims.get("iss") == trust.issuer and audiences == [trust.audience] and isinstance(subject, str) and trust.accepts_subject(subject)
    )

"""The claims in tokens that we issue to our own API. Times are UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID, uuid5

from core.kernel.values import Email

# The client id for the platform's own frontend, a public client that signs users in to the platform
# itself.
FRONTEND_CLIENT_ID: Final = "frontend"


def external_client_id(org_id: UUID, client_uri: str) -> UUID:
    """Return the id for the external client with this address in an organization, which is known before the client is stored."""
    return uuid5(org_id, client_uri)


class Accepts(Enum):
    """The access tokens that a place accepts, by their audience."""

    OWN = "own"  # for our API and the userinfo endpoint
    RESOURCES = "resources"  # for any resource, ours included
    CLAIMS = "claims"  # OWN, and audiences in ID tokens, which read large claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims in an access token. Times are UTC.

    `org_id` accompanies the slug `org`, so that a deleted organization's token is not valid for a later organization
    with the same slug (security J-6). A service token names the service, and its audience is the service's `client_id`,
    unless `audience` is set. `plan`, `subscription_status` and `features` describe the subscription when the token was
    issued, and `auth_time`, `acr` and `amr` how the user authenticated (RFC 9068 section 2.2.1). Gatehouse itself never
    decides by these claims.
    """

    user_id: UUID
    session_id: UUID
    email: Email | None  # None for an application that was granted `openid` without `email`
    email_verified: bool
    token_id: UUID
    issued_at: datetime
    expires_at: datetime
    org: str = ""
    org_id: UUID | None = None
    service: str = ""
    client_id: UUID | None = None
    client_uri: str | None = None  # an external client's address, in place of its client id
    plan: str | None = None
    subscription_status: str | None = None
    features: tuple[str, ...] | None = None
    impersonator_id: UUID | None = None  # set if the session is an impersonation
    audience: str | None = None  # for an OpenID Connect token: the userinfo endpoint, or a resource (RFC 8707)
    scope: tuple[str, ...] = ()  # granted with `openid`
    auth_time: datetime | None = None
    acr: str | None = None
    amr: tuple[str, ...] = ()
    key_thumbprint: str | None = None  # the token's key (`cnf.jkt`, RFC 9449 section 6)
    further: Mapping[str, Any] = field(default_factory=dict)  # about the user, for the application; not read from tokens

    @property
    def client_name(self) -> str:
        """The client id as in requests, which is the platform frontend's if the token is for no application."""
        return self.client_uri or (FRONTEND_CLIENT_ID if self.client_id is None else str(self.client_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramClaims:
    """The claims in an access token that a program got for itself (RFC 6749 section 4.4). Times are UTC.

    The subject is the program itself, a service account or an application (RFC 9068 section 2.2). `credential_id` is
    the credential with which the program authenticated. The credential takes the place of a session.
    """

    client_id: UUID
    credential_id: UUID
    token_id: UUID
    issued_at: datetime
    expires_at: datetime
    audience: str
    scope: tuple[str, ...]
    is_of_platform: bool = False  # for our own API, and not for an organization's API resource
    org: str = ""  # the program's organization; empty for a platform program
    org_id: UUID | None = None
    key_thumbprint: str | None = None  # the token's key (`cnf.jkt`)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreAuthClaims:
    """The claims in a pre-auth token: the first factor was verified. Times are UTC."""

    id: UUID  # the pending sign-in's id
    user_id: UUID
    issued_at: datetime
    expires_at: datetime
    saml_state: str | None = field(default=None, repr=False)  # the SAML sign-on that started this sign-in

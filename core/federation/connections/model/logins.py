"""Sign-ins at the connections of organizations, and their end at either side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from core.federation.connections.model.openid import OPENID_FAULTS, OpenIdFault
from core.kernel.errors import Invalid

START_LOGOUT: Final = "sign-out"  # our endpoint that leads to the sign-out at the provider
BACK_FROM_LOGOUT: Final = "signed-out"  # the endpoint to which a provider returns browsers after a sign-out


class LogoutTokenRefused(Invalid):
    """The logout token cannot be accepted. The message names the fault."""

    def __init__(self, fault: OpenIdFault) -> None:
        super().__init__(f"{OPENID_FAULTS[fault]} (Code: {fault}.)")


class LogoutTokenUsed(Invalid):
    """This logout token was used before. Send a new one for each sign-out."""


@dataclass(frozen=True, slots=True)
class ProviderSession:
    """The session of a user at an identity provider.

    `id` is an ID token's `sid`, or a hash over an assertion's NameID and SessionIndex. `logout` has the values that a request to sign out
    there needs, such as the ID token. Each protocol has its own names.
    """

    id: str | None
    logout: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLogin:
    """A sign-in at a connection. The proofs of sessions name it. Times are UTC."""

    id: UUID
    org_id: UUID
    connection_id: UUID
    user_id: UUID
    provider_session: str | None
    logout: Mapping[str, str] = field(repr=False)  # of ProviderSession
    created_at: datetime
    ends_at: datetime  # no session names it afterwards


@dataclass(frozen=True, slots=True)
class ProviderSignOut:
    """A sign-out that goes on at an identity provider: our path that leads there, and the secret of the browser."""

    path: str
    secret: str = field(repr=False)

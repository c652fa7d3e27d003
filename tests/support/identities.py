"""Linked identities, inserted into the database as a sign-in through a provider leaves them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from adapters.postgres.authentication.identities import access_token_context, refresh_token_context
from adapters.postgres.engine.pool import Pool
from core.kernel.connections import ConnectionSettings, ConnectionSlug, PlatformCredentials, ProviderClient, platform_connection
from core.kernel.values import new_id
from tests.support.builders import make_vault, run_sql

LINKED = datetime(2026, 3, 1, 12, tzinfo=UTC)
# A provider that no test calls.
NOWHERE: Final = ConnectionSettings(
    client_id="gatehouse",
    authorize_url="https://provider.example/authorize",
    token_url="https://provider.example/token",
    userinfo_url="https://provider.example/user",
)


def at_nowhere(provider: ConnectionSlug) -> PlatformCredentials:
    """Return a connection of the platform to a provider that no test calls."""
    return PlatformCredentials(platform_connection(provider, NOWHERE), ProviderClient("gatehouse", "a secret"))


@dataclass(frozen=True, slots=True)
class IdentityFields:
    """An identity's stored fields. With an access token, it has a refresh token, too."""

    subject: str | None = None
    email: str | None = None
    linked_at: datetime = LINKED
    token: str | None = None
    expires_at: datetime | None = None
    scopes: Sequence[str] | None = None


async def add_identity(pool: Pool, user: UUID, provider: str = "codehost", service: UUID | None = None, **fields: Any) -> UUID:
    """Add an identity with these fields, linked to the account, or at a service."""
    id_, vault, identity = new_id(), make_vault(), IdentityFields(**fields)
    access = None if identity.token is None else vault.seal(identity.token.encode(), access_token_context(str(id_)))
    refresh = None if identity.token is None else vault.seal(f"renews {identity.token}".encode(), refresh_token_context(str(id_)))
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at, access_token, refresh_token,
                                token_expires_at, scopes)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""
    scopes = None if identity.scopes is None else list(identity.scopes)
    columns = (identity.subject or str(id_), identity.email, identity.linked_at, access, refresh, identity.expires_at, scopes)
    await run_sql(pool, insert, id_, user, service, provider, *columns)
    return id_

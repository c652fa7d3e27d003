"""Accounts at external identity providers that people have linked; what the providers gave is sealed."""

from typing import Final
from uuid import UUID

from adapters.postgres.end_users import to_identity
from adapters.postgres.statements import Row, SealingRepository
from core.end_users import LinkedIdentity
from core.identities import LinkTicket, ProviderToken
from core.providers import Provider
from ports.crypto import Place

# Whose, and in which context: %(service_id)s is null for the account itself.
OF_CONTEXT: Final = "user_id = %(user_id)s and service_id is not distinct from %(service_id)s"


def access_place(row: str) -> Place:
    return Place("identities", row, "access_token")


def refresh_place(row: str) -> Place:
    return Place("identities", row, "refresh_token")


class Identities(SealingRepository):
    """ports.storage.Identities."""

    def _to_token(self, row: Row) -> ProviderToken:
        return ProviderToken(self._vault.open(row[1], access_place(str(row[0]))).decode(), row[2], tuple(row[3] or ()))

    async def of_person(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        return await self._all(
            to_identity,
            f"select provider, provider_user_id, email, linked_at from identities where {OF_CONTEXT} order by linked_at, id",
            user_id=user_id,
            service_id=service_id,
        )

    async def token(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> ProviderToken | None:
        return await self._one(
            self._to_token,
            f"""
            select id, access_token, token_expires_at, scopes from identities
            where {OF_CONTEXT} and provider = %(provider)s and access_token is not null""",
            user_id=user_id,
            service_id=service_id,
            provider=provider,
        )

    async def add_ticket(self, ticket: LinkTicket) -> bool:
        # The session stays until the transaction ends, since the ticket refers to it.
        return await self._exists(
            """
            insert into link_tickets (token_hash, user_id, session_id, service_id, provider, created_at, expires_at)
            select %(token_hash)s, user_id, id, %(service_id)s, %(provider)s, %(now)s, %(expires_at)s from sessions
            where id = %(session_id)s and user_id = %(user_id)s and ended_at is null and expires_at > %(now)s for key share
            returning 1""",
            token_hash=ticket.token_hash,
            user_id=ticket.user_id,
            session_id=ticket.session_id,
            service_id=ticket.service_id,
            provider=ticket.provider,
            now=ticket.created_at,
            expires_at=ticket.expires_at,
        )

    async def remove_all(self, user_id: UUID) -> None:
        await self._run("delete from identities where user_id = %(user_id)s", user_id=user_id)

    async def remove(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> bool:
        return (
            await self._run(
                f"delete from identities where {OF_CONTEXT} and provider = %(provider)s",
                user_id=user_id,
                service_id=service_id,
                provider=provider,
            )
            == 1
        )

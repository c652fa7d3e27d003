"""What is asked of storage about identities at providers."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.end_users import LinkedIdentity
from core.identities import Identity, Known, LinkTicket, ProviderToken, Renewal
from core.providers import Provider, ProviderTokens
from core.values import Email


class IdentitiesRead(Protocol):
    """Accounts at external providers that people have linked, looked at: in the account itself, or in the service `service_id`."""

    async def of_person(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        """The longest linked first."""
        ...

    async def providers(self, user_id: UUID) -> list[Provider]:
        """Those at which the person has linked an account anywhere, in the account itself or in whatever service."""
        ...

    async def token(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> ProviderToken | None:
        """What the provider gave, expired or not. Raises SealBroken."""
        ...


class Identities(IdentitiesRead, Protocol):
    """The same, changed. The account is locked before any of these but those that say otherwise."""

    async def lock_subject(self, provider: Provider, issuer: str, subject: str) -> None:
        """Make others wait who come from the provider as the same person. It comes before every other lock."""
        ...

    async def known(self, provider: Provider, issuer: str, subject: str, service_id: UUID | None) -> Known | None:
        """Whom this is known as in this context, or else in any. `lock_subject` comes before; the account need not be locked."""
        ...

    async def add(self, identity: Identity) -> bool:
        """Its tokens are sealed. False, and nothing added, where there is one of this provider for the person in this context, or the
        service is gone."""
        ...

    async def renew(self, identity_id: UUID, email: Email | None, tokens: ProviderTokens) -> None:
        """Keep these tokens in the place of those that are there; an address or a refresh token that is not given stays."""
        ...

    async def claim(self, user_id: UUID, service_id: UUID | None, provider: Provider, now: datetime, until: datetime) -> Renewal | None:
        """Leave to renew what has expired, and has a refresh token; None where somebody else has that leave. The account need not be
        locked, nor for the next two. Raises SealBroken."""
        ...

    async def fulfil(self, claim: Renewal, tokens: ProviderTokens) -> bool:
        """Keep these, unless others have come in their place meanwhile; whether they were kept."""
        ...

    async def give_up(self, claim: Renewal) -> None:
        """Others may try."""
        ...

    async def take_ticket(self, token_hash: bytes, provider: Provider, now: datetime) -> LinkTicket | None:
        """Use the ticket up. Exactly one caller wins. The account need not be locked."""
        ...

    async def add_ticket(self, ticket: LinkTicket) -> bool:
        """Whether its session is live; else nothing is added."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """Those of the account itself, and those of services."""
        ...

    async def remove(self, user_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """That of the service; whether there was one."""
        ...

    async def remove_everywhere(self, user_id: UUID, provider: Provider) -> list[UUID | None]:
        """Those of all contexts; which these were, None for the account itself."""
        ...

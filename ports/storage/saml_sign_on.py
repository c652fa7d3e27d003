"""What is asked of storage about sign-ons (SAML)."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import ServiceContext
from core.saml_messages import NameId
from core.saml_sign_on import Locked, SignOn
from core.services import Service


class SamlSignOnsRead(Protocol):
    """What services have asked browsers to sign in for, looked at."""

    async def find(self, org_id: UUID, service_id: UUID, state_hash: bytes, browser_hash: bytes, now: datetime) -> SignOn | None:
        """The sign-on that waits with this state, if it was begun for this service in the browser with this cookie."""
        ...

    async def waiting(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        """The service of the sign-on that waits with this state, wherever it was begun and whatever the status of the organization."""
        ...

    async def fresh_since(self, state_hash: bytes, now: datetime) -> datetime | None:
        """When the sign-on that waits with this state was begun, if it asks for a fresh sign-in."""
        ...


class SamlSignOns(SamlSignOnsRead, Protocol):
    """The same, changed; and by what services know people."""

    async def begin(self, sign_on: SignOn) -> bool:
        """Keep it, unless the service has used the id of its request before, or is not there any more; whether it was kept."""
        ...

    async def complete(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[UUID, str, str] | None:
        """Somebody has signed in for the sign-on that waits with this state: the organization, its slug, and that of the service.

        None where none waits.
        """
        ...

    async def vouch(self, state_hash: bytes, user_id: UUID) -> None:
        """An identity provider has vouched afresh for this person, and for nobody else, for the sign-on with this state, if any."""
        ...

    async def answer(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        """Nobody gets another answer. Exactly one caller wins."""
        ...

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        """It waits again, since nobody got the answer."""
        ...

    def lock_person(self, org_id: UUID, service_slug: str, user_id: UUID, session_id: UUID, now: datetime) -> Locked:
        """Lock the person's membership and their account before the next statement, and see then whether the session lives and whether
        they are an end user of the service."""
        ...

    async def name_of(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """What the service knows this person by; `new` from now on, if it has known them by nothing."""
        ...

    async def take_part(self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime) -> str:
        """A browser's session signs somebody in to the service; under which index, which is the one of the first time."""
        ...

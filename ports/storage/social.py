"""What is asked of storage about sign-ins that are under way at providers."""

from datetime import datetime
from typing import Protocol

from core.providers import Provider
from core.social import ProviderState


class ProviderStates(Protocol):
    """Browsers that were sent to identity providers, by the hash of the state that they have to come back with."""

    async def add(self, pending: ProviderState) -> bool:
        """Whether the service, or the live session, is there that it is for; else nothing is added."""
        ...


class Returns(Protocol):
    async def take(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        """Use the state up, in the browser in which it was made, and for this provider. Exactly one caller wins."""
        ...

"""Storage of sign-ins at identity providers."""

from datetime import datetime
from typing import Protocol

from core.federation.model.sign_in import ProviderState
from core.kernel.connections import ConnectionSlug


class ProviderStates(Protocol):
    """The states of browsers that are sent to identity providers."""

    async def add(self, pending: ProviderState) -> bool:
        """Add the state. Return False if its service was deleted or its session has ended."""


class ProviderReturns(Protocol):
    """The states of browsers that return from identity providers."""

    async def consume(self, state_hash: bytes, browser_hash: bytes, provider: ConnectionSlug, now: datetime) -> ProviderState | None:
        """Delete and return the state that this browser got for this provider. Only one of several parallel calls gets it."""

"""Entities, refusals and pure rules of `core.authentication.oauth_credentials`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound
from core.kernel.providers import Provider

if TYPE_CHECKING:
    from datetime import datetime


class ProviderUnknown(NotFound):
    """There is no such identity provider."""


class CredentialsNotSet(NotFound):
    """This service has no credentials of its own at this provider. It uses those of the platform."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """By which name a provider knows a service. The secret that goes with it is stored beside, and never shown (security.md W-7)."""

    provider: Provider
    client_id: str
    updated_at: datetime


def parse_provider(name: str) -> Provider:
    """Raises ProviderUnknown."""
    try:
        return Provider(name)
    except ValueError:
        raise ProviderUnknown from None

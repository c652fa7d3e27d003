"""OAuth credentials of services at identity providers: the entity, its refusals and pure rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound
from core.kernel.providers import Provider

if TYPE_CHECKING:
    from datetime import datetime


class ProviderUnknown(NotFound):
    """This identity provider does not exist, or it is not set up here. Use another one, or ask the operator of Gatehouse to set it up."""


class CredentialsNotSet(NotFound):
    """This service has no credentials of its own at this identity provider. It uses those of the platform."""


@dataclass(frozen=True, slots=True)
class ServiceOAuthCredentials:
    """The OAuth client id of a service at an identity provider. The client secret is stored too, but never returned (security W-7)."""

    provider: Provider
    client_id: str
    updated_at: datetime


def parse_provider(name: str) -> Provider:
    """Return the provider with this name. Raises: ProviderUnknown."""
    try:
        return Provider(name)
    except ValueError:
        raise ProviderUnknown from None

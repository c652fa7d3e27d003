"""Grants of users to external clients: programs that no organization registered."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.kernel.errors import NotFound
from core.kernel.values import Email


class ExternalGrantNotFound(NotFound):
    """This user has not connected this client to the API resource, or the connection has already ended. The list has the present ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalGrant:
    """The access of an external client to an API resource that a user has agreed to. Times are UTC."""

    user_id: UUID
    email: Email
    client_id: UUID
    service_id: UUID
    client_uri: str  # the address of the client
    client_name: str  # by the client itself
    scopes: tuple[str, ...]  # in the order of the API resource, without those that it no longer has
    granted_at: datetime  # when the user last agreed to a new scope
    last_used_at: datetime | None  # when the client last got a token; None if its sessions have ended long ago

"""Storage for user attributes that organizations declare."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from core.tenancy.model import attributes


class AttributesRead(Protocol):
    """Read access to attributes and their values."""

    async def list_declared(self, org_id: UUID) -> Sequence[attributes.Attribute]:
        """Return the organization's attributes, by position."""

    async def of_user(self, org_id: UUID, user_id: UUID) -> attributes.AttributeValues:
        """Return the organization's attributes, this user's values, and the values of the user's groups."""

    async def of_group(self, org_id: UUID, group_id: UUID) -> attributes.AttributeValues:
        """Return the organization's attributes, and this group's values."""

    async def own(self, user_id: UUID) -> Sequence[attributes.OwnAttributes]:
        """Return a user's values in every organization that declares attributes and has the user, by organization name.

        The user is a confirmed member or an end user there.
        """


class Attributes(AttributesRead, Protocol):
    """Write access to attributes and their values. Lock order: the organization before any call."""

    async def put(self, attribute: attributes.Attribute) -> None:
        """Store an attribute, or replace all but its name, its kind and its time."""

    async def delete(self, org_id: UUID, name: str) -> None:
        """Delete an attribute, and its values for all users and groups."""

    async def save_values(self, org_id: UUID, user_id: UUID, values: Mapping[str, Any], now: datetime) -> bool:
        """Replace all the user's values.

        Return False, and store nothing, if the user is neither a member nor an end user, and unknown to the directory.
        """

    async def save_group_values(self, org_id: UUID, group_id: UUID, values: Mapping[str, Any], now: datetime) -> None:
        """Replace all values for a group in the organization."""

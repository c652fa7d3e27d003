"""The events of the area provisioning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.kernel.principals import Role
    from core.provisioning.tokens_rules import ScimToken
from core.kernel.event_catalog import EVENT_KINDS, Event


def provisioned(org_id: UUID, user_id: UUID) -> tuple[Event, Event]:
    """The directory of the organization made an account."""
    up = Event(EVENT_KINDS["user.signup.success"], str(user_id), org_id=org_id, data={"service_id": None})
    return up, Event(EVENT_KINDS["user.created"], str(user_id), org_id=org_id)


def described(org_id: UUID, user_id: UUID, changed: Sequence[str]) -> Event:
    """The directory of the organization says something else of somebody: of what, and not what it is."""
    return Event(EVENT_KINDS["user.updated"], str(user_id), org_id=org_id, details={"changed": list(changed)})


def readdressed(org_id: UUID, user_id: UUID) -> Event:
    """The directory of the organization gave somebody another address."""
    return Event(EVENT_KINDS["user.email_changed"], str(user_id), org_id=org_id)


def deactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """The directory of the organization closed it to somebody, or the whole account where that is nobody else's."""
    return Event(EVENT_KINDS["user.deactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def reactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """And opened it again."""
    return Event(EVENT_KINDS["user.reactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def deprovisioned(org_id: UUID, user_id: UUID, role: Role | None, *, permanently: bool) -> Event:
    """The directory of the organization removed somebody: the account for good, or from the organization."""
    details: dict[str, Any] = {"permanently": permanently}
    return Event(EVENT_KINDS["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role.value}))


def scim_token_created(token: ScimToken) -> Event:
    """A directory can provision the people of the organization from now on."""
    details = _scim_token(token) | {"expires_at": None if token.expires_at is None else rfc3339(token.expires_at)}
    return Event(EVENT_KINDS["scim_token.created"], str(token.org_id), org_id=token.org_id, details=details)


def scim_token_revoked(token: ScimToken) -> Event:
    """A SCIM token opens nothing any more."""
    return Event(EVENT_KINDS["scim_token.revoked"], str(token.org_id), org_id=token.org_id, details=_scim_token(token))


def _scim_token(token: ScimToken) -> dict[str, Any]:
    return {"scim_token_id": str(token.id), "name": token.name, "prefix": token.prefix}

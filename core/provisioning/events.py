"""Events about SCIM provisioning and SCIM tokens."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes
from core.kernel.roles import RoleName
from core.kernel.values import rfc3339
from core.provisioning.model.directories import ScimToken


def user_provisioned(org_id: UUID, user_id: UUID) -> tuple[Event, Event]:
    """The directory created an account."""
    signup = Event(EVENT_KINDS["user.signup.success"], str(user_id), org_id=org_id, data={"service_id": None})
    return signup, Event(EVENT_KINDS["user.created"], str(user_id), org_id=org_id)


def user_taken_over(org_id: UUID, user_id: UUID) -> Event:
    """The directory took over an account at a verified domain that another organization had created."""
    return Event(EVENT_KINDS["user.taken_over"], str(user_id), org_id=org_id)


def user_profile_updated(org_id: UUID, user_id: UUID, changed: Sequence[str]) -> Event:
    """The directory changed a user's profile.

    `changed` has the attribute names, without values.
    """
    return Event(EVENT_KINDS["user.updated"], str(user_id), org_id=org_id, details={"changed": list(changed)})


def group_external_id_changed(org_id: UUID, old: str | None, new: str | None) -> Event:
    """The directory gave the group another external id."""
    details = {"scim_external_id": {"old": old, "new": new}}
    return Event(EVENT_KINDS["organization.updated"], str(org_id), org_id=org_id, details=details)


def user_email_changed(org_id: UUID, user_id: UUID) -> Event:
    """The directory changed a user's email address."""
    return Event(EVENT_KINDS["user.email_changed"], str(user_id), org_id=org_id)


def user_deactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """The directory deactivated a user: the whole account, or the access to the organization."""
    return Event(EVENT_KINDS["user.deactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def user_reactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """The directory activated a deactivated user again."""
    return Event(EVENT_KINDS["user.reactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def user_unblocked(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """An admin removed the directory's block from a user."""
    return Event(EVENT_KINDS["user.unblocked"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def user_deprovisioned(org_id: UUID, user_id: UUID, role: RoleName | None, *, permanently: bool) -> Event:
    """The directory deleted a user: the whole account if `permanently`, or else it ended the membership and blocked the user."""
    details: dict[str, Any] = {"permanently": permanently}
    return Event(EVENT_KINDS["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role}))


def scim_token_created(token: ScimToken) -> Event:
    """A SCIM token was created."""
    expires_at = None if token.expires_at is None else rfc3339(token.expires_at)
    details = _token_details(token) | {"expires_at": expires_at, "directory_groups": token.directory_groups}
    return Event(EVENT_KINDS["scim_token.created"], str(token.org_id), org_id=token.org_id, details=details)


def scim_token_updated(old: ScimToken, new: ScimToken) -> Event:
    """A directory may create groups now, or no longer."""
    details = _token_details(new) | {"changes": field_changes(old, new, "directory_groups")}
    return Event(EVENT_KINDS["scim_token.updated"], str(new.org_id), org_id=new.org_id, details=details)


def scim_token_revoked(token: ScimToken) -> Event:
    """A SCIM token was revoked."""
    return Event(EVENT_KINDS["scim_token.revoked"], str(token.org_id), org_id=token.org_id, details=_token_details(token))


def _token_details(token: ScimToken) -> dict[str, Any]:
    return {"scim_token_id": str(token.id), "name": token.name, "prefix": token.prefix}

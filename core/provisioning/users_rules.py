"""SCIM users: the entity, its JSON form, and the limits on its organization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import Conflict, Forbidden, NotFound
from core.kernel.principals import Role
from core.kernel.values import Email, is_printable
from core.provisioning.resources import AttributeValueInvalid, Resource, read_resource
from core.provisioning.schemas import USER
from core.tenancy.invitations_rules import TeamFull

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from core.tenancy.organizations_rules import Organization

MAX_NAME_LENGTH: Final = 100
MAX_EXTERNAL_ID_LENGTH: Final = 256
# Directories deactivate users who leave, and never delete them. So for each member that the
# organization may have, its directory may know this many users who are not members.
INACTIVE_PER_MEMBER: Final = 10


class ScimUserNotFound(NotFound):
    """The directory of the organization knows no user with this id."""


class ProtectedUser(Forbidden):
    """The owner of the organization and platform owners cannot be changed, deactivated or removed by SCIM."""


class AnonymizedUser(Forbidden):
    """This user was anonymized and cannot be changed. Delete the user instead."""


class EmailNotManaged(Forbidden):
    """Only the user can change this address: the account is used elsewhere, is an owner or admin, or its domain is not verified."""


class DomainOfAnother(Forbidden):
    """Another organization has verified the domain of this address, so only its directory can use the address. Invite the user instead."""


class UserNameTaken(Conflict):
    """This userName is already taken. If your directory knows the user, change that user. Otherwise invite them to the organization."""


class UserNameReserved(Conflict):
    """A former user with this userName is deactivated. Delete that user first."""


class MembersFull(TeamFull):
    """The organization has reached its member limit. Deactivate or delete a user first."""

    scim_type = None

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The organization already has the maximum of {limit} members. Deactivate or delete a user, or ask the operator of Gatehouse "
            "to raise the limit."
        )


class TooManyInactiveUsers(TeamFull):
    """The directory knows too many users who are not members. Delete some of them before you provision others."""

    scim_type = None

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Your directory has {limit} or more users who are deactivated or outside the group. The limit is {INACTIVE_PER_MEMBER} times "
            "the number of members that the organization may have. Delete some of these users before you provision others.",
        )


@dataclass(frozen=True, slots=True)
class ScimProfile:
    """The names and the external id that a directory gave to a user.

    Only this organization sees them.
    """

    external_id: str | None = None
    formatted: str | None = None
    given_name: str | None = None
    family_name: str | None = None
    display_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimUser:
    """A user that the directory of an organization knows. Times are UTC."""

    id: UUID
    email: Email  # for a former member, the address they had when they left
    profile: ScimProfile
    active: bool
    created_at: datetime  # when the directory provisioned the user, or else when the membership began
    updated_at: datetime  # when one of these fields last changed
    role: Role | None  # None: not a member
    is_blocked: bool  # by this directory
    is_platform_owner: bool
    is_anonymized: bool

    @property
    def is_protected(self) -> bool:
        """Return whether SCIM cannot change this user (security C-3)."""
        return self.role is Role.OWNER or self.is_platform_owner


@dataclass(frozen=True, slots=True)
class ScimUserData:
    """The new data of a user, from a request."""

    email: Email
    profile: ScimProfile
    active: bool | None  # None: stays as it is


# Resources


def to_resource(user: ScimUser) -> Resource:
    """Return the attributes that a directory can change.

    Empty ones are null, so that all users have the same attributes.
    """
    profile = user.profile
    name = {"formatted": profile.formatted, "familyName": profile.family_name, "givenName": profile.given_name}
    return {
        "externalId": profile.external_id,
        "userName": user.email,
        "name": name if any(name.values()) else None,
        "displayName": profile.display_name,
        "emails": [{"value": user.email, "type": "work", "primary": True}],
        "active": user.active,
    }


def parse_user(body: Mapping[str, Any]) -> ScimUserData:
    """Parse the body of a request. Raises: AttributeValueInvalid, EmailInvalid."""
    return to_user_data(read_resource(USER, body))


def to_user_data(resource: Mapping[str, Any]) -> ScimUserData:
    """Return the data of a resource with the names of the schema.

    Raises: AttributeValueInvalid, EmailInvalid.
    """
    if "userName" not in resource:
        raise AttributeValueInvalid("userName", "present and an email address")
    name = resource.get("name") or {}
    return ScimUserData(
        email=Email.parse(resource["userName"]),
        profile=ScimProfile(
            external_id=_read_text(resource, "externalId", MAX_EXTERNAL_ID_LENGTH),
            formatted=_read_text(name, "formatted", MAX_NAME_LENGTH),
            given_name=_read_text(name, "givenName", MAX_NAME_LENGTH),
            family_name=_read_text(name, "familyName", MAX_NAME_LENGTH),
            display_name=_read_text(resource, "displayName", MAX_NAME_LENGTH),
        ),
        active=resource.get("active"),
    )


def _read_text(resource: Mapping[str, Any], name: str, max_length: int) -> str | None:
    value: str | None = resource.get(name)
    if value is None:
        return None
    trimmed = value.strip()
    if len(trimmed) > max_length or not is_printable(trimmed):
        raise AttributeValueInvalid(name, f"a string of at most {max_length} characters, without control characters")
    return trimmed or None


def with_user_name(before: Mapping[str, Any], after: Resource) -> Resource:
    """Add the userName that a patch implies.

    If a patch has no userName but makes another email address the primary one, this address becomes
    the userName (decision 130). If no address is primary, the first one of type work is used, or
    without a type. An address of another type is never used.
    """
    if "userName" in after:
        return after
    emails: Sequence[Mapping[str, Any]] = after.get("emails") or []
    primary = [email for email in emails if email.get("primary")]
    work = [email for email in emails if email.get("primary") is None and email.get("type", "work").lower() == "work"]
    chosen = next(iter(primary or work), {}).get("value") if emails != before.get("emails") else None
    return {**after, "userName": chosen or before["userName"]}


_ATTRIBUTE_NAMES: Final = {
    "external_id": "externalId",
    "formatted": "name.formatted",
    "given_name": "name.givenName",
    "family_name": "name.familyName",
    "display_name": "displayName",
}


def changed_attributes(old: ScimProfile, new: ScimProfile) -> list[str]:
    """Return the SCIM names of the attributes that differ."""
    return [attribute for field, attribute in _ATTRIBUTE_NAMES.items() if getattr(old, field) != getattr(new, field)]


# Limits


def require_member_capacity(organization: Organization, count: int) -> None:
    """Check that the locked organization may have `count` more members. Raises: MembersFull."""
    limit = organization.user_limit.value
    if count > 0 and organization.member_count + count > limit:
        raise MembersFull(limit)


def require_inactive_capacity(organization: Organization, count: int) -> None:
    """Check that a directory that knows `count` users outside the group may provision another user.

    Each of these users occupies an email address. The owner of the address may know nothing about
    this, and can no longer create an account with it.

    Raises: TooManyInactiveUsers.
    """
    limit = INACTIVE_PER_MEMBER * organization.user_limit.value
    if count >= limit:
        raise TooManyInactiveUsers(limit)

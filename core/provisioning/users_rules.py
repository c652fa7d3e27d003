"""Entities, refusals and pure rules of `core.provisioning.users`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import Conflict, Forbidden, NotFound
from core.kernel.principals import Role
from core.kernel.values import Email, is_printable
from core.provisioning.patches import Resource, AttributeValueInvalid, read_resource
from core.provisioning.schemas import USER
from core.tenancy.invitations_rules import TeamFull

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from core.tenancy.organizations_rules import Organization

LONGEST_NAME: Final = 100
LONGEST_ID: Final = 256
# For each whom the organization may have as a member, so many more may be known who are none: directories deactivate who leaves, and delete
# nobody.
OUTSIDE_PER_MEMBER: Final = 10


class ScimUserNotFound(NotFound):
    """The organization's directory knows nobody of this id."""


class ProtectedUser(Forbidden):
    """The owner of the organization, and platform owners, cannot be changed, deactivated or removed by SCIM."""


class AnonymizedUser(Forbidden):
    """This person was anonymized. They can be removed, and nothing else."""


class EmailNotManaged(Forbidden):
    """Only its holder can change the address of an account that others use, too, that manages here, or whose domain is not verified."""


class UserNameTaken(Conflict):
    """This userName is taken: change that user, if your directory knows them; anybody else is invited to the organization."""


class UserNameReserved(Conflict):
    """A former user of this name, who is deactivated, has to be deleted first."""


class MembersFull(TeamFull):
    """The organization has as many members as it may have."""

    scim_type = None

    def __init__(self, limit: int) -> None:
        super().__init__(f"The organization may have {limit} members, and there is no room for more.")


class TooManyInactiveUsers(TeamFull):
    """The directory has put away too many people."""

    scim_type = None

    def __init__(self, most: int) -> None:
        super().__init__(
            f"Your directory has deactivated, or taken out of the group, {most} people or more, which is {OUTSIDE_PER_MEMBER} times as "
            "many as the organization may have members. Delete some of them before you provision others.",
        )


@dataclass(frozen=True, slots=True)
class ScimProfile:
    """What a directory says of a person, and nobody else."""

    external_id: str | None = None
    formatted: str | None = None
    given_name: str | None = None
    family_name: str | None = None
    display_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimUser:
    """A person whom the directory knows. Times are UTC: `created_at` is when the directory made them, or else they became a member, and
    `updated_at` when anything of this last changed. Of whoever is no member, the address is that of when they left."""

    id: UUID
    email: Email
    description: ScimProfile
    active: bool
    created_at: datetime
    updated_at: datetime
    role: Role | None  # of the membership; or of the one that activating gives back, None for none
    deactivated_here: bool
    whole_account: bool  # was deactivated here
    is_platform_owner: bool
    is_anonymized: bool

    @property
    def is_untouchable(self) -> bool:
        """Whether SCIM can do nothing to the person (security.md C-3)."""
        return self.role is Role.OWNER or self.is_platform_owner


@dataclass(frozen=True, slots=True)
class ScimUserData:
    """What a resource says somebody should be; `active` None says nothing of that."""

    email: Email
    description: ScimProfile
    active: bool | None


# Resources


def to_resource(user: ScimUser) -> Resource:
    """What of a person a directory can change. What has no value is null, so that the attributes are the same of everybody."""
    described = user.description
    name = {"formatted": described.formatted, "familyName": described.family_name, "givenName": described.given_name}
    return {
        "externalId": described.external_id,
        "userName": user.email,
        "name": name if any(name.values()) else None,
        "displayName": described.display_name,
        "emails": [{"value": user.email, "type": "work", "primary": True}],
        "active": user.active,
    }


def parse_user(given: Mapping[str, Any]) -> ScimUserData:
    """What a whole resource wants, as a client gave it. Raises AttributeValueInvalid, EmailInvalid."""
    return wanted(read_resource(USER, given))


def wanted(resource: Mapping[str, Any]) -> ScimUserData:
    """The same of one with the names of the schema."""
    if "userName" not in resource:
        raise AttributeValueInvalid("userName", "there: an email address")
    name = resource.get("name") or {}
    return ScimUserData(
        email=Email.parse(resource["userName"]),
        description=ScimProfile(
            external_id=_text(resource, "externalId", LONGEST_ID),
            formatted=_text(name, "formatted", LONGEST_NAME),
            given_name=_text(name, "givenName", LONGEST_NAME),
            family_name=_text(name, "familyName", LONGEST_NAME),
            display_name=_text(resource, "displayName", LONGEST_NAME),
        ),
        active=resource.get("active"),
    )


def _text(resource: Mapping[str, Any], name: str, longest: int) -> str | None:
    found: str | None = resource.get(name)
    if found is None:
        return None
    trimmed = found.strip()
    if len(trimmed) > longest or not is_printable(trimmed):
        raise AttributeValueInvalid(name, f"a text of at most {longest} characters, all of which can be seen")
    return trimmed or None


def require_member_capacity(organization: Organization, count: int) -> None:
    """Raises MembersFull unless so many more may be members of the locked organization."""
    limit = organization.user_limit.value
    if count > 0 and organization.member_count + count > limit:
        raise MembersFull(limit)

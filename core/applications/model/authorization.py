"""The permissions that an application declares, and the roles that contain them: the document, its rules and its changes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self
from uuid import UUID

from core.kernel import errors
from core.kernel.values import Email
from core.tenancy.model.roles import ROLE_PATTERN

MAX_PERMISSIONS: Final = 200
MAX_ROLES: Final = 50
MAX_ASSIGNMENTS: Final = 500  # per user, in all the organization's applications
MAX_PERMISSION_LENGTH: Final = 100
MAX_SHOWN_HOLDERS: Final = 20  # users that a refusal names
PERMISSION_PATTERN: Final = "[a-z][a-z0-9_.-]*(:[a-z][a-z0-9_.-]*)*"
_PERMISSION = re.compile(PERMISSION_PATTERN)
_ROLE = re.compile(ROLE_PATTERN)


class PermissionNameInvalid(errors.Invalid):
    """Use a-z, 0-9, "_", ".", "-" and ":", at most 100 characters, as in documents:write. Begin with a letter, also after each ":"."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name[:MAX_PERMISSION_LENGTH]!r} is no permission. {self.__doc__}")


class ServiceRoleSlugInvalid(errors.Invalid):
    """Use a-z, 0-9, "_" and "-", at most 50 characters. Begin with a letter."""

    def __init__(self, slug: str) -> None:
        super().__init__(f"{slug[:50]!r} is no slug of a role. {self.__doc__}")


class ListedTwice(errors.Invalid):
    """A permission or a role is listed twice. List each only once."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is listed twice. List each permission and each role only once.")


class PermissionNotDeclared(errors.Invalid):
    """A role has a permission that the application does not declare. Declare it, or leave it out."""

    def __init__(self, role: str, permission: str) -> None:
        super().__init__(f"The role {role} has the permission {permission}, which is not declared. Declare it, or leave it out.")


class TooManyDeclaredPermissions(errors.Invalid):
    """An application has the maximum number of permissions. Delete one that you do not need."""

    def __init__(self) -> None:
        super().__init__(f"An application can declare at most {MAX_PERMISSIONS} permissions. Delete one that you do not need.")


class TooManyServiceRoles(errors.Invalid):
    """An application has the maximum number of roles. Delete one that you do not need."""

    def __init__(self) -> None:
        super().__init__(f"An application can have at most {MAX_ROLES} roles. Delete one that you do not need.")


class TooManyRoleAssignments(errors.Invalid):
    """This user has the maximum number of roles of applications in this organization. Take a role away first."""

    def __init__(self) -> None:
        super().__init__(f"This user has the maximum of {MAX_ASSIGNMENTS} roles of applications in this organization. Take one away first.")


class EmptyRoleUpdate(errors.Invalid):
    """The request changes nothing. Send at least one field."""


class DeclaredPermissionNotFound(errors.NotFound):
    """The application declares no such permission."""


class PermissionExists(errors.Conflict):
    """The application declares this permission already. Choose another name."""


class ServiceRoleNotFound(errors.NotFound):
    """The application has no such role."""


class ServiceRoleExists(errors.Conflict):
    """The application has a role with this slug already. Choose another slug."""


class RoleNotAssigned(errors.NotFound):
    """This user does not have this role."""


class RoleNotGivenToGroup(errors.NotFound):
    """This group does not have this role."""


class SlugOfOrganizationRole(errors.Conflict):
    """The organization has a role with this slug. Choose another slug for the role of the application."""

    def __init__(self, slug: str) -> None:
        super().__init__(f"{slug} is a role of the organization. Choose another slug for the role of the application.")


class AuthorizationChanged(errors.PreconditionFailed):
    """The permissions and roles were changed in the meantime. Load them again, and repeat your change."""


@dataclass(frozen=True, slots=True)
class HolderCount:
    """How many users have a role themselves, and how many groups have it."""

    users: int = 0
    groups: int = 0

    def __bool__(self) -> bool:
        """Return whether a user or a group has the role."""
        return self.users > 0 or self.groups > 0

    def __str__(self) -> str:
        counts = ((self.users, "user"), (self.groups, "group"))
        return " and ".join(f"{number:,} {noun}{'' if number == 1 else 's'}" for number, noun in counts if number)


NO_HOLDERS: Final = HolderCount()


@dataclass(frozen=True, slots=True)
class FirstHolders:
    """The addresses of the first users with some roles, and the names of the first groups, at most MAX_SHOWN_HOLDERS each."""

    emails: Sequence[Email] = ()
    groups: Sequence[str] = ()


class ServiceRoleInUse(errors.Conflict):
    """Users or groups have a role that would be deleted. Confirm that they lose it, or take it from them first."""

    code = "ROLE_IN_USE"

    def __init__(self, holders: Mapping[str, HolderCount], first: FirstHolders | None) -> None:
        """`holders` are the numbers by slug. `first` is None if the caller may not see the users."""
        roles = ", ".join(f"{slug} ({number})" for slug, number in holders.items())
        named = ""
        if first is not None:
            named += _named("Users", first.emails, sum(number.users for number in holders.values()))
            named += _named("Groups", first.groups, sum(number.groups for number in holders.values()))
        advice = "Confirm that they lose it, or take it from them first."
        super().__init__(f"Users or groups have a role that would be deleted: {roles}.{named} {advice}")


def _named(label: str, names: Sequence[str], number: int) -> str:
    further = " and others" if MAX_SHOWN_HOLDERS <= len(names) < number else ""
    return f" {label}: {', '.join(names)}{further}." if names else ""


@dataclass(frozen=True, slots=True)
class DeclaredPermission:
    """A permission that an application declares, such as `documents:write`."""

    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class RoleDefinition:
    """An application's role, as the document has it."""

    slug: str
    name: str
    description: str | None = None
    permissions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuthorizationDocument:
    """An application's permissions and roles, sorted by name and slug."""

    permissions: tuple[DeclaredPermission, ...] = ()
    roles: tuple[RoleDefinition, ...] = ()

    @classmethod
    def parse(cls, permissions: Iterable[DeclaredPermission], roles: Iterable[RoleDefinition]) -> Self:
        """Return the document in canonical order.

        Raises: PermissionNameInvalid, ServiceRoleSlugInvalid, ListedTwice, TooManyDeclaredPermissions, TooManyServiceRoles,
        PermissionNotDeclared.
        """
        document = cls(
            tuple(sorted(permissions, key=lambda each: each.name)),
            tuple(sorted((_sorted(role) for role in roles), key=lambda each: each.slug)),
        )
        document._check()
        return document

    def _check(self) -> None:
        names = [permission.name for permission in self.permissions]
        for name in names:
            check_permission_name(name)
        for role in self.roles:
            check_role_slug(role.slug)
        for listed in (names, [role.slug for role in self.roles], *(role.permissions for role in self.roles)):
            for name, times in Counter(listed).items():
                if times > 1:
                    raise ListedTwice(name)
        if len(names) > MAX_PERMISSIONS:
            raise TooManyDeclaredPermissions
        if len(self.roles) > MAX_ROLES:
            raise TooManyServiceRoles
        for role in self.roles:
            if undeclared := set(role.permissions).difference(names):
                raise PermissionNotDeclared(role.slug, min(undeclared))

    def role(self, slug: str) -> RoleDefinition | None:
        """Return the role with this slug, or None."""
        return next((role for role in self.roles if role.slug == slug), None)

    def permission(self, name: str) -> DeclaredPermission | None:
        """Return the permission with this name, or None."""
        return next((permission for permission in self.permissions if permission.name == name), None)


def _sorted(role: RoleDefinition) -> RoleDefinition:
    return RoleDefinition(role.slug, role.name, role.description, tuple(sorted(role.permissions)))


def check_permission_name(name: str) -> None:
    """Check a permission's name."""
    if len(name) > MAX_PERMISSION_LENGTH or not _PERMISSION.fullmatch(name):
        raise PermissionNameInvalid(name)


def check_role_slug(slug: str) -> None:
    """Check a role's slug."""
    if not _ROLE.fullmatch(slug):
        raise ServiceRoleSlugInvalid(slug)


@dataclass(frozen=True, slots=True)
class StoredRole:
    """An application's stored role. Times are UTC."""

    id: UUID
    definition: RoleDefinition
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ServiceAuthorization:
    """An application's stored permissions and roles. `version` counts the changes so far."""

    version: int
    document: AuthorizationDocument
    roles: tuple[StoredRole, ...] = ()

    def stored_role(self, slug: str) -> StoredRole | None:
        """Return the stored role with this slug, or None."""
        return next((role for role in self.roles if role.definition.slug == slug), None)


@dataclass(frozen=True, slots=True)
class RoleUpdate:
    """A changed role that stays, and how many users and groups have it."""

    slug: str
    fields: tuple[str, ...]  # `name`, `description`, or both fields
    permissions_added: tuple[str, ...]
    permissions_removed: tuple[str, ...]
    user_count: int
    group_count: int


@dataclass(frozen=True, slots=True)
class RoleRemoval:
    """A deleted role, and how many users and groups lose it."""

    slug: str
    user_count: int
    group_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationChanges:
    """The difference between two documents. Names and slugs are sorted."""

    permissions_added: tuple[str, ...] = ()
    permissions_updated: tuple[str, ...] = ()
    permissions_removed: tuple[str, ...] = ()
    roles_added: tuple[str, ...] = ()
    roles_updated: tuple[RoleUpdate, ...] = ()
    roles_removed: tuple[RoleRemoval, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the documents differ."""
        return self.of_permissions or bool(self.roles_added or self.roles_updated or self.roles_removed)

    @property
    def of_permissions(self) -> bool:
        """Whether a permission is added, changed or removed."""
        return bool(self.permissions_added or self.permissions_updated or self.permissions_removed)

    @property
    def holders(self) -> Mapping[str, HolderCount]:
        """Return how many users and groups lose a role, by slug."""
        counts = {removal.slug: HolderCount(removal.user_count, removal.group_count) for removal in self.roles_removed}
        return {slug: number for slug, number in counts.items() if number}

    @property
    def needs_confirmation(self) -> bool:
        """Whether users or groups lose a role."""
        return bool(self.holders)


def changes_between(old: AuthorizationDocument, new: AuthorizationDocument, counts: Mapping[str, HolderCount]) -> AuthorizationChanges:
    """Return the changes that turn the old document into the new document.

    `counts` say how many users and groups have the old roles, by slug.
    """
    old_permissions, new_permissions = ({each.name: each for each in document.permissions} for document in (old, new))
    old_roles, new_roles = ({each.slug: each for each in document.roles} for document in (old, new))
    return AuthorizationChanges(
        permissions_added=tuple(name for name in new_permissions if name not in old_permissions),
        permissions_updated=tuple(name for name, each in new_permissions.items() if old_permissions.get(name, each) != each),
        permissions_removed=tuple(name for name in old_permissions if name not in new_permissions),
        roles_added=tuple(slug for slug in new_roles if slug not in old_roles),
        roles_updated=tuple(
            _update_of(old_roles[slug], role, counts.get(slug, NO_HOLDERS))
            for slug, role in new_roles.items()
            if old_roles.get(slug, role) != role
        ),
        roles_removed=tuple(
            RoleRemoval(slug, number.users, number.groups)
            for slug in old_roles
            if slug not in new_roles
            for number in [counts.get(slug, NO_HOLDERS)]
        ),
    )


def _update_of(old: RoleDefinition, new: RoleDefinition, number: HolderCount) -> RoleUpdate:
    return RoleUpdate(
        slug=new.slug,
        fields=tuple(name for name in ("name", "description") if getattr(old, name) != getattr(new, name)),
        permissions_added=tuple(name for name in new.permissions if name not in old.permissions),
        permissions_removed=tuple(name for name in old.permissions if name not in new.permissions),
        user_count=number.users,
        group_count=number.groups,
    )


@dataclass(frozen=True, slots=True)
class AuthorizationResult:
    """The document after a change, also if the change was only tried, and the changes that led to it."""

    version: int
    document: AuthorizationDocument
    changes: AuthorizationChanges


@dataclass(frozen=True, slots=True)
class ServiceRoleHolder:
    """A user who has an application's role. Times are UTC."""

    user_id: UUID
    email: Email
    assigned_at: datetime


@dataclass(frozen=True, slots=True)
class GivingGroup:
    """A group that gives a role to a user."""

    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class RoleOfUser:
    """An application's role that a user has, alone or by groups. Times are UTC."""

    service_slug: str
    service_name: str
    slug: str
    name: str
    permissions: tuple[str, ...]
    assigned_at: datetime | None  # None: only groups give the role
    groups: tuple[GivingGroup, ...] = ()  # by name

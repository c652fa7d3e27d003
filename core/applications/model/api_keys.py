"""API keys: the entity, its secret and its permissions."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final
from uuid import UUID

from core.kernel import errors, roles
from core.kernel.access import NotForServiceAccounts
from core.kernel.callers import ServiceContext
from core.kernel.roles import Permission
from core.kernel.values import new_secret

# How precise `last_used_at` is: a busy key causes one write per interval.
LAST_USED_PRECISION: Final = timedelta(minutes=1)
MAX_KEY_LENGTH: Final = 256  # characters; longer texts cannot be our keys and are refused before they are hashed
LABEL_LENGTH: Final = 6  # characters that tell a key from other keys in a list
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"  # base32 in lower case

# The rights that a key's creator needs for its permissions (security K-2). A subscription admits its user to the application.
NEEDED_RIGHTS: Final[Mapping[Permission, roles.Rights]] = MappingProxyType(
    {
        Permission.READ_USERS: frozenset({roles.Capability.END_USERS_VIEW}),
        Permission.WRITE_USERS: frozenset({roles.Capability.END_USERS_MANAGE}),
        Permission.DELETE_USERS: frozenset({roles.Capability.END_USERS_MANAGE}),
        Permission.READ_SUBSCRIPTIONS: frozenset({roles.Capability.END_USERS_VIEW}),
        Permission.WRITE_SUBSCRIPTIONS: frozenset({roles.Capability.END_USERS_MANAGE, roles.Capability.BILLING_MANAGE}),
        Permission.DELETE_SUBSCRIPTIONS: frozenset({roles.Capability.END_USERS_MANAGE, roles.Capability.BILLING_MANAGE}),
        Permission.READ_ANALYTICS: frozenset({roles.Capability.ANALYTICS_VIEW}),
        Permission.READ_SERVICE: frozenset({roles.Capability.SERVICES_VIEW}),
        Permission.WRITE_SERVICE: frozenset({roles.Capability.SERVICES_MANAGE}),
        Permission.WRITE_ROLES: frozenset({roles.Capability.SERVICE_ROLES_ASSIGN}),
        Permission.EVALUATE_ACCESS: frozenset({roles.Capability.SERVICES_VIEW, roles.Capability.END_USERS_VIEW}),
    }
)


class ApiKeyInvalid(errors.Unauthenticated):
    """The API key is missing, unknown, expired or deleted. Send a valid key in the X-Api-Key header."""


class ApiKeyNotFound(errors.NotFound):
    """This API key does not exist."""


class NoPermissions(errors.Invalid):
    """An API key needs at least one permission. List the permissions that it needs."""


class DuplicatePermission(errors.Invalid):
    """A permission is listed twice. List each permission only once."""


class UnknownPermission(errors.Invalid):
    """This permission does not exist."""

    def __init__(self) -> None:
        super().__init__(f"This permission does not exist. Choose from: {', '.join(Permission)}.")


class ApiKeyAboveOwn(errors.Forbidden):
    """A permission of this key needs a right that you do not have yourself. Leave the permission out, or ask an owner for the key."""

    audited = True

    def __init__(self, permission: Permission, missing: roles.Capability) -> None:
        super().__init__(
            f"The permission {permission.value} needs the right {missing.value}, which you do not have yourself. "
            "Leave the permission out, or ask the owner of the organization to create the key."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A service's API key, without its secret, which is not stored. Times are UTC."""

    id: UUID
    org_id: UUID
    service_id: UUID
    name: str
    prefix: str
    permissions: tuple[Permission, ...]
    last_used_at: datetime | None
    expires_at: datetime | None  # None if it does not expire
    created_by: UUID  # this account may no longer exist
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """A key that has not expired and its service, as loaded to authenticate a request."""

    key_id: UUID
    key_hash: bytes = field(repr=False)
    permissions: frozenset[Permission]
    last_used_at: datetime | None
    service: ServiceContext


# Rights that a key's creator need not have for a permission. With these rights the key does more: without them, it only detaches members.
WIDENING_RIGHTS: Final[Mapping[Permission, roles.Rights]] = MappingProxyType(
    {Permission.DELETE_USERS: frozenset({roles.Capability.MEMBERS_MANAGE})}
)


def generate_key(environment: str | None = None) -> tuple[str, str]:
    """Return a new key's secret, and its prefix, which lists show.

    The secret starts with the prefix. The prefix contains the environment (`live` or `test`), if it
    is set.
    """
    label = "".join(secrets.choice(_ALPHABET) for _ in range(LABEL_LENGTH))
    prefix = "_".join(["sk", *([] if environment is None else [environment]), label])
    return f"{prefix}_{new_secret()}", prefix


def parse_permissions(names: Sequence[str]) -> tuple[Permission, ...]:
    """Return the permissions with these names, in this order (security K-2)."""
    if not names:
        raise NoPermissions
    if not set(names) <= set(Permission):
        raise UnknownPermission
    if len(set(names)) < len(names):
        raise DuplicatePermission
    return tuple(Permission(name) for name in names)


def rights_behind(permissions: Iterable[Permission]) -> roles.Rights:
    """Return the rights that are needed to create a key with these permissions."""
    return frozenset().union(*(NEEDED_RIGHTS[permission] for permission in permissions))


def rights_used(permissions: Iterable[Permission], rights: roles.Rights) -> roles.Rights:
    """Return which of the creator's rights a key with these permissions acts with."""
    return rights_behind(permissions) | rights & roles.NO_RIGHTS.union(
        *(WIDENING_RIGHTS.get(permission, roles.NO_RIGHTS) for permission in permissions)
    )


def grantable_permissions(rights: roles.Rights) -> list[Permission]:
    """Return the permissions that a member with these rights can give to a key."""
    return [permission for permission in Permission if NEEDED_RIGHTS[permission] <= rights]


def require_own_rights(permissions: Sequence[Permission], rights: roles.Rights, granted: roles.Rights | None) -> None:
    """Check that a caller with these rights may create a key with these permissions.

    `granted` are the capabilities that an owner granted a service account by name. None: the caller is a user, and not
    a service account. The effect of a key remains when the account is gone.
    """
    for permission in permissions:
        for needed in sorted(NEEDED_RIGHTS[permission]):
            if needed not in rights:
                raise ApiKeyAboveOwn(permission, needed)
            if granted is not None and needed in roles.GRANTABLE and needed not in granted:
                raise NotForServiceAccounts(needed)

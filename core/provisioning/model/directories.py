"""SCIM tokens, and the log of a directory's requests."""

import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

from core.kernel import errors, roles
from core.kernel.callers import OrganizationStatus
from core.kernel.values import new_secret
from core.tenancy.model.groups import GIVEN_BY_GROUPS

MAX_TOKEN_LENGTH: Final = 256  # longer texts cannot be valid tokens and are not hashed
TOKEN_START: Final = "scim_live_"  # noqa: S105  (a prefix, not a secret)
_PREFIX_LENGTH: Final = 6  # random characters that identify a token in lists
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"


class ScimTokenInvalid(errors.Unauthenticated):
    """The SCIM token is unknown, expired or revoked. Send a valid token in the header Authorization."""

    token_sent = True


class ScimTokenNotFound(errors.NotFound):
    """This SCIM token does not exist. See the list of SCIM tokens."""


class DirectoryAboveOwn(errors.Forbidden):
    """A directory changes and removes all members but the owner, and you do not have all rights of an admin. Ask an admin or the owner."""

    audited = True


class DirectoryGivesMore(errors.Forbidden):
    """The directory would fill groups with roles that have rights which you do not have yourself. Ask a member who has them."""

    audited = True

    def __init__(self, missing: Iterable[roles.Capability]) -> None:
        super().__init__(
            f"The directory would fill groups with roles that have rights which you do not have yourself: {', '.join(missing)}. "
            "Ask a member who has them."
        )


# A directory creates, changes and removes members, end users and groups, and assigns users to applications.
DIRECTORY_RIGHTS: Final[roles.Rights] = frozenset(
    {roles.Capability.MEMBERS_VIEW, roles.Capability.MEMBERS_MANAGE, roles.Capability.END_USERS_VIEW, roles.Capability.END_USERS_MANAGE}
)
# A directory with groups also gives and takes what groups give.
_GROUP_RIGHTS: Final[roles.Rights] = GIVEN_BY_GROUPS | {roles.Capability.GROUPS_MANAGE}


def rights_used(*, directory_groups: bool) -> roles.Rights:
    """Return the rights that a directory uses, with the groups that it fills or without them."""
    return DIRECTORY_RIGHTS | _GROUP_RIGHTS if directory_groups else DIRECTORY_RIGHTS


def with_rights_of(creator: roles.Rights) -> roles.Authority:
    """Return a directory's power over members: an admin's power, with the further rights that its token's creator has (security R-10)."""
    return roles.Authority(roles.ADMIN, roles.ROLES[roles.ADMIN].rights | creator)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimToken:
    """An organization's SCIM token, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    prefix: str  # how the secret starts, to recognize the token in lists
    expires_at: datetime | None  # None: does not expire
    created_by: UUID  # the account may no longer exist
    created_at: datetime
    directory_groups: bool = False  # whether the directory may create groups


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """What happens when a token is revoked. Times are UTC."""

    token: ScimToken
    users: int  # the users that its directory sees
    last_used_at: datetime | None  # the time of its last request that is still in the log


@dataclass(frozen=True, slots=True)
class ScimTokenRecord:
    """A token and its organization, as one statement reads them."""

    token_id: UUID
    token_hash: bytes = field(repr=False)
    org_id: UUID
    org_slug: str
    status: OrganizationStatus
    is_expired: bool
    directory_groups: bool
    has_attributes: bool  # the organization has declared user attributes


def new_token() -> tuple[str, str]:
    """Return a new secret with 256 random bits, and its prefix."""
    prefix = TOKEN_START + "".join(secrets.choice(_BASE32) for _ in range(_PREFIX_LENGTH))
    return f"{prefix}_{new_secret()}", prefix


MAX_ENTRIES: Final = 100  # per organization
MAX_NAMES: Final = 50  # per request
_MAX_READ: Final = 200  # members that are read in a list or an object
_MAX_LENGTH: Final = 128  # characters per name

# A name without the characters in email addresses, so that a value in the place of a name is not kept.
_NAME: Final = re.compile(r"[A-Za-z$][\w$-]*|urn:[\w.:-]+", re.ASCII | re.IGNORECASE)
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"?')
_FILTERED: Final = re.compile(
    r"(?:^|[(\[]|\b(?:and|or|not)\b)[\s(]*([a-z$][\w$.:-]*)\s+(?:eq|ne|co|sw|ew|gt|ge|lt|le|pr)\b", re.ASCII | re.IGNORECASE
)
_VALUE_FILTER: Final = re.compile(r"\[.*(?:\]|$)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimRequest:
    """A SCIM request by an organization's directory, without values. The time is UTC."""

    at: datetime
    token_id: UUID  # the token may be revoked
    method: str
    path: str  # with the resource id, without the query
    attributes: list[str]  # names in the body or in the filter
    status: int
    scim_type: str | None
    error: str | None  # the error kind, or the ignored part, in one sentence

    @property
    def has_failed(self) -> bool:
        """Return whether the response was an error, or the directory closed the connection."""
        return self.status >= 400


def attributes_of_body(body: Any) -> list[str]:
    """Return the attribute names in a SCIM body, such as `emails.value`, at most two levels deep.

    For patch operations, these are the attributes that they change.
    """
    return _first_names(_names(body))


def attributes_of_filter(text: str) -> list[str]:
    """Return the attribute names in a SCIM filter. A filter that is not valid gives the names that can be recognized."""
    return _first_names(_path(match[1]) for match in _FILTERED.finditer(_QUOTED.sub('""', text[:4096])))


def _first_names(names: Iterable[str]) -> list[str]:
    return list(islice(dict.fromkeys(islice((name[:_MAX_LENGTH] for name in names if name), 10 * _MAX_READ)), MAX_NAMES))


def _names(body: Any) -> Iterator[str]:
    for name, value in _members(body):
        if name.lower() == "operations" and isinstance(value, list):
            for operation in islice(value, _MAX_READ):
                yield from _changed(operation)
        elif name.lower() != "schemas":
            yield from _nested(name, value)


def _changed(operation: Any) -> Iterator[str]:
    members = {name.lower(): value for name, value in _members(operation)}
    path, value = members.get("path"), members.get("value")
    if isinstance(path, str) and path:
        yield _path(path[:4096])
    else:
        for name, item in _members(value):
            yield from _nested(name, item)


def _nested(name: str, value: Any) -> Iterator[str]:
    items = islice(value, _MAX_READ) if isinstance(value, list) else [value]
    subs = [f"{_path(name)}.{_path(sub)}" for item in items for sub, _ in _members(item)]
    yield from subs or [_path(name)]


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    return islice(value.items(), _MAX_READ) if isinstance(value, dict) else iter(())


def _path(text: str) -> str:
    """Return an attribute path without its value filter, or a question mark if the path could be a value."""
    path = _VALUE_FILTER.sub("", text) + (text.rpartition("]")[2] if "[" in text and "]" in text else "")
    return path if all(map(_NAME.fullmatch, [path] if path.lower().startswith("urn:") else path.split("."))) else "?"

"""The user attributes that an organization declares: their kinds, writers and values."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final, Self, assert_never
from uuid import UUID

from core.kernel import errors
from core.kernel.values import is_printable, is_visible

MAX_ATTRIBUTES: Final = 50  # per organization
MAX_LABEL: Final = 100
MAX_TEXT: Final = 500  # characters in a text
MAX_ITEMS: Final = 50  # per list
MAX_ITEM: Final = 100  # characters in an item
MAX_BYTES: Final = 16384  # all values that a user has, as JSON
MAX_GROUP_BYTES: Final = 4096  # all values that a group has: a sign-in reads the values from all the user's groups
MAX_NUMBER: Final = 2**53  # larger numbers are not exact in JavaScript
SOURCE_PREFIX: Final = "attribute:"  # before attribute names, among other claim sources
ATTRIBUTE_NAME: Final = re.compile("[a-z][a-z0-9_]{0,49}")


class AttributeNotFound(errors.NotFound):
    """The organization has no attribute with this name."""


class AttributeNameTaken(errors.Conflict):
    """The organization already has an attribute with this name. Choose another name."""


class UserAttributeNameInvalid(errors.Invalid):
    """The name of an attribute starts with a letter a to z. Up to 49 letters, digits and underscores follow, as in cost_center."""


class AttributeLabelInvalid(errors.Invalid):
    """The label of an attribute must have 1 to 100 printable characters."""


class AttributeMergeInvalid(errors.Invalid):
    """Only lists can be merged by union, and only numbers and dates by least or greatest. Choose first."""


class NoAttributeChanges(errors.Invalid):
    """The request changes nothing. Send at least one of label, writers, merge and position. The name and the kind never change."""


class TooManyAttributes(errors.Conflict):
    """The organization already has the maximum number of attributes. Delete one first."""

    audited = True

    def __init__(self) -> None:
        super().__init__(f"The organization already has the maximum of {MAX_ATTRIBUTES} attributes. Delete one first.")


class AttributeInUse(errors.Conflict):
    """An application uses this attribute in its claims. Change the claims first."""

    def __init__(self, application: str) -> None:
        super().__init__(f"The application {application} uses this attribute in its claims or SAML attributes. Change these first.")


class UserAttributeValueInvalid(errors.Invalid):
    """The value does not fit the attribute."""

    def __init__(self, name: str, problem: str) -> None:
        """`problem` is a sentence about the value that the attribute with this name has."""
        super().__init__(f"{name}: {problem}")
        self.member = name


class UserAttributeNotWritable(errors.Forbidden):
    """You may not change this attribute. Ask an admin of the organization."""

    def __init__(self, name: str) -> None:
        super().__init__(f"You may not change the attribute {name}. Ask an admin of the organization.")


class AttributeKind(StrEnum):
    """What kind of values an attribute has."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    LIST = "list"  # texts


class AttributeWriter(StrEnum):
    """A party that may change an attribute's values."""

    USER = "user"
    ADMIN = "admin"
    DIRECTORY = "directory"  # by SCIM
    APPLICATION = "application"  # with an API key


class AttributeMerge(StrEnum):
    """The rule for a user without an own value, if several of their groups have a value."""

    FIRST = "first"  # the value from the first group by name
    UNION = "union"
    LEAST = "least"
    GREATEST = "greatest"

    def merge(self, values: Sequence[Any]) -> Any:
        """Return the value that these group values give. The values are ordered by group name, and there is at least one value."""
        match self:
            case AttributeMerge.FIRST:
                return values[0]
            case AttributeMerge.UNION:
                return list(dict.fromkeys(item for value in values for item in value))
            case AttributeMerge.LEAST:
                return min(values)
            case AttributeMerge.GREATEST:
                return max(values)
        assert_never(self)


_MERGES: Final[Mapping[AttributeMerge, Sequence[AttributeKind]]] = {
    AttributeMerge.FIRST: tuple(AttributeKind),
    AttributeMerge.UNION: (AttributeKind.LIST,),
    AttributeMerge.LEAST: (AttributeKind.NUMBER, AttributeKind.DATE),
    AttributeMerge.GREATEST: (AttributeKind.NUMBER, AttributeKind.DATE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A user attribute that an organization has declared. The name and the kind never change. The time is UTC."""

    org_id: UUID
    name: str
    label: str
    kind: AttributeKind
    writers: tuple[AttributeWriter, ...]
    merge: AttributeMerge = AttributeMerge.FIRST
    position: int = 0  # in lists
    created_at: datetime

    def checked(self) -> "Attribute":
        """Return the attribute if it is valid."""
        if not ATTRIBUTE_NAME.fullmatch(self.name):
            raise UserAttributeNameInvalid
        if not _is_line(self.label, MAX_LABEL):
            raise AttributeLabelInvalid
        if self.kind not in _MERGES[self.merge]:
            raise AttributeMergeInvalid
        return self

    def check(self, value: object) -> None:
        """Check a value. Raises: UserAttributeValueInvalid."""
        if not self.fits(value):
            raise UserAttributeValueInvalid(self.name, KIND_SENTENCES[self.kind])

    def fits(self, value: object) -> bool:
        """Return whether this is a value that fits the attribute's kind."""
        return _FITS[self.kind](value)


def effective_values(
    own: Mapping[str, Any], merges: Mapping[str, AttributeMerge], of_groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the values that applications get for a user: the own values, and otherwise values from the user's groups.

    `merges` has the rule for every declared attribute by its name. `of_groups` has every group's values, ordered by group name.
    """
    effective = dict(own)
    for name, merge in merges.items():
        if name not in own and (values := [group[name] for group in of_groups if name in group]):
            effective[name] = merge.merge(values)
    return effective


@dataclass(frozen=True, slots=True)
class AttributeValues:
    """The attributes that an organization declared, and the values of a user or a group by name.

    `of_groups` has the values from the user's groups, ordered by group name.
    """

    attributes: Sequence[Attribute]
    values: Mapping[str, Any]
    of_groups: Sequence[Mapping[str, Any]] = ()
    max_bytes: int = MAX_BYTES

    @property
    def effective(self) -> Mapping[str, Any]:
        """The values that applications get: the own values, and otherwise values from the user's groups."""
        return effective_values(self.values, {each.name: each.merge for each in self.attributes}, self.of_groups)

    def only(self, names: Collection[str]) -> Self:
        """Return the own values with these names, for a caller who may set values but may not read the rest."""
        values = {name: value for name, value in self.values.items() if name in names}
        return replace(self, attributes=[each for each in self.attributes if each.name in names], values=values, of_groups=())

    def changed_names(self, new: Self) -> list[str]:
        """Return the names of attributes with another value in `new`."""
        return sorted(each.name for each in self.attributes if self.values.get(each.name) != new.values.get(each.name))

    def change(self, changes: Mapping[str, Any], writer: AttributeWriter) -> dict[str, Any]:
        """Return the new values after these changes by a writer. A change to None removes the value.

        Raises: UserAttributeNotWritable, UserAttributeValueInvalid.
        """
        declared = {attribute.name: attribute for attribute in self.attributes}
        for name, value in changes.items():
            attribute = declared.get(name)
            if attribute is None:
                raise UserAttributeValueInvalid(name, "The organization has no attribute with this name. Declare it first.")
            if writer not in attribute.writers:
                raise UserAttributeNotWritable(name)
            if value is not None:
                attribute.check(value)
        merged = {**self.values, **changes}
        new = {name: value for name, value in merged.items() if value is not None}
        if len(json.dumps(new, ensure_ascii=False).encode()) > self.max_bytes:
            problem = f"All values together may have {self.max_bytes:,} bytes. Shorten one of them."
            raise UserAttributeValueInvalid(next(iter(changes)), problem)
        return new


@dataclass(frozen=True, slots=True)
class OwnAttributes:
    """A user's attributes in one organization."""

    org_id: UUID
    org_slug: str
    organization: str
    values: AttributeValues


def _is_line(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and is_printable(value) and is_visible(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER < value < MAX_NUMBER


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_list(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_ITEMS and all(_is_line(item, MAX_ITEM) for item in value)


_FITS: Final = {
    AttributeKind.TEXT: lambda value: _is_line(value, MAX_TEXT),
    AttributeKind.NUMBER: _is_number,
    AttributeKind.BOOLEAN: lambda value: isinstance(value, bool),
    AttributeKind.DATE: _is_date,
    AttributeKind.LIST: _is_list,
}
KIND_SENTENCES: Final = {
    AttributeKind.TEXT: f"Write a text of 1 to {MAX_TEXT} printable characters.",
    AttributeKind.NUMBER: "Write a number.",
    AttributeKind.BOOLEAN: "Write true or false.",
    AttributeKind.DATE: "Write a date as in 2026-12-31.",
    AttributeKind.LIST: f"List at most {MAX_ITEMS} texts of 1 to {MAX_ITEM} printable characters.",
}

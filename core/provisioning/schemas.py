"""The schemas of SCIM users and groups (RFC 7643).

Bodies and patches are read according to these schemas, and `/Schemas` publishes them. Filters have
their own list of fields (`core.provisioning.filters`), which a test compares with the schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class AttributeType(StrEnum):
    """The attribute types in use (RFC 7643 section 2.3)."""

    STRING = "string"
    BOOLEAN = "boolean"
    DATE_TIME = "dateTime"
    REFERENCE = "reference"
    COMPLEX = "complex"


class Mutability(StrEnum):
    """Whether clients can set an attribute (RFC 7643 section 7)."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"
    IMMUTABLE = "immutable"


class Returned(StrEnum):
    """When responses contain an attribute (RFC 7643 section 7)."""

    ALWAYS = "always"
    DEFAULT = "default"


class Uniqueness(StrEnum):
    """The scope in which a value is unique (RFC 7643 section 7)."""

    NONE = "none"
    SERVER = "server"


@dataclass(frozen=True)
class ScimAttribute:
    """An attribute of a resource. Clients may write its name in any case.

    `common` attributes belong to every resource and are not part of a schema (RFC 7643 section
    3.1).
    """

    name: str
    description: str
    type: AttributeType = AttributeType.STRING
    sub_attributes: tuple[ScimAttribute, ...] = ()
    multi_valued: bool = False
    required: bool = False
    case_exact: bool = False
    mutability: Mutability = Mutability.READ_WRITE
    returned: Returned = Returned.DEFAULT
    uniqueness: Uniqueness = Uniqueness.NONE
    canonical_values: tuple[str, ...] = ()
    reference_types: tuple[str, ...] = ()
    common: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, ScimAttribute]:
        """Return the sub-attributes by name, in lower case."""
        return MappingProxyType({sub.name.lower(): sub for sub in self.sub_attributes})

    def sub(self, name: str) -> ScimAttribute | None:
        """Return the sub-attribute with this name, in any case, or None."""
        return self.by_name.get(name.lower())


@dataclass(frozen=True)
class ScimSchema:
    """A resource type: its schema, its endpoint and its attributes."""

    id: str
    name: str
    endpoint: str
    description: str
    attributes: tuple[ScimAttribute, ...]

    @cached_property
    def by_name(self) -> Mapping[str, ScimAttribute]:
        """Return the attributes by name, in lower case."""
        return MappingProxyType({attribute.name.lower(): attribute for attribute in self.attributes})

    def attribute(self, name: str) -> ScimAttribute | None:
        """Return the attribute with this name, in any case, or None."""
        return self.by_name.get(name.lower())

    def without_urn(self, name: str) -> str:
        """Return the name without the URN of this schema, if it has it (RFC 7644 section 3.10)."""
        urn = f"{self.id}:"
        return name[len(urn) :] if name[: len(urn)].lower() == urn.lower() else name


USER_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"

_META: Final = ScimAttribute(
    "meta",
    "Metadata of the resource.",
    AttributeType.COMPLEX,
    (
        ScimAttribute("resourceType", "The resource type.", case_exact=True, mutability=Mutability.READ_ONLY),
        ScimAttribute("created", "The time of creation.", AttributeType.DATE_TIME, mutability=Mutability.READ_ONLY),
        ScimAttribute("lastModified", "The time of the last change.", AttributeType.DATE_TIME, mutability=Mutability.READ_ONLY),
        ScimAttribute(
            "location",
            "The URL of the resource.",
            AttributeType.REFERENCE,
            case_exact=True,
            mutability=Mutability.READ_ONLY,
            reference_types=("uri",),
        ),
    ),
    mutability=Mutability.READ_ONLY,
    common=True,
)
_COMMON: Final = (
    ScimAttribute(
        "schemas",
        "The schemas of the resource.",
        AttributeType.REFERENCE,
        multi_valued=True,
        case_exact=True,
        mutability=Mutability.READ_ONLY,
        returned=Returned.ALWAYS,
        common=True,
    ),
    ScimAttribute(
        "id",
        "The id of the resource.",
        case_exact=True,
        mutability=Mutability.READ_ONLY,
        returned=Returned.ALWAYS,
        uniqueness=Uniqueness.SERVER,
        common=True,
    ),
    _META,
)

USER: Final = ScimSchema(
    id=USER_URN,
    name="User",
    endpoint="/Users",
    description="A user of the organization.",
    attributes=(
        *_COMMON,
        ScimAttribute("externalId", "The id of the user in your directory.", case_exact=True, common=True),
        ScimAttribute("userName", "The email address, with which the user signs in.", required=True, uniqueness=Uniqueness.SERVER),
        ScimAttribute(
            "name",
            "The parts of the name.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("formatted", "The full name."),
                ScimAttribute("familyName", "The family name."),
                ScimAttribute("givenName", "The given name."),
            ),
        ),
        ScimAttribute("displayName", "The name to display.", case_exact=True),
        ScimAttribute(
            "emails",
            "The email address, equal to userName. A different primary address replaces both.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The email address."),
                ScimAttribute("type", "The type, which is always work.", canonical_values=("work",)),
                ScimAttribute("primary", "Whether this is the primary address, which is always true.", AttributeType.BOOLEAN),
            ),
            multi_valued=True,
        ),
        ScimAttribute("active", "Whether the user may sign in.", AttributeType.BOOLEAN),
    ),
)
GROUP: Final = ScimSchema(
    id=GROUP_URN,
    name="Group",
    endpoint="/Groups",
    description="The organization and its members.",
    attributes=(
        *_COMMON,
        ScimAttribute("displayName", "The name of the organization.", case_exact=True, mutability=Mutability.READ_ONLY),
        ScimAttribute(
            "members",
            "The members of the organization.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The id of the user.", case_exact=True, mutability=Mutability.IMMUTABLE),
                ScimAttribute(
                    "$ref",
                    "The URL of the user.",
                    AttributeType.REFERENCE,
                    case_exact=True,
                    mutability=Mutability.IMMUTABLE,
                    reference_types=("User",),
                ),
                ScimAttribute(
                    "type",
                    "The resource type, which is always User.",
                    case_exact=True,
                    mutability=Mutability.IMMUTABLE,
                    canonical_values=("User",),
                ),
            ),
            multi_valued=True,
        ),
    ),
)

"""What a SCIM user and a SCIM group have (RFC 7643; identity.md section 2.7): the attributes, and how a client may name them.

Bodies and patches go by this, and what `/Schemas` says of us, which therefore is true; of filters, which name their fields themselves
(core/scim_filters.py), the tests compare it.
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
    """The types of attributes that we have (RFC 7643 section 2.3)."""

    STRING = "string"
    BOOLEAN = "boolean"
    DATE_TIME = "dateTime"
    REFERENCE = "reference"
    COMPLEX = "complex"


class Mutability(StrEnum):
    """Who sets an attribute, and when (RFC 7643 section 7)."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"
    IMMUTABLE = "immutable"


class Returned(StrEnum):
    """When an attribute is in an answer (RFC 7643 section 7)."""

    ALWAYS = "always"
    DEFAULT = "default"


class Uniqueness(StrEnum):
    """Among what a value is unique (RFC 7643 section 7)."""

    NONE = "none"
    SERVER = "server"


@dataclass(frozen=True)
class ScimAttribute:
    """One attribute. Its name has no case where clients say it; `common` ones belong to every resource, and to no schema."""

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
    def named(self) -> Mapping[str, ScimAttribute]:
        """Its sub-attributes by their names in lower case."""
        return MappingProxyType({each.name.lower(): each for each in self.sub_attributes})

    def sub(self, name: str) -> ScimAttribute | None:
        """The sub-attribute that a client calls so."""
        return self.named.get(name.lower())


@dataclass(frozen=True)
class ScimSchema:
    """A kind of resource: what its schema is called, where it is, and what it has."""

    id: str
    name: str
    endpoint: str
    description: str
    attributes: tuple[ScimAttribute, ...]

    @cached_property
    def named(self) -> Mapping[str, ScimAttribute]:
        """Its attributes by their names in lower case."""
        return MappingProxyType({each.name.lower(): each for each in self.attributes})

    def attribute(self, name: str) -> ScimAttribute | None:
        """The attribute that a client calls so."""
        return self.named.get(name.lower())

    def without_urn(self, name: str) -> str:
        """What is left of a name that begins with the schema's own (RFC 7644 section 3.10)."""
        urn = f"{self.id}:"
        return name[len(urn) :] if name[: len(urn)].lower() == urn.lower() else name


USER_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"

_META: Final = ScimAttribute(
    "meta",
    "What is known of the resource itself.",
    AttributeType.COMPLEX,
    (
        ScimAttribute("resourceType", "What it is.", case_exact=True, mutability=Mutability.READ_ONLY),
        ScimAttribute("created", "Since when it is here.", AttributeType.DATE_TIME, mutability=Mutability.READ_ONLY),
        ScimAttribute("lastModified", "When it was last changed.", AttributeType.DATE_TIME, mutability=Mutability.READ_ONLY),
        ScimAttribute("location", "Where it is.", AttributeType.REFERENCE, case_exact=True, mutability=Mutability.READ_ONLY, reference_types=("uri",)),
    ),
    mutability=Mutability.READ_ONLY,
    common=True,
)
_COMMON: Final = (
    ScimAttribute(
        "schemas",
        "Which schemas it follows.",
        AttributeType.REFERENCE,
        multi_valued=True,
        case_exact=True,
        mutability=Mutability.READ_ONLY,
        returned=Returned.ALWAYS,
        common=True,
    ),
    ScimAttribute(
        "id",
        "What we know it by.",
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
    description="A person of the organization.",
    attributes=(
        *_COMMON,
        ScimAttribute("externalId", "What your directory knows the person by.", case_exact=True, common=True),
        ScimAttribute("userName", "The email address, with which the person signs in.", required=True, uniqueness=Uniqueness.SERVER),
        ScimAttribute(
            "name",
            "What the person is called, in parts.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("formatted", "The whole name."),
                ScimAttribute("familyName", "The family name."),
                ScimAttribute("givenName", "The given name."),
            ),
        ),
        ScimAttribute("displayName", "What the person is called.", case_exact=True),
        ScimAttribute(
            "emails",
            "The one address of the person, which is the userName. Another one that is primary replaces both.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The address."),
                ScimAttribute("type", "What it is for, which is always work.", canonical_values=("work",)),
                ScimAttribute("primary", "Whether it is the one to use, which it always is.", AttributeType.BOOLEAN),
            ),
            multi_valued=True,
        ),
        ScimAttribute("active", "Whether the person may sign in.", AttributeType.BOOLEAN),
    ),
)
GROUP: Final = ScimSchema(
    id=GROUP_URN,
    name="Group",
    endpoint="/Groups",
    description="The organization, and who its members are.",
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
                    "Where the user is.",
                    AttributeType.REFERENCE,
                    case_exact=True,
                    mutability=Mutability.IMMUTABLE,
                    reference_types=("User",),
                ),
                ScimAttribute("type", "What it is.", case_exact=True, mutability=Mutability.IMMUTABLE, canonical_values=("User",)),
            ),
            multi_valued=True,
        ),
    ),
)

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


class Type(StrEnum):
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
class Attribute:
    """One attribute. Its name has no case where clients say it; `common` ones belong to every resource, and to no schema."""

    name: str
    description: str
    type: Type = Type.STRING
    sub_attributes: tuple[Attribute, ...] = ()
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
    def named(self) -> Mapping[str, Attribute]:
        """Its sub-attributes by their names in lower case."""
        return MappingProxyType({each.name.lower(): each for each in self.sub_attributes})

    def sub(self, name: str) -> Attribute | None:
        """The sub-attribute that a client calls so."""
        return self.named.get(name.lower())


@dataclass(frozen=True)
class Schema:
    """A kind of resource: what its schema is called, where it is, and what it has."""

    id: str
    name: str
    endpoint: str
    description: str
    attributes: tuple[Attribute, ...]

    @cached_property
    def named(self) -> Mapping[str, Attribute]:
        """Its attributes by their names in lower case."""
        return MappingProxyType({each.name.lower(): each for each in self.attributes})

    def attribute(self, name: str) -> Attribute | None:
        """The attribute that a client calls so."""
        return self.named.get(name.lower())

    def without_urn(self, name: str) -> str:
        """What is left of a name that begins with the schema's own (RFC 7644 section 3.10)."""
        urn = f"{self.id}:"
        return name[len(urn) :] if name[: len(urn)].lower() == urn.lower() else name


USER_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"

_META: Final = Attribute(
    "meta",
    "What is known of the resource itself.",
    Type.COMPLEX,
    (
        Attribute("resourceType", "What it is.", case_exact=True, mutability=Mutability.READ_ONLY),
        Attribute("created", "Since when it is here.", Type.DATE_TIME, mutability=Mutability.READ_ONLY),
        Attribute("lastModified", "When it was last changed.", Type.DATE_TIME, mutability=Mutability.READ_ONLY),
        Attribute("location", "Where it is.", Type.REFERENCE, case_exact=True, mutability=Mutability.READ_ONLY, reference_types=("uri",)),
    ),
    mutability=Mutability.READ_ONLY,
    common=True,
)
_COMMON: Final = (
    Attribute(
        "schemas",
        "Which schemas it follows.",
        Type.REFERENCE,
        multi_valued=True,
        case_exact=True,
        mutability=Mutability.READ_ONLY,
        returned=Returned.ALWAYS,
        common=True,
    ),
    Attribute(
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

USER: Final = Schema(
    id=USER_URN,
    name="User",
    endpoint="/Users",
    description="A person of the organization.",
    attributes=(
        *_COMMON,
        Attribute("externalId", "What your directory knows the person by.", case_exact=True, common=True),
        Attribute("userName", "The e-mail address, with which the person signs in.", required=True, uniqueness=Uniqueness.SERVER),
        Attribute(
            "name",
            "What the person is called, in parts.",
            Type.COMPLEX,
            (
                Attribute("formatted", "The whole name."),
                Attribute("familyName", "The family name."),
                Attribute("givenName", "The given name."),
            ),
        ),
        Attribute("displayName", "What the person is called.", case_exact=True),
        Attribute(
            "emails",
            "The one address of the person, which is the userName. Another one that is primary replaces both.",
            Type.COMPLEX,
            (
                Attribute("value", "The address."),
                Attribute("type", "What it is for, which is always work.", canonical_values=("work",)),
                Attribute("primary", "Whether it is the one to use, which it always is.", Type.BOOLEAN),
            ),
            multi_valued=True,
        ),
        Attribute("active", "Whether the person may sign in.", Type.BOOLEAN),
    ),
)
GROUP: Final = Schema(
    id=GROUP_URN,
    name="Group",
    endpoint="/Groups",
    description="The organization, and who its members are.",
    attributes=(
        *_COMMON,
        Attribute("displayName", "The name of the organization.", case_exact=True, mutability=Mutability.READ_ONLY),
        Attribute(
            "members",
            "The members of the organization.",
            Type.COMPLEX,
            (
                Attribute("value", "The id of the user.", case_exact=True, mutability=Mutability.IMMUTABLE),
                Attribute(
                    "$ref",
                    "Where the user is.",
                    Type.REFERENCE,
                    case_exact=True,
                    mutability=Mutability.IMMUTABLE,
                    reference_types=("User",),
                ),
                Attribute("type", "What it is.", case_exact=True, mutability=Mutability.IMMUTABLE, canonical_values=("User",)),
            ),
            multi_valued=True,
        ),
    ),
)

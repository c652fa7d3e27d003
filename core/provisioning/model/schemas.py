"""The schemas for SCIM users and groups (RFC 7643), and the extension with the attributes that an organization declares.

Bodies and patches are read according to these schemas, and `/Schemas` publishes them. Filters have their own field list
(`core.provisioning.model.filters`), which a test compares with the schemas.

Entra ID and Okta send custom attributes in an extension with a fixed URN. Entra ID asks for a URN like this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Final, Self

from core.accounts.model.profiles import MAX_PICTURE_LENGTH
from core.tenancy.model.attributes import KIND_SENTENCES, Attribute, AttributeKind, AttributeWriter

MAX_TEXT_LENGTH: Final = 256  # characters
MAX_NAME_LENGTH: Final = 100


class AttributeType(StrEnum):
    """The attribute types in use (RFC 7643 section 2.3)."""

    STRING = "string"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
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
    """A resource attribute. Clients may write its name in any case.

    `common` attributes belong to every resource and are not part of a schema (RFC 7643 section 3.1). `declared` is the organization's
    attribute that this attribute stands for. The name of such an attribute begins with its schema's URN.
    """

    name: str
    description: str
    type: AttributeType = AttributeType.STRING
    sub_attributes: tuple[Self, ...] = ()
    multi_valued: bool = False
    required: bool = False
    case_exact: bool = False
    mutability: Mutability = Mutability.READ_WRITE
    returned: Returned = Returned.DEFAULT
    uniqueness: Uniqueness = Uniqueness.NONE
    canonical_values: tuple[str, ...] = ()
    reference_types: tuple[str, ...] = ()
    common: bool = False
    max_length: int = MAX_TEXT_LENGTH  # for a string, in characters
    declared: Attribute | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Self]:
        """Return the sub-attributes by name, in lower case."""
        return MappingProxyType({sub.name.lower(): sub for sub in self.sub_attributes})

    def sub(self, name: str) -> Self | None:
        """Return the sub-attribute with this name, in any case, or None."""
        return self.by_name.get(name.lower())


@dataclass(frozen=True)
class ScimSchema:
    """A resource type: its schema, its endpoint and its attributes.

    Extension attributes are named by the extension's URN, a colon and their own name. Inside resources, extension
    attributes have only their own name.

    `ignored` has the RFC's attributes that are accepted and not kept, with their sub-attributes. `closed` has the attributes that the
    organization declared, and that its directory may not write: they count as readOnly. All names are in lower case. `computed` has the
    ignored attributes that responses contain.
    """

    id: str
    name: str
    endpoint: str
    description: str
    attributes: tuple[ScimAttribute, ...]
    ignored: Mapping[str, frozenset[str]]
    extensions: tuple[Self, ...] = ()
    computed: tuple[ScimAttribute, ...] = ()
    closed: frozenset[str] = frozenset()

    @cached_property
    def by_name(self) -> Mapping[str, ScimAttribute]:
        """Return the attributes by name, in lower case."""
        names = {attribute.name.lower(): attribute for attribute in self.attributes}
        for extension in self.extensions:
            names |= {f"{extension.id}:{extension.without_urn(name)}".lower(): each for name, each in extension.by_name.items()}
        return MappingProxyType(names)

    @cached_property
    def declared(self) -> Mapping[str, str]:
        """Return the organization's attributes: their names there, by their names in resources."""
        of_extensions = (attribute for extension in self.extensions for attribute in extension.attributes)
        return MappingProxyType({each.name: each.declared.name for each in of_extensions if each.declared is not None})

    def attribute(self, name: str) -> ScimAttribute | None:
        """Return the attribute with this name, in any case, or None."""
        return self.by_name.get(name.lower())

    def ignores(self, name: str, sub: str | None) -> bool:
        """Return whether this is an attribute that is accepted and not kept."""
        for extension in self.extensions:
            if name.lower().startswith(f"{extension.id}:".lower()):
                return extension.ignores(extension.without_urn(name), sub)
        subs = self.ignored.get(name.lower())
        return subs is not None and (sub.lower() in subs if sub is not None else self.attribute(name) is None)

    def without_urn(self, name: str) -> str:
        """Return the name without this schema's URN, if it has it (RFC 7644 section 3.10)."""
        urn = f"{self.id}:"
        return name[len(urn) :] if name[: len(urn)].lower() == urn.lower() else name

    def is_urn(self, name: str) -> bool:
        """Return whether the name is the URN of this schema or its extension."""
        return name.lower() == self.id.lower() or any(extension.is_urn(name) for extension in self.extensions)


def _ignored(*names: str, **subs: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({**dict.fromkeys(names, frozenset()), **{name: frozenset(text.split()) for name, text in subs.items()}})


_read_only: Final = partial(ScimAttribute, mutability=Mutability.READ_ONLY)
_immutable: Final = partial(ScimAttribute, mutability=Mutability.IMMUTABLE)
USER_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"

ENTERPRISE_URN: Final = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"

_META: Final = _read_only(
    "meta",
    "Metadata of the resource.",
    AttributeType.COMPLEX,
    (
        _read_only("resourceType", "The resource type.", case_exact=True),
        _read_only("created", "The time of creation.", AttributeType.DATE_TIME),
        _read_only("lastModified", "The time of the last change.", AttributeType.DATE_TIME),
        _read_only("location", "The URL of the resource.", AttributeType.REFERENCE, case_exact=True, reference_types=("uri",)),
    ),
    common=True,
)
_COMMON: Final = (
    _read_only(
        "schemas",
        "The schemas of the resource.",
        AttributeType.REFERENCE,
        multi_valued=True,
        case_exact=True,
        returned=Returned.ALWAYS,
        common=True,
    ),
    _read_only("id", "The id of the resource.", case_exact=True, returned=Returned.ALWAYS, uniqueness=Uniqueness.SERVER, common=True),
    _META,
)

ENTERPRISE_USER: Final = ScimSchema(
    id=ENTERPRISE_URN,
    name="EnterpriseUser",
    endpoint="",
    description="The place of a user in the organization.",
    attributes=(
        ScimAttribute("employeeNumber", "The number of the employee."),
        ScimAttribute("department", "The department."),
        ScimAttribute(
            "manager",
            "The manager of the user.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The id of the manager, as your directory sends it."),
                ScimAttribute("displayName", "The name of the manager."),
            ),
        ),
    ),
    ignored=_ignored("costcenter", "organization", "division", manager="$ref"),
)
USER: Final = ScimSchema(
    id=USER_URN,
    name="User",
    endpoint="/Users",
    description="A user of the organization.",
    attributes=(
        *_COMMON,
        ScimAttribute("externalId", "The id of the user in your directory.", case_exact=True, common=True),
        ScimAttribute(
            "userName",
            "The name of the user in your directory. Without a primary email address, it is also the address.",
            required=True,
            uniqueness=Uniqueness.SERVER,
        ),
        ScimAttribute(
            "name",
            "The parts of the name.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("formatted", "The full name.", max_length=MAX_NAME_LENGTH),
                ScimAttribute("familyName", "The family name.", max_length=MAX_NAME_LENGTH),
                ScimAttribute("givenName", "The given name.", max_length=MAX_NAME_LENGTH),
            ),
        ),
        ScimAttribute("displayName", "The name to display.", max_length=MAX_NAME_LENGTH),
        ScimAttribute("title", "The title, such as Vice President."),
        ScimAttribute("preferredLanguage", "The preferred language, such as en-US."),
        ScimAttribute("locale", "The locale, such as en-US."),
        ScimAttribute("timezone", "The time zone, such as America/Los_Angeles."),
        ScimAttribute(
            "emails",
            "The email address, with which the user signs in. A user has one.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The email address."),
                ScimAttribute("type", "The type, which is always work.", canonical_values=("work",)),
                ScimAttribute("primary", "Whether this is the primary address, which is always true.", AttributeType.BOOLEAN),
            ),
            multi_valued=True,
        ),
        ScimAttribute(
            "phoneNumbers",
            "The phone numbers.",
            AttributeType.COMPLEX,
            (
                ScimAttribute("value", "The phone number."),
                ScimAttribute("type", "The type, such as work or mobile."),
                ScimAttribute("primary", "Whether this is the primary number.", AttributeType.BOOLEAN),
            ),
            multi_valued=True,
        ),
        ScimAttribute(
            "photos",
            "The pictures. The primary one, or else the first, is the picture of the user.",
            AttributeType.COMPLEX,
            (
                ScimAttribute(
                    "value",
                    "The URL of the picture.",
                    AttributeType.REFERENCE,
                    case_exact=True,
                    reference_types=("external",),
                    max_length=MAX_PICTURE_LENGTH,
                ),
                ScimAttribute("type", "The type, such as photo or thumbnail.", canonical_values=("photo", "thumbnail")),
                ScimAttribute("primary", "Whether this is the primary picture.", AttributeType.BOOLEAN),
            ),
            multi_valued=True,
        ),
        ScimAttribute("active", "Whether the user may sign in.", AttributeType.BOOLEAN),
    ),
    ignored=_ignored(
        *("nickname", "profileurl", "usertype", "password"),
        name="middlename honorificprefix honorificsuffix",
        emails="display $ref",
        phonenumbers="display $ref",
        photos="display $ref",
        addresses="formatted streetaddress locality region postalcode country type primary display $ref",
        groups="value $ref display type primary",
        **dict.fromkeys(("ims", "entitlements", "roles", "x509certificates"), "value display type primary $ref"),
    ),
    extensions=(ENTERPRISE_USER,),
    computed=(
        _read_only(
            "groups",
            "The groups of your directory that the user is in, with directory groups. To change them, change the groups.",
            AttributeType.COMPLEX,
            (
                _read_only("value", "The id of the group.", case_exact=True),
                _read_only("$ref", "The URL of the group.", AttributeType.REFERENCE, case_exact=True, reference_types=("Group",)),
                _read_only("display", "The name of the group."),
                _read_only("type", "How the user is in the group, which is always direct.", canonical_values=("direct",)),
            ),
            multi_valued=True,
        ),
    ),
)
_GROUP_MEMBERS: Final = ScimAttribute(
    "members",
    "The members of the group.",
    AttributeType.COMPLEX,
    (
        _immutable("value", "The id of the user.", case_exact=True),
        _immutable("$ref", "The URL of the user.", AttributeType.REFERENCE, case_exact=True, reference_types=("User",)),
        _immutable("type", "The resource type, which is always User.", case_exact=True, canonical_values=("User",)),
    ),
    multi_valued=True,
)


def _group_schema(description: str, name: ScimAttribute) -> ScimSchema:
    return ScimSchema(
        id=GROUP_URN,
        name="Group",
        endpoint="/Groups",
        description=description,
        attributes=(
            *_COMMON,
            ScimAttribute("externalId", "The id of the group in your directory.", case_exact=True, common=True),
            name,
            _GROUP_MEMBERS,
        ),
        ignored=_ignored(members="display"),
    )


GROUP: Final = _group_schema("The organization and its members.", _read_only("displayName", "The name of the organization."))
_DIRECTORY_GROUP: Final = _group_schema(
    "A group of users, and the organization with its members.",
    ScimAttribute("displayName", "The name of the group, which no other group has.", required=True, uniqueness=Uniqueness.SERVER),
)


def group_schema(*, directory_groups: bool) -> ScimSchema:
    """Return the group schema for a directory that may create groups, or for a directory that may not."""
    return _DIRECTORY_GROUP if directory_groups else GROUP


ATTRIBUTES_URN: Final = "urn:ietf:params:scim:schemas:extension:gatehouse:2.0:User"
_TYPES: Final = {AttributeKind.NUMBER: AttributeType.DECIMAL, AttributeKind.BOOLEAN: AttributeType.BOOLEAN}


def user_schema(attributes: Sequence[Attribute]) -> ScimSchema:
    """Return the schema for an organization's users with these attributes.

    An attribute without the writer `directory` is not in it. Requests may not change such an attribute, as if it were
    readOnly.
    """
    return _user_schema(tuple(attributes)) if attributes else USER


@lru_cache(maxsize=128)
def _user_schema(attributes: tuple[Attribute, ...]) -> ScimSchema:
    open_ones = tuple(_to_scim(each) for each in attributes if AttributeWriter.DIRECTORY in each.writers)
    closed = frozenset(_full_name(each).lower() for each in attributes if AttributeWriter.DIRECTORY not in each.writers)
    extension = ScimSchema(ATTRIBUTES_URN, "OrganizationUser", "", "The attributes that the organization has declared.", open_ones, {})
    return replace(USER, extensions=(*USER.extensions, extension) if open_ones else USER.extensions, closed=closed)


def _full_name(attribute: Attribute) -> str:
    return f"{ATTRIBUTES_URN}:{attribute.name}"


def _to_scim(attribute: Attribute) -> ScimAttribute:
    return ScimAttribute(
        _full_name(attribute),
        f"{attribute.label}. {KIND_SENTENCES[attribute.kind]}",
        _TYPES.get(attribute.kind, AttributeType.STRING),
        multi_valued=attribute.kind is AttributeKind.LIST,
        case_exact=True,
        declared=attribute,
    )

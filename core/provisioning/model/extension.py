"""The schema extension with the attributes that an organization has declared, and that its directory writes.

Entra ID and Okta send custom attributes in an extension with a fixed URN. Entra ID asks for a URN like this.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from core.provisioning.model.schemas import USER, AttributeType, ScimAttribute, ScimSchema
from core.tenancy.model.attributes import KIND_SENTENCES, Attribute, AttributeKind, AttributeWriter

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

"""SCIM resources as JSON objects: reading and checking the values that clients send.

Okta and Entra ID deviate from the RFC. This module accepts their deviations in values: "False" as a
string, a list with one element instead of a single value, and a single value inside an object.
`patches`, `filters` and `grammar` accept the deviations in patches and filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import Invalid
from core.provisioning.schemas import AttributeType, Mutability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.provisioning.schemas import ScimAttribute, ScimSchema

Resource = dict[str, Any]

# The maximum number of values of one attribute of a user. Members of the group and patch operations
# are limited only by the size of the body (security C-7). Together with MAX_TEXT_LENGTH, this
# limits the time of each patch operation, even if earlier operations added values.
MAX_VALUES: Final = 10
MAX_TEXT_LENGTH: Final = 256  # characters


class AttributeValueInvalid(Invalid):
    """The value of an attribute is not valid."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"The value of {name} is not valid: it must be {expected}.")


def read_value(attribute: ScimAttribute, value: Any) -> Any:
    """Return `value` as a value of the attribute, or None if it is empty.

    For a multi-valued attribute, return a list. Names are spelled as in the schema, and
    unknown sub-attributes are left out.

    Raises: AttributeValueInvalid.
    """
    if attribute.multi_valued:
        values = [] if value is None else value if isinstance(value, list) else [value]
        check_count(attribute, values)
        return [item for raw in values if (item := read_single_value(attribute, raw)) is not None] or None
    if isinstance(value, list) and len(value) == 1:  # sent by Microsoft's clients, with the value in an object
        value = value[0]
        if attribute.type is not AttributeType.COMPLEX and isinstance(value, Mapping):
            value = value.get("value")
    return read_single_value(attribute, value)


def check_count(attribute: ScimAttribute, values: Sequence[Any]) -> None:
    """Check the number of values. Raises: AttributeValueInvalid."""
    # Each value is compared with every other one, so a million values would block all other
    # requests.
    if len(values) > MAX_VALUES:
        raise AttributeValueInvalid(attribute.name, f"a list of at most {MAX_VALUES} values")


def check_unique_names(what: str, value: Mapping[str, Any], schema: ScimSchema | None = None) -> None:
    """Check that no name occurs twice in the object.

    `what` names the object. Raises: AttributeValueInvalid.
    """
    # Names are case-insensitive (RFC 7643 section 2.1), and nothing says which of two spellings
    # would win.
    names = {(name if schema is None else schema.without_urn(name)).lower() for name in value}
    if len(names) < len(value):
        raise AttributeValueInvalid(what, "an object without duplicate names, whatever their case")


def read_single_value(attribute: ScimAttribute, value: Any) -> Any:
    """Return one value of the attribute, or None if it is empty. Raises: AttributeValueInvalid."""
    if value is None:
        return None
    match attribute.type:
        case AttributeType.COMPLEX:
            return _read_complex(attribute, value)
        case AttributeType.BOOLEAN:
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
            if not isinstance(value, bool):
                raise AttributeValueInvalid(attribute.name, "true or false")
            return value
    if not isinstance(value, str):
        raise AttributeValueInvalid(attribute.name, "a string")
    if len(value) > MAX_TEXT_LENGTH and attribute.type is AttributeType.STRING:
        raise AttributeValueInvalid(attribute.name, f"a string of at most {MAX_TEXT_LENGTH} characters")
    return value or None


def _read_complex(attribute: ScimAttribute, value: Any) -> Resource | None:
    if isinstance(value, str) and attribute.multi_valued:
        value = {"value": value}
    if not isinstance(value, Mapping):
        raise AttributeValueInvalid(attribute.name, "an object")
    check_unique_names(attribute.name, value)
    parts = {}
    for name, raw in value.items():
        if (sub := attribute.sub(name)) is not None and (part := read_value(sub, raw)) is not None:
            parts[sub.name] = part
    return parts or None


def read_resource(schema: ScimSchema, body: Mapping[str, Any]) -> Resource:
    """Return the attributes of the body that clients may set. Raises: AttributeValueInvalid."""
    check_unique_names("the body", body, schema)
    resource = {}
    for name, raw in body.items():
        attribute = schema.attribute(schema.without_urn(name))
        if attribute is None or attribute.mutability is Mutability.READ_ONLY:
            continue
        if attribute.multi_valued and any(isinstance(item, str) for item in (raw if isinstance(raw, list) else [raw])):
            raise AttributeValueInvalid(attribute.name, "a list of objects")  # only patches may have plain strings here
        if (value := read_value(attribute, raw)) is not None:
            resource[attribute.name] = value
    return resource

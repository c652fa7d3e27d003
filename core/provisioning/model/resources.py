"""SCIM resources as JSON objects: reading and checking the values that clients send.

Okta and Entra ID deviate from the RFC. This module accepts their deviations in values: "False" as a string, a list for
a single value, and a single value inside an object. `patches`, `filters` and `grammar` accept the deviations in patches
and filters.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from core.kernel.errors import Invalid
from core.kernel.values import is_printable, to_printable
from core.provisioning.model import schemas
from core.tenancy.model.attributes import MAX_ITEM, MAX_ITEMS, MAX_TEXT, Attribute, AttributeKind

Resource = dict[str, Any]

# How many values a user's attribute may have. Group members and patch operations are limited only
# by the body's size (security C-7). Together with the maximum text length, this limits how long
# every patch operation takes, even if earlier operations added values.
MAX_VALUES: Final = 10
MAX_SKIPPED_NAME_LENGTH: Final = 128  # characters
_NUMBER: Final = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?")
_EXPECTED: Final = {
    AttributeKind.TEXT: f"a text of at most {MAX_TEXT} printable characters",
    AttributeKind.NUMBER: "a number",
    AttributeKind.BOOLEAN: "true or false",
    AttributeKind.DATE: "a date such as 2026-12-31",
    AttributeKind.LIST: f"a list of at most {MAX_ITEMS} texts of at most {MAX_ITEM} printable characters",
}


class AttributeValueInvalid(Invalid):
    """The value of an attribute is not valid."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"The value of {name} is not valid: it must be {expected}.")


@dataclass(slots=True)
class SkippedParts:
    """The parts of a request that are not applied: ignored and refused attributes.

    Attributes have names as keys, without values (security L-3): log lines contain them.
    """

    ignored: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    error: Invalid | None = None  # for the first refused part

    def copy(self) -> Self:
        """Return a copy that can be changed independently."""
        return type(self)(dict(self.ignored), dict(self.refused), self.error)

    def ignore(self, path: str) -> None:
        """Note an attribute that is accepted and not kept."""
        self.ignored[_name(path)] = None

    def refuse(self, path: str, error: Invalid | None = None) -> None:
        """Note a part that is not applied."""
        self.refused[_name(path)] = None
        if self.error is None and error is not None:
            error.__context__ = None  # without this, the error would keep the whole body alive
            self.error = error.with_traceback(None)

    def raise_error(self) -> None:
        """Raise the error in the first refused part, if there is one."""
        if self.error is not None:
            raise self.error


def _name(path: str) -> str:
    return to_printable(path.partition("[")[0][:MAX_SKIPPED_NAME_LENGTH])  # a filter in brackets contains values


def read_value(attribute: schemas.ScimAttribute, value: Any) -> Any:
    """Return `value` as the attribute's value, or None if it is empty.

    For a multi-valued attribute, return a list. Names are spelled as in the schema, and
    unknown sub-attributes are left out.

    Raises: AttributeValueInvalid.
    """
    if attribute.declared is not None:
        return _read_declared(attribute, attribute.declared, value)
    if attribute.multi_valued:
        values = [] if value is None else value if isinstance(value, list) else [value]
        check_count(attribute, values)
        return [item for raw in values if (item := read_single_value(attribute, raw)) is not None] or None
    if isinstance(value, list) and len(value) == 1:  # sent by Microsoft's clients, with the value in an object
        if attribute.type is schemas.AttributeType.COMPLEX:
            value = value[0]
        elif isinstance(value[0], Mapping):
            value = value[0].get("value")
    return read_single_value(attribute, value)


def check_count(attribute: schemas.ScimAttribute, values: Sequence[Any]) -> None:
    """Check how many values there are."""
    # Every value is compared with all other values, so a million values would block all other
    # requests.
    limit = MAX_VALUES if attribute.declared is None else MAX_ITEMS
    if len(values) > limit:
        raise AttributeValueInvalid(attribute.name, f"a list of at most {limit} values")


def read_single_value(attribute: schemas.ScimAttribute, value: Any) -> Any:
    """Return a single value for the attribute, or None if it is empty."""
    if value is None:
        return None
    match attribute.type:
        case schemas.AttributeType.COMPLEX:
            return _read_complex(attribute, value)
        case schemas.AttributeType.BOOLEAN:
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
            if not isinstance(value, bool):
                raise AttributeValueInvalid(attribute.name, "true or false")
            return value
    if not isinstance(value, str):
        raise AttributeValueInvalid(attribute.name, "a string")
    value = value.strip()
    if attribute.type in (schemas.AttributeType.STRING, schemas.AttributeType.REFERENCE) and (
        len(value) > attribute.max_length or not is_printable(value)
    ):
        raise AttributeValueInvalid(attribute.name, f"a string of at most {attribute.max_length} characters, without control characters")
    return value or None


def _read_declared(attribute: schemas.ScimAttribute, declared: Attribute, value: Any) -> Any:
    """Return a value for an attribute that the organization declared, or None if it is empty."""
    values = [item for raw in (value if isinstance(value, list) else [value]) if (item := _to_kind(declared.kind, raw)) is not None]
    if not values:
        return None
    if declared.kind is not AttributeKind.LIST and len(values) == 1:
        values = values[0]
    if not declared.fits(values):
        raise AttributeValueInvalid(attribute.name, _EXPECTED[declared.kind])
    return values


def _to_kind(kind: AttributeKind, value: Any) -> Any:
    """Return a single value as JSON of this kind if it can be read so, or None if it is empty.

    Entra ID sends numbers as strings, "True" for a boolean, and a time for a date.
    """
    if isinstance(value, Mapping):
        value = next((item for name, item in value.items() if name.lower() == "value"), value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    match kind:
        case AttributeKind.NUMBER if _NUMBER.fullmatch(text):
            return float(text) if "." in text else int(text)
        case AttributeKind.BOOLEAN if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case AttributeKind.DATE if "T" in text:
            return _date_of(text)
    return text or None


def _date_of(text: str) -> str:
    """Return the date in a time, or the text if it is no time."""
    try:
        return datetime.fromisoformat(text).date().isoformat()
    except ValueError:
        return text


def _read_complex(attribute: schemas.ScimAttribute, value: Any) -> Resource | None:
    if isinstance(value, str) and attribute.sub("value") is not None:  # Entra ID sends the manager in this way
        value = {"value": value}
    if not isinstance(value, Mapping):
        raise AttributeValueInvalid(attribute.name, "an object")
    if len({name.lower() for name in value}) < len(value):
        raise AttributeValueInvalid(attribute.name, "an object without duplicate names, whatever their case")
    parts = {}
    for name, raw in value.items():
        if (sub := attribute.sub(name)) is not None and (part := read_value(sub, raw)) is not None:
            parts[sub.name] = part
    return parts or None


def flatten_containers(what: str, body: Mapping[str, Any], schema: schemas.ScimSchema, skipped: SkippedParts) -> Mapping[str, Any]:
    """Move attributes one level up, out of an object that a schema's URN names.

    Extension attributes are written in this way, and some clients write all user attributes so. `what` names the body.
    Names that occur twice are noted in `skipped`, and left out.
    """
    attributes, duplicates = dict[str, tuple[str, Any]](), set[str]()
    for container, item in body.items():
        is_container = isinstance(item, Mapping) and schema.is_urn(container)
        parts = {f"{container}:{name}": part for name, part in item.items()} if is_container else {container: item}
        for name, part in parts.items():
            # Names are case-insensitive (RFC 7643 section 2.1), and nothing says which of two
            # spellings would win.
            key = schema.without_urn(name).lower()
            if key in attributes:
                duplicates.add(key)
            attributes[key] = (name, part)
    for key in duplicates:
        attribute = schema.attribute(key)
        name = key if attribute is None else attribute.name
        skipped.refuse(name, AttributeValueInvalid(what, "an object without duplicate names, whatever their case"))
        del attributes[key]
    return dict(attributes.values())


def read_resource(schema: schemas.ScimSchema, body: Mapping[str, Any], skipped: SkippedParts) -> Resource:
    """Return the body's attributes that clients may set. Values that are not valid are noted in `skipped`, and left out."""
    resource = {}
    for name, raw in flatten_containers("the body", body, schema, skipped).items():
        attribute = schema.attribute(schema.without_urn(name))
        if attribute is None or attribute.mutability is schemas.Mutability.READ_ONLY:
            continue
        try:
            is_complex = attribute.multi_valued and attribute.type is schemas.AttributeType.COMPLEX
            if is_complex and any(isinstance(item, str) for item in (raw if isinstance(raw, list) else [raw])):
                raise AttributeValueInvalid(attribute.name, "a list of objects")  # only patches may have plain strings here
            if (value := read_value(attribute, raw)) is not None:
                resource[attribute.name] = value
        except AttributeValueInvalid as error:
            skipped.refuse(attribute.name, error)
    return resource

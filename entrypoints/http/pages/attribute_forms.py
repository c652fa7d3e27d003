"""The form fields for attribute values: a member's, an end user's, and the signed-in user's."""

from collections.abc import Mapping
from typing import Any, Final

from core.kernel.errors import Refusal
from core.kernel.roles import Capability
from core.tenancy.model import attributes
from entrypoints.http.pages import console
from entrypoints.http.pages.console_forms import Form
from entrypoints.http.pages.form_values import to_lines

VALUE: Final = "attribute:"  # begins the field name for an attribute
OF_GROUPS: Final = " (from groups)"
YES_OR_NO: Final = [("", "Not set"), ("true", "Yes"), ("false", "No")]


def attribute_values(values: attributes.AttributeValues, writer: attributes.AttributeWriter, form: Form) -> dict[str, Any]:
    """Return the values for `tenancy/_attribute_fields.html`: the fields that the writer may change, and the remaining attributes."""
    stored = {VALUE + each.name: to_text(each, values.values.get(each.name)) for each in values.attributes}
    writable = [each for each in values.attributes if writer in each.writers]
    others = [(each, to_line(each, values.effective.get(each.name))) for each in values.attributes if each not in writable]
    return {
        "writable": [(VALUE + each.name, each, _hint(each, values)) for each in writable],
        "labels": {VALUE + each.name: each.label for each in writable},
        "others": [(each.label, text + (OF_GROUPS if _is_of_groups(each, values) else "")) for each, text in others],
        "typed": {**stored, **form},
        "yes_or_no": YES_OR_NO,
    }


def admin_values(values: attributes.AttributeValues, form: Form, manage: Capability) -> dict[str, Any]:
    """Return the values for `tenancy/_attribute_values.html` without the path. Members with the capability `manage` can save."""
    return {
        "attributes_path": console.organization_path("/attributes"),
        "can_save": console.may(manage),
        **attribute_values(values, attributes.AttributeWriter.ADMIN, form),
    }


def user_values(values: attributes.AttributeValues, form: Form, manage: Capability, name: str, path: str) -> dict[str, Any]:
    """Return the values for `tenancy/user_attributes.html`, for the user with this name and this page."""
    return {"path": f"{path}/attributes", "user_name": name, "back": (name, path), **admin_values(values, form, manage)}


def to_changes(form: Mapping[str, str], values: attributes.AttributeValues, writer: attributes.AttributeWriter) -> dict[str, Any]:
    """Return the values that the form changes. A field that is missing keeps its value."""
    changes = dict[str, Any]()
    for attribute in values.attributes:
        name = VALUE + attribute.name
        if writer in attribute.writers and name in form:
            stored = values.values.get(attribute.name)
            value = _to_value(attribute, form[name])
            # Compare texts: an empty list and a missing list have the same text, and the form's text has no spaces
            # around a value.
            if value != stored and form[name].splitlines() != to_text(attribute, stored).splitlines():
                changes[attribute.name] = value
    return changes


def wrong_value(refusal: Refusal, _: Form) -> str | None:
    """Return the field that a refusal is about, or None."""
    return VALUE + refusal.member if isinstance(refusal, attributes.UserAttributeValueInvalid) else None


def to_text(attribute: attributes.Attribute, value: Any) -> str:
    """Return a value as a field's text."""
    if value is None:
        return ""
    match attribute.kind:
        case attributes.AttributeKind.LIST:
            return "\n".join(value)
        case attributes.AttributeKind.BOOLEAN:
            return "true" if value else "false"
    return str(value)


def to_line(attribute: attributes.Attribute, value: Any) -> str:
    """Return a value as a single line."""
    match value:
        case True | False:
            return "Yes" if value else "No"
    return to_text(attribute, value).replace("\n", ", ")


def _is_of_groups(attribute: attributes.Attribute, values: attributes.AttributeValues) -> bool:
    return attribute.name not in values.values and attribute.name in values.effective


def _hint(attribute: attributes.Attribute, values: attributes.AttributeValues) -> str | None:
    """Return a text beside an attribute's field, or None."""
    hints = ["One per line."] if attribute.kind is attributes.AttributeKind.LIST else []
    if values.values.get(attribute.name) == []:
        hints.append("The own list is empty, so groups add nothing.")
    if _is_of_groups(attribute, values):
        hints.append(f"Without a value here: {to_line(attribute, values.effective[attribute.name])}{OF_GROUPS}.")
    return " ".join(hints) or None


def _to_value(attribute: attributes.Attribute, text: str) -> Any:
    """Return the value in a field, or None if it is empty. A text that does not fit stays a text, which the attribute refuses."""
    stripped = text.strip()
    match attribute.kind:
        case attributes.AttributeKind.LIST:
            return to_lines(text) or None
        case attributes.AttributeKind.BOOLEAN:
            return {"true": True, "false": False}.get(stripped)
        case attributes.AttributeKind.NUMBER if stripped:
            return _to_number(stripped)
    return stripped or None


def _to_number(text: str) -> int | float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 1e15 else number

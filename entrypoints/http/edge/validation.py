"""Bodies, queries and forms are validated by their models, with a message about the first error."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

# Our words for error types, with the values from their context. Our validators have the remaining words.
_REASONS: Final = {
    **dict.fromkeys(("model_type", "dict_type"), "it must be a JSON object"),
    **dict.fromkeys(("int_type", "int_from_float"), "it must be an integer"),
    **dict.fromkeys(("enum", "literal_error"), "it must be {expected}"),
    "float_type": "it must be a number",
    "string_type": "it must be a text",
    "bool_type": "it must be true or false",
    "list_type": "it must be an array",
    "string_too_short": "it must have {min_length} or more characters",
    "string_too_long": "it must have at most {max_length} characters",
    "too_short": "it must have {min_length} or more items",
    "too_long": "it must have at most {max_length} items",
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be less than {lt}",
}
# The error types for a value with the wrong type. The reasons begin with `_MUST_BE`.
_TYPE_ERRORS: Final = frozenset(
    {"bool_type", "dict_type", "float_type", "int_from_float", "int_type", "list_type", "model_type", "string_type"}
)
_MUST_BE: Final = "it must be "
M = TypeVar("M", bound=BaseModel)


class FieldsInvalid(Exception):
    """The fields of a request do not match its model. The message names the first such field, without its value."""


def validate(model: type[M], sent: Mapping[str, Any]) -> M:
    """Return a request's fields as its model. Raises: FieldsInvalid; the field types' refusals, such as EmailInvalid."""
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        raise FieldsInvalid(_describe_first(error, sent)) from None


def first_error(error: ValidationError) -> ErrorDetails:
    """Return the first error without the refused value."""
    return error.errors(include_url=False, include_input=False)[0]


def reason_of(detail: ErrorDetails) -> str:
    """Return why a value is refused, as the rest of a sentence that ends with a period. Its subject is "it", the field."""
    reason = _REASONS.get(detail["type"], "").format_map(detail.get("ctx", {}))
    return reason or detail["msg"].removeprefix("Value error, ")


def _describe_first(error: ValidationError, sent: Mapping[str, Any]) -> str:
    details = _errors_of_first(error.errors(include_url=False, include_input=False), sent)
    detail = details[0]
    path = _json_path(detail["loc"], sent, is_missing=detail["type"] == "missing")
    if not path:
        return "The body must be a JSON object."
    if detail["type"] == "missing":
        return f'The field "{path}" is required.'
    reason = _join_reasons(details)
    return f'The field "{path}" is not valid: {reason[0].lower()}{reason[1:]}.'


def _errors_of_first(errors: Sequence[ErrorDetails], sent: Mapping[str, Any]) -> Sequence[ErrorDetails]:
    """Return the first error. If its value fits no union member, return the first error inside the value, or all errors about its type."""
    first = errors[0]
    location = first["loc"][:-1] if first["type"] == "missing" else first["loc"]
    are_sent = _are_sent(location, sent)
    if all(are_sent[1:]):
        return errors[:1]
    start = location[: are_sent.index(False, 1)]
    # A field that may be missing has an error about its default KEEP, too.
    of_union = [each for each in errors if each["loc"][: len(start)] == start and each["type"] != "is_instance_of"]
    inside = [each for each in of_union if len(each["loc"]) > len(start) + 1 or each["type"] not in _TYPE_ERRORS]
    return inside[:1] or of_union or errors[:1]


def _join_reasons(details: Sequence[ErrorDetails]) -> str:
    """Return a single reason for a value's errors: "it must be true or false, a number or a text"."""
    if len(details) == 1:
        return reason_of(details[0])
    is_number = any(each["type"] == "float_type" for each in details)
    chosen = (each for each in details if not (is_number and each["type"] == "int_type"))
    *others, last = dict.fromkeys(reason_of(each).removeprefix(_MUST_BE) for each in chosen)
    return f"{_MUST_BE}{', '.join(others)} or {last}" if others else f"{_MUST_BE}{last}"


def _are_sent(location: tuple[str | int, ...], sent: Mapping[str, Any]) -> list[bool]:
    """Return whether every part of a location is a name or an index in the request. Union member names are not in the request."""
    value: Any = sent
    are_sent = list[bool]()
    for part in location:
        are_sent.append(_has(value, part))
        value = value[part] if are_sent[-1] else value
    return are_sent


def _has(value: Any, part: str | int) -> bool:
    return part in value if isinstance(value, Mapping) else isinstance(value, list) and part in range(len(value))


def _json_path(location: tuple[str | int, ...], sent: Mapping[str, Any], *, is_missing: bool) -> str:
    """Return the names and indexes that lead to a value in the request, such as `scopes.0.name`.

    A location also has union member names, which are not in the request. If a field is missing, its name comes last.
    """
    path: list[str] = []
    value: Any = sent
    for number, part in enumerate(location):
        is_sent = _has(value, part)
        if is_sent or number == 0 or (is_missing and number == len(location) - 1):
            path.append(str(part))
            value = value[part] if is_sent else None
    return ".".join(path)

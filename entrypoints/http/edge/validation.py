"""The validation of bodies, queries and forms by their models, and the message about the first error."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

# For the types of errors that name classes of Python.
_REASONS: Final = dict.fromkeys(("model_type", "dict_type"), "it must be a JSON object")
M = TypeVar("M", bound=BaseModel)


class FieldsInvalid(Exception):
    """The fields of a request do not match its model. The message names the first such field, without its value."""


def validate(model: type[M], sent: Mapping[str, Any]) -> M:
    """Return the fields of a request as its model. Raises: FieldsInvalid; the refusals of the field types, such as EmailInvalid."""
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        raise FieldsInvalid(_describe_first(error, sent)) from None


def _describe_first(error: ValidationError, sent: Mapping[str, Any]) -> str:
    detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = _json_path(detail["loc"], sent, is_missing=detail["type"] == "missing")
    if not path:
        return "The body must be a JSON object."
    if detail["type"] == "missing":
        return f'The field "{path}" is required.'
    reason = _REASONS.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    return f'The field "{path}" is not valid: {reason[0].lower()}{reason[1:]}.'


def _json_path(location: tuple[str | int, ...], sent: Mapping[str, Any], *, is_missing: bool) -> str:
    """Return the names and indexes that lead to a value in the request, such as `scopes.0.name`.

    A location also has names of the members of unions, which are not in the request. If a field is
    missing, its name comes last.
    """
    path: list[str] = []
    value: Any = sent
    for number, part in enumerate(location):
        is_sent = part in value if isinstance(value, Mapping) else isinstance(value, list) and part in range(len(value))
        if is_sent or number == 0 or (is_missing and number == len(location) - 1):
            path.append(str(part))
            value = value[part] if is_sent else None
    return ".".join(path)

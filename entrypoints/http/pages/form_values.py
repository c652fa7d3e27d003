"""Form fields in the types that the API models take."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from core.kernel import values
from core.kernel.errors import Invalid
from entrypoints.http import kit
from entrypoints.http.edge import validation

REASONS: Final = {**dict.fromkeys(("missing", "string_type"), "Enter a value."), "int_type": "Enter a whole number."}
M = TypeVar("M", bound=kit.RequestModel)


class FieldInvalid(Invalid):
    """A form field cannot be used."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def to_model(model: type[M], form: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]] | None = None) -> M:
    """Return the API request that a form stands for.

    The API model checks it, as it checks a request.

    A text is stripped, and an empty text counts as missing, also where a change can leave the field out. `parsers` read
    the fields that are not texts: a field without an input in the form, such as a checkbox that is not checked, is "".

    Raises: FieldInvalid with the first field that is not valid; what a parser raises.
    """
    parsers = parsers or {}
    texts = {name: form[name].strip() for name in model.model_fields if name in form and name not in parsers}
    empty = next((name for name, text in texts.items() if not text and model.model_fields[name].default is values.KEEP), None)
    if empty is not None:
        raise FieldInvalid(REASONS["missing"], empty)
    fields: dict[str, Any] = {name: text for name, text in texts.items() if text}
    fields |= {name: parse(form.get(name, "")) for name, parse in parsers.items()}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise to_field_error(error) from None
    except Invalid as refusal:  # from a value in the core, such as an email address
        raise FieldInvalid(refusal.message, next((name for name in fields if _is_refused(model, name, fields[name])), "")) from None


def to_field_error(error: ValidationError) -> FieldInvalid:
    """Return a model's first error as the form's refusal."""
    detail = validation.first_error(error)
    reason = validation.reason_of(detail)
    message = REASONS.get(detail["type"], f"{reason[0].upper()}{reason[1:]}.")
    return FieldInvalid(message, str(detail["loc"][0]) if detail["loc"] else "")


def _is_refused(model: type[kit.RequestModel], name: str, value: Any) -> bool:
    try:
        model.model_validate({name: value})
    except ValidationError:  # the remaining fields are missing
        return False
    except Invalid:
        return True
    return False


def to_lines(text: str) -> list[str]:
    """Return a text's lines, without empty lines. A parser for `to_model`."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def quoted(text: str, read: Callable[[str], Any]) -> str:
    """Return a text as a form line has it: in quotation marks, as in JSON, if `read` would not return the bare text."""
    return text if text and text == text.strip() and read(text) == text else json.dumps(text, ensure_ascii=False)


def unquoted(text: str) -> str:
    """Return the text that `quoted` wrote into a line."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def is_checked(text: str) -> bool:
    """Return whether a checkbox was checked. A parser for `to_model`."""
    return text != ""


def to_optional(text: str) -> str | None:
    """Return the text without spaces around it, or None if it is empty. A parser for `to_model`."""
    return text.strip() or None


def to_choice(text: str) -> str | values.Keep:
    """Return the chosen option, or KEEP for the empty option, which changes nothing. A parser for `to_model`."""
    return text or values.KEEP


def to_start_of_day(text: str) -> str | None:
    """Return a day's first moment (UTC), or None for an empty text. A parser for `to_model`, which refuses a text that is not a day."""
    return f"{text.strip()}T00:00:00Z" if text.strip() else None


def to_number(text: str) -> int | None:
    """Return the integer in a text, or None if the text is empty. A parser for `to_model`; the model refuses a text without an integer."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else (text or None)  # type: ignore[return-value]


def to_version(form: Mapping[str, str]) -> int | None:
    """Return the version in a form's hidden field, or None without a valid version."""
    text = form.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def checked(form: Mapping[str, str], prefix: str) -> list[str]:
    """Return the checked checkboxes in a group, by name. In the form, their names begin with the prefix."""
    return [name.removeprefix(prefix) for name in form if name.startswith(prefix)]

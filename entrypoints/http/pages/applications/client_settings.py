"""The forms for an application's settings: their fields, read from a service and from a sent form (decision 264)."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from core.applications.model import client_settings as client_model
from core.applications.model import services
from core.applications.model import services as services_model
from core.kernel.errors import Invalid
from entrypoints.http import kit
from entrypoints.http.api.applications.service_settings import OnPage
from entrypoints.http.api.applications.services import ServiceUpdateRequest
from entrypoints.http.pages import form_values

FIELDS: Final[Mapping[str, FieldInfo]] = ServiceUpdateRequest.model_fields
ON_PAGE: Final[Mapping[str, OnPage]] = {
    name: next(part for part in field.metadata if isinstance(part, OnPage)) for name, field in FIELDS.items()
}
# Every group has its own form, so that saving a group does not undo what another admin saved in another group.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    setting.group: tuple(name for name, other in ON_PAGE.items() if other.group == setting.group) for setting in ON_PAGE.values()
}
NO_SCOPES: Final = "none"  # in a field with scopes, which is empty for the platform's defaults
CHOICES: Final = {True: "yes", False: "no", None: ""}  # for email_sign_in
LINES: Final = frozenset({"redirect_uris", "post_logout_redirect_uris"})
SWITCHES: Final = frozenset(name for name, field in FIELDS.items() if field.annotation is bool)
LIFETIMES: Final = frozenset(GROUPS["lifetimes"])
CONFIDENTIAL_ONLY: Final = frozenset({*GROUPS["keys"], "pkce_without_secret"})

REFUSED_FIELDS: Final[Mapping[type[Invalid], str]] = {refusal: name for name, field in ON_PAGE.items() for refusal in field.refusals}


def group_fields(group: str, service: services.Service) -> tuple[str, ...]:
    """Return the fields in a group that this application type has. An unknown group has none."""
    is_public = service.service_type.is_public
    return tuple(field for field in GROUPS.get(group, ()) if not (is_public and field in CONFIDENTIAL_ONLY))


def stored_values(service: services.Service) -> dict[str, Any]:
    """Return the values for all fields: text, or a boolean for a checkbox."""
    return {field: _to_text(field, service.setting(field)) for group in GROUPS for field in GROUPS[group]}


def _to_text(field: str, value: Any) -> str | bool:
    if field in SWITCHES:
        return bool(value)
    if field == "email_sign_in":
        return CHOICES[value]
    if field in services_model.SCOPES:
        return "" if value is None else " ".join(value) or NO_SCOPES
    if field in LINES:
        return "\n".join(value)
    if field == "jwks":
        return "" if value is None else json.dumps({"keys": [dict(key) for key in value]}, indent=2)
    return "" if value is None else str(value)


def typed_values(form: Mapping[str, str], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return these fields' values in a sent form. A missing checkbox is not checked."""
    return {field: field in form if field in SWITCHES else form.get(field, "") for field in fields}


def parse_settings(typed: Mapping[str, Any]) -> services.SettingChanges:
    """Return the settings in a sent form. The API model checks them, as it checks a request. Raises: FieldInvalid."""
    try:
        data = ServiceUpdateRequest.model_validate(
            {field: _PARSERS.get(field, _parse_text)(field, value) for field, value in typed.items()}
        )
    except ValidationError as error:
        refusal = form_values.to_field_error(error)
        raise refusal if typed[refusal.field] else form_values.FieldInvalid(form_values.REASONS["missing"], refusal.field) from None
    return data.to_settings()


def _parse_text(_field: str, value: Any) -> Any:
    return (value.strip() or None) if isinstance(value, str) else value


def _parse_lines(_field: str, value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def _parse_scopes(_field: str, value: str) -> list[str] | None:
    return [] if value.strip() == NO_SCOPES else value.split() or None


def _parse_keys(field: str, value: str) -> dict[str, Any] | None:
    if not value.strip():
        return None
    problem = form_values.FieldInvalid('Paste a JWK set, such as {"keys": [{"kty": "EC", ...}]}.', field)
    try:
        keys = kit.decode(value.encode())
    except Invalid:
        raise problem from None
    if not isinstance(keys.get("keys"), list) or not all(isinstance(key, dict) for key in keys["keys"]):
        raise problem
    return keys


def _parse_seconds(field: str, value: str) -> int | None:
    text = value.strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise form_values.FieldInvalid("Enter a whole number of seconds.", field)
    return int(text) if text else None


_PARSERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(LINES, _parse_lines),
    **dict.fromkeys(LIFETIMES, _parse_seconds),
    **dict.fromkeys(services_model.SCOPES, _parse_scopes),
    "email_sign_in": lambda _field, value: {"yes": True, "no": False}.get(value),
    "jwks": _parse_keys,
}


def refused_field(refusal: Invalid, group: str, typed: Mapping[str, Any]) -> str | None:
    """Return the field in this group that a refusal is about, or None."""
    if isinstance(refusal, form_values.FieldInvalid):
        return refusal.field
    if isinstance(refusal, client_model.TokenSecondsInvalid):
        return next((field for field, limit in longest_lifetimes().items() if not _is_within(typed.get(field, ""), limit)), None)
    if isinstance(refusal, client_model.EnterpriseSettingsInvalid):
        return {"security": "enterprise", "sign-in": "redirect_uris", "keys": "accepts_token_endpoint_audience"}.get(group)
    if isinstance(refusal, services_model.ScopeInvalid):
        return next((field for field in services_model.SCOPES if not _are_scopes(typed.get(field, ""))), None)
    return REFUSED_FIELDS.get(type(refusal))


def _are_scopes(text: str) -> bool:
    scopes = text.split()
    return len(set(scopes)) == len(scopes) and all(map(services_model.is_scope, scopes))


def _is_within(text: str, limit: int) -> bool:
    return not text.strip() or client_model.MIN_TOKEN_SECONDS <= int(text) <= limit


def longest_lifetimes() -> dict[str, int]:
    """Return the longest lifetime for every kind of token, in seconds."""
    policy = kit.ports().policy
    limits: dict[str, timedelta] = {"access_token_seconds": policy.access_token_ttl, "refresh_token_seconds": policy.refresh_token_ttl}
    return {field: int(limit.total_seconds()) for field, limit in limits.items()}

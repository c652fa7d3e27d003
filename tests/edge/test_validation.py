"""The messages about fields that do not match their model."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel
from quart_trio import QuartTrio

from core.kernel.errors import Refusal
from entrypoints.http.api.applications.claims import ClaimsDocumentRequest
from entrypoints.http.api.applications.services import ServiceUpdateRequest
from entrypoints.http.api.federation.oauth.pushed_requests import PushedAuthorizationRequest
from entrypoints.http.api.programs.api_resources import ApiResourceUpdateRequest
from entrypoints.http.api.programs.service_accounts import ServiceAccountUpdateRequest
from entrypoints.http.api.tenancy.attributes import AttributeValuesRequest
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.edge.queries import Query
from entrypoints.http.edge.validation import FieldsInvalid, validate
from tests.tables import table

FIXED_VALUE: Final = "it must be true or false, an integer, a text or an array"
WRONG: Final[list[Any]] = [
    5,
    -1,
    10**18,
    1.5,
    "",
    "x",
    "\0",
    "x" * 100_000,
    True,
    None,
    [],
    [5],
    ["\0"],
    [{}],
    [[]],
    [""] * 1000,
    {},
    {"x": 5},
]


def models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from models(model)


def names(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def message(model: type[BaseModel], **sent: Any) -> str | None:
    try:
        validate(model, sent)
    except FieldsInvalid as error:
        return str(error)
    except Refusal:  # a core value's own words
        return None
    return None


@pytest.mark.slow
async def test_no_message_names_internals_of_the_validation(app: QuartTrio) -> None:
    """This holds for all body, form and query models. A path part is an index or a field name."""
    all_models = {*models(RequestModel), *models(Query)}
    known = {name for model in all_models for name in names(model)} | {"x"}
    messages = {text for model in all_models for name in names(model) for value in WRONG if (text := message(model, **{name: value}))}
    paths = {text: re.match(r'The field "([^"]*)" is (?:required|not valid: )', text) for text in messages}
    wrong = [text for text, path in paths.items() if path is None or any(not (p.isdigit() or p in known) for p in path[1].split("."))]
    wrong += [text for text in messages if re.search(r"Keep|Request|instance|\[|[Ii]nput|should|validation", text)]
    assert (len(messages) > 100, wrong) == (True, [])


@table(
    ("model", "sent", "text"),
    [
        (ApiResourceUpdateRequest, {"token_seconds": 5.5}, "token_seconds: it must be an integer"),
        (ServiceAccountUpdateRequest, {"name": " "}, "name: it must have 1 to 100 characters"),
        (ApiResourceUpdateRequest, {"scopes": ["read"]}, "scopes.0: it must be a JSON object"),
        (
            ApiResourceUpdateRequest,
            {"scopes": [{"name": "read", "description": 5}]},
            "scopes.0.description: it must be a text",
        ),
        (ServiceUpdateRequest, {"redirect_uris": ["https://a.example", 5]}, "redirect_uris.1: it must be a text"),
        (ClaimsDocumentRequest, {"fixed": {"a": 1.5}}, f"fixed.a: {FIXED_VALUE}"),
        (ClaimsDocumentRequest, {"fixed": {"a": None}}, f"fixed.a: {FIXED_VALUE}"),
        (ClaimsDocumentRequest, {"fixed": {"a": {"b": 1}}}, f"fixed.a: {FIXED_VALUE}"),
        (ClaimsDocumentRequest, {"fixed": {"a": ["x", 1]}}, "fixed.a.1: it must be a text"),
        (ClaimsDocumentRequest, {"fixed": {"a": "\0"}}, "fixed.a: it contains characters that are not allowed"),
        (ClaimsDocumentRequest, {"fixed": {"\0": 1.5}}, "fixed.\0: it contains characters that are not allowed"),
        (AttributeValuesRequest, {"values": {"a": {}}}, "values.a: it must be true or false, a number, a text or an array"),
        (AttributeValuesRequest, {"values": {"tags": [1]}}, "values.tags.0: it must be a text"),
        (AttributeValuesRequest, {"values": {"tags": ["x", "\0"]}}, "values.tags.1: it contains characters that are not allowed"),
        (AttributeValuesRequest, {"values": {"tags": "x" * 5000}}, "values.tags: it must have at most 2048 characters"),
        (PushedAuthorizationRequest, {"resource": "x" * 5000}, "resource: it must have at most 2048 characters"),
    ],
)
def test_a_message_names_the_path_in_the_body(model: type[BaseModel], sent: dict[str, Any], text: str) -> None:
    path, _, reason = text.partition(": ")
    assert message(model, **sent) == f'The field "{path}" is not valid: {reason}.'


def test_a_missing_field_of_a_list_is_named() -> None:
    assert message(ApiResourceUpdateRequest, scopes=[{"name": "read"}]) == 'The field "scopes.0.description" is required.'

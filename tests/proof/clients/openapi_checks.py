"""The validator from openapi-spec-validator. Importing it takes a second, so only the test that uses it imports this module."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from jsonschema.validators import Draft202012Validator
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from openapi_spec_validator.validation.keywords import ResponsesValidator


def errors_of(description: dict[str, Any]) -> list[str]:
    """Return the errors in an API description. Its equal parts are checked once."""
    document = _with_shared_parts(description, {})
    keywords = {name: _once(Draft202012Validator.VALIDATORS[name]) for name in ("$ref", "$dynamicRef")}
    with patch.dict(Draft202012Validator.VALIDATORS, keywords), patch.dict(OAS31Validator.VALIDATORS, keywords):
        return [error.message for error in _Validator(document).iter_errors()]


def _with_shared_parts(value: Any, known: dict[str, Any]) -> Any:
    """Return the value with equal parts as a shared object."""
    if isinstance(value, dict):
        value = {name: _with_shared_parts(part, known) for name, part in value.items()}
    elif isinstance(value, list):
        value = [_with_shared_parts(part, known) for part in value]
    else:
        return value
    return known.setdefault(json.dumps(value), value)


def _once(check: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return the check for a JSON Schema keyword that skips an object which the same schema has found valid."""
    valid = set()

    def checked(validator: Any, reference: str, instance: Any, schema: Any) -> Iterator[Any]:
        case = (id(schema), id(instance))
        if case in valid:
            return
        errors = list(check(validator, reference, instance, schema))
        if not errors:
            valid.add(case)
        yield from errors

    return checked


def _with_known_anchors(validator: Any) -> Any:
    """Return a validator that has read its schema's anchors. Otherwise it reads them again for every dynamic reference."""
    next(validator.iter_errors({}), None)  # this creates the resolver
    resolver = validator._resolver
    return validator.evolve(_resolver=resolver._registry.crawl().resolver(base_uri=resolver._base_uri))


class _ResponsesOnce(ResponsesValidator):
    """The validator for an operation's responses, which skips responses that another operation has, too."""

    def __init__(self, registry: Any) -> None:
        super().__init__(registry)
        self._seen: set[int] = set()

    def __call__(self, responses: Any) -> Iterator[Any]:
        for status, response in responses.read_value().items():
            if id(response) not in self._seen:
                self._seen.add(id(response))
                yield from self.response_validator(status, responses / status)


class _Validator(OpenAPIV31SpecValidator):
    schema_validator = _with_known_anchors(OpenAPIV31SpecValidator.schema_validator)
    keyword_validators = {**OpenAPIV31SpecValidator.keyword_validators, "responses": _ResponsesOnce}  # noqa: RUF012

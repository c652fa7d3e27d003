"""The validator of openapi-spec-validator. Importing it takes a second, so only the test that uses it imports this module."""

import json
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator


def errors_of(description: dict[str, Any]) -> list[str]:
    """Return the errors of an API description."""
    return [error.message for error in _Validator(_with_shared_parts(description, {})).iter_errors()]


def _with_shared_parts(value: Any, known: dict[str, Any]) -> Any:
    """Return the value with equal parts as one object, because the validator checks each object once."""
    if isinstance(value, dict):
        value = {name: _with_shared_parts(part, known) for name, part in value.items()}
    elif isinstance(value, list):
        value = [_with_shared_parts(part, known) for part in value]
    else:
        return value
    return known.setdefault(json.dumps(value), value)


def _with_known_anchors(validator: Any) -> Any:
    """Return a validator that has read the anchors of its schema. Otherwise it reads them again for each dynamic reference."""
    next(validator.iter_errors({}), None)  # this creates the resolver
    resolver = validator._resolver
    return validator.evolve(_resolver=resolver._registry.crawl().resolver(base_uri=resolver._base_uri))


class _Validator(OpenAPIV31SpecValidator):
    schema_validator = _with_known_anchors(OpenAPIV31SpecValidator.schema_validator)

"""SCIM patches (RFC 7644 section 3.5.2): the operations, and their application to a user.

Either all patch operations are applied, or none, except that a patch that deactivates a user is applied as far as it
can be. All functions are pure and work on JSON objects with the names from the schema. Two deviations in Okta and Entra
ID are accepted. Names in the value may be paths, and remove operations may name the values to remove in `value` and not
in the path's brackets.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from core.kernel.errors import Invalid
from core.kernel.values import KEEP
from core.provisioning.model import grammar, resources, schemas
from core.provisioning.model.filters import TEXT_COMPARISONS


class AttributeNotWritable(Invalid):
    """This attribute cannot be changed."""

    scim_type = "mutability"

    def __init__(self, name: str) -> None:
        super().__init__(f"The attribute {name} cannot be changed.")


class AttributeNotRemovable(Invalid):
    """This attribute is required."""

    scim_type = "mutability"

    def __init__(self, name: str) -> None:
        super().__init__(f"The attribute {name} is required and cannot be removed.")


class NoTarget(Invalid):
    """The path matches no value."""

    scim_type = "noTarget"


class PatchValueMissing(Invalid):
    """An add or replace operation needs a value. Send the member value."""


class PatchOp(StrEnum):
    """The patch operation kinds."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """An operation in a patch. Without a path, the names in the value are the paths."""

    op: PatchOp
    path: str | None
    value: Any = KEEP  # KEEP: no value. None: a null, which removes the present value (RFC 7643 section 2.5)

    @property
    def value_for_path(self) -> Any:
        """Return the value for an operation with a path; None if a remove operation has none."""
        if self.value is not KEEP:
            return self.value
        if self.op is not PatchOp.REMOVE:
            raise PatchValueMissing
        return None


@dataclass(frozen=True, slots=True)
class UserPatch:
    """The operations in a user patch, and the errors in operations that could not be parsed.

    `is_large` means that applying them would block other requests.
    """

    operations: Sequence[PatchOperation | Invalid]
    is_large: bool = False


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """Which part of a resource an operation changes."""

    attribute: schemas.ScimAttribute
    filter: grammar.ParsedFilter | None = None  # selects the attribute's values
    sub: schemas.ScimAttribute | None = None


# Targets


def find_target(schema: schemas.ScimSchema, path: grammar.PatchPath) -> PatchTarget | None:
    """Return a path's target, or None if the schema has no such attribute."""
    attribute = schema.attribute(schema.without_urn(path.attribute))
    if attribute is None:
        return None
    sub = None if path.sub is None else attribute.sub(path.sub)
    if path.sub is not None and sub is None:
        return None
    if path.filter is not None and not (attribute.multi_valued and attribute.type is schemas.AttributeType.COMPLEX):
        return None
    return PatchTarget(attribute, path.filter, sub)


def is_without_path(schema: schemas.ScimSchema, operation: PatchOperation) -> bool:
    """Return whether the value names the targets: the path is absent or a schema's URN."""
    return operation.path is None or schema.is_urn(operation.path)


def target_of_path(schema: schemas.ScimSchema, text: str) -> PatchTarget | None:
    """Return a path's target, or None for an attribute that is accepted and not kept.

    Raises: PathInvalid if no declared schema has such an attribute; AttributeNotWritable; FilterInvalid.
    """
    path = grammar.parse_path(text)
    target = find_target(schema, path)
    if path.attribute.lower() in schema.closed:
        raise AttributeNotWritable(path.attribute)
    if target is None and not schema.ignores(schema.without_urn(path.attribute), path.sub):
        raise grammar.PathInvalid
    return target


def targets_in_value(
    schema: schemas.ScimSchema, operation: PatchOperation, skipped: resources.SkippedParts
) -> list[tuple[PatchTarget, Any]]:
    """Return the targets and values in an operation without a path.

    Unknown attributes are ignored, as in whole resources. Names that occur twice are refused.
    """
    if operation.op is PatchOp.REMOVE:
        extension = next((each for each in schema.extensions if operation.path is not None and each.is_urn(operation.path)), None)
        if extension is None:
            raise NoTarget("A remove operation needs the path of an attribute.")
        return [(PatchTarget(attribute), None) for attribute in extension.attributes]
    if not isinstance(operation.value, Mapping):
        raise resources.AttributeValueInvalid("the operation", "an object if there is no path")
    value = operation.value if operation.path is None else {operation.path: operation.value}
    targets = []
    for name, item in resources.flatten_containers("the operation", value, schema, skipped).items():
        try:
            target = find_target(schema, grammar.parse_path(name))
        except (grammar.PathInvalid, grammar.FilterInvalid):
            target = None
        if target is None:
            skipped.ignore(name)
        elif not (target.attribute.common and target.attribute.mutability is schemas.Mutability.READ_ONLY):
            targets.append((target, item))
    return targets


# Application


@dataclass(frozen=True, slots=True)
class PatchResult:
    """A resource after a patch.

    `skipped` has the operations that were not applied, and the first error. `named` has the names of
    the attributes that operations were applied to.
    """

    resource: resources.Resource
    named: set[str] = field(default_factory=set)
    skipped: resources.SkippedParts = field(default_factory=resources.SkippedParts)


def apply_operations(
    schema: schemas.ScimSchema, resource: Mapping[str, Any], operations: Iterable[PatchOperation | Invalid]
) -> PatchResult:
    """Apply all operations that can be applied."""
    result = PatchResult(copy.deepcopy(dict(resource)))
    for operation in operations:
        if isinstance(operation, Invalid):
            result.skipped.refuse("Operations", operation)
            continue
        try:
            targets = _find_targets(schema, operation, result.skipped)
        except Invalid as error:
            result.skipped.refuse(operation.path or "value", error)
            continue
        for target, value in targets:
            name = target.attribute.name
            before = result.resource.get(name)
            try:
                _apply(result.resource, operation.op, target, value)
                result.named.add(name)
            except Invalid as error:
                _set(result.resource, name, before)
                result.skipped.refuse(name, error)
    return result


def _find_targets(schema: schemas.ScimSchema, operation: PatchOperation, skipped: resources.SkippedParts) -> list[tuple[PatchTarget, Any]]:
    if operation.path is None or is_without_path(schema, operation):
        return targets_in_value(schema, operation, skipped)
    target = target_of_path(schema, operation.path)
    if target is None:
        skipped.ignore(operation.path)
        return []
    return [(target, operation.value_for_path)]


def _apply(resource: resources.Resource, op: PatchOp, target: PatchTarget, value: Any) -> None:
    attribute = target.attribute
    if attribute.mutability is schemas.Mutability.READ_ONLY:
        raise AttributeNotWritable(attribute.name)
    if not attribute.multi_valued:
        _apply_to_single_value(resource, op, target, value)
    elif target.filter is not None or target.sub is not None:
        _apply_to_selected_values(resource, op, target, value)
    else:
        _apply_to_all_values(resource, op, attribute, value)
    if attribute.multi_valued:
        resources.check_count(attribute, resource.get(attribute.name) or [])
    if attribute.required and not resource.get(attribute.name):
        raise AttributeNotRemovable(attribute.name) if op is PatchOp.REMOVE else resources.AttributeValueInvalid(attribute.name, "present")


def _set(resource: resources.Resource, name: str, value: Any) -> None:
    """Set an attribute, or remove it if the value is empty."""
    if value is None or value == {} or value == []:
        resource.pop(name, None)
    else:
        resource[name] = value


def _apply_to_single_value(resource: resources.Resource, op: PatchOp, target: PatchTarget, value: Any) -> None:
    attribute, sub = target.attribute, target.sub
    if sub is not None:
        parts = dict(resource.get(attribute.name) or {})
        _set(parts, sub.name, None if op is PatchOp.REMOVE else resources.read_value(sub, value))
        _set(resource, attribute.name, parts)
    elif op is PatchOp.REMOVE or value is None or value == "":
        resource.pop(attribute.name, None)
    elif attribute.type is schemas.AttributeType.COMPLEX:
        # Add and replace both set the given sub-attributes and keep the rest (RFC 7644 section
        # 3.5.2.3). A null removes a sub-attribute.
        parts = {**(resource.get(attribute.name) or {}), **(resources.read_value(attribute, value) or {})}
        if isinstance(value, Mapping):
            cleared = {name.lower() for name, part in value.items() if part is None or part == ""}
            parts = {name: part for name, part in parts.items() if name.lower() not in cleared}
        _set(resource, attribute.name, parts)
    else:
        _set(resource, attribute.name, resources.read_value(attribute, value))


def _apply_to_all_values(resource: resources.Resource, op: PatchOp, attribute: schemas.ScimAttribute, value: Any) -> None:
    values: list[Any] = resource.get(attribute.name) or []
    new = resources.read_value(attribute, value) or []
    match op:
        case PatchOp.ADD:
            values = [*values, *(item for item in new if item not in values)]
        case PatchOp.REPLACE:
            values = new
        case PatchOp.REMOVE:  # if the operation has values, only these
            values = [] if value is None else [item for item in values if not any(_contains(item, part) for part in new)]
    _set(resource, attribute.name, _keep_one_primary(values, new))


def _contains(value: Any, part: Any) -> bool:
    if not isinstance(value, Mapping):
        return bool(value == part)
    return all(value.get(name) == item for name, item in part.items())


def _apply_to_selected_values(resource: resources.Resource, op: PatchOp, target: PatchTarget, value: Any) -> None:
    attribute, sub = target.attribute, target.sub
    values: list[Any] = resource.get(attribute.name) or []
    selected = [target.filter is None or _matches(target.filter, attribute, item) for item in values]
    new = None if op is PatchOp.REMOVE else resources.read_value(sub, value) if sub is not None else _read_one_of(attribute, value)
    if not any(selected):
        if op is PatchOp.REMOVE:
            return
        if op is PatchOp.REPLACE and target.filter is not None:
            raise NoTarget
        # Add a value that matches the filter: this is how clients add the first address with a
        # type.
        values = [*values, _value_matching(target.filter, attribute)]
        selected = [*selected[: len(values) - 1], True]
    if op is PatchOp.REMOVE and sub is None:
        _set(resource, attribute.name, [item for item, is_selected in zip(values, selected, strict=True) if not is_selected])
        return
    changed = [_merge(item, sub, new) if is_selected else item for item, is_selected in zip(values, selected, strict=True)]
    changed_items = [item for item, is_selected in zip(changed, selected, strict=True) if is_selected]
    _set(resource, attribute.name, _keep_one_primary([item for item in changed if item], changed_items))


def _read_one_of(attribute: schemas.ScimAttribute, value: Any) -> dict[str, Any]:
    values = resources.read_value(attribute, value) or []
    if len(values) > 1:
        raise resources.AttributeValueInvalid(attribute.name, "a single value if the path has brackets")
    return values[0] if values else {}


def _merge(value: Mapping[str, Any], sub: schemas.ScimAttribute | None, new: Any) -> resources.Resource:
    merged = dict(value)
    if sub is None:
        return {**merged, **new}
    _set(merged, sub.name, new)
    return merged


def _keep_one_primary(values: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Make a new primary value the only primary value (RFC 7644 section 3.5.2)."""
    primary = [item for item in new if isinstance(item, Mapping) and item.get("primary") is True]
    if not primary:
        return list(values)
    return [
        {**item, "primary": False} if isinstance(item, Mapping) and item.get("primary") and item != primary[-1] else item for item in values
    ]


# Filters in brackets


def _value_matching(filter_: grammar.ParsedFilter | None, attribute: schemas.ScimAttribute) -> resources.Resource:
    """Return the value that a filter describes completely: by `eq` comparisons joined by `and`."""
    match filter_:
        case None:
            return {}
        case grammar.ParsedComparison(name, grammar.FilterOperator.EQ, literal) if (sub := attribute.sub(name)) is not None:
            value = resources.read_value(sub, literal)
            return {} if value is None else {sub.name: value}
        case grammar.And(operands):
            merged: resources.Resource = {}
            for operand in operands:
                merged |= _value_matching(operand, attribute)
            return merged
    raise NoTarget


def _matches(filter_: grammar.ParsedFilter, attribute: schemas.ScimAttribute, value: Mapping[str, Any]) -> bool:
    """Return whether a value matches the filter in brackets."""
    match filter_:
        case grammar.ParsedPresence(name):
            return value.get(_find_sub(attribute, name).name) is not None
        case grammar.ParsedComparison(name, operator, literal):
            sub = _find_sub(attribute, name)
            return _compare(sub, operator, value.get(sub.name), literal)
        case grammar.And(operands):
            return False not in [_matches(operand, attribute, value) for operand in operands]  # evaluates all, to find mistakes
        case grammar.Or(operands):
            return True in [_matches(operand, attribute, value) for operand in operands]
        case grammar.Not(operand):
            return not _matches(operand, attribute, value)
        case grammar.ParsedValuePath():
            raise grammar.FilterInvalid("it has brackets in brackets")


def _find_sub(attribute: schemas.ScimAttribute, name: str) -> schemas.ScimAttribute:
    sub = attribute.sub(name)
    if sub is None:
        raise grammar.FilterInvalid("it uses an attribute that does not exist")
    return sub


def _compare(sub: schemas.ScimAttribute, operator: grammar.FilterOperator, value: Any, literal: Any) -> bool:
    if sub.type is schemas.AttributeType.BOOLEAN and isinstance(literal, str) and literal.lower() in ("true", "false"):
        literal = literal.lower() == "true"
    if sub.type is not schemas.AttributeType.BOOLEAN and not sub.case_exact:
        value, literal = (item.lower() if isinstance(item, str) else item for item in (value, literal))
    if operator in (grammar.FilterOperator.EQ, grammar.FilterOperator.NE):
        return bool(value == literal) is (operator is grammar.FilterOperator.EQ)
    if not isinstance(literal, str) or sub.type is schemas.AttributeType.BOOLEAN:
        raise grammar.FilterInvalid(f"{sub.name} cannot be compared with {operator} and this value")
    return isinstance(value, str) and TEXT_COMPARISONS[operator](value, literal)

"""Patches of SCIM (RFC 7644 section 3.5.2): what a resource is after the operations of one, all of them or none.

Pure, over resources as JSON has them, with the names of the schema. The dialects of Okta and Entra ID are understood here and nowhere
else: operations in capitals are the edge's to fold, but "False" as a text, names of paths as names of values, a list of one where there is
one value, and values to remove beside a path instead of in its brackets, are what this knows.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from core.kernel.errors import Invalid, refuse
from core.kernel.values import KEEP, parse_id
from core.provisioning.filters import TEXTS
from core.provisioning.grammar import (
    And,
    ParsedComparison,
    FilterInvalid,
    Not,
    FilterOperator,
    PatchPath,
    PathInvalid,
    ParsedPresence,
    Or,
    ParsedValuePath,
    ParsedFilter,
    parse_path,
)
from core.provisioning.schemas import Mutability, AttributeType

if TYPE_CHECKING:
    from uuid import UUID

    from core.provisioning.schemas import ScimAttribute, ScimSchema

Resource = dict[str, Any]

# Of an attribute of a user; members, and operations, are as many as a body holds (security.md C-7). Together with the length of a value, it
# has an operation take no longer for what the ones before it have put there.
MOST_VALUES: Final = 10
LONGEST_TEXT: Final = 256  # characters


class AttributeValueInvalid(Invalid):
    """A value is not what the attribute has."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"The value of {name} is not valid: it must be {wanted}.")


class AttributeNotWritable(Invalid):
    """An attribute cannot be changed."""

    scim_type = "mutability"

    def __init__(self, name: str) -> None:
        super().__init__(f"The attribute {name} cannot be changed.")


class NoTarget(Invalid):
    """There is nothing that the path leads to."""

    scim_type = "noTarget"


class PatchValueMissing(Invalid):
    """An operation that adds or replaces needs a value."""


class PatchOp(StrEnum):
    """What an operation does."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One operation; `value` is KEEP where there is none. Null is one: it takes away what there is (RFC 7643 section 2.5). Without a
    path, the value says what it is about."""

    op: PatchOp
    path: str | None
    value: Any = KEEP

    @property
    def beside(self) -> Any:
        """The value beside a path, None where there is none. Raises PatchValueMissing where one is needed."""
        if self.value is not KEEP:
            return self.value
        if self.op is not PatchOp.REMOVE:
            raise PatchValueMissing
        return None


# Values


def read(attribute: ScimAttribute, value: Any) -> Any:
    """What `value` is as a value of the attribute, or of each value of one that has several: with the names of the schema, and nothing that
    it does not name. None where it is nothing. Raises AttributeValueInvalid."""
    if attribute.multi_valued:
        given = [] if value is None else value if isinstance(value, list) else [value]
        _check_count(attribute, given)
        return [one for each in given if (one := _one(attribute, each)) is not None] or None
    if isinstance(value, list) and len(value) == 1:  # as Microsoft's clients send it, and with the value in an object of its own
        value = value[0]
        if attribute.type is not AttributeType.COMPLEX and isinstance(value, Mapping):
            value = value.get("value")
    return _one(attribute, value)


def _check_count(attribute: ScimAttribute, values: Sequence[Any]) -> None:
    # Each value is compared with each other one, and whoever sends a million has all others wait.
    if len(values) > MOST_VALUES:
        raise AttributeValueInvalid(attribute.name, f"a list of at most {MOST_VALUES}")


def _check_names(what: str, value: Mapping[str, Any], schema: ScimSchema | None = None) -> None:
    # Names have no case (RFC 7643 section 2.1), and which of two spellings of one counts would be anybody's guess.
    names = {(name if schema is None else schema.without_urn(name)).lower() for name in value}
    if len(names) < len(value):
        raise AttributeValueInvalid(what, "an object that names nothing twice, in whatever case")


def _one(attribute: ScimAttribute, value: Any) -> Any:
    if value is None:
        return None
    match attribute.type:
        case AttributeType.COMPLEX:
            if isinstance(value, str) and attribute.multi_valued:
                value = {"value": value}
            if not isinstance(value, Mapping):
                raise AttributeValueInvalid(attribute.name, "an object")
            _check_names(attribute.name, value)
            found = {}
            for name, each in value.items():
                if (sub := attribute.sub(name)) is not None and (one := read(sub, each)) is not None:
                    found[sub.name] = one
            return found or None
        case AttributeType.BOOLEAN:
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
            if not isinstance(value, bool):
                raise AttributeValueInvalid(attribute.name, "true or false")
            return value
    if not isinstance(value, str):
        raise AttributeValueInvalid(attribute.name, "a text")
    if len(value) > LONGEST_TEXT and attribute.type is AttributeType.STRING:
        raise AttributeValueInvalid(attribute.name, f"a text of at most {LONGEST_TEXT} characters")
    return value or None


def read_resource(schema: ScimSchema, given: Mapping[str, Any]) -> Resource:
    """The attributes of a resource that a client may set, as it gave them. Raises AttributeValueInvalid."""
    _check_names("the body", given, schema)
    found = {}
    for name, value in given.items():
        attribute = schema.attribute(schema.without_urn(name))
        if attribute is None or attribute.mutability is Mutability.READ_ONLY:
            continue
        if attribute.multi_valued and any(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
            raise AttributeValueInvalid(attribute.name, "a list of objects")  # a text is a value only where a path says of what
        if (one := read(attribute, value)) is not None:
            found[attribute.name] = one
    return found


# Users


def apply_operations(schema: ScimSchema, resource: Mapping[str, Any], operations: Iterable[PatchOperation]) -> Resource:
    """The resource after all operations. Raises AttributeValueInvalid, PatchValueMissing, AttributeNotWritable, NoTarget, PathInvalid, FilterInvalid."""
    changed = copy.deepcopy(dict(resource))
    for operation in operations:
        if _is_about_all(schema, operation):
            for name, value in _named(schema, operation):
                _apply(changed, schema, operation.op, name, value)
        else:
            found = _located(schema, parse_path(operation.path or ""))
            if found is None:
                raise PathInvalid
            _apply(changed, schema, operation.op, found, operation.beside)
    return changed


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a resource something changes."""

    attribute: ScimAttribute
    filter: ParsedFilter | None = None
    sub: ScimAttribute | None = None


def _located(schema: ScimSchema, path: PatchPath) -> _Place | None:
    """What the path leads to; None where the schema has no such thing."""
    attribute = schema.attribute(schema.without_urn(path.attribute))
    if attribute is None:
        return None
    sub = None if path.sub is None else attribute.sub(path.sub)
    if path.sub is not None and sub is None:
        return None
    if path.filter is not None and not (attribute.multi_valued and attribute.type is AttributeType.COMPLEX):
        return None
    return _Place(attribute, path.filter, sub)


def _is_about_all(schema: ScimSchema, operation: PatchOperation) -> bool:
    """Whether the value says what it is about: there is no path, or it is the URN of the schema alone."""
    return operation.path is None or operation.path.lower() == schema.id.lower()


def _named(schema: ScimSchema, operation: PatchOperation) -> list[tuple[_Place, Any]]:
    """What an operation without a path is about, value by value; what we do not have is passed over, as in whole resources."""
    if operation.op is PatchOp.REMOVE:
        raise NoTarget("Say with a path what to remove.")
    if not isinstance(operation.value, Mapping):
        raise AttributeValueInvalid("value", "an object where there is no path")
    given = _without_container(operation.value, schema)
    _check_names("value", given, schema)
    found = []
    for name, value in given.items():
        try:
            place = _located(schema, parse_path(name))
        except (PathInvalid, FilterInvalid):
            continue
        if place is not None and not (place.attribute.common and place.attribute.mutability is Mutability.READ_ONLY):
            found.append((place, value))
    return found


def _without_container(value: Mapping[str, Any], schema: ScimSchema) -> Mapping[str, Any]:
    """What stands within the URN of the schema stands beside it as well: clients put all of a schema there, as is usual for extensions."""
    found = dict[str, Any]()
    for name, each in value.items():
        named = each if name.lower() == schema.id.lower() and isinstance(each, Mapping) else {name: each}
        if found.keys() & named.keys():
            raise AttributeValueInvalid("value", "an object that names nothing twice")
        found |= named
    return found


def _apply(resource: Resource, schema: ScimSchema, op: PatchOp, place: _Place, value: Any) -> None:
    attribute, sub = place.attribute, place.sub
    if attribute.mutability is Mutability.READ_ONLY:
        raise AttributeNotWritable(attribute.name)
    if not attribute.multi_valued:
        _apply_to_one(resource, op, attribute, sub, value)
    elif place.filter is not None or sub is not None:
        _apply_to_some(resource, op, place, value)
    else:
        _apply_to_all(resource, op, attribute, value)
    if attribute.multi_valued:
        _check_count(attribute, resource.get(attribute.name) or [])
    if attribute.required and not resource.get(attribute.name):
        raise AttributeNotWritable(attribute.name) if op is PatchOp.REMOVE else AttributeValueInvalid(attribute.name, "there")


def _put(resource: Resource, name: str, value: Any) -> None:
    if value is None or value == {} or value == []:
        resource.pop(name, None)
    else:
        resource[name] = value


def _apply_to_one(resource: Resource, op: PatchOp, attribute: ScimAttribute, sub: ScimAttribute | None, value: Any) -> None:
    if sub is not None:
        whole = resource.get(attribute.name) or {}
        _put(whole, sub.name, None if op is PatchOp.REMOVE else read(sub, value))
        _put(resource, attribute.name, whole)
    elif op is PatchOp.REMOVE or value is None:
        resource.pop(attribute.name, None)
    elif attribute.type is AttributeType.COMPLEX:
        # What is named is set, and the rest stays, whether it is added or replaced (RFC 7644 section 3.5.2.3); null takes away.
        whole = {**(resource.get(attribute.name) or {}), **(read(attribute, value) or {})}
        if isinstance(value, Mapping):
            cleared = {name.lower() for name, each in value.items() if each is None or each == ""}
            whole = {name: each for name, each in whole.items() if name.lower() not in cleared}
        _put(resource, attribute.name, whole)
    else:
        _put(resource, attribute.name, read(attribute, value))


def _apply_to_all(resource: Resource, op: PatchOp, attribute: ScimAttribute, value: Any) -> None:
    there: list[Any] = resource.get(attribute.name) or []
    given = read(attribute, value) or []
    match op:
        case PatchOp.ADD:
            there = [*there, *(each for each in given if each not in there)]
        case PatchOp.REPLACE:
            there = given
        case PatchOp.REMOVE:  # with values beside the path, these alone
            there = [] if value is None else [each for each in there if not any(_contains(each, one) for one in given)]
    _put(resource, attribute.name, _one_primary(there, given))


def _contains(value: Any, part: Any) -> bool:
    if not isinstance(value, Mapping):
        return bool(value == part)
    return all(value.get(name) == each for name, each in part.items())


def _apply_to_some(resource: Resource, op: PatchOp, place: _Place, value: Any) -> None:
    attribute, sub = place.attribute, place.sub
    there: list[Any] = resource.get(attribute.name) or []
    chosen = [place.filter is None or _holds(place.filter, attribute, each) for each in there]
    given = None if op is PatchOp.REMOVE else read(sub, value) if sub is not None else _whole(attribute, value)
    if not any(chosen):
        if op is PatchOp.REMOVE:
            return
        if op is PatchOp.REPLACE and place.filter is not None:
            raise NoTarget("There is no value that the path leads to.")
        # What the brackets say, the new value is: so clients add an address of a type that there is none of yet.
        there = [*there, _described(place.filter, attribute)]
        chosen = [*chosen[: len(there) - 1], True]
    if op is PatchOp.REMOVE and sub is None:
        _put(resource, attribute.name, [each for each, is_chosen in zip(there, chosen, strict=True) if not is_chosen])
        return
    changed = [_with(each, sub, given) if is_chosen else each for each, is_chosen in zip(there, chosen, strict=True)]
    new = [each for each, is_chosen in zip(changed, chosen, strict=True) if is_chosen]
    _put(resource, attribute.name, _one_primary([each for each in changed if each], new))


def _whole(attribute: ScimAttribute, value: Any) -> dict[str, Any]:
    given = read(attribute, value) or []
    if len(given) > 1:
        raise AttributeValueInvalid(attribute.name, "one value, for what the brackets choose")
    return given[0] if given else {}


def _with(value: Mapping[str, Any], sub: ScimAttribute | None, given: Any) -> Resource:
    changed = dict(value)
    if sub is None:
        return {**changed, **given}
    _put(changed, sub.name, given)
    return changed


def _one_primary(values: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """At most one value is primary; one that has become so takes that from the others (RFC 7644 section 3.5.2)."""
    made = [each for each in new if isinstance(each, Mapping) and each.get("primary") is True]
    if not made:
        return list(values)
    return [
        {**each, "primary": False} if isinstance(each, Mapping) and each.get("primary") and each != made[-1] else each for each in values
    ]


def _described(written: ParsedFilter | None, attribute: ScimAttribute) -> Resource:
    """A value of which the filter says all there is to say: that its sub-attributes equal something. Raises NoTarget."""
    match written:
        case None:
            return {}
        case ParsedComparison(name, FilterOperator.EQ, literal) if (sub := attribute.sub(name)) is not None:
            found = read(sub, literal)
            return {} if found is None else {sub.name: found}
        case And(of):
            whole: Resource = {}
            for each in of:
                whole |= _described(each, attribute)
            return whole
    raise NoTarget("There is no value that the path leads to.")


def _holds(written: ParsedFilter, attribute: ScimAttribute, value: Mapping[str, Any]) -> bool:
    """Whether the filter in the brackets of a path holds of this value. Raises FilterInvalid."""
    match written:
        case ParsedPresence(name):
            return value.get(_sub(attribute, name).name) is not None
        case ParsedComparison(name, operator, literal):
            sub = _sub(attribute, name)
            return _compares(sub, operator, value.get(sub.name), literal)
        case And(of):
            return False not in [_holds(each, attribute, value) for each in of]  # each of them is looked at, for mistakes
        case Or(of):
            return True in [_holds(each, attribute, value) for each in of]
        case Not(each):
            return not _holds(each, attribute, value)
        case ParsedValuePath():
            raise FilterInvalid("brackets stand in brackets")


def _sub(attribute: ScimAttribute, name: str) -> ScimAttribute:
    found = attribute.sub(name)
    if found is None:
        raise FilterInvalid("it names an attribute that there is not")
    return found


def _compares(sub: ScimAttribute, operator: FilterOperator, value: Any, literal: Any) -> bool:
    if sub.type is AttributeType.BOOLEAN and isinstance(literal, str) and literal.lower() in ("true", "false"):
        literal = literal.lower() == "true"
    if sub.type is not AttributeType.BOOLEAN and not sub.case_exact:
        value, literal = (each.lower() if isinstance(each, str) else each for each in (value, literal))
    if operator in (FilterOperator.EQ, FilterOperator.NE):
        return bool(value == literal) is (operator is FilterOperator.EQ)
    if not isinstance(literal, str) or sub.type is AttributeType.BOOLEAN:
        raise FilterInvalid(f"{sub.name} cannot be compared so")
    return isinstance(value, str) and TEXTS[operator](value, literal)


# Groups, whose members are too many to be put together first and changed then


class GroupMemberUnknown(Invalid):
    """A member can be whom your directory has provisioned, or who is a member already. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """What operations come to: of those who are members, or of nobody where `afresh` is true, less `removed`, and `added` besides."""

    afresh: bool = False
    added: frozenset[UUID] = frozenset()
    removed: frozenset[UUID] = frozenset()

    @classmethod
    def of(cls, added: Collection[str], removed: Collection[str] = (), *, afresh: bool = False) -> MemberChanges:
        """Those with these ids. What is no id is nobody's, so that it can only be removed. Raises GroupMemberUnknown."""
        ids = frozenset(parse_id(each) or refuse(GroupMemberUnknown) for each in added)
        return cls(afresh, ids, frozenset(found for each in removed if (found := parse_id(each)) is not None))


def parse_member_replacement(schema: ScimSchema, given: Mapping[str, Any]) -> MemberChanges:
    """What a whole group comes to. Where nothing is said of members, they stay: whoever renames a group does not mean to empty the
    organization. The name is accepted, and not applied (decisions, points 135 and 136). Raises AttributeValueInvalid, GroupMemberUnknown."""
    _check_names("the body", given, schema)
    found = {attribute: value for name, value in given.items() if (attribute := schema.attribute(schema.without_urn(name))) is not None}
    for attribute, value in found.items():
        if attribute.name == "displayName":
            read(attribute, value)
    named = [(attribute, value) for attribute, value in found.items() if attribute.name == "members" and value is not None]
    return MemberChanges.of(set(member_ids(*named[0])), afresh=True) if named else MemberChanges()


def parse_member_changes(schema: ScimSchema, operations: Iterable[PatchOperation]) -> MemberChanges:
    """What the operations change of the members of a group; other attributes are left as they are (decisions, point 136).

    Raises AttributeValueInvalid, PatchValueMissing, AttributeNotWritable, NoTarget, PathInvalid, FilterInvalid, GroupMemberUnknown.
    """
    afresh, added, removed = False, set[str](), set[str]()
    for operation in operations:
        for place, value in _members(schema, operation):
            ids = _ids(place, value, operation)
            if operation.op is PatchOp.REPLACE and value is None:  # says nothing of them, as in a whole group: it would empty the organization
                continue
            match operation.op:
                case PatchOp.ADD:
                    added |= ids or set()
                    removed -= ids or set()
                case PatchOp.REMOVE if ids is not None:
                    added -= ids
                    removed |= ids
                case _:
                    afresh, added, removed = True, set(ids or ()), set()
    return MemberChanges.of(added, removed, afresh=afresh)


def _members(schema: ScimSchema, operation: PatchOperation) -> list[tuple[_Place, Any]]:
    if _is_about_all(schema, operation):
        named = _named(schema, operation)
        return [(place, value) for place, value in named if place.attribute.name == "members"]
    place = _located(schema, parse_path(operation.path or ""))
    if place is None:
        raise PathInvalid
    value = operation.beside
    if place.attribute.name == "displayName" and operation.op is not PatchOp.REMOVE:
        read(place.attribute, value)
        return []
    if place.attribute.mutability is Mutability.READ_ONLY:
        raise AttributeNotWritable(place.attribute.name)
    return [(place, value)]


def _ids(place: _Place, value: Any, operation: PatchOperation) -> set[str] | None:
    """Whom an operation is about; None is everybody, which an operation without a value is. Null is nobody, as an empty list is."""
    if place.sub is not None:
        raise AttributeNotWritable(f"members.{place.sub.name}")
    if place.filter is not None:
        if operation.op is not PatchOp.REMOVE:
            raise NoTarget("Name those to add in the value, not in the path.")
        return _chosen(place.filter)
    if operation.value is KEEP:
        return None
    return set(member_ids(place.attribute, value))


def member_ids(attribute: ScimAttribute, value: Any) -> list[str]:
    """The ids in a value of the attribute `members`. Raises AttributeValueInvalid."""
    given = [] if value is None else value if isinstance(value, list) else [value]
    found: list[str] = []
    for each in given:
        found_id = (_one(attribute, each) or {}).get("value")
        if found_id is None:
            raise AttributeValueInvalid("members", "a list of objects with a value each")
        found.append(found_id)
    return found


def _chosen(written: ParsedFilter) -> set[str]:
    match written:
        case ParsedComparison("value", FilterOperator.EQ, str() as literal):
            return {literal}
        case Or(of):
            return set[str]().union(*(_chosen(each) for each in of))
    raise FilterInvalid("members are chosen with value eq, and or between several")

"""Which group roles are founded: their givers may still give them."""

from collections.abc import Collection
from uuid import UUID

from core.kernel.roles import ADMIN, CUSTOMIZABLE, MEMBER, OWNER, ROLES, Capability, Rights, RoleName
from core.tenancy.model.groups import GroupMapping, find_unfounded, may_map

KEEPER = frozenset({Capability.ROLES_MANAGE, Capability.AUDIT_VIEW})
AUDITOR = frozenset({Capability.AUDIT_VIEW})
NOTHING: Rights = frozenset()


def mapping(number: int, rights: Rights, mapper: Rights, groups: Collection[int] = ()) -> GroupMapping:
    return GroupMapping(
        group_id=UUID(int=number),
        group_name=f"Group {number}",
        role=RoleName("any"),
        rights=rights,
        mapper_rights=mapper,
        mapper_groups=frozenset(UUID(int=each) for each in groups),
    )


def unfounded(*mappings: GroupMapping) -> list[int]:
    return [each.group_id.int for each in find_unfounded(mappings)]


def test_a_mapper_manages_roles_and_has_every_right_of_the_role() -> None:
    assert may_map(KEEPER, AUDITOR)
    assert not may_map(AUDITOR, AUDITOR)
    assert not may_map(KEEPER, AUDITOR | {Capability.WEBHOOKS_MANAGE})
    assert may_map(ROLES[OWNER].rights, ROLES[ADMIN].rights)
    assert not may_map(ROLES[ADMIN].rights, ROLES[MEMBER].rights)
    assert not may_map(ROLES[OWNER].rights, ROLES[OWNER].rights)
    assert may_map(CUSTOMIZABLE | {Capability.ORGANIZATION_VIEW}, ROLES[ADMIN].rights)


def test_a_mapping_is_founded_by_the_own_role_of_its_mapper() -> None:
    assert unfounded(mapping(1, AUDITOR, KEEPER), mapping(2, AUDITOR, AUDITOR), mapping(3, AUDITOR, NOTHING)) == [2, 3]


def test_a_mapping_is_founded_by_a_founded_group_of_its_mapper() -> None:
    chain = [mapping(3, AUDITOR, NOTHING, [2]), mapping(2, KEEPER, NOTHING, [1]), mapping(1, KEEPER, KEEPER)]
    assert unfounded(*chain) == []
    assert unfounded(*chain[:2]) == [3, 2]
    parts = [mapping(1, frozenset({Capability.ROLES_MANAGE}), KEEPER), mapping(2, AUDITOR, KEEPER)]
    assert unfounded(mapping(3, AUDITOR, NOTHING, [1, 2]), *parts) == [], "the rights of several groups add up"
    assert unfounded(mapping(3, AUDITOR, NOTHING, [1]), *parts) == [3]


def test_mappings_do_not_hold_each_other_up() -> None:
    assert unfounded(mapping(1, KEEPER, NOTHING, [1])) == [1]
    circle = [mapping(1, KEEPER, NOTHING, [2]), mapping(2, KEEPER, NOTHING, [1])]
    assert unfounded(*circle) == [1, 2]
    assert unfounded(*circle, mapping(3, AUDITOR, NOTHING, [1])) == [1, 2, 3]
    assert unfounded(mapping(1, KEEPER, KEEPER, [2]), circle[1]) == [], "the circle has a ground outside of it"

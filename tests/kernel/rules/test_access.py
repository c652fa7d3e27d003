"""The caller that follows from a token and a database row, and its capabilities (security J-5, J-6)."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from core.kernel.access import (
    NotAMember,
    NotAnEndUser,
    NotOfThisOrganization,
    OrganizationNotFound,
    RoleInsufficient,
    require_capability,
    to_person,
)
from core.kernel.callers import MembershipState, OrganizationContext, OrganizationStatus, Person, ServiceContext, SessionContext, to_member
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.claims import Claims
from core.kernel.errors import Forbidden, NotFound, OrganizationNotActive, SessionEnded
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, Capability, RoleName, rights_of
from core.kernel.values import Email
from tests.tables import table

NOW = datetime(2026, 3, 14, tzinfo=UTC)
USER, SESSION, ORG = UUID(int=1), UUID(int=2), UUID(int=3)

CLAIMS = Claims(
    user_id=USER,
    session_id=SESSION,
    email=Email("old@example.com"),
    email_verified=False,
    token_id=UUID(int=4),
    issued_at=NOW,
    expires_at=NOW,
)
IN_ORG = replace(CLAIMS, org="acme", org_id=ORG)
CONTEXT = SessionContext(user_id=USER, email=Email("new@example.com"), email_verified_at=NOW, is_platform_owner=True, organization=None)
IN_ACME = replace(CONTEXT, organization=OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, ADMIN, rights_of(ADMIN)))


def person_from(claims: Claims, membership_state: SessionContext | None, *, allow_former_users: bool = False) -> Person:
    return to_person(Anonymous(address="203.0.113.9", agent="tests"), claims, membership_state, allow_former_users=allow_former_users)


def test_the_database_overrides_the_token() -> None:
    assert person_from(CLAIMS, CONTEXT) == Person(
        user_id=USER,
        email=Email("new@example.com"),
        email_verified=True,
        session_id=SESSION,
        is_platform_owner=True,
        organization=None,
        impersonator_id=None,
        address="203.0.113.9",
        agent="tests",
    )


def test_wrong_claims_of_a_token_give_nothing() -> None:
    view = person_from(replace(CLAIMS, email_verified=True), replace(CONTEXT, email_verified_at=None, is_platform_owner=False))
    assert (view.email_verified, view.is_platform_owner) == (False, False)


@table("allow_former_users", [False, True])
@table("claims", [CLAIMS, IN_ORG])
def test_an_ended_session_has_no_caller(claims: Claims, allow_former_users: bool) -> None:
    with pytest.raises(SessionEnded) as refusal:
        person_from(claims, None, allow_former_users=allow_former_users)
    assert refusal.value.token_sent
    assert refusal.value.code == "UNAUTHORIZED"


def test_the_organization_has_its_current_state() -> None:
    admin_rights = rights_of(ADMIN)
    expected = OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, ADMIN, admin_rights)
    assert person_from(IN_ORG, IN_ACME).organization == expected
    renamed = person_from(replace(IN_ORG, org="old-name"), IN_ACME).organization
    assert renamed is not None
    assert renamed.slug == "acme"


def test_a_token_without_organization_has_none_in_any_row() -> None:
    assert person_from(CLAIMS, IN_ACME).organization is None
    assert person_from(replace(CLAIMS, org="acme"), IN_ACME).organization is None


def test_a_former_member_is_refused() -> None:
    with pytest.raises(NotAMember) as refusal:
        person_from(IN_ORG, CONTEXT)
    assert isinstance(refusal.value, Forbidden)
    assert refusal.value.code == "FORBIDDEN"
    assert person_from(IN_ORG, CONTEXT, allow_former_users=True).organization is None


def test_platform_routes_keep_the_organization_of_a_member() -> None:
    assert person_from(IN_ORG, IN_ACME, allow_former_users=True).organization == person_from(IN_ORG, IN_ACME).organization


IN_SERVICE = replace(IN_ORG, service="shop", client_id=UUID(int=6), plan="Gold", features=("exports",))
SHOP = ServiceContext(
    id=UUID(int=5),
    slug="shop",
    client_id=UUID(int=6),
    is_public=False,
    org_id=ORG,
    org_slug="acme",
    status=OrganizationStatus.SUSPENDED,
)
END_USER = replace(CONTEXT, service=SHOP, uses_service=True)


def test_an_application_can_hold_the_token_of_an_end_user() -> None:
    view = person_from(IN_SERVICE, END_USER)
    assert (view.service, view.organization) == (SHOP, None), "the user of a service is not a member"
    assert (view.user_id, view.email, view.is_platform_owner) == (USER, "new@example.com", True)


def test_a_removed_end_user_is_refused_except_for_signing_out() -> None:
    removed_user = replace(END_USER, uses_service=False)
    with pytest.raises(NotAnEndUser) as refusal:
        person_from(IN_SERVICE, removed_user)
    assert (refusal.value.code, isinstance(refusal.value, Forbidden)) == ("FORBIDDEN", True)
    assert person_from(IN_SERVICE, removed_user, allow_former_users=True).service == SHOP, "which still says that an application holds it"


@table("allow_former_users", [False, True])
def test_a_deleted_service_has_no_caller(allow_former_users: bool) -> None:
    with pytest.raises(SessionEnded):
        person_from(IN_SERVICE, None, allow_former_users=allow_former_users)


def test_the_values_are_those_of_the_documentation() -> None:
    assert [*ROLES] == ["owner", "admin", "member"]
    assert [*OrganizationStatus] == ["pending", "active", "suspended", "rejected"]


def test_the_system_has_no_address() -> None:
    assert (SYSTEM.address, SYSTEM.agent) == (None, None)


# Role capabilities


# There are four views for members. The endpoints that any member can call belong to five
# areas.
VIEW_CAPABILITIES = ["members.view", "services.view", "api_keys.view", "end_users.view", "analytics.view"]
ADMIN_CAPABILITIES = [
    *["organization.manage", "members.manage", "billing.manage", "services.create", "services.manage", "api_keys.manage"],
    *["end_users.manage", "webhooks.manage", "integrations.manage", "audit.view"],
]
# Additions from later areas
VIEW_ADDITIONS, ADMIN_ADDITIONS = (
    ["resources.view"],
    ["resources.manage", "service_accounts.manage", "service_roles.assign", "groups.manage", "sign_ins.view", "sign_in_policy.manage"],
)
PLATFORM_CAPABILITIES = [
    *["platform_organizations.view", "platform_organizations.manage", "platform_users.view", "platform_users.manage"],
    *["platform_audit.view", "platform_installation.view", "platform.own"],
    "platform_sign_ins.view",
]
ALL_ROLES, OWNERS_ONLY = (
    "organization.view",
    "organization.own",
)  # additions: the capability for any membership, and a capability that only owners can ever have
TABLE = {
    MEMBER: {ALL_ROLES, *VIEW_CAPABILITIES, *VIEW_ADDITIONS},
    ADMIN: {ALL_ROLES, *VIEW_CAPABILITIES, *VIEW_ADDITIONS, *ADMIN_CAPABILITIES, *ADMIN_ADDITIONS},
    OWNER: {ALL_ROLES, *VIEW_CAPABILITIES, *VIEW_ADDITIONS, *ADMIN_CAPABILITIES, *ADMIN_ADDITIONS, "roles.manage", OWNERS_ONLY},
}
CASES = [(role, capability) for role in ROLES for capability in Capability]


def test_the_capabilities_are_the_documented_ones_and_the_additions() -> None:
    assert {*Capability} == {*TABLE[OWNER], *PLATFORM_CAPABILITIES}
    assert {capability for capability in Capability if capability.is_of_platform} == {*PLATFORM_CAPABILITIES}


@table(("role", "capability"), CASES)
def test_every_role_has_exactly_its_capabilities(role: RoleName, capability: Capability) -> None:
    expected = capability in TABLE[role]
    assert (capability in rights_of(role)) == expected
    membership_state = MembershipState(ORG, "acme", OrganizationStatus.ACTIVE, role, rights_of(role))
    if expected:
        assert require_capability(membership_state, capability) == OrganizationContext(
            ORG, "acme", OrganizationStatus.ACTIVE, role, rights_of(role)
        )
    else:
        with pytest.raises(RoleInsufficient):
            require_capability(membership_state, capability)


def test_a_higher_role_has_all_capabilities_of_a_lower_one() -> None:
    assert rights_of(MEMBER) < rights_of(ADMIN) < rights_of(OWNER)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ROLES[MEMBER] = ROLES[OWNER]  # type: ignore[index]


def membership_state(role: RoleName | None, status: OrganizationStatus) -> MembershipState:
    return MembershipState(ORG, "acme", status, role, rights_of(role))


@table("inactive", [False, True])
@table("capability", Capability)
@table("status", OrganizationStatus)
def test_a_stranger_is_refused_before_other_checks(status: OrganizationStatus, capability: Capability, inactive: bool) -> None:
    with pytest.raises(NotOfThisOrganization) as refusal:
        require_capability(membership_state(None, status), capability, inactive=inactive)
    assert (refusal.value.code, isinstance(refusal.value, Forbidden)) == ("FORBIDDEN", True)
    with pytest.raises(OrganizationNotFound) as missing:
        require_capability(None, capability, inactive=inactive)
    assert (missing.value.code, isinstance(missing.value, NotFound)) == ("NOT_FOUND", True)


@table("status", [OrganizationStatus.PENDING, OrganizationStatus.SUSPENDED, OrganizationStatus.REJECTED])
def test_the_role_is_checked_before_the_state_of_the_organization(status: OrganizationStatus) -> None:
    with pytest.raises(RoleInsufficient):
        require_capability(membership_state(MEMBER, status), Capability.MEMBERS_MANAGE)
    with pytest.raises(RoleInsufficient):
        require_capability(membership_state(MEMBER, status), Capability.MEMBERS_MANAGE, inactive=True)
    with pytest.raises(OrganizationNotActive) as refusal:
        require_capability(membership_state(OWNER, status), Capability.MEMBERS_MANAGE)
    assert refusal.value.code == "ORGANIZATION_NOT_ACTIVE"
    assert require_capability(membership_state(OWNER, status), Capability.MEMBERS_MANAGE, inactive=True).status is status


def test_acting_in_an_organization_changes_only_the_organization_of_a_caller() -> None:
    view = replace(person_from(IN_ORG, IN_ACME), impersonator_id=UUID(int=9))
    other_tenant = OrganizationContext(UUID(int=8), "twin", OrganizationStatus.ACTIVE, OWNER, rights_of(OWNER))
    acting = to_member(view, other_tenant)
    assert acting.acts_in == other_tenant
    assert acting.organization == view.organization, "the organization of the token stays context"
    assert {field.name: getattr(acting, field.name) for field in fields(Person)} == {
        field.name: getattr(view, field.name) for field in fields(Person)
    }


def test_a_session_names_its_impersonator() -> None:
    assert person_from(CLAIMS, replace(CONTEXT, impersonator_id=UUID(int=9))).impersonator_id == UUID(int=9)

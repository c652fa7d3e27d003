"""The caller that follows from a token and a database row, and the caller's capabilities (security
J-5, J-6, decision 189)."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from core.kernel.errors import Forbidden, NotFound, OrganizationNotActive, SessionEnded
from core.kernel.principals import (
    CAPABILITIES,
    SYSTEM,
    Capability,
    Claims,
    MembershipState,
    NotAMember,
    NotAnEndUser,
    NotOfThisOrganization,
    OrganizationContext,
    OrganizationNotFound,
    OrganizationStatus,
    Person,
    Role,
    RoleInsufficient,
    ServiceContext,
    SessionContext,
    may,
    member,
    person,
    require,
)
from core.kernel.values import Email

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
STANDING = SessionContext(user_id=USER, email=Email("new@example.com"), email_verified_at=NOW, is_platform_owner=True, organization=None)
MEMBER = replace(STANDING, organization=OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN))


def seen(claims: Claims, membership_state: SessionContext | None, *, anywhere: bool = False) -> Person:
    return person(claims, membership_state, address="203.0.113.9", agent="tests", anywhere=anywhere)


def test_the_database_overrides_the_token() -> None:
    assert seen(CLAIMS, STANDING) == Person(
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
    found = seen(replace(CLAIMS, email_verified=True), replace(STANDING, email_verified_at=None, is_platform_owner=False))
    assert (found.email_verified, found.is_platform_owner) == (False, False)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("claims", [CLAIMS, IN_ORG])
def test_an_ended_session_has_no_caller(claims: Claims, anywhere: bool) -> None:
    with pytest.raises(SessionEnded) as refusal:
        seen(claims, None, anywhere=anywhere)
    assert refusal.value.token_sent
    assert refusal.value.code == "UNAUTHORIZED"


def test_the_organization_has_its_current_state() -> None:
    assert seen(IN_ORG, MEMBER).organization == OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN)
    renamed = seen(replace(IN_ORG, org="old-name"), MEMBER).organization
    assert renamed is not None
    assert renamed.slug == "acme"


def test_a_token_without_organization_has_none_in_any_row() -> None:
    assert seen(CLAIMS, MEMBER).organization is None
    assert seen(replace(CLAIMS, org="acme"), MEMBER).organization is None


def test_a_former_member_is_refused() -> None:
    with pytest.raises(NotAMember) as refusal:
        seen(IN_ORG, STANDING)
    assert isinstance(refusal.value, Forbidden)
    assert refusal.value.code == "FORBIDDEN"
    assert seen(IN_ORG, STANDING, anywhere=True).organization is None


def test_platform_routes_keep_the_organization_of_a_member() -> None:
    assert seen(IN_ORG, MEMBER, anywhere=True).organization == seen(IN_ORG, MEMBER).organization


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
END_USER = replace(STANDING, service=SHOP, uses_service=True)


def test_an_application_can_hold_the_token_of_an_end_user() -> None:
    found = seen(IN_SERVICE, END_USER)
    assert (found.service, found.organization) == (SHOP, None), "using a service makes nobody a member"
    assert (found.user_id, found.email, found.is_platform_owner) == (USER, "new@example.com", True)


def test_a_removed_end_user_is_refused_except_for_signing_out() -> None:
    gone = replace(END_USER, uses_service=False)
    with pytest.raises(NotAnEndUser) as refusal:
        seen(IN_SERVICE, gone)
    assert (refusal.value.code, isinstance(refusal.value, Forbidden)) == ("FORBIDDEN", True)
    assert seen(IN_SERVICE, gone, anywhere=True).service == SHOP, "which still says that an application holds it"


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_deleted_service_has_no_caller(anywhere: bool) -> None:
    with pytest.raises(SessionEnded):
        seen(IN_SERVICE, None, anywhere=anywhere)


def test_the_values_are_those_of_the_documentation() -> None:
    assert [*Role] == ["owner", "admin", "member"]
    assert [*OrganizationStatus] == ["pending", "active", "suspended", "rejected"]


def test_the_system_has_no_address() -> None:
    assert (SYSTEM.address, SYSTEM.agent) == (None, None)


# Capabilities of roles


# Decision 189 has four views for members. The endpoints that any member can call belong to five
# areas.
VIEWS = ["members.view", "services.view", "api_keys.view", "end_users.view", "analytics.view"]
MANAGED = [
    *["organization.manage", "members.manage", "billing.manage", "services.create", "services.manage", "api_keys.manage"],
    *["end_users.manage", "webhooks.manage", "integrations.manage", "audit.view"],
]
EVERYBODYS, OWNERS = (
    "organization.view",
    "organization.own",
)  # additions: the capability of any membership, and one that only owners can ever have
TABLE = {
    Role.MEMBER: {EVERYBODYS, *VIEWS},
    Role.ADMIN: {EVERYBODYS, *VIEWS, *MANAGED},
    Role.OWNER: {EVERYBODYS, *VIEWS, *MANAGED, "roles.manage", OWNERS},
}
CASES = [(role, capability) for role in Role for capability in Capability]


def test_the_capabilities_are_the_documented_ones_and_two_additions() -> None:
    assert {*Capability} == {*VIEWS, *MANAGED, "roles.manage", EVERYBODYS, OWNERS}
    assert len(Capability) == 16 + 2


@pytest.mark.parametrize(("role", "capability"), CASES)
def test_every_role_has_exactly_its_capabilities(role: Role, capability: Capability) -> None:
    expected = capability in TABLE[role]
    assert may(role, capability) == expected
    membership_state = MembershipState(ORG, "acme", OrganizationStatus.ACTIVE, role)
    if expected:
        assert require(membership_state, capability) == OrganizationContext(ORG, "acme", OrganizationStatus.ACTIVE, role)
    else:
        with pytest.raises(RoleInsufficient):
            require(membership_state, capability)


def test_a_higher_role_has_all_capabilities_of_a_lower_one() -> None:
    assert CAPABILITIES[Role.MEMBER] < CAPABILITIES[Role.ADMIN] < CAPABILITIES[Role.OWNER]


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CAPABILITIES[Role.MEMBER] = frozenset(Capability)  # type: ignore[index]


def membership_state(role: Role | None, status: OrganizationStatus) -> MembershipState:
    return MembershipState(ORG, "acme", status, role)


@pytest.mark.parametrize("inactive", [False, True])
@pytest.mark.parametrize("capability", Capability)
@pytest.mark.parametrize("status", OrganizationStatus)
def test_a_stranger_is_refused_before_other_checks(status: OrganizationStatus, capability: Capability, inactive: bool) -> None:
    with pytest.raises(NotOfThisOrganization) as refusal:
        require(membership_state(None, status), capability, inactive=inactive)
    assert (refusal.value.code, isinstance(refusal.value, Forbidden)) == ("FORBIDDEN", True)
    with pytest.raises(OrganizationNotFound) as missing:
        require(None, capability, inactive=inactive)
    assert (missing.value.code, isinstance(missing.value, NotFound)) == ("NOT_FOUND", True)


@pytest.mark.parametrize("status", [OrganizationStatus.PENDING, OrganizationStatus.SUSPENDED, OrganizationStatus.REJECTED])
def test_the_role_is_checked_before_the_state_of_the_organization(status: OrganizationStatus) -> None:
    with pytest.raises(RoleInsufficient):
        require(membership_state(Role.MEMBER, status), Capability.MEMBERS_MANAGE)
    with pytest.raises(RoleInsufficient):
        require(membership_state(Role.MEMBER, status), Capability.MEMBERS_MANAGE, inactive=True)
    with pytest.raises(OrganizationNotActive) as refusal:
        require(membership_state(Role.OWNER, status), Capability.MEMBERS_MANAGE)
    assert refusal.value.code == "ORGANIZATION_NOT_ACTIVE"
    assert require(membership_state(Role.OWNER, status), Capability.MEMBERS_MANAGE, inactive=True).status is status


def test_acting_in_an_organization_changes_nothing_else_of_a_caller() -> None:
    found = replace(seen(IN_ORG, MEMBER), impersonator_id=UUID(int=9))
    other_tenant = OrganizationContext(UUID(int=8), "twin", OrganizationStatus.ACTIVE, Role.OWNER)
    acting = member(found, other_tenant)
    assert acting.acts_in == other_tenant
    assert acting.organization == found.organization, "the organization of the token stays context"
    assert {field.name: getattr(acting, field.name) for field in fields(Person)} == {
        field.name: getattr(found, field.name) for field in fields(Person)
    }


def test_a_session_names_its_impersonator() -> None:
    assert seen(CLAIMS, replace(STANDING, impersonator_id=UUID(int=9))).impersonator_id == UUID(int=9)

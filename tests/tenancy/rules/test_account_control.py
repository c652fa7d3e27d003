"""Where an account was born and who else uses it: what follows for the organization (the terms of security.md; K-4)."""

from dataclasses import replace
from uuid import UUID

import pytest

from core.accounts.accounts_rules import Origin
from core.kernel.principals import Role
from core.tenancy.account_control import Ties

HERE, ELSEWHERE = UUID(int=1), UUID(int=2)

# Made by an API key of the organization, and nobody has done anything with it yet.
FRESH = Ties(
    org_id=HERE,
    origin=Origin.API_KEY,
    origin_org_id=HERE,
    is_platform_owner=False,
    has_password=False,
    has_identity=False,
    at_verified_domain=False,
    role=None,
    confirmed=False,
    member_elsewhere=False,
    end_user_elsewhere=False,
)
BORN = [
    (Origin.API_KEY, HERE, True),
    (Origin.SCIM, HERE, True),
    (Origin.SIGN_UP, HERE, True),
    (Origin.API_KEY, ELSEWHERE, False),
    (Origin.SCIM, ELSEWHERE, False),
    (Origin.SIGN_UP, ELSEWHERE, False),
    (Origin.PLATFORM, None, False),
    (Origin.PLATFORM, HERE, False),
]
USED_ELSEWHERE = [replace(FRESH, member_elsewhere=True), replace(FRESH, end_user_elsewhere=True), replace(FRESH, is_platform_owner=True)]


@pytest.mark.parametrize(("origin", "org", "here"), BORN)
def test_an_account_is_born_at_one_place(origin: Origin, org: UUID | None, here: bool) -> None:
    ties = replace(FRESH, origin=origin, origin_org_id=org)
    assert ties.born_here == here
    assert ties.ends_with_its_use_here == here


@pytest.mark.parametrize("ties", USED_ELSEWHERE)
def test_who_else_knows_the_account_keeps_it_from_the_organization(ties: Ties) -> None:
    assert not FRESH.used_elsewhere
    assert (ties.used_elsewhere, ties.is_managed, ties.ends_with_its_use_here) == (True, False, False)
    # Not even an address of the organization helps.
    assert not replace(ties, at_verified_domain=True).is_managed


@pytest.mark.parametrize(("origin", "org", "here"), BORN)
def test_an_organization_manages_what_it_made_itself(origin: Origin, org: UUID | None, here: bool) -> None:
    ties = replace(FRESH, origin=origin, origin_org_id=org, at_verified_domain=True)
    assert ties.is_managed == (here and origin is not Origin.SIGN_UP)


@pytest.mark.parametrize("password", [False, True])
@pytest.mark.parametrize("identity", [False, True])
def test_whoever_has_a_way_to_sign_in_owns_the_account_unless_the_address_is_the_organizations(password: bool, identity: bool) -> None:
    ties = replace(FRESH, has_password=password, has_identity=identity)
    assert ties.is_managed == (not password and not identity)
    assert replace(ties, at_verified_domain=True).is_managed
    assert ties.ends_with_its_use_here


@pytest.mark.parametrize("role", [None, *Role])
def test_the_owner_of_the_organization_is_not_deleted_through_a_key_of_it(role: Role | None) -> None:
    ties = replace(FRESH, role=role)
    assert ties.ends_with_its_use_here == (role is not Role.OWNER)
    assert (ties.used_elsewhere, ties.is_managed) == (False, True)
    assert ties.manages_here == (role in (Role.OWNER, Role.ADMIN))

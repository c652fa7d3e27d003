"""Where an account was born and who else uses it: what follows for the organization (the terms of security.md; K-4)."""

from dataclasses import replace
from uuid import UUID

import pytest

from core.accounts.accounts_rules import AccountOrigin
from core.kernel.principals import Role
from core.tenancy.account_control import AccountControl

HERE, ELSEWHERE = UUID(int=1), UUID(int=2)

# Made by an API key of the organization, and nobody has done anything with it yet.
FRESH = AccountControl(
    org_id=HERE,
    origin=AccountOrigin.API_KEY,
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
    (AccountOrigin.API_KEY, HERE, True),
    (AccountOrigin.SCIM, HERE, True),
    (AccountOrigin.SIGN_UP, HERE, True),
    (AccountOrigin.API_KEY, ELSEWHERE, False),
    (AccountOrigin.SCIM, ELSEWHERE, False),
    (AccountOrigin.SIGN_UP, ELSEWHERE, False),
    (AccountOrigin.PLATFORM, None, False),
    (AccountOrigin.PLATFORM, HERE, False),
]
USED_ELSEWHERE = [replace(FRESH, member_elsewhere=True), replace(FRESH, end_user_elsewhere=True), replace(FRESH, is_platform_owner=True)]


@pytest.mark.parametrize(("origin", "org", "here"), BORN)
def test_an_account_is_born_at_one_place(origin: AccountOrigin, org: UUID | None, here: bool) -> None:
    ties = replace(FRESH, origin=origin, origin_org_id=org)
    assert ties.created_by_org == here
    assert ties.api_key_deletes_account == here


@pytest.mark.parametrize("ties", USED_ELSEWHERE)
def test_who_else_knows_the_account_keeps_it_from_the_organization(ties: AccountControl) -> None:
    assert not FRESH.used_elsewhere
    assert (ties.used_elsewhere, ties.may_change_email, ties.api_key_deletes_account) == (True, False, False)
    # Not even an address of the organization helps.
    assert not replace(ties, at_verified_domain=True).may_change_email


@pytest.mark.parametrize(("origin", "org", "here"), BORN)
def test_an_organization_manages_what_it_made_itself(origin: AccountOrigin, org: UUID | None, here: bool) -> None:
    ties = replace(FRESH, origin=origin, origin_org_id=org, at_verified_domain=True)
    assert ties.may_change_email == (here and origin is not AccountOrigin.SIGN_UP)


@pytest.mark.parametrize("password", [False, True])
@pytest.mark.parametrize("identity", [False, True])
def test_whoever_has_a_way_to_sign_in_owns_the_account_unless_the_address_is_the_organizations(password: bool, identity: bool) -> None:
    ties = replace(FRESH, has_password=password, has_identity=identity)
    assert ties.may_change_email == (not password and not identity)
    assert replace(ties, at_verified_domain=True).may_change_email
    assert ties.api_key_deletes_account


@pytest.mark.parametrize("role", [None, *Role])
def test_the_owner_of_the_organization_is_not_deleted_through_a_key_of_it(role: Role | None) -> None:
    ties = replace(FRESH, role=role)
    assert ties.api_key_deletes_account == (role is not Role.OWNER)
    assert (ties.used_elsewhere, ties.may_change_email) == (False, True)
    assert ties.is_manager == (role in (Role.OWNER, Role.ADMIN))

"""An organization's control over accounts that it created (security K-4)."""

from dataclasses import replace
from itertools import product
from uuid import UUID

from core.accounts.model.accounts import AccountOrigin
from core.kernel.roles import ADMIN, OWNER, ROLES, rights_of
from core.tenancy.model.members import AccountControl

HERE, ELSEWHERE = UUID(int=1), UUID(int=2)

# An account that the organization's API key created and that was never used.
UNUSED = AccountControl(
    org_id=HERE,
    origin=AccountOrigin.API_KEY,
    origin_org_id=HERE,
    is_platform_owner=False,
    has_password=False,
    has_identity=False,
    at_verified_domain=False,
    role=None,
    member_elsewhere=False,
    end_user_elsewhere=False,
)
# AccountOrigin, the organization that created the account, and whether that is HERE.
ORIGINS = [
    (AccountOrigin.API_KEY, HERE, True),
    (AccountOrigin.SCIM, HERE, True),
    (AccountOrigin.SIGN_UP, HERE, True),
    (AccountOrigin.API_KEY, ELSEWHERE, False),
    (AccountOrigin.SCIM, ELSEWHERE, False),
    (AccountOrigin.SIGN_UP, ELSEWHERE, False),
    (AccountOrigin.PLATFORM, None, False),
    (AccountOrigin.PLATFORM, HERE, False),
]


def test_only_the_organization_of_origin_created_the_account() -> None:
    for origin, org_id, created in ORIGINS:
        control = replace(UNUSED, origin=origin, origin_org_id=org_id)
        assert (control.created_by_org, control.controls_account) == (created, created), (origin, org_id)


def test_an_account_that_the_platform_deactivated_is_neither_deleted_nor_renamed() -> None:
    assert (UNUSED.may_delete_account, UNUSED.may_change_email) == (True, True)
    control = replace(UNUSED, closed_by_others=True)
    assert (control.may_delete_account, control.may_change_email, control.controls_account) == (False, False, True)


def test_an_account_that_is_used_in_other_organizations_is_not_controlled() -> None:
    assert not UNUSED.used_elsewhere
    for control in (
        replace(UNUSED, member_elsewhere=True),
        replace(UNUSED, end_user_elsewhere=True),
        replace(UNUSED, is_platform_owner=True),
    ):
        assert (control.used_elsewhere, control.may_change_email, control.controls_account) == (True, False, False)
        # An address at a verified domain does not change this.
        assert not replace(control, at_verified_domain=True).may_change_email


def test_an_organization_may_change_the_email_of_accounts_that_it_provisioned() -> None:
    for origin, org_id, created in ORIGINS:
        control = replace(UNUSED, origin=origin, origin_org_id=org_id, at_verified_domain=True)
        assert control.may_change_email == (created and origin is not AccountOrigin.SIGN_UP), (origin, org_id)


def test_a_user_who_can_sign_in_controls_the_email_unless_it_is_at_a_verified_domain() -> None:
    for password, identity in product((False, True), repeat=2):
        control = replace(UNUSED, has_password=password, has_identity=identity)
        assert control.may_change_email == (not password and not identity), (password, identity)
        assert replace(control, at_verified_domain=True).may_change_email, (password, identity)
        assert control.controls_account, (password, identity)


def test_an_owner_is_not_controlled_and_a_manager_keeps_the_email() -> None:
    for role in (None, *ROLES):
        control = replace(UNUSED, role=role, rights=rights_of(role))
        assert control.controls_account == (role != OWNER), role
        assert not control.used_elsewhere, role
        for at_verified_domain in (False, True):
            changeable = replace(control, at_verified_domain=at_verified_domain).may_change_email
            assert changeable == (role not in (OWNER, ADMIN)), role

"""Who a token and a row of the database together make (security.md J-5, J-6)."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from core.access import (
    SYSTEM,
    Claims,
    NotAMember,
    OrganizationContext,
    OrganizationStatus,
    Person,
    Role,
    Standing,
    person,
)
from core.errors import Forbidden, SessionEnded
from core.values import Email

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
STANDING = Standing(user_id=USER, email=Email("new@example.com"), email_verified_at=NOW, is_platform_owner=True, organization=None)
MEMBER = replace(STANDING, organization=OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN))


def seen(claims: Claims, standing: Standing | None, *, anywhere: bool = False) -> Person:
    return person(claims, standing, address="203.0.113.9", agent="tests", anywhere=anywhere)


def test_the_database_wins_over_the_token() -> None:
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


def test_a_token_that_says_more_than_the_database_gains_nothing() -> None:
    found = seen(replace(CLAIMS, email_verified=True), replace(STANDING, email_verified_at=None, is_platform_owner=False))
    assert (found.email_verified, found.is_platform_owner) == (False, False)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("claims", [CLAIMS, IN_ORG])
def test_without_a_live_session_there_is_nobody(claims: Claims, anywhere: bool) -> None:
    with pytest.raises(SessionEnded) as refusal:
        seen(claims, None, anywhere=anywhere)
    assert refusal.value.token_sent
    assert refusal.value.code == "UNAUTHORIZED"


def test_the_organization_is_as_it_stands_now() -> None:
    assert seen(IN_ORG, MEMBER).organization == OrganizationContext(ORG, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN)
    renamed = seen(replace(IN_ORG, org="old-name"), MEMBER).organization
    assert renamed is not None
    assert renamed.slug == "acme"


def test_a_token_without_organization_has_none_whatever_the_row_says() -> None:
    assert seen(CLAIMS, MEMBER).organization is None
    assert seen(replace(CLAIMS, org="acme"), MEMBER).organization is None


def test_whoever_is_no_member_any_more_is_refused() -> None:
    with pytest.raises(NotAMember) as refusal:
        seen(IN_ORG, STANDING)
    assert isinstance(refusal.value, Forbidden)
    assert refusal.value.code == "FORBIDDEN"
    assert seen(IN_ORG, STANDING, anywhere=True).organization is None


def test_anywhere_keeps_the_organization_of_a_member() -> None:
    assert seen(IN_ORG, MEMBER, anywhere=True).organization == seen(IN_ORG, MEMBER).organization


def test_the_words_are_those_of_the_contract() -> None:
    assert [*Role] == ["owner", "admin", "member"]
    assert [*OrganizationStatus] == ["pending", "active", "suspended", "rejected"]


def test_the_service_itself_has_no_address() -> None:
    assert (SYSTEM.address, SYSTEM.agent) == (None, None)

"""Service accounts and trusts in pipelines: the pure rules."""

import pytest

from core.kernel.roles import ADMIN, GRANTABLE, MEMBER, OWNER, PLATFORM_RIGHTS, ROLES, Capability, RoleName, rights_of
from core.programs.model.credentials import PipelineTrust, SubjectPatternInvalid, parse_trust
from core.programs.model.service_accounts import grantable_capabilities, may_manage
from tests.tables import table

ISSUER = "https://token.actions.githubusercontent.com"


def trust(subject: str) -> PipelineTrust:
    return parse_trust(ISSUER, "https://sso.example.com", subject, "https://sso.example.com")


@table(
    ("manager", "allowed"),
    [(OWNER, {OWNER, ADMIN, MEMBER}), (ADMIN, {ADMIN, MEMBER}), (MEMBER, set())],
)
def test_a_member_cannot_manage_an_account_above_their_role(manager: RoleName, allowed: set[RoleName]) -> None:
    assert {role for role in ROLES if may_manage(rights_of(manager), ROLES[role])} == allowed


def test_a_capability_is_granted_only_within_the_role_or_the_platform() -> None:
    for role in ROLES:
        assert set(grantable_capabilities(rights_of(role))) == rights_of(role) & GRANTABLE.keys()
    assert grantable_capabilities(rights_of(MEMBER)) == []
    assert grantable_capabilities(PLATFORM_RIGHTS) == [Capability.PLATFORM_ORGANIZATIONS_MANAGE, Capability.PLATFORM_USERS_MANAGE]


@table(
    ("pattern", "subject", "matches"),
    [
        ("repo:acme/shop:ref:refs/heads/main", "repo:acme/shop:ref:refs/heads/main", True),
        ("repo:acme/shop:ref:refs/heads/main", "repo:acme/shop:ref:refs/heads/Main", False),
        ("repo:acme/shop:ref:refs/heads/main", "repo:acme/shop:ref:refs/heads/main2", False),
        ("repo:acme/shop:ref:refs/heads/*", "repo:acme/shop:ref:refs/heads/main", True),
        ("repo:acme/shop:ref:refs/heads/*", "repo:acme/shop:ref:refs/heads/", False),
        ("repo:acme/shop:ref:refs/heads/*", "repo:acme/shop:ref:refs/heads/a/b", False),
        ("repo:acme/shop:ref:refs/heads/*", "repo:acme/shop:ref:refs/heads/a:b", False),
        ("repo:acme/*:environment:prod", "repo:acme/shop:environment:prod", True),
        ("repo:acme/*:environment:prod", "repo:acme/shop:evil:environment:prod", False),
        ("repo:acme/*:environment:prod", "repo:acme/shop/x:environment:prod", False),
        ("repo:acme/*:environment:prod", "repo:acme/:environment:prod", False),
        ("repo:acme/*:environment:*", "repo:acme:shop:environment:prod", False),  # another separator
        ("repo:acme/shop:ref:refs/heads/*", "repo:acme/shop:ref:refs/heads/main\n", False),
        ("build-42", "build-42", True),
        ("build-42", "build-43", False),
        ("a:b.c", "a:bxc", False),  # no character has a meaning but *
    ],
)
def test_a_subject_matches_part_by_part(pattern: str, subject: str, matches: bool) -> None:
    assert trust(pattern).accepts_subject(subject) is matches


@table(
    "pattern",
    [
        "*",
        "**",
        "*:*",
        "repo:*",
        "repo:*/shop",
        "*:acme/shop",
        "repo:acme/shop:ref:*main",
        "repo:acme/shop:**",
        "repo:ac*me/shop",
        "a\nb",
        "",
    ],
)
def test_patterns_that_would_accept_strangers_are_refused(pattern: str) -> None:
    with pytest.raises(SubjectPatternInvalid):
        trust(pattern)

"""Filters and actors in the audit log (decisions 227, 232)."""

from uuid import UUID

import pytest

from core.accounts.model.accounts import SERVICE_ACCOUNT_EMAIL
from core.eventing.model.audit import (
    ANONYMOUS,
    DELETED_ACCOUNT,
    SYSTEM,
    AuditActor,
    AuditFilter,
    TargetTypeRequired,
    build_filter,
    resolve_actor,
)
from core.kernel.errors import Invalid
from core.kernel.event_catalog import AUDIT_ACTIONS, Target
from tests.tables import table

USER = UUID("6f1d0c52-5c1e-4b4f-9a57-0a3d8ad1b0c1")
ALL = AuditFilter()
DOMAINS = frozenset({"domain.set", "domain.verified", "domain.deleted"})


def filter_for(
    action: str | None = None, target_type: Target | None = None, target_id: str | None = None, actor_id: str | None = None
) -> AuditFilter | None:
    return build_filter(action=action, target_type=target_type, target_id=target_id, actor_id=actor_id)


def test_a_filter_without_parameters_matches_all_entries() -> None:
    assert filter_for() == ALL


def test_an_action_selects_its_entries() -> None:
    for action, kind in AUDIT_ACTIONS.items():
        expected = AuditFilter(actions=frozenset({action}))
        assert filter_for(action) == filter_for(action, kind.target) == expected, action


# Actions that only the platform's log and webhooks have, and texts that are not actions.
@table("action", ["organization.deleted", "user.signup.success", "x", "", "User.Invited", "user.invited ", "user.%", "user"])
def test_an_unknown_action_matches_no_entry(action: str) -> None:
    assert filter_for(action) is None
    assert filter_for(action, Target.USER, "x", str(USER)) is None


def test_an_invitation_is_found_by_both_target_types() -> None:
    """The interface documents `user` for `user.invited`."""
    for target_type in (Target.INVITATION, Target.USER):
        assert filter_for("user.invited", target_type) == AuditFilter(actions=frozenset({"user.invited"}))
        expected = AuditFilter(actions=frozenset({"user.invited"}), target_type=Target.INVITATION, target_id="x")
        assert filter_for("user.invited", target_type, "x") == expected


def test_an_action_with_another_target_type_matches_no_entry() -> None:
    assert filter_for("user.invited", Target.PLAN) is None
    assert filter_for("user.invited", Target.DOMAIN) is None
    assert filter_for("domain.set", Target.BRANDING) is None


@table("target_type", sorted({*Target} - {Target.DOMAIN, Target.BRANDING}))
def test_a_target_type_selects_its_entries(target_type: Target) -> None:
    assert filter_for(None, target_type) == AuditFilter(target_type=target_type)
    assert filter_for(None, target_type, "x") == AuditFilter(target_type=target_type, target_id="x")


def test_the_target_types_domain_and_branding_select_actions() -> None:
    assert filter_for(None, Target.DOMAIN) == AuditFilter(actions=DOMAINS)
    assert filter_for(None, Target.BRANDING) == AuditFilter(actions=frozenset({"branding.updated"}))
    assert (
        filter_for("domain.set", Target.DOMAIN)
        == filter_for("domain.set", Target.ORGANIZATION)
        == AuditFilter(actions=frozenset({"domain.set"}))
    )
    # These entries have the organization as their target, so the id is compared with its id.
    assert filter_for(None, Target.DOMAIN, "x") == AuditFilter(actions=DOMAINS, target_type="organization", target_id="x")


def test_a_target_id_requires_a_target_type() -> None:
    for action in (None, "user.invited", "x"):
        with pytest.raises(TargetTypeRequired) as refusal:
            filter_for(action, None, "x", "not an id")
    assert isinstance(refusal.value, Invalid)
    assert "target_type" in refusal.value.message


@table("malformed", ["", "x", "System", "system ", "unknown", str(USER).upper(), f"{{{USER}}}", USER.hex, f" {USER}"])
def test_a_malformed_actor_id_matches_no_entry(malformed: str) -> None:
    assert filter_for(actor_id=malformed) is None
    assert filter_for(actor_id=str(USER)) == AuditFilter(actor_id=USER)


@table("actor", [SYSTEM, ANONYMOUS])
def test_an_actor_without_account_is_selected_by_its_id_in_the_log(actor: AuditActor) -> None:
    assert filter_for(actor_id=actor.id) == AuditFilter(actor_without_account=actor)
    assert filter_for("user.invited", actor_id=actor.id) == AuditFilter(actions=frozenset({"user.invited"}), actor_without_account=actor)
    assert filter_for("x", actor_id=actor.id) is None


def test_an_actor_is_shown_with_the_present_data_of_the_account() -> None:
    user = AuditActor(str(USER), "ada@example.com", is_platform_owner=True)
    for address in (None, "203.0.113.9"):
        assert resolve_actor(USER, None, user, address) == user
        assert resolve_actor(USER, None, None, address) == DELETED_ACCOUNT


@table(
    ("kind", "address"),
    [
        ("api_key", "api-key@internal"),
        ("scim_token", "scim-token@internal"),
        ("service_account", SERVICE_ACCOUNT_EMAIL),
        ("carrier_pigeon", "carrier-pigeon@internal"),  # from a newer release
    ],
)
def test_a_credential_is_shown_with_its_id(kind: str, address: str) -> None:
    assert resolve_actor(USER, kind, None, "203.0.113.9") == AuditActor(str(USER), address, kind=kind)


def test_an_entry_without_actor_is_from_the_system_or_an_anonymous_caller() -> None:
    assert resolve_actor(None, None, None, None) == SYSTEM
    assert resolve_actor(None, None, None, "203.0.113.9") == ANONYMOUS


def test_actors_without_account_have_documented_names() -> None:
    assert (SYSTEM.id, SYSTEM.email, SYSTEM.is_platform_owner) == ("system", "system@internal", False)
    assert (DELETED_ACCOUNT.id, DELETED_ACCOUNT.email, DELETED_ACCOUNT.is_platform_owner) == ("unknown", "deleted-user@unknown", False)
    assert (ANONYMOUS.id, ANONYMOUS.email, ANONYMOUS.is_platform_owner) == ("anonymous", "anonymous@internal", False)

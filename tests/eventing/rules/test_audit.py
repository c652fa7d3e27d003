"""What the parameters of the audit log ask for, and who is shown as the actor (decisions, points 13, 227 and 230 to 232)."""

from uuid import UUID

import pytest

from core.eventing.audit_rules import (
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

USER = UUID("6f1d0c52-5c1e-4b4f-9a57-0a3d8ad1b0c1")
ALL = AuditFilter()
DOMAINS = frozenset({"domain.set", "domain.verified", "domain.deleted"})


def asked(
    action: str | None = None, target_type: Target | None = None, target_id: str | None = None, actor_id: str | None = None
) -> AuditFilter | None:
    return build_filter(action=action, target_type=target_type, target_id=target_id, actor_id=actor_id)


def test_without_parameters_all_entries_are_wanted() -> None:
    assert asked() == ALL


@pytest.mark.parametrize("action", AUDIT_ACTIONS)
def test_an_action_asks_for_its_entries(action: str) -> None:
    assert asked(action) == AuditFilter(actions=frozenset({action}))
    assert asked(action, AUDIT_ACTIONS[action].target) == AuditFilter(actions=frozenset({action}))


# Of the platform's own log, of webhooks only, of nothing, in another spelling.
@pytest.mark.parametrize(
    "action", ["organization.deleted", "user.login.success", "x", "", "User.Invited", "user.invited ", "user.%", "user"]
)
def test_no_entry_has_an_action_that_the_log_does_not_know(action: str) -> None:
    assert asked(action) is None
    assert asked(action, Target.USER, "x", str(USER)) is None


def test_an_action_of_another_type_of_target_finds_nothing() -> None:
    assert asked("user.invited", Target.PLAN) is None
    assert asked("user.invited", Target.DOMAIN) is None
    assert asked("domain.set", Target.BRANDING) is None


@pytest.mark.parametrize("target_type", sorted({*Target} - {Target.DOMAIN, Target.BRANDING}))
def test_a_type_asks_for_what_is_written_under_it(target_type: Target) -> None:
    assert asked(None, target_type) == AuditFilter(target_type=target_type)
    assert asked(None, target_type, "x") == AuditFilter(target_type=target_type, target_id="x")


def test_domain_and_branding_ask_for_their_actions() -> None:
    assert asked(None, Target.DOMAIN) == AuditFilter(actions=DOMAINS)
    assert asked(None, Target.BRANDING) == AuditFilter(actions=frozenset({"branding.updated"}))
    assert asked("domain.set", Target.DOMAIN) == asked("domain.set", Target.ORGANIZATION) == AuditFilter(actions=frozenset({"domain.set"}))
    # Such an entry is written under the organization, where its id is looked for.
    assert asked(None, Target.DOMAIN, "x") == AuditFilter(actions=DOMAINS, target_type="organization", target_id="x")


def test_a_target_needs_its_type() -> None:
    for action in (None, "user.invited", "x"):
        with pytest.raises(TargetTypeRequired) as refusal:
            asked(action, None, "x", "not an id")
    assert isinstance(refusal.value, Invalid)
    assert "target_type" in refusal.value.message


@pytest.mark.parametrize("malformed", ["", "x", "System", "system ", "unknown", str(USER).upper(), f"{{{USER}}}", USER.hex, f" {USER}"])
def test_a_malformed_actor_is_nobody(malformed: str) -> None:
    assert asked(actor_id=malformed) is None
    assert asked(actor_id=str(USER)) == AuditFilter(actor_id=USER)


@pytest.mark.parametrize("nobody", [SYSTEM, ANONYMOUS])
def test_whoever_has_no_account_is_asked_for_by_the_id_that_the_log_shows(nobody: AuditActor) -> None:
    assert asked(actor_id=nobody.id) == AuditFilter(actor_without_account=nobody)
    assert asked("user.invited", actor_id=nobody.id) == AuditFilter(actions=frozenset({"user.invited"}), actor_without_account=nobody)
    assert asked("x", actor_id=nobody.id) is None


def test_an_actor_is_the_account_as_it_is_today() -> None:
    ada = AuditActor(str(USER), "ada@example.com", is_platform_owner=True)
    for address in (None, "203.0.113.9"):
        assert resolve_actor(USER, None, ada, address) == ada
        assert resolve_actor(USER, None, None, address) == DELETED_ACCOUNT


def test_a_credential_that_acts_by_itself_is_shown_by_its_id() -> None:
    assert resolve_actor(USER, "api_key", None, "203.0.113.9") == AuditActor(str(USER), "api-key@internal")


def test_without_account_it_was_the_service_or_somebody_not_signed_in() -> None:
    assert resolve_actor(None, None, None, None) == SYSTEM
    assert resolve_actor(None, None, None, "203.0.113.9") == ANONYMOUS


def test_the_names_are_those_of_the_contract() -> None:
    assert (SYSTEM.id, SYSTEM.email, SYSTEM.is_platform_owner) == ("system", "system@internal", False)
    assert (DELETED_ACCOUNT.id, DELETED_ACCOUNT.email, DELETED_ACCOUNT.is_platform_owner) == ("unknown", "deleted-user@unknown", False)
    assert (ANONYMOUS.id, ANONYMOUS.email, ANONYMOUS.is_platform_owner) == ("anonymous", "anonymous@internal", False)

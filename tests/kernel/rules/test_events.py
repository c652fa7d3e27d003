"""The event catalogue (docs/reference/events.md)."""

from uuid import UUID

import pytest

from core.accounts.events import password_changed, signed_up
from core.authentication.events import signed_in
from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.event_catalog import AUDIT_ACTIONS, EVENT_KINDS, EventKind, Target
from tests.tables import table

WEBHOOKS = [
    "user.login.success",
    "user.signup.success",
    "user.mfa.enabled",
    "user.mfa.disabled",
    "user.invited",
    "invitation.accepted",
    "invitation.declined",
    "invitation.revoked",
    "organization.owner.changed",
]

AUDITED: dict[str, str] = {
    "user.invited": "invitation",  # docs/specification/deviations.md
    **dict.fromkeys(["user.joined", "user.removed", "user.role_updated", "user.anonymized"], "user"),
    **dict.fromkeys(["service.created", "service.updated", "service.deleted", "service.oauth_credentials.updated"], "service"),
    **dict.fromkeys(["organization.updated", "organization.smtp.configured", "organization.smtp.removed"], "organization"),
    **dict.fromkeys(["plan.created", "plan.updated", "plan.deleted"], "plan"),
    **dict.fromkeys(["subscription.created", "subscription.updated", "subscription.canceled"], "subscription"),
    **dict.fromkeys(["invitation.accepted", "invitation.declined", "invitation.expired", "invitation.revoked"], "invitation"),
    **dict.fromkeys(["security.mfa.enabled", "security.mfa.disabled", "security.password.changed"], "user"),
    **dict.fromkeys(["api_key.created", "api_key.deleted"], "api_key"),
    **dict.fromkeys(["domain.set", "domain.verified", "domain.deleted", "branding.updated"], "organization"),
}


def test_the_documentation_has_36_events() -> None:
    assert len(AUDITED) == 31
    assert len({*AUDITED, *WEBHOOKS}) == 36


def test_the_catalogue_has_these_events() -> None:
    """docs/reference/events.md has all events."""
    assert EVENT_KINDS.keys() >= {*AUDITED, *WEBHOOKS}
    assert AUDIT_ACTIONS.keys() >= {*AUDITED, "user.login.success"}


CATEGORIES = {
    "User management": ["user.invited", "user.joined", "user.removed", "user.role_updated", "user.anonymized"],
    "Service management": ["service.created", "service.updated", "service.deleted", "service.oauth_credentials.updated"],
    "Organization management": ["organization.updated", "organization.smtp.configured", "organization.smtp.removed"],
    "Plans": ["plan.created", "plan.updated", "plan.deleted"],
    "Subscriptions": ["subscription.created", "subscription.updated", "subscription.canceled"],
    "Invitations": ["invitation.accepted", "invitation.declined", "invitation.expired", "invitation.revoked"],
    "Security": ["security.mfa.enabled", "security.mfa.disabled", "security.password.changed"],
    "API keys": ["api_key.created", "api_key.deleted"],
    "Domains and branding": ["domain.set", "domain.verified", "domain.deleted", "branding.updated"],
}


def test_a_documented_action_is_in_its_category() -> None:
    assert {name for names in CATEGORIES.values() for name in names} == AUDITED.keys()
    for category, names in CATEGORIES.items():
        assert {EVENT_KINDS[name].category for name in names} == {category}


def test_names_are_well_formed_keys() -> None:
    for name, kind in EVENT_KINDS.items():
        assert kind.name == name
        assert name == name.lower()
        assert "." in name
        assert kind.category
        assert kind.label[0].isupper()


def test_labels_are_unique() -> None:
    labels = [kind.label for kind in EVENT_KINDS.values()]
    assert len(labels) == len(set(labels))


@table("name", AUDITED)
def test_an_audit_action_has_a_target_and_is_audited(name: str) -> None:
    kind = EVENT_KINDS[name]
    assert (kind.target, kind.audited) == (AUDITED[name], True)


@table("name", sorted({*WEBHOOKS} - AUDITED.keys() - {"user.login.success", "organization.owner.changed"}))
def test_an_event_for_webhooks_only_is_not_an_audit_action(name: str) -> None:
    assert not EVENT_KINDS[name].audited


def test_the_targets_are_the_documented_ones() -> None:
    documented = {"user", "service", "organization", "plan", "subscription", "invitation", "api_key", "domain", "branding"}
    others = {"api_resource", "service_account", "personal_token", "signing_key", "connection", "group", "role", "platform"}
    assert {*Target} == documented | others
    # The last two are filters only. Their events have the target type organization (decision 227).
    assert not {Target.DOMAIN, Target.BRANDING} & {kind.target for kind in EVENT_KINDS.values()}


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        EVENT_KINDS["x"] = EventKind("x", "X", "x", Target.USER)  # type: ignore[index]


def test_events_of_accounts_have_their_data() -> None:
    user = UUID(int=1)
    up, into, password = signed_up(user), signed_in(user, ("websuite",)), password_changed(user, "reset")
    assert {event.target_id for event in (up, into, password)} == {str(user)}
    assert (up.kind.name, up.org_id, up.of_person) == ("user.signup.success", None, None)
    assert (into.kind.name, into.kind.audited, into.of_person) == ("user.login.success", True, user)
    assert into.details == into.payload == {"provider": "websuite", "service_id": None}
    assert (password.kind.name, password.details, password.of_person) == ("security.password.changed", {"method": "reset"}, user)


def test_a_login_to_a_service_belongs_to_its_organization() -> None:
    shop = ServiceContext(
        id=UUID(int=2),
        slug="shop",
        client_id=UUID(int=3),
        is_public=False,
        org_id=UUID(int=4),
        org_slug="acme",
        status=OrganizationStatus.ACTIVE,
    )
    event = signed_in(UUID(int=1), ("password",), shop)
    assert (event.target_id, event.org_id, event.of_person) == (str(UUID(int=1)), UUID(int=4), None)
    assert event.details == event.payload == {"provider": "password", "service_id": str(UUID(int=2))}
    assert not event.kind.audited
    assert signed_in(UUID(int=1), ("password",)).org_id is None, "a sign-in without a service belongs to no organization"

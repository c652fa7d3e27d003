"""Audit entries' sentences, details and groups."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from core.accounts.model.devices import Location
from core.eventing.model.audit import ANONYMOUS, DELETED_ACCOUNT, SYSTEM, AuditActor, AuditEntry
from core.eventing.model.sentences import (
    DescribedEntry,
    DetailRow,
    Names,
    ObjectName,
    PartKind,
    collect_objects,
    describe,
    detail_rows,
    group_entries,
)
from core.kernel.event_catalog import PLATFORM_ACTIONS
from tests.tables import table

ORG = UUID("6f1d0c52-5c1e-4b4f-9a57-0a3d8ad1b0c1")
OWNER, KAI, KEY = (str(UUID(int=number)) for number in (1, 2, 3))
NOW = datetime(2026, 3, 5, 14, 5, tzinfo=UTC)
ADA = AuditActor(OWNER, "owner@acme.example")
ABOUT_ORG = {"target_type": "organization", "target_id": str(ORG)}
BY_KEY = AuditActor(KEY, "api-key@internal", kind="api_key")
DIRECTORY = AuditActor("x", "scim-token@internal", kind="scim_token")
NAMES: Names = {
    ("user", OWNER): ObjectName("owner@acme.example", "Ada Owner"),
    ("user", KAI): ObjectName("kai@acme.example"),
    ("api_key", KEY): ObjectName("Nightly"),
}
ENTRY = AuditEntry(
    id=UUID(int=9),
    org_id=ORG,
    actor=ADA,
    impersonator=None,
    action="user.role_updated",
    target_type="user",
    target_id=KAI,
    address="203.0.113.9",
    agent="tests",
    success=True,
    details={"old_role": "member", "new_role": "admin"},
    created_at=NOW,
)


def sentence(action: str, details: Mapping[str, Any] | None = None, *, names: Names = NAMES, **changes: Any) -> str:
    return describe(replace(ENTRY, action=action, details=details or {}, **changes), names, None).sentence


def test_an_entry_is_a_sentence_with_the_names_of_today() -> None:
    described = describe(ENTRY, NAMES, Location("Zurich", "CH"))
    assert described.sentence == "owner@acme.example changed kai@acme.example from member to admin"
    assert [part.text for part in described.parts if part.kind is not PartKind.TEXT] == [
        *("owner@acme.example", "kai@acme.example", "member", "admin"),
    ]
    assert (described.actor, described.target) == (ObjectName("owner@acme.example", "Ada Owner"), ObjectName("kai@acme.example"))


@table("action", PLATFORM_ACTIONS)
def test_every_event_has_a_sentence_without_any_detail_or_name(action: str) -> None:
    kind = PLATFORM_ACTIONS[action]
    text = sentence(action, names={}, target_type=kind.target.value)
    assert "{" not in text
    assert "  " not in text
    assert not text.endswith(" ")


@table(
    ("action", "details", "changes", "expected"),
    [
        ("user.joined", {"role": "member"}, {"target_id": OWNER}, "owner@acme.example joined as member"),
        ("user.joined", {"role": "member"}, {}, "owner@acme.example added kai@acme.example as member"),
        ("user.removed", {}, {"target_id": str(UUID(int=77))}, "owner@acme.example removed a former user (00000000)"),
        ("user.deactivated", {"by_user": True, "whole_account": True}, {}, "kai@acme.example deleted their account"),
        ("organization.updated", {}, ABOUT_ORG, "owner@acme.example changed the settings of the organization"),
        (
            "organization.owner.changed",
            {"old_owner_id": OWNER, "new_owner_id": KAI},
            ABOUT_ORG,
            "owner@acme.example transferred the organization from owner@acme.example to kai@acme.example",
        ),
        ("user.created", {}, {"actor": BY_KEY}, "An API key (Nightly) created the account kai@acme.example"),
        ("user.created", {}, {"actor": DIRECTORY}, "The directory created the account kai@acme.example"),
        (
            "user.invited",
            {"invited_email": "eve@acme.example", "role": "admin"},
            {"actor": AuditActor("x", "service-account@internal", kind="service_account", name="ci"), "target_type": "invitation"},
            "A service account (ci) invited eve@acme.example as admin",
        ),
        (
            "invitation.expired",
            {"invited_email": "eve@acme.example"},
            {"actor": SYSTEM, "target_type": "invitation"},
            "The invitation of eve@acme.example expired",
        ),
        *(
            (
                "invitation.accepted",
                {"invited_email": "eve@acme.example", "role": "admin", "user_id": user_id},
                {"target_type": "invitation"},
                f"{subject} accepted the invitation{rest} as admin",
            )
            for user_id, subject, rest in ((OWNER, "eve@acme.example", ""), (KAI, "owner@acme.example", " of eve@acme.example"))
        ),
        ("domain.verified", {"domain": "acme.example"}, {"actor": SYSTEM}, "Gatehouse verified the domain acme.example"),
        ("webhook.deleted", {"webhook_name": "{actor}"}, {}, "owner@acme.example deleted the webhook {actor}"),
        ("webhook.deleted", {"webhook_name": "a\n  b"}, {}, "owner@acme.example deleted the webhook a b"),
        ("branding.updated", {}, {"actor": ANONYMOUS}, "Someone who was not signed in changed the branding"),
        ("branding.updated", {}, {"actor": DELETED_ACCOUNT}, "A deleted user changed the branding"),
        (
            "user.role_updated",
            {"old_role": "member", "new_role": "admin"},
            {"impersonator": AuditActor("y", "steward@platform.example")},
            "steward@platform.example as owner@acme.example changed kai@acme.example from member to admin",
        ),
        (
            "user.impersonated",
            {"service_slug": None},
            {"impersonator": ADA},
            "owner@acme.example started to act as kai@acme.example",
        ),
        (
            "security.recovery.issued",
            {"expires_at": "2026-11-28T03:39:45.069502Z"},
            {"target_id": KAI},
            "kai@acme.example can recover the account until 28 November 2026 at 03:39 UTC",
        ),
        ("user.carrier.pigeon", {}, {}, "owner@acme.example: User carrier pigeon"),
        ("branding.updated", {}, {"actor": AuditActor("z", "robot@internal", kind="robot_arm")}, "Robot arm changed the branding"),
    ],
)
def test_a_sentence_says_who_did_what(action: str, details: Mapping[str, Any], changes: dict[str, Any], expected: str) -> None:
    assert sentence(action, details, **changes) == expected


def test_the_names_of_a_page_are_those_of_actors_objects_and_details() -> None:
    changed = replace(ENTRY, details={"changes": {"owner_id": {"old": OWNER, "new": KAI}}, "service_id": KEY, "user_id": "not-an-id"})
    by_key = replace(ENTRY, actor=BY_KEY, target_type="webhook", target_id="x")
    assert collect_objects([changed, by_key]) == {"user": {OWNER, KAI}, "service": {KEY}, "api_key": {KEY}}
    assert collect_objects([replace(ENTRY, actor=SYSTEM, target_type="signing_key")]) == {}


def test_details_are_rows_with_old_and_new_values_and_names() -> None:
    details = {
        "name": "ci",
        "changes": {
            "owner_id": {"old": OWNER, "new": KAI},
            "enabled": {"old": None, "new": True},
            "scopes": {"old": [], "new": ["a", "b"]},
        },
        "domains": {"acme.example": {"old": None, "new": "saml"}},
        "service_id": None,
        "access": [{"identifier": "https://api.example", "scopes": ["read"]}],
    }
    assert detail_rows(describe(replace(ENTRY, details=details), NAMES, None)) == [
        DetailRow("Name", "ci"),
        DetailRow("Owner ID", "kai@acme.example", "owner@acme.example"),
        DetailRow("Enabled", "yes", "none"),
        DetailRow("Scopes", "a, b", "none"),
        DetailRow("acme.example", "saml", "none"),
        DetailRow("Application ID", "none"),
        DetailRow("Access", "identifier: https://api.example; scopes: read"),
    ]


def _entry(seconds: float, **changes: Any) -> DescribedEntry:
    return describe(replace(ENTRY, created_at=NOW - timedelta(seconds=seconds), **changes), NAMES, None)


def sizes(*entries: DescribedEntry) -> list[int]:
    return [len(each.entries) for each in group_entries(entries)]


def test_a_push_of_a_directory_is_one_group() -> None:
    entries = [_entry(50 * number, actor=DIRECTORY, action="user.joined", target_id=str(number)) for number in range(5)]
    [push] = group_entries(entries)
    assert (push.newest, push.first, push.other_actions) == (entries[0], entries[-1], [("user.joined", 4)])
    assert group_entries([_entry(0, actor=DIRECTORY, action="user.deactivated"), *entries])[0].other_actions[-1] == ("user.deactivated", 1)
    assert sizes(*entries, _entry(300, actor=DIRECTORY)) == [5, 1], "after a pause of more than a minute"


def test_a_sign_up_is_one_group_although_it_begins_without_an_account() -> None:
    kai = AuditActor(KAI, "kai@acme.example")
    sign_up = [_entry(0, actor=kai, action="user.login.success"), _entry(4, actor=ANONYMOUS, action="user.joined")]
    assert sizes(*sign_up) == [2]
    assert sizes(sign_up[0], _entry(4, actor=ANONYMOUS, address="198.51.100.1")) == [1, 1]
    assert sizes(*sign_up[::-1]) == [1, 1], "only its beginning has no account"


def test_the_changes_of_a_person_are_a_group_if_they_are_of_one_kind_or_object() -> None:
    saved, created = {"action": "service.updated", "target_id": "a"}, {"action": "webhook.created", "target_id": "b"}
    assert sizes(_entry(0, **saved), _entry(1, **saved, target_type="service")) == [2]
    assert sizes(_entry(0, **saved), _entry(1, **created)) == [1, 1]
    assert sizes(_entry(0, **saved), _entry(1e-6, **created)) == [2], "of one transaction"
    assert sizes(_entry(0, action="user.invited", target_id="a"), _entry(1, action="user.invited", target_id="b")) == [2]


def test_other_entries_stand_alone() -> None:
    assert sizes(_entry(0), _entry(11)) == [1, 1]
    assert sizes(_entry(0), _entry(1, success=False), _entry(2)) == [1, 1, 1]
    assert sizes(_entry(0), _entry(1, actor=AuditActor(KAI, "kai@acme.example"), target_id="z")) == [1, 1]
    assert sizes(_entry(0), _entry(1, impersonator=ADA)) == [1, 1]
    assert sizes(*(_entry(number, success=False) for number in range(3))) == [3], "a repeated refusal"
    assert sizes(_entry(0, success=False), _entry(1, success=False, details={})) == [1, 1]
    assert sizes(_entry(0, impersonator=ADA), _entry(40, impersonator=ADA)) == [2], "the requests of an impersonation"
    assert group_entries([]) == []


def test_identity_providers_have_the_names_of_the_operator() -> None:
    names: Names = {("connection", "websuite"): ObjectName("Google")}
    assert sentence("security.identity.linked", {"provider": "websuite"}, names=names).endswith("linked an account at Google")
    changed = sentence("connection.updated", {"logo": "set"}, names=names, target_type="connection", target_id="websuite")
    assert changed.endswith("changed the logo of the identity provider Google")
    details = {
        "changes": {"websuite_scopes": {"old": None, "new": ["openid"]}},
        "domains": {"acme.example": {"old": None, "new": "websuite"}},
        "name": "websuite",
    }
    rows = detail_rows(describe(replace(ENTRY, details=details), names, None))
    assert [(row.label, row.text) for row in rows] == [("Scopes at Google", "openid"), ("acme.example", "Google"), ("Name", "websuite")]

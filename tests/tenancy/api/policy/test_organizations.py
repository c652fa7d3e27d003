"""Sign-in policies for organizations and applications: saving, the refusals that keep everyone able to sign in, and the preview."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.proofs import first_proof
from core.kernel.sign_in_policy.rules import METHODS, RULES_OF_ORGANIZATIONS, RULES_WITH_GRACE
from core.kernel.values import rfc3339
from core.tenancy.model import policy_counts, sign_in_policies
from core.tenancy.model.sign_in_policies import SettingsBeyondPolicies
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, add_member, run_concurrently, run_during, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import add_mfa
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import load, path_of, preview, save, try_preview

DAY = timedelta(days=1)
NO_RULES = {rule.value: None for rule in RULES_OF_ORGANIZATIONS}
NO_STARTS = {rule.value: None for rule in RULES_WITH_GRACE}
ALL_RULES: dict[str, Any] = {
    "methods": ["password", "passkey", "totp"],
    "second_factor": ["admins"],
    "phishing_resistant": ["admins"],
    "session_lifetime_minutes": 720,
    "session_idle_minutes": 60,
    "device_trust_days": 0,
    "min_password_length": 14,
    "admin_networks": ["0.0.0.0/0", "::/0"],
    "invited_domains": ["acme.com"],
    "required_connections": None,
    "grace_days": 14,
}


async def sign_in_with_second_factor(acme: Tenant, ports: Ports) -> None:
    """Give the owner a second factor, and a session that began with it."""
    await add_mfa(ports, acme.people["owner"])
    acme.sessions["owner"] = await sign_in(ports, acme.people["owner"], acme.org, second_factor=True)


async def give_passkey(pool: Pool, user_id: UUID | str, count: int = 1) -> None:
    """Let the account have passkeys for the decision, which knows only their number."""
    await run_sql(pool, "update users set passkey_count = %s where id = %s", count, user_id)


@pytest.mark.parametrize("service", [None, "shop"])
async def test_a_method_that_is_not_set_up_cannot_be_allowed_but_can_stay(
    acme: Tenant, ports: Ports, pool: Pool, service: str | None
) -> None:
    """Every method is tried. This installation has no identity provider and no sign-in by email."""
    await add_service(pool, acme.org, "shop")
    await sign_in_with_second_factor(acme, ports)
    usable = ["password", "passkey", "totp"]
    for method in METHODS:
        rules = {"methods": ["password", "totp", method]}
        answers = [await save(acme, rules, service), await try_preview(acme, rules, service)]
        assert [answer.status for answer in answers] == ([200] * 2 if method in usable else [400] * 2), method
        if method not in usable:
            message = f"methods: No user can sign in with {method} here. Leave it out, or set it up first."
            assert [answer.json["error"] for answer in answers] == [message] * 2
    assert (await load(acme, service))["methods"] == ["password", "totp"]
    # The installation's settings can change after the policy was saved.
    stored = """update sign_in_policies set rules = '{"methods": ["password", "provider:websuite"]}'"""
    await run_sql(pool, stored)
    kept = {"methods": ["password", "totp", "provider:websuite"]}
    assert (await preview(acme, kept, service))["unusable_methods"] == ["provider:websuite"]
    assert (await preview(acme, {"methods": usable}, service))["unusable_methods"] == []
    assert (await save(acme, kept, service)).status == 200
    refused = await save(acme, {"methods": ["provider:websuite"]}, service)
    assert (refused.status, "could not sign in with these methods" in refused.json["error"]) == (400, True)


async def test_an_organization_has_no_rules_at_first(acme: Tenant) -> None:
    assert await load(acme) == {
        **NO_RULES,
        "grace_days": 0,
        "due_at": NO_STARTS,
        "version": 0,
        "changed_at": None,
        "imposed": [],
        "in_force": NO_RULES,
    }


async def test_an_admin_saves_every_rule_and_later_rules_are_not_in_force(acme: Tenant, clock: FakeClock) -> None:
    saved = await save(acme, ALL_RULES)
    assert saved.status == 200, saved.text
    due = rfc3339(clock.now() + 14 * DAY)
    later = dict.fromkeys(NO_STARTS)
    assert saved.json == await load(acme)
    assert saved.json == {
        **ALL_RULES,
        "due_at": dict.fromkeys(NO_STARTS, due),
        "version": saved.json["version"],
        "changed_at": rfc3339(clock.now()),
        "imposed": [],
        "in_force": {**NO_RULES, **{name: value for name, value in ALL_RULES.items() if name != "grace_days"}, **later},
    }
    [entry] = [entry for entry in await acme.log() if entry["action"] == "organization.sign_in_policy.updated"]
    assert entry["actor_id"] == acme.people["owner"].id
    assert entry["details"]["changes"]["session_idle_minutes"] == {"old": None, "new": 60}
    assert entry["details"]["changes"]["admin_networks"] == {"old": None, "new": ["0.0.0.0/0", "::/0"]}
    # The same again changes nothing.
    again = await save(acme, ALL_RULES)
    assert again.json["version"] == saved.json["version"]
    assert len([entry for entry in await acme.log() if entry["action"] == "organization.sign_in_policy.updated"]) == 1


async def test_a_stricter_rule_starts_later_and_holds_its_earlier_value_until_then(acme: Tenant, ports: Ports, clock: FakeClock) -> None:
    await sign_in_with_second_factor(acme, ports)
    assert (await save(acme, {"second_factor": ["admins"]})).json["in_force"]["second_factor"] == ["admins"]
    both = (await save(acme, {"second_factor": ["everyone"], "grace_days": 7})).json
    assert both["second_factor"] == ["everyone"]
    assert both["in_force"]["second_factor"] == ["admins"]
    assert both["due_at"]["second_factor"] == rfc3339(clock.now() + 7 * DAY)
    # Another grace period does not move a start that is known.
    kept = (await save(acme, {"second_factor": ["everyone"], "grace_days": 30})).json
    assert kept["due_at"] == both["due_at"]


async def test_of_two_admins_who_change_the_same_version_one_is_told(acme: Tenant) -> None:
    version = (await load(acme))["version"]

    async def change(number: int) -> int:
        return (await save(acme, {"session_idle_minutes": 30 + number}, version=version)).status

    assert sorted(await run_concurrently(4, change)) == [200, 409, 409, 409]


async def test_rules_that_only_a_passkey_meets_are_refused_at_an_address_of_numbers(
    acme: Tenant, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"methods": ["password", "passkey"], "phishing_resistant": ["admins"], "grace_days": 14}
    assert (await preview(acme, rules))["due_at"]["phishing_resistant"] is not None
    monkeypatch.setattr(type(ports.tokens), "issuer", "http://127.0.0.1:8080")
    answers = [
        await save(acme, rules),
        await acme.api.post(f"{path_of(acme)}/preview", rules, token=acme.token("owner")),
    ]
    error = (
        "Passkeys need a host name, and this installation has an address of numbers. Ask its operator to set SSO_BASE_URL to a host name."
    )
    assert [(answer.status, answer.json["error"]) for answer in answers] == [(400, error)] * 2
    assert (await load(acme))["version"] == 0


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"second_factor": ["everyone"]}, "could not sign in yourself"),
        ({"phishing_resistant": ["admins"]}, "could not sign in yourself"),
        ({"methods": ["passkey"]}, "could not sign in yourself"),
        ({"admin_networks": ["192.0.2.0/24"]}, "is outside these networks"),
        ({"methods": ["totp"], "grace_days": 14}, "could not sign in with these methods"),
        ({"methods": ["provider:websuite"], "grace_days": 14}, "methods: No user can sign in with provider:websuite here"),
        ({"methods": ["password"], "second_factor": ["high_risk"], "grace_days": 14}, "could not sign in with these methods"),
        ({"methods": ["password", "totp"], "phishing_resistant": ["admins"], "grace_days": 14}, "could not sign in with these methods"),
        ({"methods": ["smoke"]}, "methods: 'smoke' is unknown"),
        ({"admin_networks": ["203.0.113.7/24"]}, "admin_networks: "),
        ({"invited_domains": ["localhost"]}, "invited_domains: "),
        ({"session_idle_minutes": 4}, "session_idle_minutes"),
    ],
    ids=str,
)
async def test_rules_that_lock_people_out_or_are_wrong_are_refused_by_name(acme: Tenant, rules: dict[str, Any], message: str) -> None:
    refused = await save(acme, rules)
    assert refused.status == 400
    assert message in refused.json["error"]
    assert (await load(acme))["version"] == 0


async def test_a_grace_period_lets_the_admin_save_a_rule_to_meet_later(acme: Tenant) -> None:
    assert (await save(acme, {"phishing_resistant": ["everyone"], "grace_days": 1})).status == 200


async def test_an_applications_policy_adds_to_that_of_its_organization(
    acme: Tenant, ports: Ports, pool: Pool, other_tenant: Tenant
) -> None:
    await sign_in_with_second_factor(acme, ports)
    service = await add_service(pool, acme.org)
    assert (await save(acme, {"session_idle_minutes": 60, "methods": ["password", "passkey"]})).status == 200
    saved = await save(acme, {"session_idle_minutes": 240, "methods": ["password", "totp", "passkey"]}, "shop")
    assert saved.status == 200, saved.text
    assert saved.json["in_force"]["session_idle_minutes"] == 60
    assert saved.json["in_force"]["methods"] == ["password", "passkey"]
    assert (await load(acme))["methods"] == ["password", "passkey"]
    [entry] = [entry for entry in await acme.log() if entry["action"] == "service.sign_in_policy.updated"]
    assert entry["target_id"] == str(service)
    # Together, the two would allow nothing that everyone has.
    refused = await save(acme, {"methods": ["totp"]})
    assert refused.status == 400
    removed = await acme.api.delete(path_of(acme, "shop"), token=acme.token("owner"))
    assert removed.status == 204
    assert (await load(acme, "shop"))["version"] == 0
    elsewhere = await acme.api.get(path_of(other_tenant, "shop"), token=other_tenant.token("owner"))
    assert elsewhere.status == 404


@pytest.mark.parametrize("place", [None, "shop"], ids=["organization", "application"])
@pytest.mark.parametrize(
    ("setting", "rules"),
    [
        ({"required_acr": "phr"}, {"methods": ["password"]}),
        ({"required_acr": "phr"}, {"methods": ["password", "totp", "email"]}),
        ({"required_acr": "mfa"}, {"methods": ["password"]}),
        ({"email_sign_in": False}, {"methods": ["email"]}),
    ],
    ids=str,
)
async def test_settings_and_policies_that_no_user_meets_together_are_refused_in_both_orders(
    acme: Tenant,
    pool: Pool,
    ports: Ports,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, Any],
    rules: dict[str, Any],
    place: str | None,
) -> None:
    monkeypatch.setattr(type(ports.policy), "email_sign_in", True)
    await add_service(pool, acme.org)
    path, token, later = f"{acme.path}/services/shop", acme.token("owner"), {**rules, "grace_days": 14}

    async def change(settings: dict[str, Any]) -> Answer:
        return await acme.api.call("PATCH", path, settings, token=token)

    assert (await change(setting)).status == 200
    refused = [await save(acme, later, place), await acme.api.post(f"{path_of(acme, place)}/preview", later, token=token)]
    assert [answer.status for answer in refused] == [400, 400], [answer.text for answer in refused]
    assert (await change(dict.fromkeys(setting))).status == 200
    assert (await save(acme, later, place)).status == 200
    answer = await change(setting)
    assert (answer.status, answer.json["error"]) == (400, str(SettingsBeyondPolicies.__doc__))
    if place is None:
        new = {"name": "Blog", "slug": "blog", "service_type": "web", **setting}
        assert (await acme.api.post(f"{acme.path}/services", new, token=token)).status == 400
    assert (await change({"name": "The shop"})).status == 200


async def give_password_and_passkey(acme: Tenant) -> None:
    """Let the owner meet policies with either method. The session began with the password."""
    owner, proofs = acme.people["owner"], (first_proof("password", acme.ports.clock.now()),)
    await run_sql(acme.pool, "update users set password_hash = 'a hash', passkey_count = 1 where id = %s", owner.id)
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.session_sign_ins.reauthenticate(acme.sessions["owner"].session_id, owner.id, proofs)


BY_PASSWORD, BY_PASSKEY = {"methods": ["password", "totp"]}, {"methods": ["passkey"]}


@pytest.mark.parametrize(
    ("saved", "refused", "period"),
    [
        (
            [("shop", BY_PASSWORD), ("shop", {**BY_PASSKEY, "grace_days": 14})],
            (None, BY_PASSKEY),
            "Until 28 March 2026, together with the rules of Shop, ",
        ),
        (
            [(None, BY_PASSWORD), (None, {**BY_PASSKEY, "grace_days": 30})],
            ("shop", {**BY_PASSKEY, "grace_days": 14}),
            "From 28 March 2026 until 13 April 2026, ",
        ),
        (
            [(None, {"methods": ["password"]}), (None, {**BY_PASSKEY, "grace_days": 60})],
            (None, {**BY_PASSKEY, "second_factor": ["high_risk"]}),
            "Until 13 May 2026, ",
        ),
    ],
    ids=str,
)
async def test_rules_that_no_user_meets_at_some_moment_are_refused(
    acme: Tenant,
    pool: Pool,
    saved: list[tuple[str | None, dict[str, Any]]],
    refused: tuple[str | None, dict[str, Any]],
    period: str,
) -> None:
    """A rule in force can meet a stricter rule that starts later, in the same policy or in another policy."""
    await add_service(pool, acme.org)
    await give_password_and_passkey(acme)
    for service, rules in saved:
        answer = await save(acme, rules, service)
        assert answer.status == 200, answer.text
    service, rules = refused
    for answer in (await save(acme, rules, service), await try_preview(acme, rules, service)):
        assert (answer.status, answer.json["error"].partition("some users")[0]) == (400, period)


@pytest.mark.parametrize(
    ("setting", "rules"), [({"required_acr": "phr"}, BY_PASSWORD), ({"email_sign_in": False}, {"methods": ["email", "totp"]})], ids=str
)
async def test_settings_that_no_user_meets_before_a_later_rule_starts_are_refused(
    acme: Tenant, pool: Pool, ports: Ports, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], rules: dict[str, Any]
) -> None:
    monkeypatch.setattr(type(ports.policy), "email_sign_in", True)
    await add_service(pool, acme.org)
    await give_password_and_passkey(acme)
    for each in (rules, {**BY_PASSKEY, "grace_days": 30}):
        assert (await save(acme, each, "shop")).status == 200
    answer = await acme.api.call("PATCH", f"{acme.path}/services/shop", setting, token=acme.token("owner"))
    assert (answer.status, answer.json["error"]) == (400, str(SettingsBeyondPolicies.__doc__))


async def test_a_policy_is_judged_by_the_settings_that_its_application_has_under_the_lock(acme: Tenant, pool: Pool) -> None:
    shop, organization = await add_service(pool, acme.org), "select from organizations where id = %s for update"
    for change in ("update services set required_acr = 'phr' where id = %s", "delete from services where id = %s"):
        changes = [(organization, (acme.org,)), (change, (shop,))]
        answer = await run_during(pool, changes, lambda: save(acme, {"methods": ["password"]}, "shop", version=0))
        assert answer.status == (409 if change.startswith("delete") else 400), answer.text


async def test_a_preview_counts_and_names_the_members_who_would_be_stopped(acme: Tenant, ports: Ports, pool: Pool) -> None:
    await add_mfa(ports, acme.people["admin"])
    await give_passkey(pool, acme.id("owner"))
    unconfirmed = await add_account(ports, "new@example.com")
    await add_member(pool, acme.org, unconfirmed.id)
    shop = await add_service(pool, acme.org)
    for number in range(3):
        await add_service_user(ports, shop, (await add_account(ports, f"user{number}@example.com")).id)
    seen = await preview(acme, {"second_factor": ["everyone"], "phishing_resistant": ["admins"]})
    exact = {"is_exact": True}
    assert seen["members"] == {"concerned": 3, "meets": 1, "stopped_now": 2, "stopped_later": 0, **exact}
    assert seen["end_users"] == {"concerned": 3, "meets": 0, "stopped_now": 3, "stopped_later": 0, **exact}
    assert {(one["user_id"], one["role"], one["missing"], one["is_stopped_now"]) for one in seen["people"]} == {
        (acme.id("admin"), "admin", "phishing_resistant", True),
        (acme.id("member"), "member", "second_factor", True),
    }
    later = await preview(acme, {"second_factor": ["everyone"], "phishing_resistant": ["admins"], "grace_days": 3})
    assert later["members"] == {"concerned": 3, "meets": 1, "stopped_now": 0, "stopped_later": 2, **exact}
    assert later["due_at"]["second_factor"] == rfc3339(ports.clock.now() + 3 * DAY)
    of_shop = await preview(acme, {"second_factor": ["everyone"]}, "shop")
    assert of_shop["members"]["concerned"] == 0
    assert of_shop["end_users"]["concerned"] == 3
    nothing = await preview(acme, {"min_password_length": 20})
    assert nothing["members"] == {"concerned": 0, "meets": 0, "stopped_now": 0, "stopped_later": 0, **exact}
    assert (await load(acme))["version"] == 0


async def test_a_preview_counts_email_as_a_way_where_an_application_offers_it(acme: Tenant, ports: Ports, pool: Pool) -> None:
    shop = await add_service(pool, acme.org)
    user = await add_account(ports, "user@example.com", None)
    await add_service_user(ports, shop, user.id)
    await add_identity(pool, user.id, "websuite")
    rules = {"methods": ["password", "email", "passkey", "totp"]}
    assert (await preview(acme, {"methods": ["password", "passkey", "totp"]}))["end_users"]["stopped_now"] == 1
    await run_sql(pool, "update services set email_sign_in = true where id = %s", shop)
    assert [(await preview(acme, rules, place))["end_users"]["stopped_now"] for place in (None, "shop")] == [0, 0]


async def test_a_preview_of_networks_names_admins_whose_newest_session_is_outside(acme: Tenant, pool: Pool) -> None:
    await run_sql(pool, "update sessions set address = '192.0.2.7' where user_id = %s", acme.id("admin"))
    await run_sql(pool, "update sessions set address = '203.0.113.7' where user_id <> %s", acme.id("admin"))
    seen = await preview(acme, {"admin_networks": ["203.0.113.0/24"]})
    assert [(one["user_id"], one["missing"]) for one in seen["people"]] == [(acme.id("admin"), "admin_networks")]
    assert seen["members"]["concerned"] == 2


async def test_a_preview_stops_counting_at_its_limits(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_policies, "MAX_COUNTED", 2)
    seen = await preview(acme, {"second_factor": ["everyone"]})
    assert seen["members"] == {"concerned": 2, "meets": 0, "stopped_now": 2, "stopped_later": 0, "is_exact": False}
    monkeypatch.setattr(policy_counts, "COUNTED_WITHIN", -1.0)
    seen = await preview(acme, {"second_factor": ["everyone"]})
    assert (seen["members"], seen["people"]) == (None, [])

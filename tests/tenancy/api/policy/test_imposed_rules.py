"""Rules over people with more rights than their maker: the emails, and their removal by the owner (security #imposed-rules)."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import permutations
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from core.kernel.roles import ADMIN, MEMBER, Capability
from core.kernel.sign_in_policy.rules import RULES_OF_ORGANIZATIONS, Rule
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, hidden_fields, leads_to, main_of
from tests.support.builders import Answer, add_account, deliver, run_concurrently, run_sql, sign_in, two_factors
from tests.support.connections import add_connection
from tests.support.connections.proofs import connection_proof, write_proofs
from tests.support.direct import ask
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import RP_ID, add_passkeys
from tests.support.services import add_service
from tests.support.tenants import PreparedTenants, Tenant
from tests.tenancy.api.policy.policies import load, path_of, save
from tests.tenancy.api.policy.test_required_connections import DOMAIN, know, put_list, set_up
from tests.tenancy.api.test_roles import join_with

pytestmark = pytest.mark.slow

HERE: Final = ["0.0.0.0/32"]  # the tests' API client; `ask` comes from elsewhere
ELSEWHERE: Final = "203.0.113.9"
TOLD: Final = "New sign-in rules at Acme - Gatehouse"
REMOVED: Final = "Sign-in rules of Acme were removed - Gatehouse"


@pytest.fixture
async def acme(prepared_tenants: PreparedTenants, ports: Ports) -> Tenant:
    """The clerk has the right to change the policy alone. The owner has just used a second factor."""
    acme = await prepared_tenants.add("acme")
    await join_with(acme, "clerk", "clerk", {Capability.SIGN_IN_POLICY_MANAGE})
    await add_mfa(ports, acme.people["owner"])
    acme.sessions["owner"] = await sign_in(ports, acme.people["owner"], acme.org, second_factor=True)
    return acme


def imposed_path(acme: Tenant) -> str:
    return f"{path_of(acme)}/imposed-rules"


async def imposed(acme: Tenant) -> Any:
    answer = await acme.api.get(imposed_path(acme), token=acme.token("owner"))
    assert answer.status == 200, answer.text
    return {each["service_slug"]: each["rules"] for each in answer.json}


async def remove(acme: Tenant, by: str = "owner") -> Answer:
    return await acme.api.delete(imposed_path(acme), token=acme.token(by))


async def saved(acme: Tenant, rules: dict[str, Any], by: str, service: str | None = None, version: int | None = None) -> None:
    answer = await save(acme, rules, service, by, version)
    assert answer.status == 200, answer.text


async def told(ports: Ports, sent: FakeMailTransport, subject: str = TOLD) -> list[str]:
    await deliver(ports)
    return sorted(email.to for email in sent.emails if email.subject == subject)


async def test_an_owner_removes_a_rule_of_a_weaker_member_from_outside_of_its_networks(
    acme: Tenant, app: QuartTrio, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "clerk")
    both = sorted(acme.people[name].email for name in ("owner", "admin"))
    assert await told(ports, sent) == both
    mail = next(email for email in sent.emails if email.subject == TOLD)
    assert "clerk@acme.example" in mail.text
    assert "Networks of admins, Longest idle time" in mail.text
    assert "/app/organizations/acme/sign-in-policy/imposed-rules" in mail.text
    owner = acme.token("owner")
    refused = await ask(app, "GET", path_of(acme), token=owner)
    assert (refused.status, refused.json["rule"]) == (403, "admin_networks")
    shown = await ask(app, "GET", imposed_path(acme), token=owner)
    assert (shown.status, shown.json) == (200, [{"service_slug": None, "rules": ["admin_networks", "session_idle_minutes"]}])
    answer = await ask(app, "DELETE", imposed_path(acme), token=owner)
    assert answer.status == 204, answer.text
    assert (await ask(app, "GET", path_of(acme), token=owner)).json["in_force"]["admin_networks"] is None
    entry = (await acme.log())[-1]
    assert (entry["action"], str(entry["actor_id"])) == ("organization.sign_in_policy.updated", acme.id("owner"))
    assert entry["details"]["changes"]["admin_networks"] == {"old": HERE, "new": None}
    assert await told(ports, sent, REMOVED) == both
    again = await ask(app, "DELETE", imposed_path(acme), token=owner)
    assert (again.status, again.json["error"].startswith("All rules of this organization are its owner's.")) == (400, True)


OWNERS: Final[Mapping[str, Any]] = {
    "second_factor": ["admins"],
    "session_lifetime_minutes": 600,
    "session_idle_minutes": 60,
    "device_trust_days": 30,
    "admin_networks": [*HERE, "203.0.113.0/24"],
}
TIGHTER: Final[Mapping[str, Any]] = {
    "methods": ["password", "passkey", "totp"],
    "second_factor": ["everyone"],
    "phishing_resistant": ["admins"],
    "session_lifetime_minutes": 15,
    "session_idle_minutes": 5,
    "device_trust_days": 0,
    "admin_networks": HERE,
}


async def test_every_rule_that_can_keep_out_is_told_and_returns_to_the_owners(
    acme: Tenant, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    """Every rule alone, then all rules with a grace period: the owner's values stand again, and at once."""
    assert TIGHTER.keys() == {rule for rule in RULES_OF_ORGANIZATIONS if rule.definition.keeps_out} - {Rule.CONNECTIONS}
    for name in ("owner", "clerk"):  # so that no rule keeps its maker out
        await add_passkeys(pool, acme.people[name].id, RP_ID)
    await write_proofs(
        pool, acme.people["clerk"].id, (Proof(Method.PASSKEY, ports.clock.now(), user_verified=True, phishing_resistant=True),)
    )
    for rule, value in [*TIGHTER.items(), (None, None)]:
        await saved(acme, dict(OWNERS), "owner")
        before, mails = await load(acme), len(sent.emails)
        await saved(acme, {**OWNERS, **({rule: value} if rule else {**TIGHTER, "grace_days": 30})}, "clerk")
        names = [rule] if rule else sorted(TIGHTER)
        assert await imposed(acme) == {None: names}, rule
        await run_sql(pool, "update mails set token_at = token_at - interval '2 hours'")  # no limit
        assert len(await told(ports, sent)) > 0
        assert len(sent.emails) == mails + 2, rule
        assert (await remove(acme)).status == 204
        after = await load(acme)
        assert {name: after[name] for name in (*TIGHTER, "due_at", "in_force")} == {
            name: before[name] for name in (*TIGHTER, "due_at", "in_force")
        }, rule
        await run_sql(pool, "update mails set token_at = token_at - interval '2 hours'")
        await deliver(ports)


async def test_rules_that_keep_no_user_out_are_not_told(acme: Tenant, ports: Ports, sent: FakeMailTransport) -> None:
    owners = {**OWNERS, "second_factor": None}
    await saved(acme, owners, "owner")
    looser = {**owners, "session_idle_minutes": 120, "admin_networks": None, "device_trust_days": 60}
    await saved(acme, {**looser, "min_password_length": 20, "invited_domains": ["acme.example"]}, "clerk")
    assert (await imposed(acme), await told(ports, sent)) == ({}, [])
    await saved(acme, {"session_idle_minutes": 5}, "owner")
    assert (await imposed(acme), await told(ports, sent)) == ({}, [])


async def test_the_rules_that_an_owner_saved_stay_when_another_member_saves(acme: Tenant, ports: Ports, sent: FakeMailTransport) -> None:
    await saved(acme, {"admin_networks": HERE}, "owner")
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "clerk")
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 20, "session_lifetime_minutes": 60}, "admin")
    assert await imposed(acme) == {None: ["session_idle_minutes", "session_lifetime_minutes"]}
    assert (await remove(acme)).status == 204
    rules = (await load(acme))["in_force"]
    assert (rules["admin_networks"], rules["session_idle_minutes"], rules["session_lifetime_minutes"]) == (HERE, None, None)
    # The owner makes other members' rules their own, also without a change.
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "clerk")
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "owner")
    assert await imposed(acme) == {}
    # A rule that a weaker member took away and added again is theirs.
    await saved(acme, {"session_idle_minutes": 30}, "clerk")
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "clerk")
    assert await imposed(acme) == {None: ["admin_networks"]}


async def test_the_rights_of_the_maker_at_the_time_count(acme: Tenant, ports: Ports, pool: Pool) -> None:
    """A new owner removes the rules that they saved as an admin, and keeps the former owner's rules."""
    await saved(acme, {"admin_networks": HERE}, "owner")
    await saved(acme, {"admin_networks": HERE, "session_idle_minutes": 30}, "admin")
    assert (await acme.transfer("owner", "admin")).status == 200
    await add_mfa(ports, acme.people["admin"])
    acme.sessions["admin"] = await sign_in(ports, acme.people["admin"], acme.org, second_factor=True)
    assert (await remove(acme)).status == 403, "the former owner"
    assert (await remove(acme, "admin")).status == 204
    [(rules,)] = await run_sql(pool, "select rules from sign_in_policies where org_id = %s", acme.org)
    assert rules == {"admin_networks": HERE}


async def test_only_the_owner_in_person_removes_rules(acme: Tenant, other_tenant: Tenant, ports: Ports) -> None:
    await saved(acme, {"session_idle_minutes": 30}, "clerk")
    for name in ("admin", "clerk", "member"):
        assert (await remove(acme, name)).status == 403, name
    stranger = [(await acme.api.delete(path, token=other_tenant.token("owner"))) for path in (imposed_path(acme), f"{acme.path}/members/x")]
    assert stranger[0].status == 403
    support = await sign_in(ports, acme.people["owner"], acme.org, impersonator=await add_account(ports, "support@example.com"))
    assert (await acme.api.delete(imposed_path(acme), token=support.access_token)).status in (401, 403)
    token = {"name": "cli", "scopes": ["organization:write"], "org_slug": acme.slug, "expires_in_days": 1}
    created = await acme.api.post("/api/user/personal-tokens", token, token=acme.token("owner"))
    assert created.status == 200, created.text
    assert (await acme.api.delete(imposed_path(acme), token=created.json["token"])).status == 403
    assert await imposed(acme) == {None: ["session_idle_minutes"]}


async def test_the_proof_is_a_passkey_or_a_second_factor_of_the_account_used_now(
    acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """Whatever methods the policy accepts, and never a trusted device, a connection or a password alone."""
    owner, now = acme.people["owner"].id, clock.now()
    await saved(acme, {"session_idle_minutes": 30}, "clerk")
    passkey = Proof(Method.PASSKEY, now, user_verified=True, phishing_resistant=True)
    old, through = now - timedelta(minutes=11), connection_proof(acme.org, now, second=True)
    refused: list[Proofs] = [
        (first_proof("password", now),),
        (first_proof("password", now), Proof(Method.TOTP, old)),
        two_factors(old),
        (through,),
        (through, Proof(Method.TOTP, now)),
        (first_proof("password", now), through),
    ]
    await run_sql(pool, "update users set mfa_enabled_at = null where id = %s", owner)
    for proofs in refused:
        await write_proofs(pool, owner, proofs)
        answer = await remove(acme)
        assert (answer.status, answer.json["error_code"]) == (401, "UNAUTHORIZED"), proofs
    assert "insufficient_user_authentication" in answer.headers["WWW-Authenticate"]
    assert await imposed(acme) == {None: ["session_idle_minutes"]}
    for proofs in ((passkey,), two_factors(now)):
        await saved(acme, {}, "clerk")
        await saved(acme, {"session_idle_minutes": 30}, "clerk")
        await write_proofs(pool, owner, proofs)
        assert (await remove(acme)).status == 204, proofs


async def test_mails_are_limited_and_saves_are_not(
    acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """An organization with the same members has its own limit."""
    elsewhere = """
        insert into mails (id, kind, address, created_at, due_at, finished_at, outcome, org_id, token_at)
        select gen_random_uuid(), 'rules_imposed', %s, %s, %s, %s, 'sent', %s, %s from generate_series(1, 5)"""
    now = ports.clock.now()
    await run_sql(pool, elsewhere, acme.people["owner"].email, now, now, now, other_tenant.org, now)
    for minutes in range(40, 33, -1):
        await saved(acme, {"session_idle_minutes": minutes}, "clerk")
    assert len(await told(ports, sent)) == 2 * 5
    assert all("The page below shows all rules" in email.text for email in sent.emails if email.subject == TOLD), (
        "also those without an email"
    )
    assert (await load(acme))["session_idle_minutes"] == 34
    assert (await remove(acme)).status == 204
    assert (await load(acme))["session_idle_minutes"] is None


async def test_of_twenty_removals_one_removes(acme: Tenant, ports: Ports, sent: FakeMailTransport) -> None:
    await saved(acme, {"session_idle_minutes": 30}, "clerk")
    answers = await run_concurrently(20, lambda _: remove(acme))
    assert sorted(answer.status for answer in answers) == [204, *[400] * 19]
    assert len(await told(ports, sent, REMOVED)) == 2


async def test_a_script_of_the_maker_does_not_outlast_the_owner(acme: Tenant) -> None:
    for minutes in range(20, 30):
        await saved(acme, {"session_idle_minutes": minutes}, "clerk")
        assert (await remove(acme)).status == 204
    refused = [await save(acme, {"session_idle_minutes": 5}, None, "clerk"), await put_list(acme, "clerk", by="clerk")]
    assert [answer.status for answer in refused] == [409, 409]
    assert await imposed(acme) == {}
    await saved(acme, {"session_idle_minutes": None, "min_password_length": 20}, "clerk")


async def test_a_removed_subdomain_imposes_the_connection_of_its_parent(
    acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    """The owner's rule concerns the parent domain alone. Without the subdomain, it concerns the owner."""
    await set_up(ports, pool, acme.org, acme.people["admin"].id)
    await join_with(acme, "integrator", "integrator", {Capability.INTEGRATIONS_MANAGE})
    await run_sql(pool, "update users set email = split_part(email, '@', 1) || '@eu.' || %s", DOMAIN)
    subdomain = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'eu.' || %s, 'c', now(), now())"
    await run_sql(pool, subdomain, acme.org, DOMAIN)
    await saved(acme, {"required_connections": {DOMAIN: "okta"}}, "owner")
    assert (await acme.api.delete(f"{acme.path}/domains/eu.{DOMAIN}", token=acme.token("integrator"))).status == 204
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 401
    assert await imposed(acme) == {None: ["required_connections"]}
    assert len(await told(ports, sent)) == 2
    assert (await remove(acme)).status == 204
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 200


@pytest.mark.parametrize(("removed", "is_verified", "is_imposed"), [("eu", False, False), ("de.eu", True, False), ("eu", True, True)])
async def test_only_a_removed_domain_whose_users_then_need_the_connection_counts(
    acme: Tenant, ports: Ports, pool: Pool, removed: str, is_verified: bool, is_imposed: bool
) -> None:
    """The owner's rule waits behind an imposed rule, and comes back when the owner removes that rule."""
    await set_up(ports, pool, acme.org, acme.people["admin"].id)
    other = await add_connection(ports.storage, acme.org, "other")
    await join_with(acme, "integrator", "integrator", {Capability.INTEGRATIONS_MANAGE})
    await run_sql(pool, "update users set email = split_part(email, '@', 1) || '@nowhere.example'")
    added = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'c', %s, now())"
    for domain in ("elsewhere.example", f"eu.{DOMAIN}", *([f"de.eu.{DOMAIN}"] if removed == "de.eu" else [])):
        is_claim = domain.startswith("eu") and not is_verified
        await run_sql(pool, added, acme.org, domain, None if is_claim else ports.clock.now())
    await saved(acme, {"required_connections": {DOMAIN: "okta"}}, "owner")
    proofs = (first_proof("password", ports.clock.now()), connection_proof(acme.org, ports.clock.now(), connection=other.id))
    await write_proofs(pool, acme.people["clerk"].id, proofs)
    await saved(acme, {"required_connections": {"elsewhere.example": "other"}}, "clerk")
    assert (await acme.api.delete(f"{acme.path}/domains/{removed}.{DOMAIN}", token=acme.token("integrator"))).status == 204
    [policy] = await run_sql(pool, "select imposed_requirements from sign_in_policies where org_id = %s", acme.org)
    assert policy[0] == ([DOMAIN] if is_imposed else [])


SECRET: Final = ("PUT", "/connections/okta/client-secret", {"client_secret": "x" * 24})
SUBDOMAIN: Final = ("DELETE", f"/domains/eu.{DOMAIN}", None)
DROPPED: Final = {"partner.example": "third"}
REPLACED: Final = {DOMAIN: "third", "partner.example": "third"}


@pytest.mark.parametrize("host", [DOMAIN, "elsewhere.example"])  # in the owner's address
@pytest.mark.parametrize(
    "steps", [steps for count in (1, 2) for steps in permutations(("secret", "subdomain", "dropped", "replaced"), count)]
)
async def test_an_old_link_to_another_required_connection_keeps_no_owner_out(
    acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport, steps: tuple[str, ...], host: str
) -> None:
    """An admin imposes rules in any order. As long as rules are imposed, the owner can remove them, and is let in afterwards."""
    owner, now = acme.people["owner"].id, ports.clock.now()
    okta = await set_up(ports, pool, acme.org, owner)
    third = await add_connection(ports.storage, acme.org, "third")
    others = "update users set email = split_part(email, '@', 1) || '@elsewhere.example' where email like '%%@acme.example' and id <> %s"
    await run_sql(pool, others, owner)
    verified = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'c', now(), now())"
    for domain in ("partner.example", f"eu.{DOMAIN}"):
        await run_sql(pool, verified, acme.org, domain)
    await know(pool, third, owner)
    await run_sql(pool, "update users set email = %s where id = %s", f"owner@{host}", owner)
    await write_proofs(pool, owner, (*two_factors(now), connection_proof(acme.org, now, connection=okta.id)))
    await saved(acme, {"required_connections": {DOMAIN: "okta", "partner.example": "third"}}, "owner")
    for step in steps:
        if step in ("dropped", "replaced"):
            [(version,)] = await run_sql(pool, "select version from sign_in_policies where org_id = %s", acme.org)
            await saved(acme, {"required_connections": DROPPED if step == "dropped" else REPLACED}, "admin", version=version)
        else:
            method, path, body = SECRET if step == "secret" else SUBDOMAIN
            answer = await acme.api.call(method, acme.path + path, body, token=acme.token("admin"))
            assert answer.status < 300, answer.text
    assert await imposed(acme) == {None: ["required_connections"]}
    kept = await acme.api.delete(f"{acme.path}/domains/{DOMAIN}", token=acme.token("admin"))
    assert kept.status == 409, "the owner's rules name it"
    assert (await remove(acme)).status == 204
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 200
    assert await imposed(acme) == {}


@pytest.mark.parametrize(("between", "left"), [(False, ["partner.example"]), (True, ["acme.example", "partner.example"])])
async def test_a_removed_subdomain_imposes_only_the_rule_of_its_parent(
    acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, between: bool, left: list[str]
) -> None:
    """If another organization has verified a domain between the two, the removal changes no user's connection."""
    await set_up(ports, pool, acme.org, acme.people["admin"].id)
    await add_service(pool, acme.org)
    await join_with(acme, "integrator", "integrator", {Capability.INTEGRATIONS_MANAGE})
    await run_sql(pool, "update users set email = split_part(email, '@', 1) || '@nowhere.example' where email like '%%@acme.example'")
    verified = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'c', now(), now())"
    await run_sql(pool, verified, acme.org, "partner.example")
    await run_sql(pool, verified, acme.org, f"de.eu.{DOMAIN}")
    if between:
        await run_sql(pool, verified, other_tenant.org, f"eu.{DOMAIN}")
    await saved(acme, {"required_connections": {DOMAIN: "okta", "partner.example": "okta"}}, "owner")
    await put_list(acme, "owner")
    await saved(acme, {"required_connection": "okta"}, "owner", "shop")
    assert (await acme.api.delete(f"{acme.path}/domains/de.eu.{DOMAIN}", token=acme.token("integrator"))).status == 204
    assert await imposed(acme) == ({} if between else {None: ["required_connections"]})
    assert (await remove(acme)).status == (400 if between else 204)
    assert sorted((await load(acme))["required_connections"]) == left
    assert (await load(acme, "shop"))["required_connection"] == "okta"


async def test_a_dropped_domain_is_an_imposed_rule(acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    """Without its domain's connection, an address needs the second connection, which knows its user."""
    owner, subdomain = acme.people["owner"], f"eu.{DOMAIN}"
    await set_up(ports, pool, acme.org, owner.id)
    own = await add_connection(ports.storage, acme.org, "own")
    await know(pool, own, owner.id)
    await run_sql(pool, "update users set email = split_part(email, '@', 1) || '@elsewhere.example' where id <> %s", owner.id)
    await run_sql(pool, "update users set email = 'owner@' || %s where id = %s", subdomain, owner.id)
    verified = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'c', now(), now())"
    await run_sql(pool, verified, acme.org, subdomain)
    now = ports.clock.now()
    await write_proofs(pool, owner.id, (*two_factors(now), connection_proof(acme.org, now, connection=own.id)))
    rules = {DOMAIN: "okta", subdomain: "own"}
    await saved(acme, {"required_connections": rules}, "owner")
    await saved(acme, {"required_connections": {DOMAIN: "okta"}}, "clerk")
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 401
    assert (await imposed(acme), len(await told(ports, sent))) == ({None: ["required_connections"]}, 2)
    assert (await remove(acme)).status == 204
    assert (await load(acme))["required_connections"] == rules
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 200


async def test_policies_of_applications_and_required_connections_return_to_the_owners(
    acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await add_service(pool, acme.org)
    okta = await set_up(ports, pool, acme.org, acme.people["owner"].id)
    await write_proofs(
        pool, acme.people["owner"].id, (*two_factors(ports.clock.now()), connection_proof(acme.org, ports.clock.now(), connection=okta.id))
    )
    await saved(acme, {"required_connections": {DOMAIN: "okta"}}, "owner")
    other = await add_connection(ports.storage, acme.org, "other")
    await write_proofs(
        pool,
        acme.people["clerk"].id,
        (first_proof("password", ports.clock.now()), connection_proof(acme.org, ports.clock.now(), connection=other.id)),
    )
    await run_sql(pool, "update users set email = 'clerk@elsewhere.example' where id = %s", acme.people["clerk"].id)
    await saved(acme, {"required_connections": {DOMAIN: "other"}}, "clerk")
    await saved(acme, {"session_idle_minutes": 5}, "clerk", "shop", version=0)
    assert len(await told(ports, sent)) == 4
    kept = await acme.api.post(f"{acme.path}/connections/okta/deactivate", token=acme.token("admin"))
    assert kept.status in (401, 409), "the owner's rules name it"
    assert await imposed(acme) == {None: ["required_connections"], "shop": ["session_idle_minutes"]}
    assert (await remove(acme)).status == 204
    rules = await run_sql(pool, "select rules from sign_in_policies where org_id = %s order by service_id nulls first", acme.org)
    assert [{**row[0].get("required_connections", {}).get(DOMAIN, {})}.get("slug") for row in rules] == ["okta", None]
    assert rules[1] == ({},)


@pytest.mark.parametrize("of_application", [{"required_acr": "phr"}, {"methods": ["passkey"]}, {"phishing_resistant": ["everyone"]}])
async def test_a_removal_leaves_no_application_that_no_user_can_open(
    acme: Tenant, pool: Pool, clock: FakeClock, of_application: Mapping[str, Any]
) -> None:
    """The owner's methods and an application's later rules have no way in common (SP-5)."""
    await add_service(pool, acme.org)
    await saved(acme, {"methods": ["password", "totp"]}, "owner")
    passkey = Proof(Method.PASSKEY, clock.now(), user_verified=True, phishing_resistant=True)
    for name in ("owner", "clerk", "admin"):
        await add_passkeys(pool, acme.people[name].id, RP_ID)
        await write_proofs(pool, acme.people[name].id, (*two_factors(clock.now()), passkey))
    await saved(acme, {"methods": ["passkey"]}, "clerk")
    if "required_acr" in of_application:
        assert (await acme.api.patch(f"{acme.path}/services/shop", of_application, token=acme.token("admin"))).status == 200
    else:
        await saved(acme, {**of_application}, "owner", "shop")
    assert (await remove(acme)).status == 204
    of_organization, of_shop = await load(acme), await load(acme, "shop")
    assert of_organization["methods"] == ["password", "passkey", "totp"]
    assert of_shop["in_force"]["methods"] == (["passkey"] if "methods" in of_application else ["password", "passkey", "totp"])
    await saved(acme, {"methods": of_organization["methods"], "session_idle_minutes": 60}, "owner")


async def test_a_required_connection_that_a_weaker_member_changes_is_told_and_removable(
    acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    """A wrong secret or setting keeps out the users who have to come through the connection, also if the owner's own rule says so."""
    owner = acme.people["owner"].id
    okta = await set_up(ports, pool, acme.org, owner)
    path = f"{acme.path}/connections/okta"
    mapping = (await acme.api.get(path, token=acme.token("admin"))).json["mapping"]

    async def change_all(by: str, name: str) -> None:
        for method, suffix, body in (
            ("PUT", "/client-secret", {"client_secret": "y" * 20}),
            ("PATCH", "", {"mapping": {**mapping, "name": name}}),
        ):
            through = connection_proof(acme.org, clock.now(), connection=okta.id)
            await write_proofs(pool, owner, (*two_factors(clock.now()), through))
            await saved(acme, {"required_connections": {DOMAIN: "okta"}, "session_idle_minutes": 60}, "owner")
            answer = await acme.api.call(method, path + suffix, body, token=acme.token(by))
            assert answer.status in (200, 204), answer.text
            if by == "owner":
                assert (await imposed(acme), await told(ports, sent)) == ({}, [])
                continue
            await write_proofs(pool, owner, two_factors(clock.now()))
            assert await imposed(acme) == {None: ["required_connections"]}
            assert len(await told(ports, sent)) == 2
            assert "Required connection (okta)" in sent.emails[0].text
            assert (await remove(acme)).status == 204
            rules = (await load(acme))["in_force"]
            assert (rules["required_connections"], rules["session_idle_minutes"]) == (None, 60)
            await deliver(ports)
            sent.emails.clear()

    await run_sql(pool, "update users set email = 'admin@elsewhere.example' where id = %s", acme.people["admin"].id)
    await change_all("owner", "nickname")
    await change_all("admin", "given_name")


async def test_the_list_of_break_glass_is_told_and_returns_to_the_owners(
    acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    assert (await put_list(acme, "owner", "admin")).status == 200
    assert await told(ports, sent) == []
    assert (await put_list(acme, "clerk", by="clerk")).status == 200
    assert len(await told(ports, sent)) == 2
    assert "Break glass" in sent.emails[-1].text
    assert (await put_list(acme, "clerk", "admin", by="clerk")).status == 200
    assert await imposed(acme) == {None: ["break_glass_users"]}
    assert (await load(acme))["imposed"] == ["break_glass_users"]
    assert (await acme.set_role("owner", "admin", MEMBER)).status == 200, "no longer an admin"
    assert (await remove(acme)).status == 204
    listed = await acme.api.get(f"{path_of(acme)}/break-glass", token=acme.token("owner"))
    assert listed.json["user_ids"] == [acme.id("owner")]
    assert await imposed(acme) == {}
    assert (await acme.set_role("owner", "admin", ADMIN)).status == 200
    assert (await put_list(acme, "admin", by="clerk")).status == 200
    assert (await put_list(acme, "admin")).status == 200, "the owner makes it their own"
    assert await imposed(acme) == {}


async def test_the_owner_stays_on_the_list_without_a_factor_that_an_application_asks_for_since(
    acme: Tenant, ports: Ports, pool: Pool
) -> None:
    await set_up(ports, pool, acme.org, acme.people["owner"].id)
    owner, now = acme.people["owner"].id, ports.clock.now()
    await run_sql(pool, "delete from connection_identities")
    await write_proofs(pool, owner, two_factors(now))
    others = "update users set email = split_part(email, '@', 1) || '@elsewhere.example' where email like '%%@acme.example' and id <> %s"
    await run_sql(pool, others, owner)
    await add_service(pool, acme.org)
    assert (await put_list(acme, "owner")).status == 200
    await saved(acme, {"required_connections": {DOMAIN: "okta"}}, "owner")
    assert (await put_list(acme, by="admin")).status == 200
    assert (await acme.api.patch(f"{acme.path}/services/shop", {"required_acr": "phr"}, token=acme.token("admin"))).status == 200
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 401
    assert (await remove(acme)).status == 204
    assert (await acme.api.get(f"{acme.path}/members", token=acme.token("owner"))).status == 200


@pytest.mark.parametrize("service", [None, "shop"])
async def test_a_rule_that_starts_sooner_is_imposed(acme: Tenant, ports: Ports, pool: Pool, service: str | None) -> None:
    """A weaker member tightens the owner's rule that starts later, and then saves it again as it was: it would start at once."""
    await add_service(pool, acme.org)
    passkey = Proof(Method.PASSKEY, ports.clock.now(), user_verified=True, phishing_resistant=True)
    for name in ("owner", "clerk"):
        await add_passkeys(pool, acme.people[name].id, RP_ID)
        await write_proofs(pool, acme.people[name].id, (*two_factors(ports.clock.now()), passkey))
    later = {"phishing_resistant": ["admins"], "grace_days": 60}
    await saved(acme, later, "owner", service)
    starts = "select rules -> 'due_at' from sign_in_policies where org_id = %s and rules ? 'due_at'"
    before = await run_sql(pool, starts, acme.org)
    await saved(acme, {"phishing_resistant": ["everyone"]}, "clerk", service)
    await saved(acme, later, "clerk", service)
    assert await imposed(acme) == {service: ["phishing_resistant"]}
    assert (await remove(acme)).status == 204
    assert before != []
    assert await run_sql(pool, starts, acme.org) == before


async def test_the_page_leads_to_a_confirmation_with_a_factor(
    acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """First, an owner with a passkey signed in by the password alone. Then an owner with an app signed in on a trusted device."""
    account = await add_account(ports, "boss@acme.example")
    await acme.join("boss", account, ADMIN)
    assert (await acme.transfer("owner", "boss")).status == 200
    await saved(acme, {"session_idle_minutes": 30}, "clerk", version=0)
    path, browser = f"/app/organizations/{acme.slug}/sign-in-policy/imposed-rules", FakeBrowser(app)
    await browser.sign_in(account.email)
    assert 'href="/app/account/security"' in main_of(await browser.submit(path, path)), "without a factor"
    await add_passkeys(pool, account.id, RP_ID)
    confirmation = leads_to(await browser.submit(path, path))
    assert confirmation.startswith("/app/reauthenticate?form="), confirmation
    page = await browser.open(confirmation)
    assert "Your account has a passkey, and this needs it." in main_of(page), main_of(page)
    await run_sql(pool, "delete from passkeys where user_id = %s", account.id)
    authenticator, browser = await add_mfa(ports, account), FakeBrowser(app)
    await browser.sign_in(account.email)
    await browser.show_code(authenticator.code(), trust="yes")
    policy_page = (await browser.open(f"/app/organizations/{acme.slug}/sign-in-policy")).text
    assert f'<a href="{path}">Remove these rules</a>, or save this policy and its break-glass list to make them yours.' in policy_page
    browser.cookies.pop("gatehouse-session")
    await browser.sign_in(account.email)
    page = await browser.open(leads_to(await browser.submit(path, path)))
    clock.advance(timedelta(minutes=1))
    kept = await browser.open(leads_to(await browser.send("/app/reauthenticate", **hidden_fields(page), code=authenticator.code())))
    assert (await browser.send(path, **hidden_fields(kept))).status == 303


async def test_the_page_that_refuses_the_owner_leads_to_the_removal(acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, "boss@acme.example")
    await acme.join("boss", account, ADMIN)
    assert (await acme.transfer("owner", "boss")).status == 200
    await saved(acme, {"admin_networks": HERE}, "clerk", version=0)
    path = f"/app/organizations/{acme.slug}/sign-in-policy/imposed-rules"
    browser = FakeBrowser(app)
    await browser.sign_in(account.email)
    answer = await browser.submit(path, path)
    assert "your account has none" in answer.text, answer.text
    authenticator, browser = await add_mfa(ports, account), FakeBrowser(app)
    await browser.sign_in(account.email)
    await browser.show_code(authenticator.code())
    refused = await browser.open(f"/app/organizations/{acme.slug}/sign-in-policy")
    assert refused.status == 403
    assert f'href="{path}"' in refused.text, refused.text
    assert f'href="{path}"' in (await browser.open("/app/account/organizations")).text
    page = await browser.open(path)
    assert (page.status, "Networks of admins" in page.text) == (200, True), page.text
    done = await browser.submit(path, path)
    assert done.status == 303, done.text
    assert (await browser.open(f"/app/organizations/{acme.slug}/sign-in-policy")).status == 200
    shown = main_of(await browser.open(path))
    assert ("There is nothing to remove" in shown, "<form" in shown) == (True, False)
    answer = await browser.submit(path, path)
    assert (answer.status, "There is nothing to remove" in answer.text) == (400, True)

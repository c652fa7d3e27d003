"""Starting an impersonation (decisions 151, 229; security I-2, I-3, I-4, I-5, J-9)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.profiles import NO_FIELDS
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import (
    Answer,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.impersonator import AGENT, CLIENT, HOUR, REASON, Support
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant
from tests.tenancy.organizations import claims, refresh

# The session and its tokens


async def test_an_impersonator_gets_a_session_of_the_user_for_an_hour(support: Support, clock: FakeClock, pool: Pool) -> None:
    answer = await support.ask()
    impersonation = answer.json
    assert set(impersonation) == {"access_token", "refresh_token", "impersonated_user", "session_id", "expires_at", "audit_log_id"}
    assert impersonation["impersonated_user"] == {"id": str(support.user.id), "email": support.user.email}
    assert datetime.fromisoformat(impersonation["expires_at"]) == clock.now() + HOUR
    assert impersonation["expires_at"].endswith("Z")
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await support.profile(impersonation["access_token"])).json == {
        "id": str(support.user.id),
        "email": support.user.email,
        "org": "",
        "service": "",
        **NO_FIELDS,
        "pending_email": None,
    }
    columns = "id, user_id, impersonator_id, impersonator_session_id, org_id, service_id, expires_at, ends_at, address"
    end = clock.now() + HOUR
    assert await run_sql(pool, f"select {columns} from sessions where user_id = %s", support.user.id) == [  # noqa: S608
        (UUID(impersonation["session_id"]), support.user.id, support.account.id, support.session.session_id, None, None, end, end, None)
    ]


async def test_the_tokens_name_the_user_and_the_impersonator(support: Support) -> None:
    impersonation = await support.begin()
    payload = claims(impersonation["access_token"])
    assert (payload["sub"], payload["email"], payload["sid"]) == (str(support.user.id), support.user.email, impersonation["session_id"])
    assert (payload["impersonator"], payload["impersonation_session"]) == (str(support.account.id), impersonation["session_id"])
    own_claims = claims((await refresh(support.api, support.session.refresh_token)).json["access_token"])
    assert not {"impersonator", "impersonation_session"} & own_claims.keys()


async def test_the_tokens_name_both_after_a_refresh_and_a_selection(support: Support, pool: Pool) -> None:
    await add_member(pool, await add_organization(pool, "acme"), support.user.id)
    impersonation = await support.begin()
    renewed = (await refresh(support.api, impersonation["refresh_token"])).json
    selection = (await support.api.post("/api/organizations/acme/select", token=renewed["access_token"])).json
    last = (await refresh(support.api, selection["refresh_token"])).json
    for pair in (renewed, selection, last):
        payload = claims(pair["access_token"])
        assert (payload["impersonator"], payload["impersonation_session"]) == (str(support.account.id), impersonation["session_id"])
    assert claims(last["access_token"])["org"] == "acme"


async def test_no_refreshed_token_outlives_the_hour(support: Support, clock: FakeClock, pool: Pool) -> None:
    impersonation = await support.begin()
    pair = impersonation
    for _ in range(5):
        clock.advance(timedelta(minutes=11))
        pair = (await refresh(support.api, pair["refresh_token"])).json
    assert pair["expires_in"] == 300
    clock.advance(timedelta(minutes=5) - timedelta(seconds=1))
    assert (await support.profile(pair["access_token"])).status == 200
    clock.advance(timedelta(seconds=1))
    assert (await support.profile(pair["access_token"])).status == 401
    assert refused(await refresh(support.api, pair["refresh_token"])) == UNAUTHORIZED


async def test_an_impersonation_does_not_outlive_the_impersonators_session(support: Support, clock: FakeClock, pool: Pool) -> None:
    end = clock.now() + timedelta(minutes=20)
    await run_sql(pool, "update sessions set ends_at = %s where id = %s", end, support.session.session_id)
    assert datetime.fromisoformat((await support.begin())["expires_at"]) == end


async def test_an_impersonation_is_not_recorded_as_a_login(support: Support, metrics: FakeMetrics, pool: Pool) -> None:
    shop = await add_service(pool, await add_organization(pool, "acme"))
    await add_service_user(support.ports, shop, support.user.id)
    await support.begin()
    await support.begin(org_slug="acme", service_slug="shop")
    for table in ("login_events", "login_totals", "mails"):
        assert await run_sql(pool, f"select * from {table}") == [], table  # noqa: S608
    assert {name for (name,) in await run_sql(pool, "select name from events")} == {"user.impersonated"}


# The context


async def test_an_impersonation_without_a_context_is_recorded_by_the_platform_only(support: Support, acme: Tenant, pool: Pool) -> None:
    impersonation = await support.begin(target=acme.id("member"))
    assert "org" not in claims(impersonation["access_token"])
    assert await acme.log() == []
    assert len(await support.log()) == 1


async def test_in_an_organization_the_impersonator_acts_as_the_member(support: Support, acme: Tenant) -> None:
    impersonation = await support.begin(target=acme.id("admin"), org_slug="acme")
    payload = claims(impersonation["access_token"])
    assert (payload["org"], payload["org_id"]) == ("acme", str(acme.org))
    assert (await support.profile(impersonation["access_token"])).json["org"] == "acme"
    assert (await support.api.get(acme.invitations, token=impersonation["access_token"])).status == 200
    assert claims((await refresh(support.api, impersonation["refresh_token"])).json["access_token"])["org"] == "acme"


async def test_in_a_service_the_token_is_the_applications(support: Support, acme: Tenant, clock: FakeClock) -> None:
    shop = await add_service(acme.pool, acme.org)
    gold = await add_plan(acme.pool, shop)
    await add_service_user(support.ports, shop, support.user.id)
    await add_subscription(support.ports, acme.pool, shop, support.user.id, gold, ends=clock.now() + HOUR)
    impersonation = await support.begin(org_slug="acme", service_slug="shop")
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services")
    renewed = (await refresh(support.api, impersonation["refresh_token"])).json
    for token in (impersonation["access_token"], renewed["access_token"]):
        payload = claims(token)
        assert (payload["aud"], payload["org"], payload["service"], payload["plan"]) == (str(client_id), "acme", "shop", "Gold")
        assert (payload["impersonator"], payload["impersonation_session"]) == (str(support.account.id), impersonation["session_id"])
        assert (await support.profile(token)).json["service"] == "shop"
        # The same rights as any application token (security J-9)
        for path in (acme.path, "/api/platform/tiers", "/api/organizations"):
            assert refused(await support.api.get(path, token=token)) == FORBIDDEN
    await run_sql(acme.pool, "delete from service_users")
    assert refused(await support.profile(renewed["access_token"])) == FORBIDDEN


@pytest.mark.slow
async def test_the_context_must_belong_to_the_user(support: Support, acme: Tenant, other_tenant: Tenant) -> None:
    for tenant in (acme, other_tenant):
        await add_service_user(support.ports, await add_service(tenant.pool, tenant.org, f"{tenant.slug}-shop"), acme.people["member"].id)
    await add_service(acme.pool, acme.org, "unused")
    member, before = acme.id("member"), await support.everything()
    refusals: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({"org_slug": "nowhere"}, MISSING),
        ({"org_slug": "Acme"}, MISSING),
        ({"org_slug": ""}, MISSING),
        ({"org_slug": "nowhere", "service_slug": "acme-shop"}, MISSING),
        ({"org_slug": "acme", "service_slug": "nothing"}, MISSING),
        ({"org_slug": "acme", "service_slug": "twin-shop"}, MISSING),
        ({"org_slug": "acme", "service_slug": ""}, MISSING),
        ({"service_slug": "acme-shop"}, BAD),
        ({"org_slug": None, "service_slug": "acme-shop"}, BAD),
        ({"org_slug": "twin"}, BAD),  # the user uses its service without a membership
        ({"org_slug": "acme", "service_slug": "unused"}, BAD),  # a member who does not use the service
        ({"org_slug": 5}, BAD),
        ({"org_slug": ["acme"]}, BAD),
        ({"org_slug": "acme", "service_slug": True}, BAD),
    ]
    for context, refusal in refusals:
        assert refused(await support.ask(target=member, **context)) == refusal, context
    assert await support.everything() == before
    allowed_contexts: list[dict[str, Any]] = [{"org_slug": "acme", "service_slug": None}, {"org_slug": "twin", "service_slug": "twin-shop"}]
    for context in allowed_contexts:
        assert (await support.ask(target=member, **context)).status == 200, context


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_is_refused_as_context(support: Support, acme: Tenant, status: str) -> None:
    await add_service_user(support.ports, await add_service(acme.pool, acme.org), acme.people["member"].id)
    await acme.set_status(status)
    before = await support.everything()
    for slugs in ({"org_slug": "acme"}, {"org_slug": "acme", "service_slug": "shop"}, {"org_slug": "acme", "service_slug": "nothing"}):
        assert refused(await support.ask(target=acme.id("member"), **slugs)) == NOT_ACTIVE
        assert refused(await support.ask(**slugs)) == NOT_ACTIVE
    assert await support.everything() == before
    assert (await support.ask(target=acme.id("member"))).status == 200, "without a context it works"


# Impersonators and targets


async def test_only_platform_owners_can_impersonate(support: Support, acme: Tenant, ports: Ports) -> None:
    before = await support.everything()
    for target in (support.user.id, uuid4()):
        assert refused(await support.ask(target=target, token=acme.token("owner"))) == FORBIDDEN
        anonymous = await support.api.post(f"/api/platform/impersonate/{target}", {"reason": REASON})
        assert refused(anonymous) == UNAUTHORIZED
    assert await support.everything() == before


async def test_an_impersonator_cannot_start_another_impersonation(support: Support, ports: Ports) -> None:
    other = await add_account(ports, "other@example.com", None)
    token = (await support.begin())["access_token"]
    answer = await support.ask(target=other.id, token=token)
    assert refused(answer) == FORBIDDEN
    assert "impersonating" in answer.json["error"]


async def test_an_unknown_user_is_refused_before_the_body_is_validated(support: Support) -> None:
    before = await support.everything()
    for target in (uuid4(), "x", str(support.user.id).upper(), "me", support.user.email):
        for body in ({"reason": REASON}, {}, {"reason": 5}, {"reason": REASON, "org_slug": "nowhere"}):
            assert refused(await support.ask(body, target=target)) == MISSING, (target, body)
    assert await support.everything() == before


async def test_oneself_platform_owners_and_closed_accounts_cannot_be_impersonated(support: Support, ports: Ports, clock: FakeClock) -> None:
    now = clock.now()
    colleague = await add_platform_owner(ports, "colleague@platform.example")
    deactivated = await add_account(ports, "off@example.com", None, deactivated_at=now)
    anonymized = await add_account(ports, "gone@deleted.local", None, anonymized_at=now)
    before = await support.everything()
    sentences = set()
    for account in (support.account, colleague, deactivated, anonymized):
        answer = await support.ask(target=account.id)
        assert refused(answer) == BAD, account.email
        sentences.add(answer.json["error"])
    assert len(sentences) == 3
    assert await support.everything() == before


# The reason


async def test_a_reason_has_1_to_500_characters(support: Support) -> None:
    expected = {}
    for reason in ("x", "x" * 500, "  trimmed  ", "Größe: 大きさ — “ok”"):
        expected[(await support.begin(reason=reason))["audit_log_id"]] = reason.strip()
    assert {str(entry["id"]): entry["details"]["reason"] for entry in await support.log()} == expected


async def test_an_invalid_reason_is_refused(support: Support) -> None:
    before = await support.everything()
    reasons = (None, "", "   ", "x" * 501, 5, ["x"], "a\x00b", "a\nb", "a\x1b[31m", "a\x7f", "a\x85b", "a\u202eb")
    bodies: list[dict[str, Any]] = [{}, *({"reason": reason} for reason in reasons)]
    assert [body for body in bodies if refused(await support.ask(body)) != BAD] == []
    assert await support.everything() == before


# Records


async def test_the_platforms_log_stores_the_reason(support: Support) -> None:
    impersonation = await support.begin()
    assert await support.log() == [
        {
            "id": UUID(impersonation["audit_log_id"]),
            "action": "user.impersonated",
            "target_type": "user",
            "target_id": str(support.user.id),
            "actor_id": support.account.id,
            "impersonator_id": support.account.id,
            "address": CLIENT,
            "agent": AGENT["User-Agent"],
            "details": {
                "session_id": impersonation["session_id"],
                "expires_at": impersonation["expires_at"],
                "org_id": None,
                "service_slug": None,
                "reason": REASON,
            },
        }
    ]


@pytest.mark.parametrize("service", [None, "shop"])
async def test_the_organization_sees_the_impersonator_but_not_the_reason(support: Support, acme: Tenant, service: str | None) -> None:
    await add_service_user(support.ports, await add_service(acme.pool, acme.org), acme.people["member"].id)
    impersonation = await support.begin(target=acme.id("member"), org_slug="acme", service_slug=service)
    [entry] = (await support.api.get(f"{acme.path}/audit-log", token=acme.token("owner"))).json["logs"]
    impersonator = {"id": str(support.account.id), "email": support.account.email}
    assert (entry["action"], entry["target_type"], entry["target_id"]) == ("user.impersonated", "user", acme.id("member"))
    assert entry["actor"] == {**impersonator, "is_platform_owner": True, "kind": "user", "name": None}
    assert entry["details"] == {
        "session_id": impersonation["session_id"],
        "expires_at": impersonation["expires_at"],
        "service_slug": service,
        "impersonator": impersonator,
    }
    [log_entry] = await support.log()
    assert entry["id"] != impersonation["audit_log_id"] == str(log_entry["id"])
    assert (log_entry["details"]["reason"], log_entry["details"]["org_id"]) == (REASON, str(acme.org))
    [(_, target, data)] = await acme.webhook_events()
    assert target == acme.id("member")
    assert "reason" not in data


# Races


async def test_a_platform_owner_demoted_during_the_request_is_refused(support: Support, pool: Pool) -> None:
    demote = "update users set is_platform_owner = false where id = %s"
    answer = await run_during(pool, [(demote, (support.account.id,))], support.ask)
    assert refused(answer) == FORBIDDEN
    assert await run_sql(pool, "select * from sessions where user_id = %s", support.user.id) == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update users set is_platform_owner = true where id = %s", BAD),
        ("update users set deactivated_at = now() where id = %s", BAD),
        ("update users set anonymized_at = now() where id = %s", BAD),
        ("delete from users where id = %s", MISSING),
    ],
)
async def test_a_target_that_changes_during_the_request_is_checked_again(
    support: Support, pool: Pool, change: str, refusal: tuple[int, str]
) -> None:
    answer = await run_during(pool, [(change, (support.user.id,))], support.ask)
    assert refused(answer) == refusal
    assert await run_sql(pool, "select * from sessions where user_id = %s", support.user.id) == []
    assert await support.log() == []


async def test_a_membership_that_ends_during_the_request_is_refused_as_context(support: Support, acme: Tenant) -> None:
    leave = "delete from memberships where user_id = %s"
    member = acme.people["member"].id
    answer = await run_during(acme.pool, [(leave, (member,))], lambda: support.ask(target=member, org_slug="acme"))
    assert refused(answer) == BAD


@pytest.mark.slow
async def test_twenty_concurrent_impersonations_share_one_device(support: Support, pool: Pool) -> None:
    answers = await run_concurrently(20, lambda _: support.ask())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["session_id"] for answer in answers}) == 20
    assert await run_sql(pool, "select count(*), count(distinct device_id) from sessions where user_id = %s", support.user.id) == [(20, 1)]
    assert await run_sql(pool, "select count(*) from devices") == [(1,)]


@pytest.mark.slow
async def test_two_platform_owners_who_impersonate_each_other_do_not_deadlock(support: Support, ports: Ports) -> None:
    colleague = await add_platform_owner(ports, "colleague@platform.example")
    other = replace(support, account=colleague, session=await sign_in(ports, colleague))

    async def act(number: int) -> Answer:
        one, target = (support, colleague) if number % 2 else (other, support.account)
        return await one.ask(target=target.id)

    assert {refused(answer) for answer in await run_concurrently(20, act)} == {BAD}

"""Acting as somebody else: who may, as whom, where, for how long, and what is to be seen of it afterwards (identity.md sections 2.9 and
4.8; decisions, points 149 to 153 and 229; security.md I-2 to I-5, J-9)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.pool import Pool
from core import events
from core.access import Role
from core.accounts import Account
from core.errors import StorageDown
from entrypoints.http.access import access_of
from entrypoints.http.app import create_app
from ports import Ports
from tests.builders import (
    Answer,
    Api,
    SignedIn,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    everyone,
    impersonate,
    make_edge,
    meanwhile,
    run_sql,
    sign_in,
)
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.http.direct import ask
from tests.http.organizations import claims, refresh
from tests.services import add_plan, add_service, add_service_user, add_subscription
from tests.tenants import Tenant

FORBIDDEN, NOT_FOUND, BAD_REQUEST = (403, "FORBIDDEN"), (404, "NOT_FOUND"), (400, "BAD_REQUEST")
NOT_ACTIVE, UNAUTHORIZED = (403, "ORGANIZATION_NOT_ACTIVE"), (401, "UNAUTHORIZED")
HOUR = timedelta(hours=1)
CLIENT = "0.0.0.0"  # the address that the framework's own client comes from  # noqa: S104
REASON = "Ticket 4711: she sees no invoices"
AGENT = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"}


@dataclass(slots=True)
class Support:
    """A platform owner who helps somebody."""

    api: Api
    ports: Ports
    pool: Pool
    account: Account
    session: SignedIn
    ada: Account

    async def ask(self, body: Mapping[str, Any] | None = None, /, target: object = None, token: str | None = None, **fields: Any) -> Answer:
        sent = {"reason": REASON, **fields} if body is None else body
        path = f"/api/platform/impersonate/{self.ada.id if target is None else target}"
        return await self.api.post(path, sent, token=token or self.session.access_token, headers=AGENT)

    async def begin(self, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(**fields)
        assert answer.status == 200, answer.text
        begun: dict[str, Any] = answer.json
        return begun

    async def profile(self, token: str) -> Answer:
        return await self.api.get("/api/user", token=token)

    async def log(self) -> list[dict[str, Any]]:
        """The platform's own log, the oldest entry first."""
        columns = ("id", "action", "target_type", "target_id", "actor_id", "impersonator_id", "address", "agent", "details")
        entries = f"select {', '.join(columns)} from audit_log where org_id is null order by created_at, ctid"  # noqa: S608
        return [dict(zip(columns, row, strict=True)) for row in await run_sql(self.pool, entries)]

    async def requests(self) -> list[dict[str, Any]]:
        """What the log says was asked for by somebody who impersonates."""
        return [entry for entry in await self.log() if entry["action"] == "impersonation.request"]

    async def everything(self) -> list[Any]:
        """All that a refused impersonation must leave alone."""
        tables = ("sessions", "refresh_tokens", "devices", "audit_log", "events", "mails", "login_events")
        return [await run_sql(self.pool, f"select count(*) from {table}") for table in tables]  # noqa: S608


@pytest.fixture
async def support(api: Api, ports: Ports, pool: Pool) -> Support:
    account = await add_platform_owner(ports, "support@platform.example")
    return Support(api, ports, pool, account, await sign_in(ports, account), await add_account(ports, password=None))


def what(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


# What it gives


async def test_whoever_impersonates_gets_a_session_of_the_person_for_an_hour(support: Support, clock: FakeClock, pool: Pool) -> None:
    answer = await support.ask()
    begun = answer.json
    assert set(begun) == {"access_token", "refresh_token", "impersonated_user", "session_id", "expires_at", "audit_log_id"}
    assert begun["impersonated_user"] == {"id": str(support.ada.id), "email": support.ada.email}
    assert datetime.fromisoformat(begun["expires_at"]) == clock.now() + HOUR
    assert begun["expires_at"].endswith("Z")
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await support.profile(begun["access_token"])).json == {
        "id": str(support.ada.id),
        "email": support.ada.email,
        "org": "",
        "service": "",
    }
    columns = "id, user_id, impersonator_id, impersonator_session_id, org_id, service_id, expires_at, ends_at, address"
    end = clock.now() + HOUR
    assert await run_sql(pool, f"select {columns} from sessions where user_id = %s", support.ada.id) == [  # noqa: S608
        (UUID(begun["session_id"]), support.ada.id, support.account.id, support.session.session_id, None, None, end, end, CLIENT)
    ]


async def test_its_tokens_say_who_it_is_and_who_is_behind_it(support: Support) -> None:
    begun = await support.begin()
    said = claims(begun["access_token"])
    assert (said["sub"], said["email"], said["sid"]) == (str(support.ada.id), support.ada.email, begun["session_id"])
    assert (said["impersonator"], said["impersonation_session"]) == (str(support.account.id), begun["session_id"])
    own = claims((await refresh(support.api, support.session.refresh_token)).json["access_token"])
    assert not {"impersonator", "impersonation_session"} & own.keys()


async def test_they_say_it_after_a_refresh_and_a_selection(support: Support, pool: Pool) -> None:
    await add_member(pool, await add_organization(pool, "acme"), support.ada.id)
    begun = await support.begin()
    renewed = (await refresh(support.api, begun["refresh_token"])).json
    selected = (await support.api.post("/api/organizations/acme/select", token=renewed["access_token"])).json
    last = (await refresh(support.api, selected["refresh_token"])).json
    for pair in (renewed, selected, last):
        said = claims(pair["access_token"])
        assert (said["impersonator"], said["impersonation_session"]) == (str(support.account.id), begun["session_id"])
    assert claims(last["access_token"])["org"] == "acme"


async def test_no_token_outlives_the_hour_however_often_it_is_renewed(support: Support, clock: FakeClock, pool: Pool) -> None:
    begun = await support.begin()
    pair = begun
    for _ in range(5):
        clock.advance(timedelta(minutes=11))
        pair = (await refresh(support.api, pair["refresh_token"])).json
    assert pair["expires_in"] == 300
    clock.advance(timedelta(minutes=5) - timedelta(seconds=1))
    assert (await support.profile(pair["access_token"])).status == 200
    clock.advance(timedelta(seconds=1))
    assert (await support.profile(pair["access_token"])).status == 401
    assert what(await refresh(support.api, pair["refresh_token"])) == UNAUTHORIZED


async def test_nor_does_it_outlive_the_session_it_was_begun_in(support: Support, clock: FakeClock, pool: Pool) -> None:
    end = clock.now() + timedelta(minutes=20)
    await run_sql(pool, "update sessions set ends_at = %s where id = %s", end, support.session.session_id)
    assert datetime.fromisoformat((await support.begin())["expires_at"]) == end


async def test_it_is_no_login(support: Support, metrics: FakeMetrics, pool: Pool) -> None:
    shop = await add_service(pool, await add_organization(pool, "acme"))
    await add_service_user(support.ports, shop, support.ada.id)
    await support.begin()
    await support.begin(org_slug="acme", service_slug="shop")
    for table in ("login_events", "login_totals", "mails"):
        assert await run_sql(pool, f"select * from {table}") == [], table  # noqa: S608
    assert {name for (name,) in await run_sql(pool, "select name from events")} == {"user.impersonated"}


# In which context


async def test_without_a_context_nobody_but_the_platform_hears_of_it(support: Support, acme: Tenant, pool: Pool) -> None:
    begun = await support.begin(target=acme.id("member"))
    assert "org" not in claims(begun["access_token"])
    assert await acme.log() == []
    assert len(await support.log()) == 1


async def test_in_an_organization_the_person_is_its_member(support: Support, acme: Tenant) -> None:
    begun = await support.begin(target=acme.id("admin"), org_slug="acme")
    said = claims(begun["access_token"])
    assert (said["org"], said["org_id"]) == ("acme", str(acme.org))
    assert (await support.profile(begun["access_token"])).json["org"] == "acme"
    assert (await support.api.get(acme.invitations, token=begun["access_token"])).status == 200
    assert claims((await refresh(support.api, begun["refresh_token"])).json["access_token"])["org"] == "acme"


async def test_in_a_service_the_person_is_its_user_and_the_token_the_applications(support: Support, acme: Tenant, clock: FakeClock) -> None:
    shop = await add_service(acme.pool, acme.org)
    gold = await add_plan(acme.pool, shop)
    await add_service_user(support.ports, shop, support.ada.id)
    await add_subscription(support.ports, acme.pool, shop, support.ada.id, gold, ends=clock.now() + HOUR)
    begun = await support.begin(org_slug="acme", service_slug="shop")
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services")
    renewed = (await refresh(support.api, begun["refresh_token"])).json
    for token in (begun["access_token"], renewed["access_token"]):
        said = claims(token)
        assert (said["aud"], said["org"], said["service"], said["plan"]) == (str(client_id), "acme", "shop", "Gold")
        assert (said["impersonator"], said["impersonation_session"]) == (str(support.account.id), begun["session_id"])
        assert (await support.profile(token)).json["service"] == "shop"
        # As with any other token of an application (security.md J-9).
        for path in (acme.path, "/api/platform/tiers", "/api/organizations"):
            assert what(await support.api.get(path, token=token)) == FORBIDDEN
    await run_sql(acme.pool, "delete from service_users")
    assert what(await support.profile(renewed["access_token"])) == FORBIDDEN


@pytest.mark.slow
async def test_the_context_must_be_one_of_the_person(support: Support, acme: Tenant, twin: Tenant) -> None:
    for tenant in (acme, twin):
        await add_service_user(support.ports, await add_service(tenant.pool, tenant.org, f"{tenant.slug}-shop"), acme.people["member"].id)
    await add_service(acme.pool, acme.org, "unused")
    member, before = acme.id("member"), await support.everything()
    refused: list[tuple[dict[str, Any], tuple[int, str]]] = [
        ({"org_slug": "nowhere"}, NOT_FOUND),
        ({"org_slug": "Acme"}, NOT_FOUND),
        ({"org_slug": ""}, NOT_FOUND),
        ({"org_slug": "nowhere", "service_slug": "acme-shop"}, NOT_FOUND),
        ({"org_slug": "acme", "service_slug": "nothing"}, NOT_FOUND),
        ({"org_slug": "acme", "service_slug": "twin-shop"}, NOT_FOUND),
        ({"org_slug": "acme", "service_slug": ""}, NOT_FOUND),
        ({"service_slug": "acme-shop"}, BAD_REQUEST),
        ({"org_slug": None, "service_slug": "acme-shop"}, BAD_REQUEST),
        ({"org_slug": "twin"}, BAD_REQUEST),  # whose service the person uses, without being a member
        ({"org_slug": "acme", "service_slug": "unused"}, BAD_REQUEST),  # a member, who does not use the service
        ({"org_slug": 5}, BAD_REQUEST),
        ({"org_slug": ["acme"]}, BAD_REQUEST),
        ({"org_slug": "acme", "service_slug": True}, BAD_REQUEST),
    ]
    for context, refusal in refused:
        assert what(await support.ask(target=member, **context)) == refusal, context
    assert await support.everything() == before
    let_in: list[dict[str, Any]] = [{"org_slug": "acme", "service_slug": None}, {"org_slug": "twin", "service_slug": "twin-shop"}]
    for context in let_in:
        assert (await support.ask(target=member, **context)).status == 200, context


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_organization_that_is_not_active_is_no_context(support: Support, acme: Tenant, status: str) -> None:
    await add_service_user(support.ports, await add_service(acme.pool, acme.org), acme.people["member"].id)
    await acme.become(status)
    before = await support.everything()
    for named in ({"org_slug": "acme"}, {"org_slug": "acme", "service_slug": "shop"}, {"org_slug": "acme", "service_slug": "nothing"}):
        assert what(await support.ask(target=acme.id("member"), **named)) == NOT_ACTIVE
        assert what(await support.ask(**named)) == NOT_ACTIVE
    assert await support.everything() == before
    assert (await support.ask(target=acme.id("member"))).status == 200, "nothing is wrong with the person"


# Who, and whom


async def test_only_platform_owners_may(support: Support, acme: Tenant, ports: Ports) -> None:
    before = await support.everything()
    for target in (support.ada.id, uuid4()):
        assert what(await support.ask(target=target, token=acme.token("owner"))) == FORBIDDEN
        anonymous = await support.api.post(f"/api/platform/impersonate/{target}", {"reason": REASON})
        assert what(anonymous) == UNAUTHORIZED
    assert await support.everything() == before


async def test_whoever_impersonates_impersonates_nobody_else(support: Support, ports: Ports) -> None:
    other = await add_account(ports, "other@example.com", None)
    token = (await support.begin())["access_token"]
    refused = await support.ask(target=other.id, token=token)
    assert what(refused) == FORBIDDEN
    assert "impersonating" in refused.json["error"]


async def test_an_unknown_person_is_told_before_anything_of_the_body(support: Support) -> None:
    before = await support.everything()
    for target in (uuid4(), "x", str(support.ada.id).upper(), "me", support.ada.email):
        for body in ({"reason": REASON}, {}, {"reason": 5}, {"reason": REASON, "org_slug": "nowhere"}):
            assert what(await support.ask(body, target=target)) == NOT_FOUND, (target, body)
    assert await support.everything() == before


async def test_neither_oneself_nor_a_platform_owner_nor_who_is_gone_can_be_impersonated(
    support: Support, ports: Ports, clock: FakeClock
) -> None:
    now = clock.now()
    colleague = await add_platform_owner(ports, "colleague@platform.example")
    deactivated = await add_account(ports, "off@example.com", None, deactivated_at=now)
    anonymized = await add_account(ports, "gone@deleted.local", None, anonymized_at=now)
    before = await support.everything()
    sentences = set()
    for account in (support.account, colleague, deactivated, anonymized):
        refused = await support.ask(target=account.id)
        assert what(refused) == BAD_REQUEST, account.email
        sentences.add(refused.json["error"])
    assert len(sentences) == 3
    assert await support.everything() == before


# Why


@pytest.mark.parametrize("reason", ["x", "x" * 500, "  trimmed  ", "Größe: 大きさ — “ok”"])
async def test_a_reason_of_1_to_500_characters_will_do(support: Support, reason: str) -> None:
    begun = await support.begin(reason=reason)
    [entry] = await support.log()
    assert (str(entry["id"]), entry["details"]["reason"]) == (begun["audit_log_id"], reason.strip())


@pytest.mark.parametrize(
    "body",
    [
        {},
        *(
            {"reason": reason}
            for reason in (None, "", "   ", "x" * 501, 5, ["x"], "a\x00b", "a\nb", "a\x1b[31m", "a\x7f", "a\x85b", "a\u202eb")
        ),
    ],
)
async def test_without_a_good_reason_nothing_happens(support: Support, body: dict[str, Any]) -> None:
    before = await support.everything()
    assert what(await support.ask(body)) == BAD_REQUEST
    assert await support.everything() == before


# What is recorded of its beginning


async def test_the_platforms_log_has_the_entry_with_the_reason(support: Support) -> None:
    begun = await support.begin()
    assert await support.log() == [
        {
            "id": UUID(begun["audit_log_id"]),
            "action": "user.impersonated",
            "target_type": "user",
            "target_id": str(support.ada.id),
            "actor_id": support.account.id,
            "impersonator_id": support.account.id,
            "address": CLIENT,
            "agent": AGENT["User-Agent"],
            "details": {
                "session_id": begun["session_id"],
                "expires_at": begun["expires_at"],
                "org_id": None,
                "service_slug": None,
                "reason": REASON,
            },
        }
    ]


@pytest.mark.parametrize("service", [None, "shop"])
async def test_the_organization_reads_who_it_was_but_not_why(support: Support, acme: Tenant, service: str | None) -> None:
    await add_service_user(support.ports, await add_service(acme.pool, acme.org), acme.people["member"].id)
    begun = await support.begin(target=acme.id("member"), org_slug="acme", service_slug=service)
    [entry] = (await support.api.get(f"{acme.path}/audit-log", token=acme.token("owner"))).json["logs"]
    who = {"id": str(support.account.id), "email": support.account.email}
    assert (entry["action"], entry["target_type"], entry["target_id"]) == ("user.impersonated", "user", acme.id("member"))
    assert entry["actor"] == {**who, "is_platform_owner": True}
    assert entry["details"] == {
        "session_id": begun["session_id"],
        "expires_at": begun["expires_at"],
        "service_slug": service,
        "impersonator": who,
    }
    [kept] = await support.log()
    assert entry["id"] != begun["audit_log_id"] == str(kept["id"])
    assert (kept["details"]["reason"], kept["details"]["org_id"]) == (REASON, str(acme.org))
    [(_, told, data)] = await acme.told()
    assert told == acme.id("member")
    assert "reason" not in data


# The device


async def test_the_person_sees_one_device_of_the_support_which_is_not_the_current_one(support: Support, clock: FakeClock) -> None:
    mine = (await sign_in(support.ports, support.ada)).access_token
    began = clock.now()
    first = (await support.begin())["access_token"]
    clock.advance(timedelta(minutes=1))
    await support.begin()
    listed = (await support.api.get("/api/user/devices", token=mine)).json
    [device] = listed["devices"]
    assert listed["total"] == 1
    assert (device["name"], device["is_current"], device["trusted"], device["last_ip"]) == ("Platform support", False, False, CLIENT)
    assert datetime.fromisoformat(device["created_at"]) == began
    assert datetime.fromisoformat(device["last_used_at"]) == clock.now()
    seen = (await support.api.get("/api/user/devices", token=first)).json["devices"]
    assert [one["is_current"] for one in seen] == [True]


async def test_who_revokes_that_device_ends_the_impersonation(support: Support) -> None:
    mine = (await sign_in(support.ports, support.ada)).access_token
    begun = await support.begin()
    [device] = (await support.api.get("/api/user/devices", token=mine)).json["devices"]
    assert (await support.api.delete(f"/api/user/devices/{device['id']}", token=mine)).status == 200
    assert what(await support.profile(begun["access_token"])) == UNAUTHORIZED
    assert what(await refresh(support.api, begun["refresh_token"])) == UNAUTHORIZED
    assert (await support.profile(mine)).status == 200
    await support.begin()
    [another] = (await support.api.get("/api/user/devices", token=mine)).json["devices"]
    assert another["id"] != device["id"]


@pytest.mark.slow
async def test_the_person_is_not_taken_for_the_support_on_the_same_browser(api: Api, support: Support) -> None:
    ada = await add_account(support.ports, "grace@example.com")
    await support.begin(target=ada.id)
    for kept in ({}, {"X-Device-Id": "platform support"}):
        mine = (await api.login(ada.email, headers={**AGENT, **kept})).json["access_token"]
        seen = (await api.get("/api/user/devices", token=mine)).json["devices"]
        assert [device["is_current"] for device in seen if device["name"] == "Platform support"] == [False]
        assert [device["name"] for device in seen if device["is_current"]] == ["Firefox on Linux"]


# How it ends


async def _logout(support: Support, token: str) -> None:
    assert (await support.api.post("/api/auth/logout", token=token)).status == 200


async def test_signing_out_ends_it_and_nothing_else(support: Support) -> None:
    mine, begun, another = (await sign_in(support.ports, support.ada)).access_token, await support.begin(), await support.begin()
    await _logout(support, begun["access_token"])
    assert what(await support.profile(begun["access_token"])) == UNAUTHORIZED
    assert what(await refresh(support.api, begun["refresh_token"])) == UNAUTHORIZED
    for token in (mine, another["access_token"], support.session.access_token):
        assert (await support.profile(token)).status == 200


async def promote_target(support: Support, colleague: str) -> Answer:
    return await support.api.post("/api/platform/owners", {"user_id": str(support.ada.id)}, token=colleague)


async def demote_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.delete(f"/api/platform/owners/{support.account.id}", token=colleague)


async def logout_of_impersonator(support: Support, colleague: str) -> Answer:
    return await support.api.post("/api/auth/logout", token=support.session.access_token)


def by_sql(statement: str) -> Callable[[Support, str], Awaitable[None]]:
    async def change(support: Support, colleague: str) -> None:
        await run_sql(support.pool, statement)

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        promote_target,
        demote_impersonator,
        logout_of_impersonator,
        by_sql("update users set deactivated_at = now() where email = 'support@platform.example'"),
        by_sql("update users set anonymized_at = now() where email = 'support@platform.example'"),
        by_sql("delete from sessions where user_id = (select id from users where email = 'support@platform.example')"),
        by_sql("update users set deactivated_at = now() where email = 'ada@example.com'"),
        by_sql("update users set anonymized_at = now() where email = 'ada@example.com'"),
    ],
    ids=["promotion", "demotion", "logout", "deactivated", "anonymized", "sessions-gone", "target-deactivated", "target-anonymized"],
)
async def test_it_ends_with_what_it_rests_on(support: Support, acme: Tenant, change: Callable[[Support, str], Awaitable[Any]]) -> None:
    await add_member(acme.pool, acme.org, support.ada.id, Role.ADMIN)
    shop = await add_service(acme.pool, acme.org)
    await add_service_user(support.ports, shop, support.ada.id)
    colleague = await sign_in(support.ports, await add_platform_owner(support.ports, "colleague@platform.example"))
    begun = [await support.begin(), await support.begin(org_slug="acme"), await support.begin(org_slug="acme", service_slug="shop")]
    await change(support, colleague.access_token)
    for one in begun:
        assert what(await support.profile(one["access_token"])) == UNAUTHORIZED
        assert what(await refresh(support.api, one["refresh_token"])) == UNAUTHORIZED
    for one in begun[:2]:
        assert what(await support.api.get(acme.path, token=one["access_token"])) == UNAUTHORIZED


async def test_the_end_of_a_membership_ends_it_there(support: Support, acme: Tenant) -> None:
    begun, beside = await support.begin(target=acme.id("member"), org_slug="acme"), await support.begin(target=acme.id("member"))
    assert (await acme.remove("owner", "member")).status == 200
    assert what(await support.profile(begun["access_token"])) == UNAUTHORIZED
    assert (await support.profile(beside["access_token"])).status == 200


# What cannot be done meanwhile

# Every route that asks for a token, but those that nobody may use who impersonates.
REFUSED = {
    # password, e-mail address
    ("PATCH", "/api/user"),
    ("POST", "/api/user/set-password"),
    ("POST", "/api/user/change-password"),
    # the second factor
    ("POST", "/api/user/mfa/setup"),
    ("POST", "/api/user/mfa/verify"),
    ("DELETE", "/api/user/mfa"),
    ("POST", "/api/user/mfa/backup-codes/regenerate"),
    # devices
    ("PATCH", "/api/user/devices/<device_id>"),
    ("DELETE", "/api/user/devices/<device_id>"),
    # identities, and what providers gave with them
    ("POST", "/api/user/identities/<provider>/link"),
    ("DELETE", "/api/user/identities/<provider>"),
    ("GET", "/api/provider-token/<provider>"),
    # privacy
    ("GET", "/api/privacy/export/<user_id>"),
    ("DELETE", "/api/privacy/forget/<user_id>"),
    # invitations
    ("POST", "/api/invitations/accept"),
    ("POST", "/api/organizations/<org_slug>/invitations/<invitation_id>/accept"),
    # secrets of programs
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/api-keys"),
    ("POST", "/api/organizations/<org_slug>/services/<service_slug>/rotate-secret"),
    # the organization itself
    ("POST", "/api/organizations/<org_slug>/transfer-ownership"),
    ("DELETE", "/api/organizations/<org_slug>"),
}
# ... and all others. A new route must be in one of the two.
ALLOWED = {
    ("GET", "/api/user"),
    ("GET", "/api/user/mfa/status"),
    ("GET", "/api/user/devices"),
    ("GET", "/api/user/devices/<device_id>"),
    ("GET", "/api/user/identities"),
    ("GET", "/api/subscription"),
    ("POST", "/api/auth/logout"),
    ("GET", "/api/invitations"),
    ("POST", "/api/invitations/decline"),
    ("GET", "/api/organizations"),
    ("POST", "/api/organizations"),
    *((method, "/api/organizations/<org_slug>") for method in ("GET", "PATCH")),
    *(
        (method, f"/api/organizations/<org_slug>/{path}")
        for methods, path in [
            ("POST", "select"),
            ("GET", "members"),
            ("PATCH POST", "members/<user_id>"),
            ("GET POST", "invitations"),
            ("POST", "invitations/<invitation_id>"),
            ("GET POST", "services"),
            ("GET PATCH DELETE", "services/<service_slug>"),
            ("GET POST", "services/<service_slug>/plans"),
            ("PATCH DELETE", "services/<service_slug>/plans/<plan_id>"),
            ("GET", "services/<service_slug>/api-keys"),
            ("GET DELETE", "services/<service_slug>/api-keys/<api_key_id>"),
            ("GET PUT DELETE", "services/<service_slug>/oauth-credentials/<provider>"),
            ("GET", "users"),
            ("GET", "users/<user_id>"),
            ("DELETE", "users/<user_id>/sessions"),
            ("GET", "analytics/login-trends"),
            ("GET", "analytics/logins-by-service"),
            ("GET", "analytics/logins-by-provider"),
            ("GET", "analytics/recent-logins"),
            ("GET", "audit-log"),
            ("GET", "audit-log/event-types"),
            ("GET POST DELETE", "smtp"),
            ("POST", "smtp/test"),
            ("GET PATCH", "branding"),
            ("GET POST DELETE", "domain"),
            ("POST", "domain/verify"),
            ("GET PUT", "hrd"),
        ]
        for method in methods.split()
    ),
}


async def test_for_every_route_it_is_said_whether_an_impersonator_may(app: QuartTrio) -> None:
    may: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for rule in app.url_map.iter_rules():
        access = access_of(app.view_functions[rule.endpoint])
        if access.security == "bearer" and access.name != "pre_auth":
            may[access.impersonated] |= {(method, rule.rule) for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    of_the_platform = {(method, rule) for method, rule in may[False] if rule.startswith("/api/platform/")}
    assert may[False] == REFUSED | of_the_platform
    assert len(of_the_platform) >= 16
    assert may[True] == ALLOWED


@pytest.mark.slow
async def test_what_is_refused_is_refused_before_anything_is_looked_at(support: Support, acme: Tenant, pool: Pool) -> None:
    await add_service(acme.pool, acme.org)
    token = await impersonate(support.ports, support.account, acme.people["owner"], acme.org)
    examples = {"org_slug": "acme", "service_slug": "shop", "provider": "codehost", "user_id": acme.id("owner")}
    tables = ("users", "memberships", "organizations", "services", "api_keys", "mfa", "devices", "identities", "mails")
    before = [await run_sql(pool, f"select * from {table} order by 1") for table in tables]  # noqa: S608
    for method, rule in sorted(REFUSED | {("GET", "/api/platform/tiers"), ("POST", "/api/platform/impersonate/<user_id>")}):
        path = "/".join(examples.get(part[1:-1], str(uuid4())) if part.startswith("<") else part for part in rule.split("/"))
        for body in (None if method == "GET" else {}, None if method == "GET" else {"reason": 5, "token": 5}):
            refused = await support.api.call(method, path, body, token=token)
            assert what(refused) == FORBIDDEN, (method, rule, refused.text)
            assert "impersonating" in refused.json["error"]
    assert [await run_sql(pool, f"select * from {table} order by 1") for table in tables] == before  # noqa: S608


async def test_an_impersonator_confirms_no_membership(support: Support, acme: Tenant) -> None:
    await add_member(acme.pool, acme.org, support.ada.id)
    begun = await support.begin(org_slug="acme")
    assert (await support.api.get(f"{acme.path}/members", token=begun["access_token"])).status == 200
    assert await run_sql(acme.pool, "select confirmed_at from memberships where user_id = %s", support.ada.id) == [(None,)]


# What is recorded of all that is done


async def test_every_request_leaves_an_entry_in_the_platforms_log(support: Support, acme: Tenant, clock: FakeClock) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    user_id = acme.id("member")
    calls = [
        ("GET", "/api/user", "/api/user", {}),
        ("HEAD", "/api/user/devices", "/api/user/devices", {}),
        ("GET", "/api/organizations?x=secret", "/api/organizations", {}),
        ("GET", f"{acme.path}/members?page=0", "/api/organizations/<org_slug>/members", {"org_slug": "acme"}),
        ("GET", f"{acme.path}/users/{user_id}", "/api/organizations/<org_slug>/users/<user_id>", {"org_slug": "acme", "user_id": user_id}),
        ("GET", "/api/user/devices/" + "x" * 300, "/api/user/devices/<device_id>", {"device_id": "x" * 200}),
        ("PATCH", "/api/user", "/api/user", {}),  # which is refused
        ("POST", "/api/auth/logout", "/api/auth/logout", {}),
    ]
    for method, path, _, _ in calls:
        await support.api.call(method, path, token=token, headers=AGENT)
        clock.advance(timedelta(seconds=1))
    assert [entry["details"] for entry in await support.requests()] == [
        {"session_id": claims(token)["sid"], "method": method, "route": route, "arguments": arguments}
        for method, _, route, arguments in calls
    ]
    for entry in await support.requests():
        assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, support.account.id)
        assert (entry["target_type"], entry["target_id"]) == ("user", acme.id("owner"))
        assert (entry["address"], entry["agent"]) == (CLIENT, AGENT["User-Agent"])


async def test_what_is_changed_names_both_persons_in_the_log_of_the_organization(support: Support, acme: Tenant) -> None:
    token = (await support.begin(target=acme.id("owner"), org_slug="acme"))["access_token"]
    assert (await support.api.patch(acme.path, {"name": "Acme & Sons"}, token=token)).status == 200
    entry = await acme.entry("organization.updated")
    assert (entry["actor_id"], entry["impersonator_id"]) == (acme.people["owner"].id, support.account.id)


async def test_an_organization_reads_nothing_of_the_requests(support: Support, acme: Tenant) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    for _ in range(3):
        listed = (await support.api.get(f"{acme.path}/audit-log", token=token)).json
        assert (listed["logs"], listed["pagination"]["total"]) == ([], 0)
    kinds = (await support.api.get(f"{acme.path}/audit-log/event-types", token=token)).json
    assert "user.impersonated" in {kind["value"] for kind in kinds}
    assert "impersonation.request" not in {kind["value"] for kind in kinds}
    assert len(await support.requests()) == 4


async def test_nobody_else_leaves_such_entries(support: Support, acme: Tenant) -> None:
    for path in ("/api/user", acme.path, "/health", "/.well-known/jwks.json"):
        await support.api.get(path, token=acme.token("owner"))
        await support.api.get(path)
    await support.api.get("/api/platform/tiers", token=support.session.access_token)
    ended = (await support.begin())["access_token"]
    await _logout(support, ended)
    assert (await support.profile(ended)).status == 401
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/auth/logout"]


@contextmanager
def a_log_that_fails(monkeypatch: pytest.MonkeyPatch, ports: Ports) -> Iterator[None]:
    """Transactions that record a request cannot be committed."""
    storage: Any = type(ports.storage)
    transaction = storage.transaction

    @asynccontextmanager
    async def failing(*given: Any, **named: Any) -> AsyncIterator[Any]:
        async with transaction(*given, **named) as tx:

            def record(event: events.Event) -> None:
                if event.kind.name == "impersonation.request":
                    raise StorageDown
                type(tx).record(tx, event)

            yield _Recording(tx, record)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "transaction", failing)
        yield


class _Recording:
    """A transaction whose `record` is another one."""

    def __init__(self, tx: Any, record: Callable[[events.Event], None]) -> None:
        self._tx = tx
        self.record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def test_what_cannot_be_recorded_is_not_done(support: Support, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    token = (await support.begin(target=acme.id("owner")))["access_token"]
    with a_log_that_fails(monkeypatch, support.ports):
        for method, path, body in [
            ("GET", "/api/user", None),
            ("GET", f"{acme.path}/members", None),
            ("PATCH", acme.path, {"name": "Other"}),
            ("POST", "/api/auth/logout", {}),
        ]:
            failed = await support.api.call(method, path, body, token=token)
            assert what(failed) == (500, "AUDIT_ERROR")
            assert "recorded" in failed.json["error"]
        renamed = await support.api.patch(acme.path, {"name": "Acme Two"}, token=acme.token("owner"))
        assert (renamed.status, renamed.json["name"]) == (200, "Acme Two"), "others notice nothing of it"
    assert (await support.profile(token)).status == 200
    assert [entry["details"]["route"] for entry in await support.requests()] == ["/api/user"]


async def test_the_line_of_a_request_names_both_persons(support: Support) -> None:
    seen: list[Any] = []
    app = create_app(support.ports, make_edge(), observe=seen.append, exposition=lambda: b"", exposition_type="text/plain")
    for token in ((await support.begin())["access_token"], (await sign_in(support.ports, support.ada)).access_token):
        await ask(app, "GET", "/api/user", token=token)
    assert [(one.caller, one.impersonator) for one in seen] == [
        (str(support.ada.id), str(support.account.id)),
        (str(support.ada.id), None),
    ]


# At the same moment


async def test_who_is_demoted_meanwhile_impersonates_nobody(support: Support, pool: Pool) -> None:
    demote = "update users set is_platform_owner = false where id = %s"
    refused = await meanwhile(pool, [(demote, (support.account.id,))], support.ask)
    assert what(refused) == FORBIDDEN
    assert await run_sql(pool, "select * from sessions where user_id = %s", support.ada.id) == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update users set is_platform_owner = true where id = %s", BAD_REQUEST),
        ("update users set deactivated_at = now() where id = %s", BAD_REQUEST),
        ("update users set anonymized_at = now() where id = %s", BAD_REQUEST),
        ("delete from users where id = %s", NOT_FOUND),
    ],
)
async def test_who_changes_meanwhile_is_judged_as_they_are_then(
    support: Support, pool: Pool, change: str, refusal: tuple[int, str]
) -> None:
    refused = await meanwhile(pool, [(change, (support.ada.id,))], support.ask)
    assert what(refused) == refusal
    assert await run_sql(pool, "select * from sessions where user_id = %s", support.ada.id) == []
    assert await support.log() == []


async def test_a_membership_that_ends_meanwhile_is_no_context(support: Support, acme: Tenant) -> None:
    leave = "delete from memberships where user_id = %s"
    member = acme.people["member"].id
    refused = await meanwhile(acme.pool, [(leave, (member,))], lambda: support.ask(target=member, org_slug="acme"))
    assert what(refused) == BAD_REQUEST


async def test_the_removal_of_a_member_ends_what_has_begun_before_it(support: Support, acme: Tenant) -> None:
    """Whichever comes first."""
    for number in range(3):
        name = f"member-{number}"
        await acme.join(name, await add_account(support.ports, f"{name}@example.com", None))

        async def act(which: int, name: str = name) -> Answer:
            if which:
                return await acme.remove("owner", name)
            return await support.ask(target=acme.id(name), org_slug="acme")

        answers = await everyone(2, act)
        assert {answer.status for answer in answers} <= {200, 400}
        for answer in answers:
            if "access_token" in answer.json:
                assert what(await support.profile(answer.json["access_token"])) == UNAUTHORIZED


@pytest.mark.slow
async def test_twenty_at_once_all_begin_on_one_device(support: Support, pool: Pool) -> None:
    answers = await everyone(20, lambda _: support.ask())
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["session_id"] for answer in answers}) == 20
    assert await run_sql(pool, "select count(*), count(distinct device_id) from sessions where user_id = %s", support.ada.id) == [(20, 1)]
    assert await run_sql(pool, "select count(*) from devices") == [(1,)]


@pytest.mark.slow
async def test_two_platform_owners_who_try_each_other_do_not_wait_for_each_other(support: Support, ports: Ports) -> None:
    colleague = await add_platform_owner(ports, "colleague@platform.example")
    other = replace(support, account=colleague, session=await sign_in(ports, colleague))

    async def act(number: int) -> Answer:
        one, target = (support, colleague) if number % 2 else (other, support.account)
        return await one.ask(target=target.id)

    assert {what(answer) for answer in await everyone(20, act)} == {BAD_REQUEST}


async def test_a_promotion_and_an_impersonation_leave_no_session_that_lives(support: Support, ports: Ports) -> None:
    colleague = await sign_in(ports, await add_platform_owner(ports, "colleague@platform.example"))
    answers = await everyone(2, lambda number: promote_target(support, colleague.access_token) if number else support.ask())
    for answer in answers:
        if "access_token" in answer.text:
            assert what(await support.profile(answer.json["access_token"])) == UNAUTHORIZED

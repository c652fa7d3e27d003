"""Promoting and demoting platform owners (security I-1)."""

from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import first_proof
from ports import Ports
from ports.outside import EmailMessage
from tests.accounts.api.platform_paths import OWNERS, SEARCH, UNKNOWN_ID
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import (
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    deliver,
    impersonate,
    run_sql,
    sign_in,
)
from tests.support.connections import LINK, add_connection
from tests.support.connections.proofs import connection_proof, write_proofs
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_service

NOW = FakeClock().now()


async def promote(platform: Platform, user: object) -> Answer:
    return await platform.api.post(OWNERS, {"user_id": str(user)}, token=platform.token)


async def demote(platform: Platform, user: object) -> Answer:
    return await platform.api.delete(f"{OWNERS}/{user}", token=platform.token)


async def owners(pool: Pool) -> set[UUID]:
    return {id_ for (id_,) in await run_sql(pool, "select id from users where is_platform_owner")}


async def platform_log(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool, "select action, org_id, target_type, target_id, actor_id from audit_log order by created_at, xmin::text::bigint, ctid"
    )


async def test_platform_owners_are_promoted_and_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW)
    await add_member(pool, await add_organization(pool, "acme"), user.id, confirmed=True)
    token = (await sign_in(ports, user)).access_token
    for answer, status in ((await promote(platform, user.id), 200), (await demote(platform, user.id), 403)):
        assert (answer.status, answer.json.keys(), answer.json["user_id"]) == (200, {"message", "user_id"}, str(user.id))
        if status == 403:
            assert refused(await platform.api.get(SEARCH, token=token)) == FORBIDDEN
    assert await owners(pool) == {platform.account.id}
    about_ada = ("user", str(user.id), platform.account.id)
    assert await platform_log(pool) == [("platform.owner.promoted", None, *about_ada), ("platform.owner.demoted", None, *about_ada)]


async def test_promotion_and_demotion_take_effect_immediately(platform: Platform, ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW)
    token = (await sign_in(ports, user)).access_token
    statuses = [(await platform.api.get(SEARCH, token=token)).status]
    for act in (promote, demote, promote):
        assert (await act(platform, user.id)).status == 200
        statuses.append((await platform.api.get(SEARCH, token=token)).status)
    assert statuses == [403, 200, 403, 200]


async def test_a_second_promotion_records_nothing(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW)
    answers = [await promote(platform, user.id) for _ in range(2)]
    assert [(answer.status, answer.json) for answer in answers] == [(200, answers[0].json)] * 2
    assert len(await platform_log(pool)) == 1
    assert (await promote(platform, platform.account.id)).status == 200, "promoting yourself succeeds"
    assert len(await platform_log(pool)) == 1


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"verified": False}, "is not verified"),
        ({"mfa_enabled_at": None}, "has no second factor"),
        ({"deactivated_at": NOW}, "deactivated or anonymized"),
        ({"anonymized_at": NOW}, "deactivated or anonymized"),
        ({"deactivated_at": NOW, "is_platform_owner": True}, "deactivated or anonymized"),
    ],
)
async def test_an_unusable_unverified_or_unprotected_account_is_not_promoted(
    platform: Platform, ports: Ports, pool: Pool, state: dict[str, Any], reason: str
) -> None:
    user = await add_account(ports, "ada@example.com", None, **{"mfa_enabled_at": NOW, **state})
    before = await owners(pool)
    answer = await promote(platform, user.id)
    assert refused(answer) == BAD
    assert reason in answer.json["error"]
    assert (await owners(pool), await platform_log(pool)) == (before, [])


async def test_promoting_an_unknown_user_is_refused(platform: Platform, pool: Pool) -> None:
    assert refused(await promote(platform, UNKNOWN_ID)) == MISSING
    for malformed in ("x", "", str(platform.account.id).upper()):
        assert refused(await promote(platform, malformed)) == BAD
    for body in ({}, {"user_id": None}, {"user_id": 5}):
        assert refused(await platform.api.post(OWNERS, body, token=platform.token)) == BAD
    assert await owners(pool) == {platform.account.id}


async def test_only_other_platform_owners_can_be_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW)
    for unknown_id in (user.id, UNKNOWN_ID, "x"):
        assert refused(await demote(platform, unknown_id)) == MISSING
    assert refused(await demote(platform, platform.account.id)) == BAD
    other = await add_platform_owner(ports, "other@platform.example")
    assert refused(await demote(platform, platform.account.id)) == BAD, "with any number of platform owners"
    assert (await demote(platform, other.id)).status == 200
    assert refused(await demote(platform, other.id)) == MISSING
    assert await owners(pool) == {platform.account.id}


async def test_a_deactivated_platform_owner_can_be_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    deactivated = await add_account(ports, "gone@example.com", None, is_platform_owner=True, deactivated_at=ports.clock.now())
    assert (await demote(platform, deactivated.id)).status == 200
    assert await owners(pool) == {platform.account.id}


async def test_a_promotion_ends_impersonations_of_the_user(platform: Platform, ports: Ports, api: Api) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW)
    own_token, impersonation = (await sign_in(ports, user)).access_token, await impersonate(ports, platform.account, user)
    assert [(await api.get("/api/user", token=token)).status for token in (own_token, impersonation)] == [200, 200]
    assert (await promote(platform, user.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own_token, impersonation)] == [200, 401]


async def test_a_promotion_ends_the_links_to_connections_and_the_sign_ins_there(
    platform: Platform, ports: Ports, api: Api, pool: Pool
) -> None:
    """Application sessions end, too. A session with the user's own sign-in keeps this sign-in."""
    emails = ("ada@example.com", "ben@example.com", "eve@example.com")
    ada, ben, eve = [await add_account(ports, email, None, mfa_enabled_at=NOW) for email in emails]
    org, other_org = await add_organization(pool, "acme"), await add_organization(pool, "beta")
    await add_member(pool, org, ada.id, confirmed=True)  # and not in the other organization
    connections = [await add_connection(ports.storage, org_id) for org_id in (org, other_org)]
    there = connection_proof(org, NOW, connection=connections[0].id)
    sessions: dict[UUID, UUID] = {}
    for account, proofs in ((ada, (there,)), (ben, (there, first_proof("password", NOW))), (eve, (there,))):
        for connection in connections:
            await run_sql(pool, LINK, connection.org_id, connection.id, account.id, str(account.id))
        sessions[account.id] = (await sign_in(ports, account)).session_id
        await write_proofs(pool, account.id, proofs)
    application, service = (await sign_in(ports, ada)).session_id, await add_service(pool, org)
    await write_proofs(pool, ada.id, (there,))
    await run_sql(pool, "update sessions set service_id = %s, org_id = %s where id = %s", service, org, application)
    for account in (ada, ben):
        assert (await promote(platform, account.id)).status == 200
    rows = await run_sql(pool, "select id, ended_at is null, jsonb_array_length(proofs) from sessions")
    live = {id_: proofs for id_, is_live, proofs in rows if is_live}
    assert {application, *sessions.values()} & live.keys() == {sessions[ben.id], sessions[eve.id]}
    assert live[sessions[ben.id]] == 1, "the own sign-in"
    assert await run_sql(pool, "select distinct user_id from connection_identities") == [(eve.id,)]
    logged = await run_sql(pool, "select org_id, target_id, details from audit_log where action = 'connection.person.unlinked'")
    assert {(org_id, user_id, details["connection_id"]) for org_id, user_id, details in logged} == {
        (each.org_id, str(account.id), str(each.id)) for each in connections for account in (ada, ben)
    }


async def test_a_demotion_ends_impersonations_by_the_user(platform: Platform, ports: Ports, api: Api) -> None:
    other, user = await add_platform_owner(ports, "other@platform.example"), await add_account(ports, "ada@example.com", None)
    own_token, impersonation = (await sign_in(ports, other)).access_token, await impersonate(ports, other, user)
    assert (await demote(platform, other.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own_token, impersonation)] == [200, 401]


async def test_the_page_says_why_an_owner_cannot_be_removed(app: QuartTrio, ports: Ports, pool: Pool) -> None:
    owner = await add_account(ports, "only@platform.example", PASSWORD, is_platform_owner=True)
    browser = FakeBrowser(app)
    await browser.sign_in(owner.email, PASSWORD)
    path, fields = f"/app/platform/owners/{owner.id}/remove", {"reason": "left", "confirmation": owner.email}
    answer = await browser.submit(path, path, **fields)
    assert (answer.status, "You cannot revoke your own rights" in answer.text) == (400, True)
    assert owner.id in await owners(pool)


def text_of(email: EmailMessage) -> str:
    return " ".join(email.text.split())


@pytest.mark.parametrize(
    ("action", "kind", "words"),
    [
        ("promote", "platform.owner.promoted", "steward@platform.example made ada@example.com a platform owner"),
        ("remove", "platform.owner.demoted", "steward@platform.example took the rights of a platform owner from ada@example.com"),
    ],
)
async def test_a_change_of_the_owners_asks_for_a_reason_and_a_name_and_tells_all_owners_and_the_person(
    app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport, action: str, kind: str, words: str
) -> None:
    await add_account(ports, "steward@platform.example", PASSWORD, is_platform_owner=True)
    await add_platform_owner(ports, "other@platform.example")
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=NOW, is_platform_owner=action == "remove")
    path = f"/app/platform/people/{user.id}/promote" if action == "promote" else f"/app/platform/owners/{user.id}/remove"
    browser = FakeBrowser(app)
    await browser.sign_in("steward@platform.example", PASSWORD)
    before = await owners(pool)
    for fields, missing in (({"confirmation": user.email}, "Enter a value."), ({"reason": "on call"}, "Type the text exactly")):
        refused_page = await browser.submit(path, path, **fields)
        assert (refused_page.status, missing in refused_page.text) == (400, True)
    assert (await owners(pool), sent.emails) == (before, [])
    assert leads_to(await browser.submit(path, path, reason="on call", confirmation=user.email)) == "/app/platform/owners"
    assert await owners(pool) == before ^ {user.id}
    assert await run_sql(pool, "select details from audit_log where action = %s", kind) == [({"reason": "on call"},)]
    await deliver(ports)
    assert sorted(mail.to for mail in sent.emails) == ["ada@example.com", "other@platform.example", "steward@platform.example"]
    assert all(words in text_of(mail) and "The reason: on call" in text_of(mail) for mail in sent.emails)

"""An organization's domains (security B-5, T-6)."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from tests.fakes.outside import FakeClock, FakeTxtRecords
from tests.support.builders import Answer, run_concurrently, run_during, run_sql
from tests.support.tenants import Tenant
from tests.tenancy.domains import (
    CALLS,
    DOMAIN,
    RECORD,
    get_domain,
    list_domains,
    prove_domain,
    publish,
    remove_domain,
    set_domain,
    verify_domain,
)
from tests.tenancy.organizations import NOW

MINUTE = timedelta(minutes=1)


async def stored_claims(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select org_id, domain, challenge, verified_at, created_at from domains order by org_id, domain")


# Setting


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_managers_set_a_domain_and_get_the_record_that_verifies_it(acme: Tenant, by: str) -> None:
    answer = await set_domain(acme, by=by)
    assert answer.status == 200
    value = answer.json["record"]["value"]
    assert re.fullmatch(r"gatehouse-verification=[A-Za-z0-9_-]{43}", value), "256 bits"
    expected = {
        "domain": DOMAIN,
        "verified": False,
        "verified_at": None,
        "created_at": NOW,
        "record": {"type": "TXT", "name": RECORD, "value": value},
    }
    assert answer.json == expected == (await get_domain(acme)).json
    details = {"domain": DOMAIN}
    assert await acme.recorded() == [("domain.set", "organization", str(acme.org), acme.people[by].id, details)]
    assert await acme.webhook_events() == [("domain.set", str(acme.org), details)]


async def test_all_spellings_of_a_domain_are_equal(acme: Tenant) -> None:
    first = await set_domain(acme, "xn--mnchen-3ya.example")
    for spelling in ("MÜNCHEN.example", " münchen.EXAMPLE ", "XN--MNCHEN-3YA.example"):
        assert (await set_domain(acme, spelling)).json == first.json
    assert len(await acme.log()) == 1


async def test_invalid_domains_are_refused(acme: Tenant) -> None:
    texts = [
        "",
        "com",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "example.com.",
        "_x.example.com",
        "a@example.com",
        "https://example.com",
        "\uff45x.com",
    ]
    for body in (*({"domain": text} for text in [*texts, "a." * 127 + "com", "x" * 3000]), {}, {"domain": None}, {"domain": [DOMAIN]}):
        answer = await acme.api.post(f"{acme.path}/domains", body, token=acme.token("owner"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body
    assert (await stored_claims(acme.pool), await acme.log()) == ([], [])


async def test_a_domain_must_leave_room_for_the_name_of_its_record(acme: Tenant) -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 40])
    assert len((await set_domain(acme, longest)).json["record"]["name"]) == 253
    answer = await set_domain(acme, f"{longest}b")
    assert (answer.status, "too long" in answer.json["error"]) == (400, True)
    assert [each["domain"] for each in (await list_domains(acme)).json["domains"]] == [longest]


async def test_adding_the_same_domain_again_changes_nothing(acme: Tenant, dns: FakeTxtRecords, clock: FakeClock) -> None:
    first = await set_domain(acme)
    clock.advance(MINUTE)
    assert (await set_domain(acme, by="admin")).json == first.json
    verified = await prove_domain(acme, dns)
    clock.advance(MINUTE)
    assert (await set_domain(acme, DOMAIN.upper())).json == verified.json
    assert await acme.actions() == {"domain.set": 1, "domain.verified": 1}


async def test_each_domain_stands_alone(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, clock: FakeClock) -> None:
    first = await prove_domain(acme, dns)
    clock.advance(MINUTE)
    second = await set_domain(acme, "acme.test")
    third = await prove_domain(acme, dns, f"eu.{DOMAIN}")
    await set_domain(other_tenant, "twin.example")
    assert second.json["record"]["value"] != first.json["record"]["value"], "each has a challenge of its own"
    listed = (await list_domains(acme)).json["domains"]
    assert listed == [first.json, second.json, third.json]
    assert listed == [(await get_domain(acme, each["domain"])).json for each in listed]
    # A domain's record verifies no other domain.
    dns.published["_gatehouse-challenge.acme.test"] = dns.published[RECORD]
    assert (await verify_domain(acme, "acme.test")).status == 400
    assert (await remove_domain(acme)).status == 204
    assert (await list_domains(acme)).json["domains"] == [second.json, third.json]
    assert await acme.actions() == {"domain.set": 3, "domain.verified": 2, "domain.deleted": 1}
    # The same domain again is a new claim: its earlier record proves nothing.
    assert (await set_domain(acme)).json["record"]["value"] != first.json["record"]["value"]
    assert (await verify_domain(acme)).status == 400


@pytest.mark.slow
async def test_fifty_domains_are_the_most_also_under_concurrency(acme: Tenant) -> None:
    await run_sql(
        acme.pool,
        "insert into domains (org_id, domain, challenge, created_at) select %s, n || '.example', n, now() from generate_series(1, 49) n",
        acme.org,
    )
    answers = await run_concurrently(20, lambda number: set_domain(acme, f"new{number}.example"))
    assert sorted(answer.status for answer in answers) == [200, *[400] * 19]
    refused = next(answer for answer in answers if answer.status == 400)
    assert refused.json["error"] == "There are 50 domains already. Remove one that is no longer used."
    assert len((await list_domains(acme)).json["domains"]) == 50
    assert (await set_domain(acme, "1.example")).status == 200, "it is there already"


# Verifying


async def test_a_domain_is_verified_by_its_record(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, clock: FakeClock) -> None:
    response = await set_domain(acme)
    dns.published[RECORD] = ["v=spf1 -all", response.json["record"]["value"], "gatehouse-verification=another"]
    clock.advance(MINUTE)
    answer = await verify_domain(acme)
    assert answer.status == 200
    assert answer.json == {**response.json, "verified": True, "verified_at": "2026-03-14T15:10:26.535897Z"}
    assert (await get_domain(acme)).json == answer.json
    details = {"domain": DOMAIN}
    assert (await acme.recorded())[1:] == [("domain.verified", "organization", str(acme.org), acme.people["owner"].id, details)]
    assert (await acme.webhook_events())[1:] == [("domain.verified", str(acme.org), details)]
    assert await other_tenant.log() == []


async def test_a_verified_domain_is_not_looked_up_again(acme: Tenant, dns: FakeTxtRecords, clock: FakeClock) -> None:
    first = await prove_domain(acme, dns)
    dns.published.clear()
    clock.advance(timedelta(days=400))
    await acme.sign_in("owner")
    assert ((await verify_domain(acme)).json, dns.lookups) == (first.json, [RECORD])
    assert len(await acme.log()) == 2


async def test_only_the_exact_record_verifies_the_domain(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    value = (await set_domain(acme)).json["record"]["value"]
    challenge = value.removeprefix("gatehouse-verification=")
    other_record = (await set_domain(other_tenant)).json["record"]["value"]
    answers = []
    for texts in ([], [other_record], [challenge], [value[:-1]], [f"{value}x"], [f" {value}"], [value.swapcase()], [f'"{value}"']):
        dns.published[RECORD] = texts
        answers.append(await verify_domain(acme))
    dns.published = {
        name: [value] for name in (DOMAIN, f"www.{DOMAIN}", f"_gatehouse-challenge.www.{DOMAIN}", "_gatehouse-challenge.example")
    }
    answers.append(await verify_domain(acme))
    assert {(answer.status, answer.code) for answer in answers} == {(400, "BAD_REQUEST")}
    sentences = [answer.json["error"] for answer in answers]
    assert all(RECORD in sentence for sentence in sentences)
    assert sentences[0] == sentences[-1], "neither has a record with this name"
    assert challenge in sentences[2], "it says what was found"
    assert set(dns.lookups) == {RECORD}
    assert (await get_domain(acme)).json["verified"] is False
    assert await acme.actions() == {"domain.set": 1}


async def test_a_failing_dns_gives_a_different_error(acme: Tenant, dns: FakeTxtRecords) -> None:
    publish(dns, await set_domain(acme))
    dns.failing.add(RECORD)
    answer = await verify_domain(acme)
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert "did not answer" in answer.json["error"]
    dns.failing.clear()
    assert (await verify_domain(acme)).status == 200


async def test_without_the_domain_every_other_call_answers_404(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    await set_domain(other_tenant)
    await set_domain(acme, "acme.test")
    for call in (get_domain, verify_domain, remove_domain):
        for domain in (DOMAIN, "com", "no domain", "x" * 300):
            answer = await call(acme, domain)
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), (call, domain)
    assert dns.lookups == []
    assert (await get_domain(other_tenant)).status == 200


# Removing


async def test_a_removed_domain_must_be_verified_again(acme: Tenant, dns: FakeTxtRecords, clock: FakeClock) -> None:
    await prove_domain(acme, dns)
    clock.advance(MINUTE)
    assert ((await remove_domain(acme)).status, (await get_domain(acme)).status) == (204, 404)
    entry = ("domain.deleted", "organization", str(acme.org), acme.people["owner"].id, {"domain": DOMAIN})
    assert (await acme.recorded())[-1] == entry
    assert (await remove_domain(acme)).status == 404
    assert (await set_domain(acme)).json["verified"] is False
    assert (await verify_domain(acme)).status == 400
    assert await acme.actions() == {"domain.set": 2, "domain.verified": 1, "domain.deleted": 1}


async def test_only_managers_reach_the_domain(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    await set_domain(acme)
    before = await stored_claims(acme.pool)
    for call in CALLS.values():
        assert (await call(acme, "member")).status == 403
        acme.sessions["other tenant"] = other_tenant.sessions["owner"]
        assert (await call(acme, "other tenant")).status == 403
    assert (await stored_claims(acme.pool), dns.lookups) == (before, [])


# Claims by several organizations


async def test_claims_of_others_are_not_revealed_before_the_proof(
    acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, clock: FakeClock
) -> None:
    await prove_domain(acme, dns)
    other_claim = await set_domain(other_tenant)
    # Without the record, the answers are the same as for a domain that no organization has.
    free = await set_domain(acme, "free.example")
    dns.published["_gatehouse-challenge.free.example"] = dns.published[RECORD]  # anyone can read it in the DNS
    assert other_claim.json.keys() == free.json.keys()
    unverified = await verify_domain(other_tenant)
    assert unverified.json["error"].replace(DOMAIN, "free.example") == (await verify_domain(acme, "free.example")).json["error"]
    assert (other_claim.status, unverified.status) == (200, 400)


async def test_a_proof_of_a_domain_that_another_organization_verified_answers_409(
    acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords
) -> None:
    await prove_domain(acme, dns)
    publish(dns, await set_domain(other_tenant))
    answer = await verify_domain(other_tenant)
    assert (answer.status, answer.code) == (409, "CONFLICT")
    assert "acme" not in answer.text.replace(DOMAIN, "")
    assert [(await get_domain(team)).json["verified"] for team in (acme, other_tenant)] == [True, False]
    assert await other_tenant.actions() == {"domain.set": 1}
    # The domain is free when the other organization has removed it.
    await remove_domain(acme)
    assert (await verify_domain(other_tenant)).json["verified"] is True
    assert (await remove_domain(other_tenant)).status == 204
    assert (await prove_domain(acme, dns)).json["verified"] is True


async def test_a_subdomain_can_be_verified_by_another_organization(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    await prove_domain(acme, dns)
    assert (await prove_domain(other_tenant, dns, f"eu.{DOMAIN}")).json["verified"] is True
    assert (await get_domain(acme)).json["verified"] is True


async def test_the_domain_of_a_deleted_organization_is_free(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    await prove_domain(acme, dns)
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert (await prove_domain(other_tenant, dns)).json["verified"] is True


@pytest.mark.slow
async def test_one_of_two_organizations_wins_twenty_concurrent_verifications(
    acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords
) -> None:
    teams = [acme, other_tenant]
    for _ in range(3):
        publish(dns, await set_domain(acme), await set_domain(other_tenant))
        results = await run_concurrently(20, lambda number: verify_with_slug(teams[number % 2]))
        statuses = {team.slug: {answer.status for slug, answer in results if slug == team.slug} for team in teams}
        assert sorted(statuses.values(), key=sorted) == [{200}, {409}]
        [winner] = [team for team in teams if statuses[team.slug] == {200}]
        assert [(await get_domain(team)).json["verified"] for team in teams] == [team is winner for team in teams]
        assert [(await team.actions())["domain.verified"] for team in teams] == [int(team is winner) for team in teams]
        for team in teams:
            await remove_domain(team)
            await run_sql(team.pool, "delete from audit_log")
            await run_sql(team.pool, "delete from events")
        dns.published.clear()


async def verify_with_slug(team: Tenant) -> tuple[str, Answer]:
    return team.slug, await verify_domain(team)


# Changes during the DNS query


async def test_no_database_connection_is_held_during_the_dns_query(acme: Tenant, dns: FakeTxtRecords) -> None:
    publish(dns, await set_domain(acme))
    dns.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(verify_domain, acme)
        await dns.lookup_started.wait()
        stats = acme.pool.stats
        assert stats.idle == stats.total
        dns.gate.set()
    assert (await get_domain(acme)).json["verified"] is True


async def verify_during(team: Tenant, dns: FakeTxtRecords, change: Callable[[], Awaitable[object]]) -> Answer:
    """Return the response to a verification. `change` runs while its DNS query is pending."""
    answers: list[Answer] = []
    dns.gate = trio.Event()

    async def run() -> None:
        answers.append(await verify_domain(team))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await dns.lookup_started.wait()
        await change()
        dns.gate.set()
    dns.gate = None
    return answers[0]


@pytest.mark.parametrize("claims_back", [False, True])
async def test_a_record_found_for_an_earlier_claim_does_not_verify_a_later_one(
    acme: Tenant, dns: FakeTxtRecords, claims_back: bool
) -> None:
    publish(dns, await set_domain(acme))

    async def change() -> None:
        await remove_domain(acme)
        if claims_back:
            await set_domain(acme)

    answer = await verify_during(acme, dns, change)
    assert (answer.status, answer.code) == (404, "NOT_FOUND")
    assert [each["verified"] for each in (await list_domains(acme)).json["domains"]] == [False] * claims_back
    assert "domain.verified" not in await acme.actions()


@pytest.mark.parametrize(
    "change",
    ["update memberships set role = 'member' where role = 'owner'", "update organizations set status = 'suspended'"],
)
async def test_permission_is_checked_again_after_the_dns_query(acme: Tenant, dns: FakeTxtRecords, change: str) -> None:
    publish(dns, await set_domain(acme))
    answer = await verify_during(acme, dns, lambda: run_sql(acme.pool, change))
    assert answer.status == 403
    assert await run_sql(acme.pool, "select verified_at from domains") == [(None,)]


@pytest.mark.parametrize("call", ["set", "remove"])
async def test_a_change_that_waited_for_a_demotion_is_refused(acme: Tenant, call: str) -> None:
    await set_domain(acme, "acme.test")
    before = await stored_claims(acme.pool)
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    assert (await run_during(acme.pool, changes, lambda: CALLS[call](acme, "admin"))).status == 403
    assert await stored_claims(acme.pool) == before


@pytest.mark.slow
async def test_concurrent_changes_leave_a_consistent_log(acme: Tenant) -> None:
    names = [f"acme-{number}.example" for number in range(4)]
    answers = await run_concurrently(
        20, lambda number: set_domain(acme, names[number % 4]) if number % 5 else remove_domain(acme, names[number // 5])
    )
    assert {answer.status for answer in answers} <= {200, 204, 404}
    count = Counter(entry["action"] for entry in await acme.log())
    assert count["domain.deleted"] == [answer.status for answer in answers].count(204)
    assert count["domain.set"] - count["domain.deleted"] == len(await stored_claims(acme.pool))

"""Claims and attributes that many callers change at once: no change is lost, and limits hold."""

from typing import Any, Final

import pytest

from tests.support.builders import Answer, run_concurrently, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

CALLERS: Final = 20


async def call(acme: Tenant, method: str, path: str, body: Any = None) -> Answer:
    return await acme.api.call(method, f"{acme.path}{path}", body, token=acme.token("owner"))


async def test_one_of_twenty_saves_of_the_same_version_wins(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)

    async def save(number: int) -> Answer:
        return await call(acme, "PUT", "/services/shop/claims", {"fixed": {"number": number}, "version": 0})

    answers = await run_concurrently(CALLERS, save)
    winners = [number for number, answer in enumerate(answers) if answer.status == 200]
    assert len(winners) == 1
    assert {answer.status for answer in answers} == {200, 409}
    assert (await call(acme, "GET", "/services/shop/claims")).json["fixed"] == {"number": winners[0]}
    assert await run_sql(acme.pool, "select count(*) from audit_log where action = 'service.claims.updated'") == [(1,)]


async def test_an_organization_never_has_more_than_fifty_attributes(acme: Tenant) -> None:
    insert = "insert into organization_attributes select %s, 'a' || n, 'A', 'text', '{}', 'first', n, now() from generate_series(1, 45) n"
    await run_sql(acme.pool, insert, acme.org)

    async def declare(number: int) -> Answer:
        return await call(acme, "POST", "/attributes", {"name": f"b{number}", "label": "B", "kind": "text"})

    answers = await run_concurrently(CALLERS, declare)
    assert sorted(answer.status for answer in answers) == [201] * 5 + [409] * 15
    assert await run_sql(acme.pool, "select count(*), count(distinct position) from organization_attributes") == [(50, 50)]


async def test_no_value_of_twenty_writers_is_lost(acme: Tenant) -> None:
    insert = (
        "insert into organization_attributes select %s, 'a' || n, 'A', 'number', '{admin}', 'first', n, now() from generate_series(0, 19) n"
    )
    await run_sql(acme.pool, insert, acme.org)
    path = f"/members/{acme.people['member'].id}/attributes"

    async def write(number: int) -> Answer:
        return await call(acme, "PATCH", path, {"values": {f"a{number}": number}})

    assert {answer.status for answer in await run_concurrently(CALLERS, write)} == {200}
    assert (await call(acme, "GET", path)).json["values"] == {f"a{number}": number for number in range(CALLERS)}


async def test_a_deleted_attribute_keeps_no_value_and_no_claim(acme: Tenant) -> None:
    """Deleting, writing a value and using it in claims at the same time has a result that some order gives."""
    await add_service(acme.pool, acme.org)
    path = f"/members/{acme.people['member'].id}/attributes"
    for _ in range(4):
        assert (await call(acme, "POST", "/attributes", {"name": "team", "label": "Team", "kind": "text"})).status == 201
        version = (await call(acme, "GET", "/services/shop/claims")).json["version"]
        requests = [
            ("DELETE", "/attributes/team", None),
            ("PATCH", path, {"values": {"team": "Ops"}}),
            ("PUT", "/services/shop/claims", {"values": {"team": {"sources": ["attribute:team"]}}, "version": version}),
        ]

        async def act(number: int, requests: list[tuple[str, str, Any]] = requests) -> Answer:
            return await call(acme, *requests[number])

        deleted, written, mapped = [answer.status for answer in await run_concurrently(3, act)]
        assert deleted in (204, 409)
        assert written in (200, 400)
        assert (deleted, mapped) in ((204, 400), (409, 200)), "an attribute in use stays, and a deleted one is not mapped"
        if deleted == 204:
            assert await run_sql(acme.pool, "select count(*) from attribute_values where attributes ? 'team'") == [(0,)]
        await call(acme, "DELETE", "/services/shop/claims")
        await call(acme, "DELETE", "/attributes/team")

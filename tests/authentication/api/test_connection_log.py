"""The log for sign-ins through an organization's connection."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import WaitingApplication
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import MAX_NAME_LENGTH, MAX_NAMES, ConnectionAttempt
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, first_proof
from core.kernel.roles import MEMBER
from ports import Ports
from tests.authentication.api.test_connection_sessions import open_session
from tests.support.builders import Api, add_member, run_sql
from tests.support.connections import add_connection
from tests.support.connections.proofs import connection_proof
from tests.support.tenants import Tenant

NAMES = ("email", "groups", *(str(number) for number in range(60)), "x" * 500)


async def listed(api: Api, tenant: Tenant, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"{tenant.path}/sign-ins?limit=100&{query}", token=tenant.token("owner"))
    assert answer.status == 200, answer.text
    return [each for each in answer.json["sign_ins"] if each["provider"] == "connection"]


@pytest.mark.slow
async def test_the_log_of_an_organization_names_its_connection_and_no_other_one(
    api: Api, acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, user: Account
) -> None:
    """A user who belongs to several organizations signs in through all their connections.

    Claim names are cut, and values are never stored.
    """
    connection = await add_connection(ports.storage, acme.org, "okta")
    for tenant in (acme, other_tenant):
        await add_connection(ports.storage, tenant.org, "another")
        await add_member(pool, tenant.org, user.id, MEMBER, confirmed=True)
    now = ports.clock.now()
    await run_sql(pool, "update memberships set confirmed_at = %s where user_id = %s", now, user.id)
    await run_sql(pool, "update organizations set approved_at = %s", now)
    proof = replace(connection_proof(acme.org, now), connection=connection.id, received=("cannot be stored: \0", *NAMES))
    cookie = await open_session(ports, user, proof)
    await open_session(ports, user, first_proof(Method.PASSWORD, now), cookie)  # the session keeps the connection's proof
    [own] = await listed(api, acme)
    assert (own["connection"], own["connection_name"], own["fault"], own["success"]) == ("okta", "Okta", None, True)
    assert own["received"] == [*NAMES[:MAX_NAMES]]
    assert await listed(api, other_tenant) == [], "the session is good in the other organization alone"

    # Failures belong to the connection's organization, whatever waits.
    attempt = ConnectionAttempt(connection.id, acme.org, "audience", ("x" * 500,), -95)
    for application in (None, None, WaitingApplication(other_tenant.org), WaitingApplication(acme.org)):
        await record_failure(ports, SYSTEM, LoginFailure.PROVIDER, Method.CONNECTION, None, application, connection=attempt)
    await record_failure(ports, SYSTEM, LoginFailure.PROVIDER, Method.CONNECTION, None, connection=replace(attempt, fault="nonce"))
    failed = await listed(api, acme, "connection=okta&success=false")
    assert {each["seconds_off"] for each in failed} == {-95}
    assert {(each["fault"], each["attempts"], each["service_name"], *each["received"]) for each in failed} == {
        ("audience", 4, None, "x" * MAX_NAME_LENGTH),
        ("nonce", 1, None, "x" * MAX_NAME_LENGTH),
    }
    assert [each["id"] for each in await listed(api, acme, "connection=okta&success=true")] == [own["id"]]
    assert await listed(api, acme, "connection=another") == await listed(api, acme, "connection=unknown") == []
    assert await listed(api, other_tenant) == []
    export = await api.get(f"{acme.path}/sign-ins/export?connection=okta&format=jsonl", token=acme.token("owner"))
    assert len(export.text.splitlines()) == 3

    await run_sql(pool, "delete from connections where id = %s", connection.id)
    assert {each["connection"] for each in await listed(api, acme)} == {None}, "the log outlives it"


async def test_the_platform_finds_the_sign_ins_of_a_connection_by_its_id(api: Api, acme: Tenant, ports: Ports, platform: Any) -> None:
    connection = await add_connection(ports.storage, acme.org, "okta")
    attempt = ConnectionAttempt(connection.id, acme.org, "audience")
    await record_failure(ports, SYSTEM, LoginFailure.PROVIDER, Method.CONNECTION, None, connection=attempt)
    for name, expected in ((str(connection.id), [("okta", "audience")]), (str(UUID(int=1)), []), ("okta", [])):
        answer = await api.get(f"/api/platform/sign-ins?connection={name}", token=platform.token)
        assert [(each["connection"], each["fault"]) for each in answer.json["sign_ins"]] == expected

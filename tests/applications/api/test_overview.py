"""An organization's overview: its figures, sign-ins, and pending tasks by role."""

from datetime import timedelta
from typing import Any

import pytest

from core.federation.connections import health
from core.federation.connections.model.connections import ConnectionState
from core.kernel.roles import MEMBER
from entrypoints.doctor import checks
from tests.support.builders import run_sql
from tests.support.connections import add_connection
from tests.support.mfa import add_mfa
from tests.support.saml import add_application
from tests.support.services import add_login, add_service, verify_domain
from tests.support.siem import configure, make_sink
from tests.support.tenants import Tenant, Tenants
from tests.support.webhooks import add_webhook

DAY = timedelta(days=1)


async def read(tenant: Tenant, by: str = "owner") -> dict[str, Any]:
    answer = await tenant.api.get(f"{tenant.path}/overview", token=tenant.token(by))
    assert answer.status == 200, answer.text
    overview: dict[str, Any] = answer.json
    return overview


async def tasks(tenant: Tenant, by: str = "owner") -> dict[str, int]:
    return {each["task"]: each["count"] for each in (await read(tenant, by))["pending_tasks"]}


async def test_the_overview_has_the_figures_and_the_sign_ins_of_30_days(acme: Tenant, tenants: Tenants) -> None:
    other = await tenants.add("twin")
    now = acme.ports.clock.now()
    shop, foreign = await add_service(acme.pool, acme.org), await add_service(other.pool, other.org)
    for service, days in ((shop, 0), (shop, 2), (shop, 2), (shop, 29), (shop, 30), (foreign, 2)):
        await add_login(acme.ports, acme.pool, service, acme.people["member"].id, at=now - days * DAY)
    overview = await read(acme, "member")
    assert (overview["members"], overview["services"]) == (len(acme.people), 1)
    sign_ins = [(each["date"], each["count"]) for each in overview["sign_ins"]]
    expected = {0: 1, 2: 2, 29: 1}
    assert sign_ins == [((now - days * DAY).date().isoformat(), expected.get(days, 0)) for days in range(29, -1, -1)]


@pytest.mark.slow
async def test_admins_and_operators_see_connections_that_need_work(acme: Tenant, tenants: Tenants) -> None:
    other = await tenants.add("twin")
    pool, storage, now = acme.pool, acme.ports.storage, acme.ports.clock.now()
    connection = await add_connection(storage, acme.org)
    await add_connection(storage, other.org, "draft", state=ConnectionState.DRAFT)

    async def concerns() -> tuple[dict[str, int], list[str]]:
        return await tasks(acme, "admin"), [each.text for each in await checks.check_connections(storage, acme.ports.clock)]

    lacks_domain = ({"connections_without_domain": 1}, ["acme/okta: no verified domain leads to it"])
    await run_sql(pool, "delete from invitations")
    await run_sql(
        pool, "insert into mfa (user_id, secret, setup_at, last_step) select id, '', %s, 1 from users on conflict do nothing", now
    )
    assert await concerns() == lacks_domain
    await verify_domain(pool, acme.org)
    assert await concerns() == lacks_domain, "no user has come"
    sql = "insert into home_realm_routes (org_id, domain, connection_id) values (%s, 'example.com', %s)"
    await run_sql(pool, sql, acme.org, connection.id)
    assert await concerns() == ({}, [])
    sql = """
        insert into connection_health (org_id, connection_id, due_at, refreshed_at, health, problem, certificate_end)
        values (%s, %s, %s, %s, 'failing', 'unreachable', %s)"""
    await run_sql(pool, sql, acme.org, connection.id, now, now, now + 29 * DAY)
    expected = {"connections_failing": 1, "connection_certificates_expiring": 1}
    [text] = (seen := await concerns())[1]
    assert (seen[0], text.startswith("acme/okta: users cannot sign in (unreachable); its certificate expires on ")) == (expected, True)
    assert await health.find_problems(acme.ports) == ["Users can't sign in through a connection of an organization."]
    await run_sql(pool, "update connections set state = 'inactive' where org_id is not null")
    assert await concerns() == ({}, [])
    assert await tasks(other) == {}


async def fail(tenant: Tenant, webhook: Any, *attempts: tuple[bool, int]) -> None:
    """Add webhook deliveries, oldest first, by their success and attempt count."""
    for number, (delivered, count) in enumerate(attempts):
        insert = """
            insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, delivered, attempt_count,
                                            created_at, updated_at)
            values (gen_random_uuid(), %s, %s, 'user.invited', '{}', 'done', %s, %s, %s, %s, %s)"""
        at = tenant.ports.clock.now() + number * timedelta(seconds=1)
        await run_sql(tenant.pool, insert, tenant.org, webhook, at, delivered, count, at, at)


@pytest.mark.slow
async def test_admins_see_pending_tasks_that_their_role_can_do(acme: Tenant, tenants: Tenants) -> None:
    other = await tenants.add("twin")
    now = acme.ports.clock.now()
    for tenant in (acme, other):
        await run_sql(tenant.pool, "update memberships set confirmed_at = created_at where org_id = %s", tenant.org)
        for account in tenant.people.values():
            await run_sql(tenant.pool, "delete from mfa where user_id = %s", account.id)
            await add_mfa(tenant.ports, account)
    assert await tasks(acme) == {}

    await run_sql(acme.pool, "delete from mfa where user_id in (%s, %s)", acme.id("admin"), acme.id("member"))
    await acme.add_pending_invitation("owner", "new@example.com", MEMBER)
    await acme.add_pending_invitation("owner", "late@example.com", MEMBER)
    expired = "update invitations set expires_at = %s where email = 'late@example.com'"
    await run_sql(acme.pool, expired, now)
    domain = "insert into domains (org_id, domain, challenge, created_at) values (%s, 'acme.example', 'x', %s)"
    await run_sql(acme.pool, domain, acme.org, now)
    failing, recovered, new, inactive = [
        (await add_webhook(acme.ports, acme.org, "https://hooks.example/in", name=name)).id for name in ("a", "b", "c", "d")
    ]
    await fail(acme, failing, (True, 1), (False, 1), (False, 0))
    await fail(acme, recovered, (False, 1), (True, 1))
    await fail(acme, new, (False, 0))
    await fail(acme, inactive, (False, 1))
    await run_sql(acme.pool, "update webhooks set is_active = false where id = %s", inactive)
    await configure(acme.ports, make_sink(acme.org))
    await add_application(acme.ports, acme.pool, acme.org, "acme")
    await run_sql(acme.pool, "update saml_certificates set valid_until = %s", now + 31 * DAY)
    expected = {"webhooks_failing": 1, "domain_unverified": 1, "admins_without_mfa": 1, "invitations_pending": 1}
    assert await tasks(acme) == expected
    await run_sql(acme.pool, "update saml_certificates set valid_until = %s", now + 29 * DAY)
    failures = "update siem_configurations set failures = 2, failing_since = %s, last_failure = 'TIMEOUT'"
    await run_sql(acme.pool, failures, now)
    assert await tasks(acme) == expected | {"certificates_expiring": 1, "siem_failing": 1}
    await run_sql(acme.pool, "update siem_configurations set enabled = false")
    seen = await tasks(acme, "admin")
    assert seen == expected | {"certificates_expiring": 1, "siem_paused": 1}
    assert [*seen][:2] == ["certificates_expiring", "webhooks_failing"], "the most urgent ones come first"
    assert await tasks(acme, "member") == {}
    assert await tasks(other) == {}

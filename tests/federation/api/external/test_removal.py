"""External clients that are no longer used."""

from datetime import timedelta

from core.accounts.model.accounts import Account
from core.authentication.model.sign_in_log import SignInFilter
from core.federation.oauth import external_clients
from core.kernel.values import Page, new_id
from core.maintenance import housekeeping
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import ExternalParty
from tests.support.builders import run_sql


async def test_a_client_is_removed_after_90_days_without_use(client: ExternalParty, user: Account, clock: FakeClock) -> None:
    """A live session keeps it, and a sign-in in this time.

    The client's consents end. The client's sign-ins stay in the logs, also after two removals.
    """
    ports, holder, others = client.tenant.ports, new_id(), [client.server.publish(f"/other/{number}") for number in range(2)]
    await client.tokens()
    for address in others:
        await client.code(client_id=address)
    clock.advance(timedelta(days=91))
    year = timedelta(days=365)
    await run_sql(client.tenant.pool, "update sessions set expires_at = expires_at + %s, ends_at = ends_at + %s", year, year)
    assert await external_clients.sweep_unused(ports, holder) == {"clients": 2}, "the session of the oldest one is live"
    await run_sql(client.tenant.pool, "update sessions set ended_at = now() where service_id is not null")
    await run_sql(
        client.tenant.pool, "update login_events set created_at = %s where service_id is not null", clock.now() - timedelta(days=89)
    )
    assert await external_clients.sweep_unused(ports, holder) == {}, "a user has signed in"
    clock.advance(timedelta(days=2))
    assert await external_clients.sweep_unused(ports, holder) == {"clients": 1}
    assert await client.stored() == []
    assert await run_sql(client.tenant.pool, "select 1 from consents union all select 1 from api_consents") == []
    assert await run_sql(client.tenant.pool, "select 1 from end_users where user_id = %s", user.id) == []
    code = await client.code()
    assert (await client.exchange(code)).status == 200, "it comes back with the next consent"
    await housekeeping.sweep(ports, holder)
    await run_sql(client.tenant.pool, "update sessions set ended_at = now() where service_id is not null")
    clock.advance(timedelta(days=91))
    assert await external_clients.sweep_unused(ports, holder) == {"clients": 1}
    await housekeeping.sweep(ports, holder)
    async with ports.storage.reading() as read:
        log = await read.sign_in_log.page(client.tenant.org, SignInFilter(), Page(1, 50))
        recent = await read.analytics.recent(client.tenant.org, None, 50)
    removed = await run_sql(client.tenant.pool, "select details ->> 'client' from audit_log where action = 'external_client.removed'")
    assert sorted(removed) == sorted([(each,) for each in (*others, client.address, client.address)])
    for listed in (log.items, recent):
        assert [each.service_name for each in listed if each.service_id] == 2 * [client.host]

"""External clients that no user agrees to any longer."""

from datetime import timedelta

from core.accounts.model.accounts import Account
from core.authentication.model.sign_in_log import SignInFilter
from core.federation.oauth import external_client_sweep
from core.kernel.values import Page, new_id
from core.maintenance import housekeeping
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import ExternalParty
from tests.support.builders import run_sql, sign_in


async def test_a_client_is_removed_90_days_after_its_last_document_if_no_user_agrees_to_it(
    client: ExternalParty, user: Account, clock: FakeClock
) -> None:
    """Its consent, a live session or a live code keeps it. Its sign-ins stay in the logs, also after it was removed twice."""
    ports, holder = client.tenant.ports, new_id()
    await client.tokens()
    clock.advance(timedelta(days=91))
    assert await external_client_sweep.sweep(ports, holder) == {}
    assert len(await client.stored()) == 1
    await run_sql(client.tenant.pool, "delete from consents")
    year = timedelta(days=365)
    await run_sql(client.tenant.pool, "update sessions set expires_at = expires_at + %s, ends_at = ends_at + %s", year, year)
    assert await external_client_sweep.sweep(ports, holder) == {}, "a session is live"
    await run_sql(client.tenant.pool, "update sessions set ended_at = now() where service_id is not null")
    assert await external_client_sweep.sweep(ports, holder) == {"clients": 1}
    assert await client.stored() == []
    assert await run_sql(client.tenant.pool, "select 1 from end_users where user_id = %s", user.id) == []
    own = (await sign_in(ports, user)).access_token
    assert (await client.api.get("/api/user/consents", token=own)).json["consents"] == []
    code = await client.code()
    assert (await client.exchange(code)).status == 200, "it comes back with the next consent"
    await housekeeping.sweep(ports, holder)
    await run_sql(client.tenant.pool, "delete from consents")
    await run_sql(client.tenant.pool, "update sessions set ended_at = now() where service_id is not null")
    clock.advance(timedelta(days=91))
    assert await external_client_sweep.sweep(ports, holder) == {"clients": 1}
    await housekeeping.sweep(ports, holder)
    async with ports.storage.reading() as read:
        log = await read.sign_in_log.page(client.tenant.org, SignInFilter(), Page(1, 50))
        recent = await read.analytics.recent(client.tenant.org, None, 50)
    for listed in (log.items, recent):
        assert [each.service_name for each in listed if each.service_id] == 2 * [client.host]

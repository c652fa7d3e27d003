"""A sign-in finds its account's rows by index, however many accounts there are."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.policy import Policy
from ports import Ports
from tests.authentication.email_sign_ins import LINK_PAGE, code_in, request_code, verify
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import Api, deliver, run_sql
from tests.support.database import POOL_SIZE
from tests.support.passkeys.users import PasskeyUser, sign_in_with_passkey
from tests.support.waiting import until

pytestmark = pytest.mark.slow

POOL: Final = "test_scans"

# The tables with rows for every account. Passkeys are left out: the search for the stored RP ID ends at the first match.
_SCANS: Final = """
    select relname, seq_scan from pg_stat_user_tables t where seq_scan > 0 and relname <> 'passkeys' and exists (
        select from pg_attribute a where a.attrelid = t.relid and a.attname = 'user_id' or t.relname = 'users')"""


@pytest.fixture
async def pool(conninfo: str) -> AsyncIterator[Pool]:
    """A pool with connections that scan a table only if no index can be used."""
    opened = Pool(make_conninfo(conninfo, options="-c enable_seqscan=off", application_name=POOL), size=POOL_SIZE)
    yield opened
    await opened.aclose()


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return replace(ports, policy=Policy(email_sign_in=True))


async def test_no_sign_in_scans_a_table_of_accounts(
    api: Api, user: Account, holder: PasskeyUser, pool: Pool, ports: Ports, sent: FakeMailTransport, conninfo: str
) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("select pg_stat_reset()")
    await holder.add()
    device = {"X-Device-Id": "a device id of 22 letters"}

    async def by_code() -> Any:
        token = await request_code(api)
        await deliver(ports)
        return await verify(api, token, code_in(sent.newest(LINK_PAGE)))

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "a wrong password": lambda: api.login(password="wrong", headers=device),
        "a password": lambda: api.login(headers=device),
        "a code": by_code,
        "a passkey": lambda: sign_in_with_passkey(api, holder.authenticator),
    }
    assert {name: (await way()).status for name, way in ways.items()} == {
        "a wrong password": 401,
        "a password": 200,
        "a code": 200,
        "a passkey": 200,
    }
    refresh_token = (await api.login(headers=device)).json["refresh_token"]
    refreshed = await api.post("/api/auth/refresh", {"refresh_token": refresh_token})
    token = refreshed.json["access_token"]
    [other, *_] = [each for each in (await api.get("/api/user/devices", token=token)).json["devices"] if not each["is_current"]]
    assert (await api.delete(f"/api/user/devices/{other['id']}", token=token)).status == 200
    await run_sql(pool, "select count(*) from sessions where address is null")  # a scan, which has to be found
    await pool.aclose()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        # The connections' processes report their scans when they end.
        own = "select from pg_stat_activity where application_name = %s"
        until(lambda: not connection.execute(own, [POOL]).fetchall(), "the connections have ended")
        assert connection.execute(_SCANS).fetchall() == [("sessions", 1)]

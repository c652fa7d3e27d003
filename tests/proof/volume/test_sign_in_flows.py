"""Strangers can begin many sign-ins, which slow down no statement and no sweep."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, LiteralString
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.maintenance.housekeeping import SWEEPS
from adapters.postgres.repositories import Repositories
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import KnownBy
from core.authentication.flow.model import MAX_OPEN, ChallengeOrigin, EmailChallenge, Flow, FlowTarget, ProviderRequest, new_flow
from core.kernel.connections import PLATFORM_CONNECTIONS, WEBSUITE
from core.kernel.proofs import first_proof
from core.kernel.values import digest, new_id
from core.maintenance.model.housekeeping import Sweep
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import ADA, DAY, HOUR, NOW, SECOND

pytestmark = pytest.mark.slow

SIZE: Final = 30_000
TABLE: Final = "sign_in_flows"
SHOP, USER, EMAIL_ID = UUID(int=1), UUID(int=2), UUID(int=3)
BROWSER, STATE, LINK, NAME = (digest(name) for name in ("a browser", "a state", "a link", "a name"))
LIMIT: Final = AttemptLimit(12, timedelta(minutes=10))
CONNECTION: Final = PLATFORM_CONNECTIONS[WEBSUITE][0]
# Strangers' flows are for one service. A third wait for nothing more, a third for an email, and a third for a provider.
# Our browser has as many flows as it can have.
INSERTS: Final[LiteralString] = """
    insert into users (id, email, origin, created_at, updated_at) values (%(user)s, 'ada@example.com', 'platform', now(), now());
    insert into sign_in_flows (
        id, browser_hash, target, request, secret_hash, org_id, service_id, wants_fresh, keeps_trust, user_id, proofs, proofs_expire_at,
        challenge_id, challenge, challenge_hash, challenge_email, challenge_user_id, challenge_begun_at,
        challenge_expires_at, begun_at, expires_at)
    select gen_random_uuid(), sha256(('b' || n)::bytea), 'oauth', 'client_id=1', sha256(('s' || n)::bytea), %(shop)s, %(shop)s,
           false, true, null::uuid, '[]'::jsonb, null::timestamptz,
           case mod(n, 3) when 1 then gen_random_uuid() end,
           case mod(n, 3) when 1 then '{"address": null, "agent": null}'
                          when 2 then %(provider_request)s end::jsonb,
           case when mod(n, 3) > 0 then sha256(('c' || n)::bytea) end,
           case mod(n, 3) when 1 then 'person-' || n || '@example.com' end, null::uuid,
           case when mod(n, 3) > 0 then %(now)s end, case when mod(n, 3) > 0 then %(now)s + interval '10 minutes' end,
           %(now)s - n * interval '10 ms', %(now)s + interval '23 hours' - n * interval '10 ms'
    from generate_series(1, %(size)s) n
    union all
    select lpad(to_hex(100 + n), 32, '0')::uuid, %(browser)s, 'oauth', 'client_id=1', case n when 4 then %(name)s end, %(shop)s, %(shop)s,
           false, true, case n when 1 then %(user)s end, case n when 1 then %(proofs)s else '[]' end::jsonb,
           %(now)s + interval '10 minutes', case n when 2 then %(email_id)s end,
           case n when 2 then '{"address": null, "agent": null}' when 3 then %(provider_request)s end::jsonb,
           case n when 2 then %(link)s when 3 then %(state)s end, case n when 2 then 'ada@example.com' end,
           case n when 2 then %(user)s end, %(now)s, %(now)s + interval '10 minutes', %(now)s + n * interval '1 s',
           %(now)s + interval '1 day'
    from generate_series(1, %(max_open)s) n"""
PARAMETERS: Final = {
    "size": SIZE,
    "now": NOW,
    "provider_request": f'{{"connection": "{CONNECTION}", "scopes": null}}',
    "shop": SHOP,
    "user": USER,
    "browser": BROWSER,
    "name": NAME,
    "email_id": EMAIL_ID,
    "link": LINK,
    "state": STATE,
    "max_open": MAX_OPEN,
    "proofs": '[{"method": "password", "at": "2026-03-14T15:09:26.535897+00:00"}]',
}


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    with filled_database(server, INSERTS, PARAMETERS, TABLE) as conninfo:
        yield conninfo


def own_flow(number: int, **values: Any) -> Flow:
    """Return our browser's stored flow."""
    flow = new_flow(NOW + number * SECOND, FlowTarget.OAUTH, "client_id=1", BROWSER, org_id=SHOP, service_id=SHOP, **values)
    return replace(flow, id=UUID(int=100 + number), is_stored=True)


def steps(here: Repositories) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return the sign-in statements. Every step finds what it looks for."""
    flows = here.flows
    begun = new_flow(NOW + 100 * SECOND, FlowTarget.OAUTH, "client_id=1", BROWSER, org_id=SHOP, service_id=SHOP)
    proofs = (first_proof("password", NOW),)
    proved = own_flow(1, user_id=USER, proofs=proofs, proofs_expire_at=NOW + HOUR)
    email = EmailChallenge(
        id=new_id(), flow=own_flow(5), email=ADA, origin=ChallengeOrigin(None, None, None), begun_at=NOW, expires_at=NOW + HOUR
    )
    provider_request = ProviderRequest(flow=own_flow(5), connection_id=CONNECTION, begun_at=NOW, expires_at=NOW + HOUR)
    return {
        "begin": partial(flows.add, begun),
        "load": partial(flows.load, UUID(int=101), BROWSER),
        "find by the name outside": partial(flows.by_secret, NAME, BROWSER, NOW),
        "prove": partial(flows.save_proofs, proved),
        "begin with a proof": partial(flows.save_proofs, replace(begun, user_id=USER, proofs=proofs, proofs_expire_at=NOW + HOUR)),
        "count an attempt": partial(flows.count_attempt, proved, 5, b"subject", LIMIT, NOW),
        "close": partial(flows.close, own_flow(5), NOW),
        "ask for an email": partial(flows.start, email),
        "load the email": partial(flows.email_of, UUID(int=102), BROWSER, NOW),
        "open the link": partial(flows.email_by_link, LINK, NOW),
        "count an attempt at the email": partial(flows.count_email_attempt, UUID(int=102), BROWSER, KnownBy(), 5, LIMIT, NOW),
        "use the email up": partial(flows.redeem_email, EMAIL_ID, NOW),
        "forget a user": partial(flows.forget_user, USER),
        "forget older emails": partial(flows.remove_older_emails, ADA, NOW + HOUR),
        "start a provider request": partial(flows.start, provider_request, digest("another state")),
        "return from a provider request": partial(flows.take_provider_request, STATE, BROWSER, CONNECTION, NOW),
    }


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_sign_in_reads_the_flows_of_its_browser_only(large_database: str, mode: str) -> None:
    findings = {}
    async with await connect(large_database, timeout=5) as connection:
        for name, act in steps(Repositories(connection, make_vault(), NoSignals())).items():
            _, reads = await count_reads(connection, mode, act)
            if reads.scans[TABLE] or not 1 <= reads.rows[TABLE] <= MAX_OPEN + 5:
                findings[name] = reads
    assert findings == {}


@pytest.mark.parametrize("kind", [Sweep.SIGN_IN_FLOWS, Sweep.FLOW_SECRETS])
@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_sweep_reads_one_batch(large_database: str, mode: str, kind: Sweep) -> None:
    sweep, limit = SWEEPS[kind], 1000
    async with await connect(large_database, timeout=5) as connection:
        for before, expired in ((NOW, 0), (NOW + 2 * DAY, limit)):
            deleted, reads = await count_reads(connection, mode, partial(connection.run, sweep, {"before": before, "limit": limit}))
            assert deleted == expired
            assert reads.rows[TABLE] <= 3 * deleted + 1

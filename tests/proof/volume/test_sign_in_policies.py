"""3,000 organizations' policies, and their passes, slow down no request and no refresh."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.repositories import Repositories
from adapters.postgres.storage import Postgres
from core.authentication.model.policy import PolicyPass
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import digest, new_id
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, without_foreign_keys
from tests.support.builders import add_member, add_organization, make_vault, run_sql
from tests.support.rows import DAY, HOUR, NOW, account, add, begin

pytestmark = pytest.mark.slow

FILL: Final = (
    """
    insert into sign_in_policies (id, org_id, rules, changed_at)
    select gen_random_uuid(), gen_random_uuid(), '{"second_factor": ["everyone"]}', now() from generate_series(1, 3000)""",
    """
    insert into policy_passes (session_id, org_id, version, role, valid_until, used_at)
    select gen_random_uuid(), org_id, version, 'member', now(), now() from sign_in_policies, generate_series(1, 3)""",
)


@pytest.mark.parametrize("mode", PLAN_MODES)
@pytest.mark.parametrize("has_policy", [True, False])
async def test_requests_and_refreshes_read_few_rows(storage: Postgres, pool: Pool, conninfo: str, mode: str, has_policy: bool) -> None:
    user, org = await add(storage, account()), await add_organization(pool, "acme")
    await add_member(pool, org, user.id, MEMBER, confirmed=True)
    session = await begin(storage, user.id, "first")
    await run_sql(pool, "update sessions set org_id = %s", org)
    if has_policy:
        policy = SignInPolicy(
            id=new_id(), org_id=org, service_id=None, rules=Rules.read({"second_factor": ["everyone"]}), changed_at=NOW, changed_by=None
        )
        async with storage.transaction(by=SYSTEM) as tx:
            version = await tx.sign_in_policies.put(policy)
            await tx.policy_passes.save(PolicyPass(session.id, org, None, version, MEMBER, NOW + HOUR, NOW))
    async with without_foreign_keys(pool) as connection:
        for statement in FILL:
            await connection.run(statement)
    for table in ("sign_in_policies", "policy_passes", "sessions", "organizations", "memberships"):
        await run_sql(pool, f"analyze {table}")

    async with await connect(conninfo, timeout=5) as own:
        here = Repositories(own, make_vault(), NoSignals())
        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "rotate": lambda: here.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY),
            "load_in": lambda: here.session_contexts.load_in("acme", session.id, user.id, org, NOW),
            "load": lambda: here.policy_passes.load(org, None, user.id, session.id),
            "platform": lambda: here.policy_passes.state_on_platform(session.id, NOW),
        }
        for name, act in acts.items():
            result, reads = await count_reads(own, mode, act)
            assert (result is not None) == (name in ("rotate", "load_in") or (name == "load" and has_policy)), name
            for table, most in (("sign_in_policies", 3), ("policy_passes", 2)):
                assert reads.rows[table] <= most, (name, table, reads)
                assert reads.scans[table] == 0, (name, table, reads)

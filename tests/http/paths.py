"""What stands for the variables of paths where a request must come further than the path: an organization, and somebody who may do
everything there and everywhere."""

import re
from typing import Final
from uuid import uuid4

from adapters.postgres.pool import Pool
from core.accounts import Account
from ports import Ports
from tests.builders import add_account, run_sql, sign_in

PATH_VALUES: Final = {"org_slug": "acme", "org_id": str(uuid4())}
NOTHING: Final = "nothing-there"


def filled(path: str) -> str:
    """A path, written with `<name>` or `{name}`, with those values; other variables stand for nothing that there is."""
    return re.sub(r"[<{](?:[a-z]+:)?([a-z_]+)[>}]", lambda found: PATH_VALUES.get(found[1], NOTHING), path)


async def add_ruler(ports: Ports, pool: Pool) -> tuple[Account, str]:
    """A platform owner who also owns the organization of PATH_VALUES, and a token."""
    account = await add_account(ports, is_platform_owner=True)
    await restore(pool, account)
    return account, (await sign_in(ports, account)).access_token


async def restore(pool: Pool, ruler: Account) -> None:
    """Have the organization there, active and the ruler's, whatever a request has made of it."""
    mend = """
        with risen as (delete from deleted_organizations where id = %s),
        there as (
            insert into organizations (id, slug, name, status, tier_id, member_count, created_at, updated_at)
            select %s, %s, 'Acme', 'active', id, 1, now(), now() from tiers where name = 'free'
            on conflict (id) do update set status = 'active'
            returning id)
        insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
        select gen_random_uuid(), id, %s, 'owner', now(), now() from there
        on conflict (org_id, user_id) do nothing"""
    await run_sql(pool, mend, PATH_VALUES["org_id"], PATH_VALUES["org_id"], PATH_VALUES["org_slug"], ruler.id)

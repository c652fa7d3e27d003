"""What stands for the variables of paths where a request must come further than the path: an organization with a member, and somebody who
may do everything there and everywhere."""

import re
from typing import Final
from uuid import uuid4

from adapters.postgres.pool import Pool
from core.accounts import Account
from ports import Ports
from tests.builders import add_account, sign_in

PATH_VALUES: Final = {"org_slug": "acme", "org_id": str(uuid4()), "user_id": str(uuid4())}
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
    """Have the organization there, active and the ruler's, with its other member, whatever a request has made of it."""
    mend = """
        with risen as (delete from deleted_organizations where id = %(org_id)s),
        there as (
            insert into organizations (id, slug, name, status, tier_id, member_count, created_at, updated_at)
            select %(org_id)s, %(org_slug)s, 'Acme', 'active', id, 2, now(), now() from tiers where name = 'free'
            on conflict (id) do update set status = 'active'
            returning id),
        known as (
            insert into users (id, email, origin, created_at, updated_at)
            values (%(user_id)s, 'member@acme.example', 'platform', now(), now())
            on conflict (id) do nothing)
        insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
        select gen_random_uuid(), there.id, of.user_id, of.role, now(), now()
        from there, (values (%(ruler)s::uuid, 'owner'), (%(user_id)s::uuid, 'member')) as of (user_id, role)
        on conflict (org_id, user_id) do nothing"""
    async with pool.connection() as connection:
        await connection.execute(mend, {**PATH_VALUES, "ruler": ruler.id})

"""SCIM users with different profiles and states."""

from datetime import timedelta
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.values import Email
from core.provisioning.model.profiles import ScimProfile
from core.provisioning.model.users import ScimUser
from tests.support.builders import add_member, run_sql
from tests.support.rows import NOW, SECOND, account, add, within

# Texts with a meaning in LIKE patterns or in SQL, and texts without upper and lower case.
TEXTS = ["ada", "Ada", "50%", "_", "a\\b", "'", "--", "", "x y", "日本", "a%", "%"]
PROFILES = [
    ScimProfile(),
    ScimProfile("ada", "Ada L", "Ada", "L", "ada", "Ada", {"title": "x y", "department": "日本"}),
    ScimProfile("Ada", "50%", "_", "a\\b", "'", None, {"locale": "a%", "employeeNumber": "50%", "phoneNumbers": [{"value": "--"}]}),
    ScimProfile(None, None, "日本", "x y", "A%"),
    ScimProfile("--", "--", None, "--", None, "x y", {"timezone": "'", "preferredLanguage": "Ada", "manager": {"value": "ada"}}),
]


async def add_users(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> list[ScimUser]:
    """Add seven users at acme, and a user at the second tenant. Return acme's users.

    Five users have a profile. Two are blocked, and the second has a deactivated account. Another user is known and
    neither blocked nor a member.
    """
    users = [account(Email(f"{name}@example.com"), is_platform_owner=False) for name in ("ada", "b_b", "c%d", "eve", "f-1", "g", "h")]
    await add(storage, *users)
    for number, user in enumerate(users):
        await add_member(pool, acme, user.id, confirmed=True)
        joined_at = NOW + number * SECOND
        await run_sql(pool, "update memberships set created_at = %s where user_id = %s", joined_at, user.id)
        if number < len(PROFILES):
            await within(
                storage,
                lambda tx, user=user, number=number: tx.scim_users.save_profile(  # type: ignore[misc]
                    acme, user.id, PROFILES[number], user.email, NOW + timedelta(days=number)
                ),
            )
    other_user = account(Email("ada@twin.example"), is_platform_owner=False)
    await add(storage, other_user)
    await add_member(pool, other_tenant, other_user.id)
    await within(storage, lambda tx: tx.scim_users.save_profile(other_tenant, other_user.id, PROFILES[1], other_user.email, NOW))
    await within(storage, lambda tx: tx.accounts.deactivate(users[1].id, NOW))
    await within(storage, lambda tx: tx.scim_users.mark_provisioned(acme, users[2].id, NOW))
    for user in (users[1], users[3]):
        await within(storage, lambda tx, user=user: tx.directory_blocks.add(acme, user.id, NOW))  # type: ignore[misc]
    await within(storage, lambda tx: tx.scim_users.remove_members(acme, [user.id for user in users[1:4]], NOW))
    async with storage.reading() as read:
        page = await read.scim_users.page(acme, None, 0, 100)
    assert ([user.id for user in page.items], page.total) == ([user.id for user in users], 7)
    return list(page.items)

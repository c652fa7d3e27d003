"""Facts for questions: the meant user, what counts as active, and that other organizations and services do not count."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.applications.model.evaluation import Question, SubjectFacts, SubjectState
from core.kernel.roles import Permission
from core.kernel.values import Email, digest
from tests.applications.storage.end_user_rows import enroll
from tests.support.builders import add_member, add_organization, add_provisioned, run_sql
from tests.support.rows import DAY, NOW, account, add
from tests.support.services import add_api_key, add_service, service_context
from tests.tenancy.groups import add_group

ACTIVE, INACTIVE, UNKNOWN = SubjectState.ACTIVE, SubjectState.INACTIVE, SubjectState.UNKNOWN


def ask(subject: object, permission: str = "read", subject_type: str = "user") -> Question:
    return Question(subject_type, str(subject), permission, "record", "1")


async def add_role(pool: Pool, service: UUID, slug: str, *permissions: str) -> UUID:
    """Declare permissions and a role with them."""
    role = uuid4()
    await run_sql(
        pool,
        """
        with declared as (
            insert into service_permissions (org_id, service_id, name)
            select v.org_id, v.id, p from services v, unnest(%s::text[]) p where v.id = %s on conflict do nothing)
        insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
        select %s, org_id, id, %s, 'Role', %s, now(), now() from services where id = %s""",
        list(permissions),
        service,
        role,
        slug,
        list(permissions),
        service,
    )
    return role


async def give(pool: Pool, role: UUID, user: UUID) -> None:
    insert = """
        insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
        select org_id, service_id, id, %s, now() from service_roles where id = %s"""
    await run_sql(pool, insert, user, role)


@dataclass(slots=True)
class Shop:
    """A service with the role `reader`, which the confirmed member Ada has, and another organization with the same."""

    storage: Postgres
    pool: Pool
    org: UUID
    id: UUID
    reader: UUID
    ada: Account

    async def facts(self, *questions: Question) -> list[SubjectFacts]:
        async with self.storage.reading() as read:
            return await read.evaluations.by_service(self.org, self.id, questions, NOW)

    async def state(self, subject: object) -> SubjectState:
        [facts] = await self.facts(ask(subject))
        return facts.state


@pytest.fixture
async def shop(storage: Postgres, pool: Pool, acme: UUID) -> Shop:
    service, ada = await add_service(pool, acme), await add(storage, account())
    await add_member(pool, acme, ada.id, confirmed=True)
    reader = await add_role(pool, service, "reader", "read", "documents:list")
    await give(pool, reader, ada.id)
    return Shop(storage, pool, acme, service, reader, ada)


async def test_a_role_gives_its_permissions(shop: Shop) -> None:
    editor = await add_role(shop.pool, shop.id, "editor", "read", "write")
    assert await shop.facts(ask(shop.ada.id), ask(shop.ada.id, "write"), ask(shop.ada.id, "delete")) == [
        SubjectFacts(ACTIVE, is_declared=True, role="reader"),
        SubjectFacts(ACTIVE, is_declared=True),
        SubjectFacts(ACTIVE, is_declared=False),
    ]
    await give(shop.pool, editor, shop.ada.id)
    assert [facts.role for facts in await shop.facts(ask(shop.ada.id), ask(shop.ada.id, "write"))] == ["editor", "editor"], "by slug"


async def add_group_with(shop: Shop, name: str, role: UUID, *users: UUID) -> None:
    """Add a group with users, which has a role."""
    group = await add_group(shop.pool, shop.org, *users, name=name)
    give_role = "insert into service_role_groups select org_id, service_id, id, %s, now() from service_roles where id = %s"
    await run_sql(shop.pool, give_role, group, role)


async def test_a_role_of_a_group_is_the_reason_after_own_roles(shop: Shop) -> None:
    clerk, auditor = [await add_role(shop.pool, shop.id, slug, "read", "write") for slug in ("clerk", "auditor")]
    for name, role in (("Night", clerk), ("Day", clerk), ("All", auditor)):
        await add_group_with(shop, name, role, shop.ada.id)
    assert await shop.facts(
        ask(shop.ada.id), ask(shop.ada.id, "write"), ask(shop.ada.id, "documents:list"), ask(shop.ada.id, "delete")
    ) == [
        SubjectFacts(ACTIVE, is_declared=True, role="reader"),
        SubjectFacts(ACTIVE, is_declared=True, role="auditor", group="All"),
        SubjectFacts(ACTIVE, is_declared=True, role="reader"),
        SubjectFacts(ACTIVE, is_declared=False),
    ]
    await run_sql(shop.pool, "delete from group_members where group_id in (select id from groups where name = 'All')")
    assert await shop.facts(ask(shop.ada.id, "write")) == [SubjectFacts(ACTIVE, is_declared=True, role="clerk", group="Day")]
    await run_sql(shop.pool, "delete from service_role_groups")
    assert await shop.facts(ask(shop.ada.id, "write")) == [SubjectFacts(ACTIVE, is_declared=True)]


async def test_a_group_gives_roles_only_to_users_of_the_organization_and_opens_nothing(shop: Shop) -> None:
    eve, stranger = [await add(shop.storage, account(email=Email(f"{name}@example.com"))) for name in ("eve", "stranger")]
    await add_member(shop.pool, shop.org, eve.id, confirmed=False)
    await add_group_with(shop, "Readers", shop.reader, eve.id, stranger.id)
    assert [await shop.state(user.id) for user in (eve, stranger)] == [UNKNOWN, UNKNOWN]
    await run_sql(shop.pool, "update memberships set confirmed_at = now()")
    assert await shop.facts(ask(eve.id)) == [SubjectFacts(ACTIVE, is_declared=True, role="reader", group="Readers")]
    await run_sql(shop.pool, "update services set access_policy = 'assigned'")
    assert await shop.state(eve.id) is INACTIVE


async def test_answers_are_in_the_order_of_the_questions(shop: Shop) -> None:
    permissions = ["read", "x", "documents:list", "y", "read"] * 20
    facts = await shop.facts(*(ask(shop.ada.id, permission) for permission in permissions))
    assert [each.role is not None for each in facts] == [permission in ("read", "documents:list") for permission in permissions]


async def test_users_of_others_and_unknown_users_are_unknown_alike(shop: Shop) -> None:
    other_org = await add_organization(shop.pool, "other")
    other_shop = await add_service(shop.pool, other_org)
    there, member_only = [await add(shop.storage, account(email=Email(f"{name}@example.com"))) for name in ("there", "member")]
    await add_member(shop.pool, other_org, there.id, confirmed=True)
    await give(shop.pool, await add_role(shop.pool, other_shop, "reader", "read"), there.id)
    await add_member(shop.pool, shop.org, member_only.id, confirmed=True)  # has not come to the service (security K-3)
    for subject in (there.id, member_only.id, uuid4(), "ada", "", there.email, str(shop.ada.id).upper()):
        assert await shop.facts(ask(subject)) == [SubjectFacts(UNKNOWN, is_declared=True)], subject
    assert await shop.facts(ask(shop.ada.id, subject_type="service_account")) == [SubjectFacts(UNKNOWN, is_declared=True)]


async def test_permissions_and_roles_of_other_services_do_not_count(shop: Shop) -> None:
    forum = await add_service(shop.pool, shop.org, "forum")
    await give(shop.pool, await add_role(shop.pool, forum, "writer", "write"), shop.ada.id)
    assert await shop.facts(ask(shop.ada.id, "write")) == [SubjectFacts(ACTIVE, is_declared=False)]
    async with shop.storage.reading() as read:
        assert await read.evaluations.by_service(uuid4(), shop.id, [ask(shop.ada.id)], NOW) == []


async def test_users_of_the_service_without_a_role_are_known(shop: Shop) -> None:
    user = await add(shop.storage, account(email=Email("eve@example.com")))
    assert await shop.state(user.id) is UNKNOWN
    await enroll(shop.storage, shop.id, user.id)
    assert await shop.facts(ask(user.id)) == [SubjectFacts(ACTIVE, is_declared=True)]


@pytest.mark.parametrize(
    "change",
    [
        "update users set deactivated_at = now() where id = %(user)s",
        "update users set anonymized_at = now() where id = %(user)s",
        "insert into directory_blocks values (%(org)s, %(user)s, now())",
        "insert into end_user_blocks (org_id, user_id, since, email) values (%(org)s, %(user)s, now(), 'ada@example.com')",
        "delete from memberships where user_id = %(user)s",
        "update memberships set confirmed_at = null where user_id = %(user)s",
        "update services set access_policy = 'assigned'",
    ],
)
async def test_a_user_who_may_not_use_the_service_is_inactive(shop: Shop, change: str) -> None:
    async with shop.pool.connection() as connection:
        await connection.execute(change.encode(), {"org": shop.org, "user": shop.ada.id})
    assert await shop.facts(ask(shop.ada.id)) == [SubjectFacts(INACTIVE, is_declared=True, role="reader")]


async def test_assigned_users_and_subscribers_may_use_a_closed_service(shop: Shop) -> None:
    await run_sql(shop.pool, "update services set access_policy = 'assigned'")
    assert await shop.state(shop.ada.id) is INACTIVE
    await enroll(shop.storage, shop.id, shop.ada.id, signed_in=False)
    assert await shop.state(shop.ada.id) is ACTIVE


async def test_the_user_name_of_the_directory_names_a_user(shop: Shop) -> None:
    await add_provisioned(shop.pool, shop.org, shop.ada.id)
    assert [await shop.state(name) for name in ("ada@example.com", "ADA@example.com", "ada")] == [ACTIVE, ACTIVE, UNKNOWN]
    await run_sql(shop.pool, "update scim_users set user_name = 'Ada'")
    assert [await shop.state(name) for name in ("ada", "ADA", "ada@example.com", "ad", "ada%")] == [
        ACTIVE,
        ACTIVE,
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
    ]
    other = await add_organization(shop.pool, "other")
    await run_sql(shop.pool, "update scim_users set org_id = %s", other)
    assert await shop.state("ada") is UNKNOWN


async def test_an_address_that_is_not_proved_names_no_user(shop: Shop) -> None:
    await add_provisioned(shop.pool, shop.org, shop.ada.id)
    await run_sql(shop.pool, "update users set email_verified_at = null")
    assert await shop.state("ada@example.com") is UNKNOWN
    assert await shop.state(shop.ada.id) is ACTIVE


async def test_an_id_as_user_name_does_not_take_the_place_of_the_user_with_this_id(shop: Shop) -> None:
    eve = await add(shop.storage, account(email=Email("eve@example.com")))
    await add_member(shop.pool, shop.org, eve.id, confirmed=True)
    await add_provisioned(shop.pool, shop.org, shop.ada.id)
    await run_sql(shop.pool, "update scim_users set user_name = %s", str(eve.id))
    assert await shop.state(eve.id) is UNKNOWN


async def test_a_key_is_found_with_the_facts_of_its_service(shop: Shop) -> None:
    key = digest(await add_api_key(shop.pool, shop.id, [Permission.EVALUATE_ACCESS], expires_at=NOW + DAY))
    for questions in ([], [ask(shop.ada.id)], [ask(shop.ada.id), ask(shop.ada.id, "write")]):
        async with shop.storage.reading() as read:
            record, facts = await read.evaluations.by_key(key, questions, NOW) or (None, [])
            assert record == await read.api_keys.by_hash(key, NOW)
        assert record is not None
        assert record.service == await service_context(shop.pool, shop.id)
        assert facts == await shop.facts(*questions)
    async with shop.storage.reading() as read:
        assert await read.evaluations.by_key(key, [ask(shop.ada.id)], NOW + DAY) is None
        assert await read.evaluations.by_key(digest("another"), [ask(shop.ada.id)], NOW) is None


async def test_a_service_is_found_by_its_credential(shop: Shop) -> None:
    [(client, credential)] = await run_sql(shop.pool, "select client_id, credential_id from services")
    for questions in ([], [ask(shop.ada.id)]):
        async with shop.storage.reading() as read:
            found = await read.evaluations.by_credential(client, credential, questions, NOW)
        assert found == (await service_context(shop.pool, shop.id), await shop.facts(*questions))
    async with shop.storage.reading() as read:
        assert await read.evaluations.by_credential(client, uuid4(), [], NOW) is None
        assert await read.evaluations.by_credential(uuid4(), credential, [], NOW) is None

"""The people and attempts for the sign-in log tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.sign_in_log import SignIn, SignInFilter
from core.kernel.callers import ServiceContext
from core.kernel.values import Page
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import DAY, NOW, account, add, failed_login, within
from tests.support.services import add_service, enroll_user, service_context

PAGE = Page(1, 100)
CLIENT = "203.0.113.9"


@dataclass(frozen=True, slots=True)
class Cast:
    """Two organizations with an application for both, and people from the first organization."""

    shop: ServiceContext
    rival: ServiceContext
    member: UUID  # confirmed, a day ago
    invited: UUID  # a member who is not confirmed
    customer: UUID  # a shop user
    stranger: UUID


@pytest.fixture
async def cast(storage: Postgres, pool: Pool) -> Cast:
    shop = await service_context(pool, await add_service(pool, await add_organization(pool, "acme")))
    rival = await service_context(pool, await add_service(pool, await add_organization(pool, "rival")))
    people = [(await add(storage, account(f"{name}@example.com"))).id for name in ("member", "invited", "customer", "stranger")]
    for user, is_confirmed in ((people[0], True), (people[1], False)):
        await add_member(pool, shop.org_id, user, confirmed=is_confirmed)
    await run_sql(pool, "update memberships set confirmed_at = %s where confirmed_at is not null", NOW - DAY)
    await run_sql(pool, "update organizations set approved_at = %s", NOW - DAY)
    await within(storage, lambda tx: enroll_user(tx, shop.id, people[2], NOW - DAY))
    return Cast(shop, rival, *people)


async def fail(storage: Postgres, user: UUID | None, service: ServiceContext | None, **changes: Any) -> None:
    org_id, service_id = (service.org_id, service.id) if service else (None, None)
    values = {"org_id": org_id, "service_id": service_id, "address": CLIENT, "agent": "tests"} | changes
    async with storage.autocommit() as statements:
        await statements.failed_logins.record_failure(failed_login(user, **values))


async def log(storage: Postgres, org_id: UUID | None, **filters: Any) -> list[SignIn]:
    """Return the log. The export has the same attempts as the list, and the total is their number."""
    filter_ = SignInFilter(**filters)
    async with storage.reading() as read:
        page = await read.sign_in_log.page(org_id, filter_, PAGE)
        exported = await read.sign_in_log.batch(org_id, filter_, None, 100)
    assert (page.items, page.total) == (exported, len(exported))
    return exported


def named(sign_ins: Sequence[SignIn]) -> list[tuple[UUID | None, str | None, str | None, int]]:
    return [(each.user_id, each.email, each.reason, each.attempts) for each in sign_ins]

"""Reading the platform's log: filters, pages, batches, and the organizations' entries that it must not show."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.eventing.model import audit as model_audit
from core.eventing.model.audit import SYSTEM as SYSTEM_ACTOR
from core.eventing.model.audit import AuditActor, AuditEntry, AuditFilter
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import Page, PageResult
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization
from tests.support.rows import ADA, EVE, NOW, SECOND, account, add

PERSON = Person(user_id=uuid4(), email=ADA, session_id=uuid4(), address="203.0.113.9", agent="tests")
ALL = AuditFilter()


async def read(storage: Postgres, filter_: AuditFilter, page: Page) -> PageResult[AuditEntry]:
    async with storage.reading() as reading:
        return await reading.audit.page(None, filter_, page)


async def record(storage: Postgres, by: Person | None, *events: Event) -> None:
    async with storage.transaction(by=by or SYSTEM, in_session=False) as tx:
        for event in events:
            tx.record(event)


async def test_every_filter_finds_and_counts_its_entries_in_pages_and_batches(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    await add(storage, user := account(), eve := account(EVE, is_platform_owner=True))
    org = await add_organization(pool, "acme")
    names, sessions, start = ["user.impersonated", "impersonation.request", "organization.deleted"], ["s1", "s2"], clock.now()
    rows = [*product([None, org], names, ["t1", "t2"], sessions)]
    for org_id, name, target_id, session in rows:
        clock.advance(SECOND)
        by = replace(PERSON, user_id=user.id, impersonator_id=eve.id if session == "s2" else None)
        await record(storage, by, Event(EVENT_KINDS[name], target_id, org_id=org_id, details={"session_id": session}))
    cases = product(
        [None, frozenset({"impersonation.request"}), frozenset({"user.impersonated", "organization.deleted"})],
        [None, ("user", "t1")],
        [None, user.id, uuid4()],
        [None, eve.id],
        [None, "s1", "s2"],
        [(None, None), (start + timedelta(seconds=3), start + timedelta(seconds=9))],
    )
    for actions, target, actor_id, impersonator_id, session_id, (since, until) in cases:
        target_type, id_ = target or (None, None)
        entry_filter = AuditFilter(actions=actions, target_type=target_type, target_id=id_, actor_id=actor_id)
        filter_ = replace(entry_filter, since=since, until=until, impersonator_id=impersonator_id, session_id=session_id)
        expected = [
            (name, target_id, session)
            for number, (org_id, name, target_id, session) in reversed([*enumerate(rows, 1)])
            if org_id is None
            and (actions is None or name in actions)
            and (target is None or (EVENT_KINDS[name].target.value, target_id) == target)
            and actor_id in (None, user.id)
            and (impersonator_id is None or session == "s2")
            and session_id in (None, session)
            and (since is None or since <= start + number * SECOND)
            and (until is None or start + number * SECOND < until)
        ]
        page = await read(storage, filter_, Page(1, 100))
        assert [(entry.action, entry.target_id, entry.details["session_id"]) for entry in page.items] == expected, filter_
        assert page.total == len(expected)
        assert (await read(storage, filter_, Page(2, 3))).items == page.items[3:6]
        async with storage.reading() as reading:
            first = await reading.audit.batch(None, filter_, None, 2)
            rest = await reading.audit.batch(None, filter_, first[-1], 100) if first else []
        assert [*first, *rest] == page.items


async def test_an_entry_has_its_actors_and_other_logs_have_none(storage: Postgres, pool: Pool) -> None:
    await add(storage, eve := account(EVE, is_platform_owner=True))
    org = await add_organization(pool, "acme")
    own_id, foreign_id = uuid4(), uuid4()
    kind, by = EVENT_KINDS["user.impersonated"], replace(PERSON, user_id=eve.id)
    event = Event(kind, "ada", impersonator_id=eve.id, details={"reason": "a ticket"}, id=own_id)
    await record(storage, by, event, replace(event, id=foreign_id, org_id=org))
    async with storage.reading() as reading:
        entry = await reading.audit.by_id(None, own_id)
        assert await reading.audit.by_id(None, foreign_id) is None
        assert await reading.audit.by_id(None, uuid4()) is None
    actor = AuditActor(str(eve.id), EVE, is_platform_owner=True)
    assert entry is not None
    assert (entry.id, entry.org_id, entry.actor, entry.impersonator, entry.details) == (own_id, None, actor, actor, {"reason": "a ticket"})
    page = await read(storage, ALL, Page(1, 10))
    assert page == PageResult([entry], 1)


async def test_pages_end_with_the_newest_entries_and_a_filter_finds_older_ones(
    storage: Postgres, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_audit, "MAX_LISTED", 3)
    ids: list[UUID] = []
    for _ in range(5):
        clock.advance(SECOND)
        ids.insert(0, uuid4())
        await record(storage, None, Event(EVENT_KINDS["organization.deleted"], "x", id=ids[0]))
    pages = [await read(storage, ALL, Page(number, 2)) for number in (1, 2, 3)]
    assert [page.total for page in pages] == [3, 3, 3]
    assert [[entry.id for entry in page.items] for page in pages] == [ids[:2], ids[2:4], []]
    older = AuditFilter(until=clock.now() - 2 * SECOND, actor_without_account=SYSTEM_ACTOR)
    assert [entry.id for entry in (await read(storage, older, Page(1, 2))).items] == ids[3:]
    assert (await read(storage, AuditFilter(until=NOW - timedelta(days=1)), Page(1, 2))).total == 0

"""Statements about single logout reach no other organization, service or browser."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import NameId
from core.federation.saml.model.sign_on import LOGOUT_TTL, EndedSessions, LogoutInitiator
from core.kernel.callers import ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.values import digest
from tests.federation.storage.saml.rows import LOGOUT_BROWSER, NAME_ID, StoredSaml, other_services
from tests.support.builders import run_sql
from tests.support.rows import EVE, NOW, SECOND, account, add, session, within


async def test_every_field_of_a_logout_is_stored_for_its_browser(saml_rows: StoredSaml) -> None:
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        assert await tx.saml_logouts.lock(LOGOUT_BROWSER, NOW) == saml_rows.logout
        assert await tx.saml_logouts.lock(digest("another"), NOW) is None
        assert await tx.saml_logouts.lock(LOGOUT_BROWSER, NOW + LOGOUT_TTL) is None


async def test_a_logout_of_a_foreign_service_is_not_added(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    for org_id, service_id in ((saml_rows.service.org_id, foreign.id), (foreign.org_id, saml_rows.service.id), (foreign.org_id, uuid4())):
        other = replace(
            saml_rows.logout,
            id=uuid4(),
            browser_hash=digest("other"),
            initiator=LogoutInitiator(org_id=org_id, service_id=service_id, request_id="_x"),
        )
        assert not await saml_rows.run_without_effect(lambda tx, other=other: tx.saml_logouts.add(other))  # type: ignore[misc]
        foreign_session = replace(saml_rows.saml_session, org_id=org_id, service_id=service_id)
        is_added = await saml_rows.run_without_effect(
            lambda tx, foreign_session=foreign_session: tx.saml_logouts.add_request(
                saml_rows.logout.id, "_other", saml_rows.user, foreign_session, None
            )  # type: ignore[misc]
        )
        assert not is_added


async def test_each_request_is_sent_twice_at_most_while_it_has_no_response(saml_rows: StoredSaml) -> None:
    assert await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.next_request(uuid4(), NOW)) is None
    for _ in range(2):
        assert await within(saml_rows.storage, lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW)) == (
            "_request",
            saml_rows.saml_session,
        )
    assert await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW)) is None


@pytest.mark.parametrize("is_success", [True, False])
async def test_only_the_asked_service_can_respond_and_only_once(
    saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext, *, is_success: bool
) -> None:
    shop = saml_rows.service

    async def answer(**changes: Any) -> bool | None:
        defaults = {"logout_id": saml_rows.logout.id, "org_id": shop.org_id, "service_id": shop.id, "request_id": "_request", "now": NOW}
        return await within(saml_rows.storage, lambda tx: tx.saml_logouts.record_response(**{**defaults, **changes}, is_success=is_success))

    before = await saml_rows.rows()
    assert await answer() is None, "the request was not sent yet"
    assert await saml_rows.rows() == before
    await within(saml_rows.storage, lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW))
    others = [{"org_id": org_id, "service_id": service_id} for org_id, service_id in other_services(saml_rows, desk, foreign)]
    others += [{"logout_id": uuid4()}, {"request_id": "_another"}]  # type: ignore[dict-item]
    for expected in (True, False):
        before = await saml_rows.rows()
        for other in others:
            assert await answer(**other) is None
        assert await saml_rows.rows() == before
        assert await answer() is expected
    assert await saml_rows.rows() == before
    assert await within(saml_rows.storage, lambda tx: tx.saml_logouts.delete(saml_rows.logout.id)) is not is_success


async def test_sessions_at_a_service_are_found_by_name_and_ended(
    saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop, user, other_name = saml_rows.service, saml_rows.user, NameId("_there", NameIdFormat.TRANSIENT)
    eve = await add(saml_rows.storage, account(EVE))
    second, elsewhere, eves = session(user), session(user), session(eve.id)
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        for number, other in enumerate((second, elsewhere, eves)):
            await tx.sessions.begin_in_browser(other, digest(f"browser {number}"))
        await tx.saml_sign_ons.add_session(second.id, shop.org_id, shop.id, "_2", other_name, NOW)
        await tx.saml_sign_ons.add_session(second.id, desk.org_id, desk.id, "_3", NAME_ID, NOW)
        await tx.saml_sign_ons.add_session(elsewhere.id, foreign.org_id, foreign.id, "_4", NAME_ID, NOW)
        await tx.saml_sign_ons.add_session(eves.id, shop.org_id, shop.id, "_5", NameId("_eve", NAME_ID.format), NOW)

    async def users(org_id: UUID, service_id: UUID, name_id: NameId) -> object:
        return await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.find_users(org_id, service_id, name_id, NOW))

    async def end(org_id: UUID, service_id: UUID, user_id: UUID = user) -> EndedSessions:
        return await within(saml_rows.storage, lambda tx: tx.saml_logouts.end_sessions_at(org_id, service_id, user_id, NOW))

    async def live() -> set[UUID]:
        return {row[0] for row in await run_sql(saml_rows.pool, "select id from sessions where ended_at is null")}

    before = await live()
    for name_id in (NAME_ID, NameId(NAME_ID.value, NameIdFormat.UNSPECIFIED), other_name):
        assert await users(shop.org_id, shop.id, name_id) == [user]
    assert await users(shop.org_id, shop.id, NameId(NAME_ID.value, NameIdFormat.EMAIL)) == []
    assert await users(shop.org_id, shop.id, NameId("_unknown", NAME_ID.format)) == []
    for org_id, service_id in other_services(saml_rows, desk, foreign)[2:]:
        assert await users(org_id, service_id, NAME_ID) == []
        assert await end(org_id, service_id) == EndedSessions(0, have_other_services=False)
    assert await live() == before
    assert await end(shop.org_id, shop.id) == EndedSessions(2, have_other_services=True)
    assert await live() == before - {saml_rows.session, second.id}
    assert await end(shop.org_id, shop.id) == EndedSessions(0, have_other_services=False)
    assert await users(shop.org_id, shop.id, NAME_ID) == [], "ended sessions have no name"
    assert await end(shop.org_id, shop.id, eve.id) == EndedSessions(1, have_other_services=False)


async def test_another_logout_is_unchanged(saml_rows: StoredSaml) -> None:
    other = replace(saml_rows.logout, id=uuid4(), initiator=LogoutInitiator(after="/"))
    assert await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.requested_sessions(other.id)) == []
    assert await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.last_request(other.id)) is None
    await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.mark_partial(uuid4()))
    assert not await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.delete(uuid4()))
    assert await within(saml_rows.storage, lambda tx: tx.saml_logouts.delete(saml_rows.logout.id)), "no service has answered"
    assert await run_sql(saml_rows.pool, "select 1 from saml_logout_requests") == []


async def test_a_finished_request_is_neither_sent_nor_waited_for(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    await within(saml_rows.storage, lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW))
    await answer_request(saml_rows)
    finished = replace(saml_rows.saml_session, org_id=foreign.org_id, service_id=foreign.id, former_names=("_before",))
    assert await within(
        saml_rows.storage, lambda tx: tx.saml_logouts.add_request(saml_rows.logout.id, "_done", saml_rows.user, finished, NOW)
    )
    assert await within(saml_rows.storage, lambda tx: tx.saml_logouts.requested_sessions(saml_rows.logout.id)) == [
        finished,
        saml_rows.saml_session,
    ]
    assert await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW)) is None
    assert not await within(saml_rows.storage, lambda tx: tx.saml_logouts.delete(saml_rows.logout.id))


async def answer_request(saml_rows: StoredSaml, request_id: str = "_request", service: ServiceContext | None = None) -> None:
    asked = service or saml_rows.service
    assert await within(
        saml_rows.storage,
        lambda tx: tx.saml_logouts.record_response(saml_rows.logout.id, asked.org_id, asked.id, request_id, NOW + SECOND, is_success=True),
    )


async def test_the_last_request_can_be_sent_again_until_it_is_answered(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    foreign_session = replace(saml_rows.saml_session, org_id=foreign.org_id, service_id=foreign.id)
    await within(
        saml_rows.storage, lambda tx: tx.saml_logouts.add_request(saml_rows.logout.id, "_z", saml_rows.user, foreign_session, None)
    )

    async def last() -> object:
        return await saml_rows.run_without_effect(lambda tx: tx.saml_logouts.last_request(saml_rows.logout.id))

    assert await last() is None
    await within(saml_rows.storage, lambda tx: tx.saml_logouts.next_request(saml_rows.logout.id, NOW))
    assert await last() == ("_request", saml_rows.saml_session)
    for time in (NOW, NOW + SECOND):
        await within(saml_rows.storage, lambda tx, time=time: tx.saml_logouts.next_request(saml_rows.logout.id, time))  # type: ignore[misc]
    assert await last() == ("_z", foreign_session)
    await answer_request(saml_rows, "_z", foreign)
    assert await last() is None, "the request before it is not repeated"

"""Statements about SAML neither read nor change rows of other organizations, services and browsers.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres, Transaction
from core.federation.saml.configuration_rules import NameIdFormat, SamlConfiguration
from core.federation.saml.logout_rules import LOGOUT_TTL, LogoutInitiator, SamlLogout, SamlSession
from core.federation.saml.messages import NameId, SamlStatus
from core.federation.saml.sign_on_rules import STATE_TTL, SamlSignOn
from core.kernel.principals import SYSTEM, ServiceContext
from core.kernel.values import digest
from tests.support.builders import run_sql
from tests.support.rows import ADA, EVE, MICROSECOND, NOW, SECOND, account, add, session, within
from tests.support.saml import new_certificate

STATE, BROWSER, LEAVING = digest("state"), digest("cookie"), digest("cookie of the logout")
TABLES: Final = (
    *("saml_configurations", "saml_certificates", "saml_sign_ons", "saml_name_ids", "saml_sessions"),
    *("saml_logouts", "saml_logout_requests"),
)
NAME: Final = NameId("_name", NameIdFormat.PERSISTENT)
CONFIGURATION: Final = SamlConfiguration(
    enabled=True,
    entity_id="https://shop.example.com/metadata",
    acs_url="https://shop.example.com/acs",
    slo_url="https://shop.example.com/slo",
    name_id_format=NameIdFormat.PERSISTENT,
    attribute_mapping={"email": "mail"},
    sign_response=False,
)


@dataclass(frozen=True, slots=True)
class StoredSaml:
    """A service with one user, a SAML session, a pending sign-on and a logout in progress."""

    storage: Postgres
    pool: Pool
    service: ServiceContext
    user: UUID
    session: UUID
    sign_on: SamlSignOn
    logout: SamlLogout
    saml_session: SamlSession

    async def rows(self) -> list[list[tuple[Any, ...]]]:
        return [await run_sql(self.pool, f"select to_jsonb(t)::text from {table} t order by 1") for table in TABLES]  # noqa: S608

    async def unchanged_by(self, act: Callable[[Transaction], Awaitable[object]]) -> object:
        """Run a statement and check that it changes nothing. Return its result."""
        before = await self.rows()
        result = await within(self.storage, act)
        assert await self.rows() == before
        return result


@pytest.fixture
async def stored(storage: Postgres, pool: Pool, shop: ServiceContext) -> StoredSaml:
    user = await add(storage, account())
    browser = session(user.id)
    sign_on = SamlSignOn(
        state_hash=STATE,
        browser_hash=BROWSER,
        org_id=shop.org_id,
        service_id=shop.id,
        request_id="_asked",
        relay_state="cart",
        force_authn=True,
        is_passive=True,
        status=SamlStatus.NO_PASSIVE,
        subject=NAME,
        context_class="urn:oasis:names:tc:SAML:2.0:ac:classes:Password",
        created_at=NOW,
        expires_at=NOW + STATE_TTL,
    )
    logout = SamlLogout(
        id=uuid4(),
        browser_hash=LEAVING,
        initiator=LogoutInitiator(org_id=shop.org_id, service_id=shop.id, request_id="_leave", relay_state="bye", after="/app/account"),
        created_at=NOW,
        expires_at=NOW + LOGOUT_TTL,
    )
    part = SamlSession(org_id=shop.org_id, service_id=shop.id, session_index="_index", name_id=NAME)
    certificate = await new_certificate(NOW)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(browser, digest("session cookie"))
        await tx.saml.configure(shop.org_id, shop.id, CONFIGURATION, NOW)
        await tx.saml.add_certificate(shop.org_id, shop.id, certificate)
        assert await tx.saml_sign_ons.add(sign_on)
        assert await tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, user.id, NAME.value, NOW) == NAME.value
        assert await tx.saml_sign_ons.add_session(browser.id, shop.org_id, shop.id, "_index", NAME, NOW) == "_index"
        assert await tx.saml_logouts.add(logout)
        assert await tx.saml_logouts.add_request(logout.id, "_request", user.id, part, None)
    return StoredSaml(storage, pool, shop, user.id, browser.id, sign_on, logout, part)


def other_services(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> list[tuple[UUID, UUID]]:
    """Return pairs of organization and service that do not own the rows, including mixed pairs."""
    return [
        (desk.org_id, desk.id),
        (foreign.org_id, foreign.id),
        (foreign.org_id, stored.service.id),
        (stored.service.org_id, foreign.id),
    ]


# Configuration


async def test_another_organization_finds_no_configuration_and_no_certificate(
    stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = stored.service
    async with stored.storage.reading() as read:
        assert await read.saml.configuration(shop.org_id, shop.id) == CONFIGURATION
        assert await read.saml.certificate(shop.org_id, shop.id) is not None
        for org_id, service_id in other_services(stored, desk, foreign):
            assert await read.saml.configuration(org_id, service_id) is None
            assert await read.saml.certificate(org_id, service_id) is None


async def test_the_setup_is_found_by_organization_and_service(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop = stored.service
    async with stored.storage.transaction(by=SYSTEM) as tx:
        setup = await tx.saml.setup_by_id(shop.org_id, shop.id)
        assert setup is not None
        assert (setup.service, setup.configuration) == (shop, CONFIGURATION)
        for org_id, service_id in ((foreign.org_id, shop.id), (shop.org_id, foreign.id), (shop.org_id, uuid4())):
            assert await tx.saml.setup_by_id(org_id, service_id) is None
        other = await tx.saml.setup_by_id(desk.org_id, desk.id)
        assert other is not None
        assert (other.service, other.configuration) == (desk, None)


async def test_the_slugs_are_those_of_one_organization(stored: StoredSaml, foreign: ServiceContext) -> None:
    async with stored.storage.reading() as read:
        setup = await read.saml.setup_by_slug("acme", "shop")
        assert setup is not None
        assert (setup.service, setup.configuration) == (stored.service, CONFIGURATION)
        other = await read.saml.setup_by_slug("twin", "shop")
        assert other is not None
        assert (other.service, other.configuration, other.certificate) == (foreign, None, None)
        assert await read.saml.setup_by_slug("twin", "desk") is None


async def test_another_organization_cannot_disable_or_deactivate(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    for org_id, service_id in other_services(stored, desk, foreign):
        assert not await stored.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml.disable(o, s, NOW))  # type: ignore[misc]
        assert not await stored.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml.deactivate_certificate(o, s, NOW))  # type: ignore[misc]
    shop = stored.service
    assert await within(stored.storage, lambda tx: tx.saml.disable(shop.org_id, shop.id, NOW))
    assert await within(stored.storage, lambda tx: tx.saml.deactivate_certificate(shop.org_id, shop.id, NOW))


# Sign-on


async def test_every_field_of_a_sign_on_is_stored(stored: StoredSaml) -> None:
    async with stored.storage.reading() as read:
        assert await read.saml_sign_ons.find(stored.service.org_id, stored.service.id, STATE, BROWSER, NOW) == stored.sign_on


async def test_a_sign_on_is_found_by_its_service_and_browser_until_it_expires(
    stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = stored.service
    async with stored.storage.reading() as read:
        for org_id, service_id in other_services(stored, desk, foreign):
            assert await read.saml_sign_ons.find(org_id, service_id, STATE, BROWSER, NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, digest("another"), BROWSER, NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, digest("another"), NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, BROWSER, NOW + STATE_TTL) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, BROWSER, NOW + STATE_TTL - MICROSECOND) is not None
        pending = await read.saml_sign_ons.pending_service(STATE, NOW)
        assert pending is not None
        assert pending[1] == shop
        assert await read.saml_sign_ons.pending_service(digest("another"), NOW) is None
        assert await read.saml_sign_ons.pending_service(STATE, NOW + STATE_TTL) is None


async def test_another_service_does_not_finish_a_sign_on(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop = stored.service
    for org_id, service_id in other_services(stored, desk, foreign):
        assert not await stored.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml_sign_ons.finish(o, s, STATE, NOW))  # type: ignore[misc]
    assert not await stored.unchanged_by(lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW + STATE_TTL))
    assert await within(stored.storage, lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))
    assert not await stored.unchanged_by(lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))
    for org_id, service_id in other_services(stored, desk, foreign):
        await stored.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml_sign_ons.reopen(o, s, STATE))  # type: ignore[misc]
    await within(stored.storage, lambda tx: tx.saml_sign_ons.reopen(shop.org_id, shop.id, STATE))
    assert await within(stored.storage, lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))


async def test_only_a_pending_sign_on_can_be_completed(stored: StoredSaml) -> None:
    async def complete(state: bytes, now: Any = NOW) -> object:
        ticket = digest("ticket")
        return await within(stored.storage, lambda tx: tx.saml_sign_ons.complete_sign_in(state, stored.user, stored.session, ticket, now))

    before = await stored.rows()
    assert await complete(digest("another")) is None
    assert await complete(STATE, NOW + STATE_TTL) is None
    assert await stored.rows() == before
    assert await complete(STATE) == (stored.service.org_id, "acme", "shop")


async def test_a_sign_on_of_a_foreign_service_is_not_added(stored: StoredSaml, foreign: ServiceContext) -> None:
    for org_id, service_id in ((stored.service.org_id, foreign.id), (foreign.org_id, stored.service.id), (foreign.org_id, uuid4())):
        other = replace(stored.sign_on, state_hash=digest("other"), request_id="_other", org_id=org_id, service_id=service_id)
        assert not await stored.unchanged_by(lambda tx, other=other: tx.saml_sign_ons.add(other))  # type: ignore[misc]


async def test_a_request_id_works_once_per_service(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    again = replace(stored.sign_on, state_hash=digest("again"))
    assert not await stored.unchanged_by(lambda tx: tx.saml_sign_ons.add(again))
    for other in (desk, foreign):
        same = replace(stored.sign_on, state_hash=digest(str(other.id)), org_id=other.org_id, service_id=other.id)
        assert await within(stored.storage, lambda tx, same=same: tx.saml_sign_ons.add(same))  # type: ignore[misc]


async def test_the_user_is_looked_up_in_one_organization(stored: StoredSaml, foreign: ServiceContext, pool: Pool) -> None:
    """Also if another organization has a service with the same slug."""
    shop, user, session_id = stored.service, stored.user, stored.session
    member = "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, 'member', %s, %s)"
    await run_sql(pool, member, uuid4(), shop.org_id, user, NOW, NOW)
    await within(stored.storage, lambda tx: tx.end_users.enroll(shop.id, user, NOW, signed_in=True))
    eve = await add(stored.storage, account(EVE))

    async def locked(org_id: UUID, user_id: UUID, slug: str = "shop") -> tuple[object, ...]:
        async with stored.storage.transaction(by=SYSTEM) as tx:
            locks = tx.saml_sign_ons.lock_user_deferred(org_id, slug, user_id, session_id, NOW)
            await tx.saml_logouts.delete_sessions(uuid4())  # any statement, which sends the deferred ones
            person = locks.account.value
            return locks.membership.value, person and person.email, locks.session_lives.value, locks.own_use.value

    assert await locked(shop.org_id, user) == (True, ADA, True, True)
    assert await locked(shop.org_id, user, "desk") == (True, ADA, True, None)
    assert await locked(foreign.org_id, user) == (None, ADA, True, None)
    assert await locked(shop.org_id, eve.id) == (None, EVE, None, None), "the session belongs to another user"


async def test_each_service_knows_a_user_by_another_name(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop, user = stored.service, stored.user
    for other in (desk, foreign):
        name = f"_{other.org_slug}-{other.slug}"
        async with stored.storage.transaction(by=SYSTEM) as tx:
            assert await tx.saml_sign_ons.persistent_name_id(other.org_id, other.id, user, name, NOW) == name
    assert (
        await within(stored.storage, lambda tx: tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, user, "_new", NOW)) == NAME.value
    )


async def test_a_browser_session_has_one_saml_session_per_service(stored: StoredSaml, foreign: ServiceContext) -> None:
    user, there = stored.user, NameId("_there", NameIdFormat.TRANSIENT)
    other = session(user)
    async with stored.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(other, digest("another browser"))
        await tx.saml_sign_ons.add_session(stored.session, foreign.org_id, foreign.id, "_elsewhere", there, NOW + SECOND)
        await tx.saml_sign_ons.add_session(other.id, stored.service.org_id, stored.service.id, "_other", there, NOW)
        parts = await tx.saml_logouts.sessions(stored.session)
    assert parts == [
        stored.saml_session,
        SamlSession(org_id=foreign.org_id, service_id=foreign.id, session_index="_elsewhere", name_id=there),
    ]
    await within(stored.storage, lambda tx: tx.saml_logouts.delete_sessions(stored.session))
    assert await run_sql(stored.pool, "select session_id from saml_sessions") == [(other.id,)]


async def test_saml_sessions_move_only_to_a_session_of_the_same_user(stored: StoredSaml) -> None:
    eve = await add(stored.storage, account(EVE))
    hers, own = session(eve.id), session(stored.user)
    async with stored.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(hers, digest("hers"))
        await tx.sessions.begin_in_browser(own, digest("own"))
    await stored.unchanged_by(lambda tx: tx.saml_logouts.move_sessions(digest("session cookie"), hers.id))
    await stored.unchanged_by(lambda tx: tx.saml_logouts.move_sessions(digest("another"), own.id))
    await within(stored.storage, lambda tx: tx.saml_logouts.move_sessions(digest("session cookie"), own.id))
    assert await run_sql(stored.pool, "select session_id from saml_sessions") == [(own.id,)]


# Logout


async def test_every_field_of_a_logout_is_stored_for_its_browser(stored: StoredSaml) -> None:
    async with stored.storage.transaction(by=SYSTEM) as tx:
        assert await tx.saml_logouts.lock(LEAVING, NOW) == stored.logout
        assert await tx.saml_logouts.lock(digest("another"), NOW) is None
        assert await tx.saml_logouts.lock(LEAVING, NOW + LOGOUT_TTL) is None


async def test_a_logout_of_a_foreign_service_is_not_added(stored: StoredSaml, foreign: ServiceContext) -> None:
    for org_id, service_id in ((stored.service.org_id, foreign.id), (foreign.org_id, stored.service.id), (foreign.org_id, uuid4())):
        other = replace(
            stored.logout,
            id=uuid4(),
            browser_hash=digest("other"),
            initiator=LogoutInitiator(org_id=org_id, service_id=service_id, request_id="_x"),
        )
        assert not await stored.unchanged_by(lambda tx, other=other: tx.saml_logouts.add(other))  # type: ignore[misc]
        part = replace(stored.saml_session, org_id=org_id, service_id=service_id)
        added = await stored.unchanged_by(
            lambda tx, part=part: tx.saml_logouts.add_request(stored.logout.id, "_other", stored.user, part, None)  # type: ignore[misc]
        )
        assert not added


async def test_each_request_is_sent_twice_at_most_while_it_has_no_response(stored: StoredSaml) -> None:
    assert await stored.unchanged_by(lambda tx: tx.saml_logouts.next_request(uuid4(), NOW)) is None
    for _ in range(2):
        assert await within(stored.storage, lambda tx: tx.saml_logouts.next_request(stored.logout.id, NOW)) == (
            "_request",
            stored.saml_session,
        )
    assert await stored.unchanged_by(lambda tx: tx.saml_logouts.next_request(stored.logout.id, NOW)) is None


@pytest.mark.parametrize("is_success", [True, False])
async def test_only_the_asked_service_can_respond_and_only_in_its_browser(
    stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext, *, is_success: bool
) -> None:
    shop = stored.service

    async def answer(**changes: Any) -> bool:
        defaults = {"browser_hash": LEAVING, "org_id": shop.org_id, "service_id": shop.id, "request_id": "_request", "now": NOW}
        return await within(stored.storage, lambda tx: tx.saml_logouts.record_response(**{**defaults, **changes}, is_success=is_success))

    async def has_answered(**changes: Any) -> bool:
        defaults = {"logout_id": stored.logout.id, "org_id": shop.org_id, "service_id": shop.id, "request_id": "_request"}
        return bool(await stored.unchanged_by(lambda tx: tx.saml_logouts.is_answered(**{**defaults, **changes})))

    before = await stored.rows()
    assert not await answer(), "the request was not sent yet"
    assert await stored.rows() == before
    await within(stored.storage, lambda tx: tx.saml_logouts.next_request(stored.logout.id, NOW))
    before = await stored.rows()
    for org_id, service_id in other_services(stored, desk, foreign):
        assert not await answer(org_id=org_id, service_id=service_id)
    for wrong in ({"browser_hash": digest("another")}, {"request_id": "_another"}, {"now": NOW + LOGOUT_TTL}):
        assert not await answer(**wrong)
    assert await stored.rows() == before
    assert not await has_answered()
    assert await answer()
    assert not await answer(), "the service has answered"
    assert await has_answered()
    for org_id, service_id in other_services(stored, desk, foreign):
        assert not await has_answered(org_id=org_id, service_id=service_id)
    for other in ({"logout_id": uuid4()}, {"request_id": "_another"}):
        assert not await has_answered(**other)
    assert await within(stored.storage, lambda tx: tx.saml_logouts.delete(stored.logout.id)) is not is_success


async def test_another_logout_is_unchanged(stored: StoredSaml) -> None:
    other = replace(stored.logout, id=uuid4(), initiator=LogoutInitiator(after="/"))
    await stored.unchanged_by(lambda tx: tx.saml_logouts.change_initiator(other))
    await stored.unchanged_by(lambda tx: tx.saml_logouts.mark_done(other.id, stored.saml_session, NOW))
    assert await stored.unchanged_by(lambda tx: tx.saml_logouts.requested_sessions(other.id)) == []
    assert await stored.unchanged_by(lambda tx: tx.saml_logouts.last_request(other.id)) is None
    await stored.unchanged_by(lambda tx: tx.saml_logouts.mark_partial(uuid4()))
    assert not await stored.unchanged_by(lambda tx: tx.saml_logouts.delete(uuid4()))
    assert await within(stored.storage, lambda tx: tx.saml_logouts.delete(stored.logout.id)), "no service has answered"
    assert await run_sql(stored.pool, "select 1 from saml_logout_requests") == []


async def test_a_new_initiator_replaces_the_previous_one(stored: StoredSaml) -> None:
    replaced = replace(stored.logout, initiator=LogoutInitiator(after="/elsewhere"), expires_at=NOW + 2 * LOGOUT_TTL)
    await within(stored.storage, lambda tx: tx.saml_logouts.change_initiator(replaced))
    assert await within(stored.storage, lambda tx: tx.saml_logouts.lock(LEAVING, NOW + LOGOUT_TTL)) == replaced


async def test_a_finished_request_is_neither_sent_nor_waited_for(stored: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    for org_id, service_id in other_services(stored, desk, foreign):
        part = replace(stored.saml_session, org_id=org_id, service_id=service_id)
        await stored.unchanged_by(lambda tx, part=part: tx.saml_logouts.mark_done(stored.logout.id, part, NOW))  # type: ignore[misc]
    other_session = replace(stored.saml_session, session_index="_other")
    await stored.unchanged_by(lambda tx: tx.saml_logouts.mark_done(stored.logout.id, other_session, NOW))
    await within(stored.storage, lambda tx: tx.saml_logouts.mark_done(stored.logout.id, stored.saml_session, NOW))
    done = replace(stored.saml_session, org_id=foreign.org_id, service_id=foreign.id, former_names=("_before",))
    assert await within(stored.storage, lambda tx: tx.saml_logouts.add_request(stored.logout.id, "_done", stored.user, done, NOW))
    assert await within(stored.storage, lambda tx: tx.saml_logouts.requested_sessions(stored.logout.id)) == [done, stored.saml_session]
    assert await stored.unchanged_by(lambda tx: tx.saml_logouts.next_request(stored.logout.id, NOW)) is None
    assert not await within(stored.storage, lambda tx: tx.saml_logouts.delete(stored.logout.id))


async def test_the_last_request_can_be_sent_again_until_it_is_answered(stored: StoredSaml, foreign: ServiceContext) -> None:
    part = replace(stored.saml_session, org_id=foreign.org_id, service_id=foreign.id)
    await within(stored.storage, lambda tx: tx.saml_logouts.add_request(stored.logout.id, "_z", stored.user, part, None))

    async def last() -> object:
        return await stored.unchanged_by(lambda tx: tx.saml_logouts.last_request(stored.logout.id))

    assert await last() is None
    await within(stored.storage, lambda tx: tx.saml_logouts.next_request(stored.logout.id, NOW))
    assert await last() == ("_request", stored.saml_session)
    for time in (NOW, NOW + SECOND):
        await within(stored.storage, lambda tx, time=time: tx.saml_logouts.next_request(stored.logout.id, time))  # type: ignore[misc]
    assert await last() == ("_z", part)
    await within(stored.storage, lambda tx: tx.saml_logouts.mark_done(stored.logout.id, part, NOW + SECOND))
    assert await last() is None, "the request before it is not repeated"

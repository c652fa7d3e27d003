"""Statements about SAML: what is another organization's, or is kept for another service or browser, is not read and not changed."""

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
class Given:
    """Somebody who is signed in to a service, is being signed in there once more, and is being signed out."""

    storage: Postgres
    pool: Pool
    service: ServiceContext
    user: UUID
    session: UUID
    sign_on: SamlSignOn
    logout: SamlLogout
    part: SamlSession

    async def rows(self) -> list[list[tuple[Any, ...]]]:
        return [await run_sql(self.pool, f"select to_jsonb(t)::text from {table} t order by 1") for table in TABLES]  # noqa: S608

    async def unchanged_by(self, act: Callable[[Transaction], Awaitable[object]]) -> object:
        """What it says, having changed nothing."""
        before = await self.rows()
        result = await within(self.storage, act)
        assert await self.rows() == before
        return result


@pytest.fixture
async def given(storage: Postgres, pool: Pool, shop: ServiceContext) -> Given:
    ada = await add(storage, account())
    browser = session(ada.id)
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
        assert await tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, ada.id, NAME.value, NOW) == NAME.value
        assert await tx.saml_sign_ons.add_session(browser.id, shop.org_id, shop.id, "_index", NAME, NOW) == "_index"
        assert await tx.saml_logouts.add(logout)
        assert await tx.saml_logouts.add_request(logout.id, "_request", ada.id, part, None)
    return Given(storage, pool, shop, ada.id, browser.id, sign_on, logout, part)


def elsewhere(given: Given, desk: ServiceContext, foreign: ServiceContext) -> list[tuple[UUID, UUID]]:
    """Organization and service of others, and each with one that is not its own."""
    return [
        (desk.org_id, desk.id),
        (foreign.org_id, foreign.id),
        (foreign.org_id, given.service.id),
        (given.service.org_id, foreign.id),
    ]


# How it is set up


async def test_another_organization_finds_no_configuration_and_no_certificate(
    given: Given, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = given.service
    async with given.storage.reading() as read:
        assert await read.saml.configuration(shop.org_id, shop.id) == CONFIGURATION
        assert await read.saml.certificate(shop.org_id, shop.id) is not None
        for org_id, service_id in elsewhere(given, desk, foreign):
            assert await read.saml.configuration(org_id, service_id) is None
            assert await read.saml.certificate(org_id, service_id) is None


async def test_whoever_is_signed_out_of_a_service_finds_it_in_its_organization(
    given: Given, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = given.service
    async with given.storage.transaction(by=SYSTEM) as tx:
        found = await tx.saml.setup_by_id(shop.org_id, shop.id)
        assert found is not None
        assert (found.service, found.configuration) == (shop, CONFIGURATION)
        for org_id, service_id in ((foreign.org_id, shop.id), (shop.org_id, foreign.id), (shop.org_id, uuid4())):
            assert await tx.saml.setup_by_id(org_id, service_id) is None
        other = await tx.saml.setup_by_id(desk.org_id, desk.id)
        assert other is not None
        assert (other.service, other.configuration) == (desk, None)


async def test_the_slugs_are_those_of_one_organization(given: Given, foreign: ServiceContext) -> None:
    async with given.storage.reading() as read:
        found = await read.saml.setup_by_slug("acme", "shop")
        assert found is not None
        assert (found.service, found.configuration) == (given.service, CONFIGURATION)
        other = await read.saml.setup_by_slug("twin", "shop")
        assert other is not None
        assert (other.service, other.configuration, other.certificate) == (foreign, None, None)
        assert await read.saml.setup_by_slug("twin", "desk") is None


async def test_another_organization_ends_nothing(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    for org_id, service_id in elsewhere(given, desk, foreign):
        assert not await given.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml.disable(o, s, NOW))  # type: ignore[misc]
        assert not await given.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml.deactivate_certificate(o, s, NOW))  # type: ignore[misc]
    shop = given.service
    assert await within(given.storage, lambda tx: tx.saml.disable(shop.org_id, shop.id, NOW))
    assert await within(given.storage, lambda tx: tx.saml.deactivate_certificate(shop.org_id, shop.id, NOW))


# Signing in


async def test_every_field_of_a_sign_on_is_kept(given: Given) -> None:
    async with given.storage.reading() as read:
        assert await read.saml_sign_ons.find(given.service.org_id, given.service.id, STATE, BROWSER, NOW) == given.sign_on


async def test_a_sign_on_waits_at_its_service_in_its_browser_and_for_a_while(
    given: Given, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = given.service
    async with given.storage.reading() as read:
        for org_id, service_id in elsewhere(given, desk, foreign):
            assert await read.saml_sign_ons.find(org_id, service_id, STATE, BROWSER, NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, digest("another"), BROWSER, NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, digest("another"), NOW) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, BROWSER, NOW + STATE_TTL) is None
        assert await read.saml_sign_ons.find(shop.org_id, shop.id, STATE, BROWSER, NOW + STATE_TTL - MICROSECOND) is not None
        found = await read.saml_sign_ons.pending_service(STATE, NOW)
        assert found is not None
        assert found[1] == shop
        assert await read.saml_sign_ons.pending_service(digest("another"), NOW) is None
        assert await read.saml_sign_ons.pending_service(STATE, NOW + STATE_TTL) is None


async def test_another_service_does_not_answer_a_sign_on(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop = given.service
    for org_id, service_id in elsewhere(given, desk, foreign):
        assert not await given.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml_sign_ons.finish(o, s, STATE, NOW))  # type: ignore[misc]
    assert not await given.unchanged_by(lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW + STATE_TTL))
    assert await within(given.storage, lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))
    assert not await given.unchanged_by(lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))
    for org_id, service_id in elsewhere(given, desk, foreign):
        await given.unchanged_by(lambda tx, o=org_id, s=service_id: tx.saml_sign_ons.reopen(o, s, STATE))  # type: ignore[misc]
    await within(given.storage, lambda tx: tx.saml_sign_ons.reopen(shop.org_id, shop.id, STATE))
    assert await within(given.storage, lambda tx: tx.saml_sign_ons.finish(shop.org_id, shop.id, STATE, NOW))


async def test_a_sign_on_is_completed_where_it_waits(given: Given) -> None:
    async def complete(state: bytes, now: Any = NOW) -> object:
        ticket = digest("ticket")
        return await within(given.storage, lambda tx: tx.saml_sign_ons.complete_login(state, given.user, given.session, ticket, now))

    before = await given.rows()
    assert await complete(digest("another")) is None
    assert await complete(STATE, NOW + STATE_TTL) is None
    assert await given.rows() == before
    assert await complete(STATE) == (given.service.org_id, "acme", "shop")


async def test_a_sign_on_of_a_service_that_is_not_the_organizations_is_not_kept(given: Given, foreign: ServiceContext) -> None:
    for org_id, service_id in ((given.service.org_id, foreign.id), (foreign.org_id, given.service.id), (foreign.org_id, uuid4())):
        other = replace(given.sign_on, state_hash=digest("other"), request_id="_other", org_id=org_id, service_id=service_id)
        assert not await given.unchanged_by(lambda tx, other=other: tx.saml_sign_ons.add(other))  # type: ignore[misc]


async def test_the_id_of_a_request_is_used_once_by_each_service(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    again = replace(given.sign_on, state_hash=digest("again"))
    assert not await given.unchanged_by(lambda tx: tx.saml_sign_ons.add(again))
    for other in (desk, foreign):
        same = replace(given.sign_on, state_hash=digest(str(other.id)), org_id=other.org_id, service_id=other.id)
        assert await within(given.storage, lambda tx, same=same: tx.saml_sign_ons.add(same))  # type: ignore[misc]


async def test_who_comes_in_is_looked_for_in_one_organization(given: Given, foreign: ServiceContext, pool: Pool) -> None:
    """Also where the services have the same slug."""
    shop, user, session_id = given.service, given.user, given.session
    member = "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, 'member', %s, %s)"
    await run_sql(pool, member, uuid4(), shop.org_id, user, NOW, NOW)
    await within(given.storage, lambda tx: tx.end_users.enroll(shop.id, user, NOW, signed_in=True))
    eve = await add(given.storage, account(EVE))

    async def locked(org_id: UUID, user_id: UUID, slug: str = "shop") -> tuple[object, ...]:
        async with given.storage.transaction(by=SYSTEM) as tx:
            found = tx.saml_sign_ons.lock_user_deferred(org_id, slug, user_id, session_id, NOW)
            await tx.saml_logouts.delete_sessions(uuid4())  # any statement, with which the others go
            person = found.account.value
            return found.membership.value, person and person.email, found.session_lives.value, found.own_use.value

    assert await locked(shop.org_id, user) == (True, ADA, True, True)
    assert await locked(shop.org_id, user, "desk") == (True, ADA, True, None)
    assert await locked(foreign.org_id, user) == (None, ADA, True, None)
    assert await locked(shop.org_id, eve.id) == (None, EVE, None, None), "the session is somebody else's"


async def test_each_service_knows_a_person_by_another_name(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop, user = given.service, given.user
    for other in (desk, foreign):
        name = f"_{other.org_slug}-{other.slug}"
        found = await within(given.storage, lambda tx, o=other, name=name: tx.saml_sign_ons.persistent_name_id(o.org_id, o.id, user, name, NOW))  # type: ignore[misc]
        assert found == name
    assert await within(given.storage, lambda tx: tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, user, "_new", NOW)) == NAME.value


async def test_a_session_takes_part_in_each_service_by_itself(given: Given, foreign: ServiceContext) -> None:
    user, there = given.user, NameId("_there", NameIdFormat.TRANSIENT)
    other = session(user)
    async with given.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(other, digest("another browser"))
        await tx.saml_sign_ons.add_session(given.session, foreign.org_id, foreign.id, "_elsewhere", there, NOW + SECOND)
        await tx.saml_sign_ons.add_session(other.id, given.service.org_id, given.service.id, "_other", there, NOW)
        parts = await tx.saml_logouts.sessions(given.session)
    assert parts == [given.part, SamlSession(org_id=foreign.org_id, service_id=foreign.id, session_index="_elsewhere", name_id=there)]
    await within(given.storage, lambda tx: tx.saml_logouts.delete_sessions(given.session))
    assert await run_sql(given.pool, "select session_id from saml_sessions") == [(other.id,)]


async def test_what_a_session_takes_part_in_goes_to_the_same_persons_only(given: Given) -> None:
    eve = await add(given.storage, account(EVE))
    hers, own = session(eve.id), session(given.user)
    async with given.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(hers, digest("hers"))
        await tx.sessions.begin_in_browser(own, digest("own"))
    await given.unchanged_by(lambda tx: tx.saml_logouts.move_sessions(digest("session cookie"), hers.id))
    await given.unchanged_by(lambda tx: tx.saml_logouts.move_sessions(digest("another"), own.id))
    await within(given.storage, lambda tx: tx.saml_logouts.move_sessions(digest("session cookie"), own.id))
    assert await run_sql(given.pool, "select session_id from saml_sessions") == [(own.id,)]


# Signing out


async def test_every_field_of_a_logout_is_kept_for_its_browser(given: Given) -> None:
    async with given.storage.transaction(by=SYSTEM) as tx:
        assert await tx.saml_logouts.lock(LEAVING, NOW) == given.logout
        assert await tx.saml_logouts.lock(digest("another"), NOW) is None
        assert await tx.saml_logouts.lock(LEAVING, NOW + LOGOUT_TTL) is None


async def test_a_logout_at_a_service_that_is_not_the_organizations_is_not_kept(given: Given, foreign: ServiceContext) -> None:
    for org_id, service_id in ((given.service.org_id, foreign.id), (foreign.org_id, given.service.id), (foreign.org_id, uuid4())):
        other = replace(
            given.logout, id=uuid4(), browser_hash=digest("other"), initiator=LogoutInitiator(org_id=org_id, service_id=service_id, request_id="_x")
        )
        assert not await given.unchanged_by(lambda tx, other=other: tx.saml_logouts.add(other))  # type: ignore[misc]
        part = replace(given.part, org_id=org_id, service_id=service_id)
        added = await given.unchanged_by(
            lambda tx, part=part: tx.saml_logouts.add_request(given.logout.id, "_other", given.user, part, None)  # type: ignore[misc]
        )
        assert not added


async def test_each_request_is_sent_to_whom_it_is_for_and_once_more_while_it_is_not_answered(given: Given) -> None:
    assert await given.unchanged_by(lambda tx: tx.saml_logouts.next_request(uuid4(), NOW)) is None
    for _ in range(2):
        assert await within(given.storage, lambda tx: tx.saml_logouts.next_request(given.logout.id, NOW)) == ("_request", given.part)
    assert await given.unchanged_by(lambda tx: tx.saml_logouts.next_request(given.logout.id, NOW)) is None


@pytest.mark.parametrize("is_success", [True, False])
async def test_only_the_service_that_was_asked_answers_and_in_the_browser_that_was_sent_there(
    given: Given, desk: ServiceContext, foreign: ServiceContext, *, is_success: bool
) -> None:
    shop = given.service

    async def answer(**changes: Any) -> bool:
        usual = {"browser_hash": LEAVING, "org_id": shop.org_id, "service_id": shop.id, "request_id": "_request", "now": NOW}
        return await within(given.storage, lambda tx: tx.saml_logouts.record_response(**{**usual, **changes}, is_success=is_success))

    async def has_answered(**changes: Any) -> bool:
        usual = {"logout_id": given.logout.id, "org_id": shop.org_id, "service_id": shop.id, "request_id": "_request"}
        return bool(await given.unchanged_by(lambda tx: tx.saml_logouts.is_answered(**{**usual, **changes})))

    before = await given.rows()
    assert not await answer(), "it was not sent yet"
    assert await given.rows() == before
    await within(given.storage, lambda tx: tx.saml_logouts.next_request(given.logout.id, NOW))
    before = await given.rows()
    for org_id, service_id in elsewhere(given, desk, foreign):
        assert not await answer(org_id=org_id, service_id=service_id)
    for wrong in ({"browser_hash": digest("another")}, {"request_id": "_another"}, {"now": NOW + LOGOUT_TTL}):
        assert not await answer(**wrong)
    assert await given.rows() == before
    assert not await has_answered()
    assert await answer()
    assert not await answer(), "it has answered"
    assert await has_answered()
    for org_id, service_id in elsewhere(given, desk, foreign):
        assert not await has_answered(org_id=org_id, service_id=service_id)
    for other in ({"logout_id": uuid4()}, {"request_id": "_another"}):
        assert not await has_answered(**other)
    assert await within(given.storage, lambda tx: tx.saml_logouts.delete(given.logout.id)) is not is_success


async def test_another_logout_stays_as_it_is(given: Given) -> None:
    other = replace(given.logout, id=uuid4(), initiator=LogoutInitiator(after="/"))
    await given.unchanged_by(lambda tx: tx.saml_logouts.change_initiator(other))
    await given.unchanged_by(lambda tx: tx.saml_logouts.mark_done(other.id, given.part, NOW))
    assert await given.unchanged_by(lambda tx: tx.saml_logouts.requested_sessions(other.id)) == []
    assert await given.unchanged_by(lambda tx: tx.saml_logouts.last_request(other.id)) is None
    await given.unchanged_by(lambda tx: tx.saml_logouts.mark_partial(uuid4()))
    assert not await given.unchanged_by(lambda tx: tx.saml_logouts.delete(uuid4()))
    assert await within(given.storage, lambda tx: tx.saml_logouts.delete(given.logout.id)), "nobody has answered"
    assert await run_sql(given.pool, "select 1 from saml_logout_requests") == []


async def test_whoever_takes_a_logout_over_hears_how_it_ends(given: Given) -> None:
    taken = replace(given.logout, initiator=LogoutInitiator(after="/elsewhere"), expires_at=NOW + 2 * LOGOUT_TTL)
    await within(given.storage, lambda tx: tx.saml_logouts.change_initiator(taken))
    assert await within(given.storage, lambda tx: tx.saml_logouts.lock(LEAVING, NOW + LOGOUT_TTL)) == taken


async def test_what_is_done_is_neither_asked_nor_waited_for(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    for org_id, service_id in elsewhere(given, desk, foreign):
        part = replace(given.part, org_id=org_id, service_id=service_id)
        await given.unchanged_by(lambda tx, part=part: tx.saml_logouts.mark_done(given.logout.id, part, NOW))  # type: ignore[misc]
    other_session = replace(given.part, session_index="_other")
    await given.unchanged_by(lambda tx: tx.saml_logouts.mark_done(given.logout.id, other_session, NOW))
    await within(given.storage, lambda tx: tx.saml_logouts.mark_done(given.logout.id, given.part, NOW))
    done = replace(given.part, org_id=foreign.org_id, service_id=foreign.id, former_names=("_before",))
    assert await within(given.storage, lambda tx: tx.saml_logouts.add_request(given.logout.id, "_done", given.user, done, NOW))
    assert await within(given.storage, lambda tx: tx.saml_logouts.requested_sessions(given.logout.id)) == [done, given.part]
    assert await given.unchanged_by(lambda tx: tx.saml_logouts.next_request(given.logout.id, NOW)) is None
    assert not await within(given.storage, lambda tx: tx.saml_logouts.delete(given.logout.id))


async def test_the_request_that_was_sent_last_can_be_sent_again_until_it_is_answered(given: Given, foreign: ServiceContext) -> None:
    part = replace(given.part, org_id=foreign.org_id, service_id=foreign.id)
    await within(given.storage, lambda tx: tx.saml_logouts.add_request(given.logout.id, "_z", given.user, part, None))

    async def last() -> object:
        return await given.unchanged_by(lambda tx: tx.saml_logouts.last_request(given.logout.id))

    assert await last() is None
    await within(given.storage, lambda tx: tx.saml_logouts.next_request(given.logout.id, NOW))
    assert await last() == ("_request", given.part)
    for time in (NOW, NOW + SECOND):
        await within(given.storage, lambda tx, time=time: tx.saml_logouts.next_request(given.logout.id, time))  # type: ignore[misc]
    assert await last() == ("_z", part)
    await within(given.storage, lambda tx: tx.saml_logouts.mark_done(given.logout.id, part, NOW + SECOND))
    assert await last() is None, "and nobody asks the one before it again"

"""Statements about configurations and sign-on reach no other organization, service or browser."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication.flow.model import FLOW_TTL, Flow
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import NameId
from core.federation.saml.model.sign_on import STATE_TTL, SamlSession
from core.kernel.callers import ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.proofs import first_proof
from core.kernel.values import digest
from tests.federation.storage.saml.rows import BROWSER, CONFIGURATION, NAME_ID, REQUEST, STATE, StoredSaml, other_services, sign_on
from tests.support.builders import run_sql
from tests.support.rows import ADA, EVE, MICROSECOND, NOW, SECOND, account, add, is_locked, session, within

# Configuration


async def test_another_organization_finds_no_configuration_and_no_certificate(
    saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = saml_rows.service
    async with saml_rows.storage.reading() as read:
        assert await read.saml.configuration(shop.org_id, shop.id) == CONFIGURATION
        assert await read.saml.certificate(shop.org_id, shop.id) is not None
        for org_id, service_id in other_services(saml_rows, desk, foreign):
            assert await read.saml.configuration(org_id, service_id) is None
            assert await read.saml.certificate(org_id, service_id) is None


async def test_the_setup_is_found_by_organization_and_service(saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop = saml_rows.service
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        setup = await tx.saml.setup_by_id(shop.org_id, shop.id)
        assert setup is not None
        assert (setup.service, setup.configuration) == (shop, CONFIGURATION)
        for org_id, service_id in ((foreign.org_id, shop.id), (shop.org_id, foreign.id), (shop.org_id, uuid4())):
            assert await tx.saml.setup_by_id(org_id, service_id) is None
        other = await tx.saml.setup_by_id(desk.org_id, desk.id)
        assert other is not None
        assert (other.service, other.configuration) == (desk, None)


async def test_the_slugs_are_those_of_one_organization(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    async with saml_rows.storage.reading() as read:
        setup = await read.saml.setup_by_slug("acme", "shop")
        assert setup is not None
        assert (setup.service, setup.configuration) == (saml_rows.service, CONFIGURATION)
        other = await read.saml.setup_by_slug("twin", "shop")
        assert other is not None
        assert (other.service, other.configuration, other.certificate) == (foreign, None, None)
        assert await read.saml.setup_by_slug("twin", "desk") is None


async def test_another_organization_cannot_disable_or_deactivate(
    saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    for org_id, service_id in other_services(saml_rows, desk, foreign):
        assert not await saml_rows.run_without_effect(lambda tx, o=org_id, s=service_id: tx.saml.disable(o, s, NOW))  # type: ignore[misc]
        assert not await saml_rows.run_without_effect(lambda tx, o=org_id, s=service_id: tx.saml.deactivate_certificates(o, s, NOW))  # type: ignore[misc]
    shop = saml_rows.service
    assert await within(saml_rows.storage, lambda tx: tx.saml.disable(shop.org_id, shop.id, NOW))
    assert await within(saml_rows.storage, lambda tx: tx.saml.deactivate_certificates(shop.org_id, shop.id, NOW))


# Sign-on


async def test_every_field_of_a_sign_on_is_stored(saml_rows: StoredSaml) -> None:
    async with saml_rows.storage.reading() as read:
        setup = await read.saml.setup_by_slug("acme", "shop")
        stored = replace(saml_rows.flow, is_stored=True)
        assert await read.saml_sign_ons.find("acme", "shop", STATE, [BROWSER], NOW - STATE_TTL, NOW) == (setup, stored)


async def test_a_sign_on_is_found_by_its_service_and_browser_until_it_expires(
    saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext
) -> None:
    shop = saml_rows.service
    async with saml_rows.storage.reading() as read:

        async def find(
            org_slug: str = "acme", service_slug: str = "shop", state: bytes = STATE, browser: bytes = BROWSER, now: datetime = NOW
        ) -> bool | None:
            hashes = [digest("a cookie"), browser]
            found = await read.saml_sign_ons.find(org_slug, service_slug, state, hashes, now - STATE_TTL, now)
            if found is None:
                return None
            assert found[0] == await read.saml.setup_by_slug(org_slug, service_slug)
            return found[1] is not None

        assert await find() is True
        assert await find(desk.org_slug, desk.slug) is False
        assert await find(foreign.org_slug, foreign.slug) is False
        assert await find(foreign.org_slug, desk.slug) is None
        assert await find(state=digest("another")) is False
        assert await find(browser=digest("another")) is False
        assert await find(now=NOW + STATE_TTL) is False
        assert await find(now=NOW + STATE_TTL - MICROSECOND) is True
        pending = await read.saml_sign_ons.pending_service(STATE, NOW - STATE_TTL, NOW)
        assert pending is not None
        assert pending[1] == shop
        assert await read.saml_sign_ons.pending_service(digest("another"), NOW - STATE_TTL, NOW) is None
        assert await read.saml_sign_ons.pending_service(STATE, NOW, NOW + STATE_TTL) is None


async def test_another_browser_does_not_finish_a_sign_on(saml_rows: StoredSaml) -> None:
    flow = saml_rows.flow
    others = [replace(flow, browser_hash=digest("another")), replace(flow, browser_hash=None), replace(flow, id=uuid4())]
    for other in others:
        assert not await saml_rows.run_without_effect(lambda tx, other=other: tx.flows.close(other, NOW))  # type: ignore[misc]
    assert not await saml_rows.run_without_effect(lambda tx: tx.flows.close(flow, NOW + STATE_TTL))
    assert await within(saml_rows.storage, lambda tx: tx.flows.close(flow, NOW))
    assert not await saml_rows.run_without_effect(lambda tx: tx.flows.close(flow, NOW))
    for other in others:
        await saml_rows.run_without_effect(lambda tx, other=other: tx.flows.reopen(other))  # type: ignore[misc]
    await within(saml_rows.storage, lambda tx: tx.flows.reopen(flow))
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        finished = [tx.flows.close(one, NOW) for one in (others[0], flow, flow)]
        assert [await one for one in finished] == [False, True, False]


async def test_only_an_open_flow_of_the_browser_moves_to_another_cookie(saml_rows: StoredSaml) -> None:
    flow, device = replace(saml_rows.flow, first_session_id=saml_rows.session, expires_at=NOW + FLOW_TTL), digest("device")

    async def move(flow: Flow, now: datetime = NOW) -> bool:
        async with saml_rows.storage.autocommit() as statements:
            return await statements.flows.move(flow, device, now)

    before = await saml_rows.rows()
    assert not await move(replace(flow, browser_hash=digest("another")))
    assert not await move(flow, NOW + STATE_TTL)
    assert await saml_rows.rows() == before
    assert await move(flow)
    assert not await move(flow), "it has moved"
    async with saml_rows.storage.reading() as read:
        assert await read.flows.load(flow.id, device) == replace(flow, browser_hash=device, is_stored=True)
        assert await read.flows.load(flow.id, BROWSER) is None


async def test_only_a_pending_sign_on_can_be_completed(saml_rows: StoredSaml) -> None:
    async def complete(state: bytes, now: Any = NOW) -> object:
        ticket = digest("ticket")
        return await within(
            saml_rows.storage,
            lambda tx: tx.saml_sign_ons.complete_sign_in(state, saml_rows.user, saml_rows.session, ticket, now - STATE_TTL, now),
        )

    before = await saml_rows.rows()
    assert await complete(digest("another")) is None
    assert await complete(STATE, NOW + STATE_TTL) is None
    assert await saml_rows.rows() == before
    assert await complete(STATE) == (saml_rows.service.org_id, "acme", saml_rows.service.id, "shop")


async def test_a_sign_in_over_the_api_replaces_what_was_proved_in_the_browser(saml_rows: StoredSaml) -> None:
    """Without this, a user's second factor would join another user's password."""
    eve, proofs = await add(saml_rows.storage, account(EVE)), (first_proof("password", NOW),)
    proved = replace(saml_rows.flow, is_stored=True, user_id=eve.id, proofs=proofs, proofs_expire_at=NOW + SECOND)
    assert await within(saml_rows.storage, lambda tx: tx.flows.save_proofs(proved))
    ticket = digest("ticket")
    completed = await within(
        saml_rows.storage,
        lambda tx: tx.saml_sign_ons.complete_sign_in(STATE, saml_rows.user, saml_rows.session, ticket, NOW - STATE_TTL, NOW),
    )
    assert completed is not None
    async with saml_rows.storage.reading() as read:
        stored = replace(saml_rows.flow, is_stored=True, user_id=saml_rows.user, session_id=saml_rows.session, ticket_hash=ticket)
        assert await read.flows.load(saml_rows.flow.id, BROWSER) == stored


async def test_a_sign_on_of_a_foreign_service_is_not_added(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    for org_id, service_id in ((saml_rows.service.org_id, foreign.id), (foreign.org_id, saml_rows.service.id), (foreign.org_id, uuid4())):
        other = replace(sign_on(foreign, digest("other")), org_id=org_id, service_id=service_id)
        assert not await saml_rows.run_without_effect(lambda tx, other=other: tx.saml_sign_ons.begin(other, digest("_other")))  # type: ignore[misc]


async def test_a_request_id_works_once_per_service(saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    repeated = sign_on(saml_rows.service, digest("again"))
    assert not await saml_rows.run_without_effect(lambda tx: tx.saml_sign_ons.begin(repeated, REQUEST))
    for other in (desk, foreign):
        same = sign_on(other, digest(str(other.id)))
        assert await within(saml_rows.storage, lambda tx, same=same: tx.saml_sign_ons.begin(same, REQUEST))  # type: ignore[misc]


@pytest.mark.usefixtures("foreign")
async def test_the_membership_is_locked_and_confirmed_in_one_organization(saml_rows: StoredSaml, pool: Pool) -> None:
    shop, user = saml_rows.service, saml_rows.user
    member = "insert into memberships (id, org_id, user_id, role, created_at) values (%s, %s, %s, 'member', %s)"
    await run_sql(pool, member, uuid4(), shop.org_id, user, NOW)
    eve = await add(saml_rows.storage, account(EVE))

    async def lock_user(org_slug: str, user_id: UUID, *, confirm: bool = False) -> tuple[bool, str | None, bool]:
        async with saml_rows.storage.transaction(by=SYSTEM) as tx:
            locked = await tx.saml_sign_ons.lock_user(org_slug, user_id, NOW, confirm_membership=confirm)
            is_membership_locked = await is_locked(pool, "memberships", "user_id = %s", user)
            assert await is_locked(pool, "users", "id = %s", user_id)
        [(is_confirmed,)] = await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user)
        return is_membership_locked, locked.email if locked else None, is_confirmed

    assert await lock_user("acme", user) == (True, ADA, False)
    assert await lock_user("twin", user, confirm=True) == (False, ADA, False)
    assert await lock_user("acme", eve.id, confirm=True) == (False, EVE, False)
    for _ in range(2):
        assert await lock_user("acme", user, confirm=True) == (True, ADA, True)


@pytest.mark.parametrize(
    "change", ["ended_at = now()", "expires_at = %s", "impersonator_id = user_id", "service_id = (select id from services limit 1)"]
)
async def test_only_a_live_session_of_the_user_is_locked(saml_rows: StoredSaml, pool: Pool, change: str) -> None:
    eve = await add(saml_rows.storage, account(EVE))

    async def lock_session(user_id: UUID = saml_rows.user) -> bool:
        async with saml_rows.storage.transaction(by=SYSTEM) as tx:
            lives = await tx.saml_sign_ons.lock_session(saml_rows.session, user_id, NOW)
            locked = await is_locked(pool, "sessions", "id = %s", saml_rows.session)
            assert locked == lives, "until the transaction ends, the session cannot end"
            return locked

    assert await lock_session()
    assert not await lock_session(eve.id)
    await run_sql(pool, f"update sessions set {change} where id = %s", *([NOW] if "%s" in change else []), saml_rows.session)  # noqa: S608
    assert not await lock_session()


@pytest.mark.parametrize("change", ["deactivated_at", "anonymized_at"])
async def test_the_session_of_an_unusable_account_is_not_live(saml_rows: StoredSaml, pool: Pool, change: str) -> None:
    await run_sql(pool, f"update users set {change} = now() where id = %s", saml_rows.user)  # noqa: S608
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        assert not await tx.saml_sign_ons.lock_session(saml_rows.session, saml_rows.user, NOW)


async def test_each_service_knows_a_user_by_another_name(saml_rows: StoredSaml, desk: ServiceContext, foreign: ServiceContext) -> None:
    shop, user = saml_rows.service, saml_rows.user
    for other in (desk, foreign):
        name = f"_{other.org_slug}-{other.slug}"
        async with saml_rows.storage.transaction(by=SYSTEM) as tx:
            assert await tx.saml_sign_ons.persistent_name_id(other.org_id, other.id, user, name, NOW) == name
    assert (
        await within(saml_rows.storage, lambda tx: tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, user, "_new", NOW))
        == NAME_ID.value
    )


async def test_a_browser_session_has_one_saml_session_per_service(saml_rows: StoredSaml, foreign: ServiceContext) -> None:
    user, other_name = saml_rows.user, NameId("_there", NameIdFormat.TRANSIENT)
    other = session(user)
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(other, digest("another browser"))
        await tx.saml_sign_ons.add_session(saml_rows.session, foreign.org_id, foreign.id, "_elsewhere", other_name, NOW + SECOND)
        await tx.saml_sign_ons.add_session(other.id, saml_rows.service.org_id, saml_rows.service.id, "_other", other_name, NOW)
        parts = await tx.saml_logouts.sessions(saml_rows.session, NOW)
    assert parts == [
        saml_rows.saml_session,
        SamlSession(org_id=foreign.org_id, service_id=foreign.id, session_index="_elsewhere", name_id=other_name),
    ]
    await within(saml_rows.storage, lambda tx: tx.sessions.end(saml_rows.session, NOW))
    async with saml_rows.storage.transaction(by=SYSTEM) as tx:
        assert await tx.saml_logouts.sessions(saml_rows.session, NOW) == []
        assert len(await tx.saml_logouts.sessions(other.id, NOW)) == 1

"""Sessions that begin at an organization's connection: their restriction, and how they share a browser with the account's own sign-ins."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import FlowTarget, new_flow
from core.federation.sign_in import BrowserSignIn, sign_in_browser
from core.kernel.causes import Anonymous
from core.kernel.proofs import Method, Proof, Proofs, every_proof, first_proof
from core.kernel.values import digest, new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Api, add_account, add_member, add_organization, run_sql, sign_in
from tests.support.connections.proofs import ProvedSignIn, connection_proof, write_proofs
from tests.support.mfa import add_mfa

ACME, GLOBEX = UUID(int=1), UUID(int=2)
HOUR = timedelta(hours=1)


async def open_session(ports: Ports, account: Account, proof: Proof, cookie: str | None = None) -> str:
    """Sign in on our pages, in the browser with this cookie, and return the new cookie."""
    flow = new_flow(ports.clock.now(), FlowTarget.PAGE, "/app", digest(new_secret()))
    outcome = await sign_in_browser(ports, Anonymous(), flow, ProvedSignIn(account, proof), cookie, PresentedDevice())
    assert isinstance(outcome, BrowserSignIn), "no second factor is missing"
    return outcome.cookie


async def stored(ports: Ports, pool: Pool, cookie: str) -> tuple[Proofs, UUID | None, datetime]:
    """Return a browser session's proofs, restriction and end."""
    [(session_id, user_id, restricted_to, ends_at)] = await run_sql(
        pool, "select id, user_id, restricted_to, ends_at from sessions where browser_hash = %s and ended_at is null", digest(cookie)
    )
    async with ports.storage.reading() as read:
        factors = await read.session_sign_ins.load_factors(session_id, user_id)
    assert factors is not None
    return every_proof(factors.proofs), restricted_to, ends_at


async def test_a_sign_in_at_a_connection_is_good_in_its_organization_until_its_end(ports: Ports, pool: Pool, user: Account) -> None:
    await add_mfa(ports, user)
    now = ports.clock.now()
    proof = connection_proof(ACME, now, until=now + HOUR)
    cookie = await open_session(ports, user, proof)
    assert await stored(ports, pool, cookie) == ((proof,), ACME, now + HOUR), "and asks for no second factor of the account"
    [event] = await run_sql(pool, "select provider from login_events")
    assert event == ("connection",)
    [device] = await run_sql(pool, "select mfa_at from devices")
    assert device == (None,), "no second factor of the account was used on the device"


async def test_a_consultant_keeps_the_own_sign_in(ports: Ports, pool: Pool, user: Account, clock: FakeClock) -> None:
    own = first_proof("password", clock.now())
    cookie = await open_session(ports, user, own)
    _, _, end = await stored(ports, pool, cookie)
    for org in (ACME, GLOBEX, GLOBEX):
        clock.advance(HOUR)
        proof = connection_proof(org, clock.now(), until=clock.now() + HOUR)
        cookie = await open_session(ports, user, proof, cookie)
        assert await stored(ports, pool, cookie) == ((own, proof), None, end), "the time of the own proof does not move"


async def test_an_own_sign_in_keeps_the_connection_until_the_end_of_its_session(
    ports: Ports, pool: Pool, user: Account, clock: FakeClock
) -> None:
    began = clock.now()
    cookie = await open_session(ports, user, connection_proof(ACME, began))
    _, restriction, first_end = await stored(ports, pool, cookie)
    assert restriction == ACME
    clock.advance(HOUR)
    own = first_proof("password", clock.now())
    cookie = await open_session(ports, user, own, cookie)
    proofs, restriction, end = await stored(ports, pool, cookie)
    assert (proofs, restriction) == ((connection_proof(ACME, began, until=first_end), own), None)
    assert end == first_end + HOUR


@pytest.mark.parametrize("change", ["expires_at = now() - interval '100 years'", "mfa_missing = true", "ended_at = now()"])
async def test_a_session_that_is_not_good_any_more_is_not_kept(
    ports: Ports, pool: Pool, user: Account, clock: FakeClock, change: str
) -> None:
    cookie = await open_session(ports, user, first_proof("password", clock.now()))
    await run_sql(pool, f"update sessions set {change}")  # noqa: S608
    proof = connection_proof(ACME, clock.now())
    cookie = await open_session(ports, user, proof, cookie)
    assert (await stored(ports, pool, cookie))[:2] == ((proof,), ACME)


async def test_the_session_of_another_user_is_replaced(ports: Ports, pool: Pool, user: Account, clock: FakeClock) -> None:
    other = await add_account(ports, "other@example.com")
    cookie = await open_session(ports, user, first_proof("password", clock.now()))
    proof = connection_proof(ACME, clock.now())
    cookie = await open_session(ports, other, proof, cookie)
    assert (await stored(ports, pool, cookie))[:2] == ((proof,), ACME)


async def test_a_confirmation_with_an_own_factor_opens_the_account(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    session = await sign_in(ports, user)
    token, proof = session.access_token, connection_proof(ACME, ports.clock.now())
    await write_proofs(pool, user.id, (proof,))
    refused = await api.get("/api/user/personal-tokens", token=token)
    assert (refused.status, 'max_age="0"' in refused.headers["WWW-Authenticate"]) == (401, True)
    options = (await api.get("/api/auth/reauthenticate", token=token)).json
    assert options["needs_first_factor"] is True, "although the sign-in at the connection was just now"
    confirmed = await api.post("/api/auth/reauthenticate", {"password": PASSWORD}, token=token)
    assert confirmed.status == 200, confirmed.text
    assert (await api.get("/api/user/personal-tokens", token=token)).status == 200
    async with ports.storage.reading() as read:
        factors = await read.session_sign_ins.load_factors(session.session_id, user.id)
    assert factors is not None
    assert every_proof(factors.proofs) == (proof, first_proof("password", ports.clock.now()))


async def test_a_code_alone_does_not_open_the_account(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    authenticator, session = await add_mfa(ports, user), await sign_in(ports, user)
    await write_proofs(pool, user.id, (connection_proof(ACME, ports.clock.now()),))
    answer = await api.post("/api/auth/reauthenticate", {"code": authenticator.code(1)}, token=session.access_token)
    assert answer.status == 200, "the policy of the organization can ask for it"
    assert await run_sql(pool, "select restricted_to from sessions") == [(ACME,)]


@pytest.mark.parametrize("shown", [[], ["password"], ["code"]])
async def test_users_end_their_part_with_their_own_second_factor(
    api: Api, ports: Ports, pool: Pool, user: Account, clock: FakeClock, shown: list[str]
) -> None:
    """A sign-in at the connection does not replace the user's two own factors, even if its provider has verified two (security Y-4)."""
    organization, authenticator, now = await add_organization(pool, "acme"), await add_mfa(ports, user), clock.now()
    await add_member(pool, organization, user.id, confirmed=True)
    token = (await sign_in(ports, user)).access_token
    own = {"password": first_proof("password", now), "code": Proof(Method.TOTP, now)}
    await write_proofs(pool, user.id, (connection_proof(organization, now, second=True), *(own[name] for name in shown)))
    calls = [
        ("GET", f"/api/privacy/export/{user.id}"),
        ("POST", "/api/organizations/acme/leave"),
        ("DELETE", "/api/user"),
    ]
    for method, path in calls:
        refused = await api.call(method, path, token=token)
        assert (refused.status, refused.headers["WWW-Authenticate"].count("insufficient_user_authentication")) == (401, 1), refused.text
    confirmed = await api.post("/api/auth/reauthenticate", {"password": PASSWORD, "code": authenticator.code(1)}, token=token)
    assert confirmed.status == 200, confirmed.text
    assert [(await api.call(method, path, token=token)).status for method, path in calls] == [200, 204, 200]


async def test_users_end_their_part_with_their_own_first_factor(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    organization = await add_organization(pool, "acme")
    await add_member(pool, organization, user.id, confirmed=True)
    token = (await sign_in(ports, user)).access_token
    await write_proofs(pool, user.id, (connection_proof(organization, ports.clock.now()),))
    assert (await api.post("/api/organizations/acme/leave", token=token)).status == 401
    confirmed = await api.post("/api/auth/reauthenticate", {"password": PASSWORD}, token=token)
    assert confirmed.status == 200, confirmed.text
    assert (await api.post("/api/organizations/acme/leave", token=token)).status == 204


async def test_a_second_factor_that_the_user_adds_is_not_missing_in_a_restricted_session(ports: Ports, pool: Pool, user: Account) -> None:
    restricted, other = await sign_in(ports, user), await sign_in(ports, user)
    await write_proofs(pool, user.id, (connection_proof(ACME, ports.clock.now()),))
    await run_sql(pool, "update sessions set restricted_to = null where id = %s", other.session_id)
    async with ports.storage.transaction(by=Anonymous()) as tx:
        await tx.accounts.lock(user.id)
        await tx.session_sign_ins.require_mfa_again(user.id, UUID(int=0), is_proved=True)
    missing: list[Any] = await run_sql(pool, "select id, mfa_missing from sessions")
    assert dict(missing) == {restricted.session_id: False, other.session_id: True}

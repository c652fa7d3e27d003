"""The offer to create a passkey after a sign-in with a password, and passkeys that a browser creates by itself."""

from datetime import timedelta

from adapters.postgres.engine.pool import Pool
from core.accounts import passkeys
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.passkeys import OFFER_PAUSE
from core.authentication.flow.model import FlowTarget, new_flow
from core.authentication.methods.password import Password
from core.federation.sign_in import BrowserSignIn, sign_in_browser
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Api, run_sql, sign_in
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PASSKEYS, RP_ID, PasskeyUser, add_passkeys, sign_in_with_passkey


async def is_offered(ports: Ports, *, can_passkey: bool = True) -> bool:
    """Sign in on a page, and return whether a passkey is offered."""
    flow = new_flow(ports.clock.now(), FlowTarget.PAGE, "/app", digest("a browser"))
    password, device = Password(Email(EMAIL), PASSWORD), PresentedDevice(device_id="a browser")
    outcome = await sign_in_browser(ports, SYSTEM, flow, password, None, device, can_passkey=can_passkey)
    assert isinstance(outcome, BrowserSignIn)
    return outcome.offers_passkey


async def test_a_passkey_is_offered_once_in_30_days(ports: Ports, user: Account, clock: FakeClock) -> None:
    assert not await is_offered(ports, can_passkey=False), "the browser has none"
    assert await is_offered(ports)
    caller = Person(user_id=user.id, email=user.email, session_id=(await sign_in(ports, user)).session_id)
    shown = await passkeys.show_offer(ports, caller)
    assert shown is not None
    conditional, usual = shown
    assert conditional["authenticatorSelection"]["userVerification"] == "preferred"
    assert usual["authenticatorSelection"]["userVerification"] == "required"
    assert conditional["challenge"] != usual["challenge"]
    assert await passkeys.show_offer(ports, caller) is None, "the page was shown"
    clock.advance(OFFER_PAUSE - timedelta(seconds=1))
    assert not await is_offered(ports)
    clock.advance(timedelta(seconds=1))
    assert await is_offered(ports)


async def test_a_user_with_an_unproved_address_gets_no_offer(ports: Ports, user: Account, pool: Pool) -> None:
    session = await sign_in(ports, user)
    await run_sql(pool, "update users set email_verified_at = null")
    assert not await passkeys.is_offer_due(ports, user.id, session.session_id, ports.clock.now())


async def test_only_a_passkey_that_works_here_ends_the_offers(ports: Ports, user: Account, pool: Pool) -> None:
    session = await sign_in(ports, user)
    await add_passkeys(pool, user.id, "earlier.example.com")
    assert await passkeys.is_offer_due(ports, user.id, session.session_id, ports.clock.now())
    await add_passkeys(pool, user.id, RP_ID)
    assert not await passkeys.is_offer_due(ports, user.id, session.session_id, ports.clock.now())


async def test_a_browser_creates_a_passkey_without_asking(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    """The passkey signs in once its authenticator verifies the user, and until then proves nothing."""
    holder.token = (await api.login()).json["access_token"]
    authenticator = SoftAuthenticator(origin=BASE_URL, present=False, verifies=False)
    answer = await api.post(f"{PASSKEYS}/options", {"conditional": True}, token=holder.token)
    options = answer.json["publicKey"]
    assert options["authenticatorSelection"] == {"residentKey": "required", "requireResidentKey": True, "userVerification": "preferred"}
    credential = authenticator.create(options)
    assert (await holder.send(credential)).status == 400, "only a conditional one may do without"
    answer = await holder.send(credential, conditional=True, kind="security_key", second_factor=True)
    assert (answer.status, answer.json["kind"], "backup_codes" in answer.json) == (201, "passkey", False)
    assert await run_sql(pool, "select user_verified, passkey_second_at from passkeys, users") == [(False, None)]
    assert await run_sql(pool, "select max(strength) from sessions") == [(1,)]
    assert (await api.delete("/api/user/password", token=holder.token)).status == 400, "it has not verified its user yet"
    assert (await sign_in_with_passkey(api, authenticator)).status == 401
    authenticator.present = authenticator.verifies = True
    signed_in = await sign_in_with_passkey(api, authenticator)
    assert await run_sql(pool, "select user_verified from passkeys") == [(True,)]
    assert (await api.delete("/api/user/password", token=holder.token)).status == 401, "it is asked for now"
    assert (await api.delete("/api/user/password", token=signed_in.json["access_token"])).status == 204

"""After a phone change, the mailbox alone removes no second factor, and an old factor is enough for its owner (security A-6, A-13)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import mfa
from core.accounts.model.accounts import Account
from core.accounts.model.security_notices import UNDO_TTL
from core.kernel.causes import SYSTEM
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.accounts.api.test_undo import reset, starts, turn_on_second_factor, undo_links_at
from tests.accounts.email_changes import undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, deliver, link, run_sql, sign_in
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey, verify_second

HOUR = timedelta(hours=1)
PRESENT = "select mfa_enabled_at, passkey_second_at, (select m.setup_at from mfa m where m.user_id = u.id) from users u"
NAMED = "It brings your earlier factor back"


@dataclass
class Changer:
    """A user who replaces a second factor that they have had for years."""

    api: Api
    app: QuartTrio
    ports: Ports
    clock: FakeClock
    sent: FakeMailTransport
    user: Account
    old: Authenticator
    passkey: str = ""  # the present passkey's id
    authenticator: SoftAuthenticator | None = None  # with the present passkey, which every session shows
    resets: list[str] = field(default_factory=list)
    new: Authenticator | None = None

    async def token(self) -> str:
        self.clock.advance(timedelta(minutes=1))
        token = (await sign_in(self.ports, self.user, second_factor=True)).access_token
        if self.authenticator is not None:
            await PasskeyUser(self.api, token).confirm(self.authenticator)
        return token

    async def app_off(self) -> None:
        assert (await self.api.delete("/api/user/mfa", token=await self.token())).status == 200

    async def app_on(self) -> None:
        self.new = await turn_on_second_factor(self.api, await self.token(), self.clock)

    async def passkey_on(self) -> None:
        holder = PasskeyUser(self.api, await self.token())
        self.passkey = (await holder.add(second_factor=True))["id"]
        self.authenticator = holder.authenticator

    async def key_on(self) -> None:
        self.passkey = (await PasskeyUser(self.api, await self.token()).add_key())["id"]

    async def passkey_off(self) -> None:
        assert (await self.api.delete(f"{PASSKEYS}/{self.passkey}", token=await self.token())).status == 204
        self.authenticator = None

    async def keys_off(self) -> None:
        body = {"enabled": False}
        assert (await self.api.call("PUT", f"{PASSKEYS}/second-factor", body, token=await self.token())).status == 200

    async def remove_by_admin(self) -> None:
        """Remove all second factors. No undo restores them."""
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await mfa.force_removal(tx, SYSTEM, await tx.accounts.lock(self.user.id) or self.user, self.clock.now())

    async def new_codes(self) -> None:
        assert (await self.api.post("/api/user/mfa/backup-codes/regenerate", token=await self.token())).status == 200

    async def new_address(self) -> None:
        assert (await self.api.patch("/api/user", {"email": "other@example.com"}, token=await self.token())).status == 200

    async def new_password(self) -> None:
        body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
        assert (await self.api.post("/api/user/change-password", body, token=await self.token())).status == 200

    # With the mailbox alone

    async def ask_for_reset(self) -> None:
        self.clock.advance(HOUR)
        assert (await self.api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
        await deliver(self.ports)
        self.resets.append(link(self.sent.newest("/auth/reset-password", EMAIL)))

    async def reset_by_api(self) -> None:
        self.clock.advance(HOUR)
        await reset(self.api, self.ports, self.sent, EMAIL, NEW_PASSWORD)

    async def reset_on_page(self) -> None:
        await self.ask_for_reset()
        browser = FakeBrowser(self.app)
        page = await browser.open(f"/auth/reset-password?token={self.resets[-1]}")
        await browser.send("/auth/reset-password", **{**hidden_fields(page), "new_password": NEW_PASSWORD})

    async def undo(self, number: int, start: int) -> Answer:
        """Use the link with this number in the mailbox, from the start with this number."""
        found = (await undo_links_at(self.ports, self.sent, EMAIL))[number].partition("token=")[2]
        offered = await starts(self.api, found)
        return await undo(self.api, found, offered[start % len(offered)] if offered else None)

    async def asks_for_a_factor(self) -> bool:
        await self.reset_by_api()
        return bool((await self.api.login(EMAIL, NEW_PASSWORD)).json.get("mfa_required", False))

    async def accepts_old_app(self) -> bool:
        return await self.accepts(self.old.code) in (None, True)

    async def accepts(self, code: Callable[[], str]) -> bool | None:
        """Return whether a sign-in accepts this code, or None if it asks for no code."""
        await self.reset_by_api()
        login = await self.api.login(EMAIL, NEW_PASSWORD)
        if not login.json.get("mfa_required", False):
            return None
        return (await self.api.post("/api/auth/mfa/verify", {"code": code()}, token=login.json["access_token"])).status == 200


Step = Callable[[Changer], Awaitable[Any]]
OFF, ON, KEY, PASSKEY, KEYS_OFF, GONE = (
    Changer.app_off,
    Changer.app_on,
    Changer.key_on,
    Changer.passkey_on,
    Changer.keys_off,
    Changer.passkey_off,
)
CHANGES: dict[str, Sequence[Step]] = {
    "app": (OFF, ON),
    "security key": (OFF, KEY),
    "passkey": (OFF, PASSKEY),
    "first the new one": (KEY, OFF),
    "app, security key, app": (OFF, KEY, GONE, ON),
    "app, passkey, security key": (OFF, PASSKEY, KEYS_OFF, GONE, KEY),
    "off and on again": (OFF, ON, OFF, ON, OFF, ON),
    "with backup codes": (OFF, ON, Changer.new_codes),
    "with another address": (OFF, Changer.new_address, ON, Changer.new_address),
    "with a password": (OFF, Changer.new_password, ON),
}


@pytest.fixture
async def changer(api: Api, app: QuartTrio, ports: Ports, clock: FakeClock, sent: FakeMailTransport) -> Changer:
    user = await add_account(ports)
    old = await add_mfa(ports, user)
    clock.advance(timedelta(days=1000))
    return Changer(api, app, ports, clock, sent, user, old)


@pytest.mark.slow
@pytest.mark.parametrize("steps", CHANGES.values(), ids=list(CHANGES))
async def test_a_reset_keeps_a_second_factor_and_the_undo_link_in_its_email_brings_the_old_one_back(
    changer: Changer, steps: Sequence[Step]
) -> None:
    """The links are from before, between and after the changes."""
    await changer.ask_for_reset()
    for step in steps:
        await step(changer)
        await changer.ask_for_reset()
    for token in changer.resets:
        await changer.api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    await changer.reset_on_page()
    assert await changer.asks_for_a_factor()
    assert (await changer.undo(-1, 0)).status == 200
    assert await changer.accepts_old_app()
    assert await changer.asks_for_a_factor()


@pytest.mark.slow
@pytest.mark.parametrize("steps", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize(("start", "order"), [(0, -1), (-1, 1), (-1, -1)], ids=["all", "oldest first", "newest first"])
async def test_an_undo_from_any_start_keeps_a_second_factor(changer: Changer, start: int, order: int, steps: Sequence[Step]) -> None:
    """Every link is used in turn, with its earliest or latest start. No link takes the way back away."""
    for step in steps:
        await step(changer)
    for number in range(len(await undo_links_at(changer.ports, changer.sent, EMAIL)))[::order]:
        await changer.undo(number, start)
        assert await changer.asks_for_a_factor(), number
    assert await changer.accepts_old_app() or (await changer.undo(-1, 0)).status == 200
    assert await changer.accepts_old_app()


@pytest.mark.parametrize("on", [ON, KEY, PASSKEY])
@pytest.mark.parametrize("way", [Changer.reset_by_api, Changer.reset_on_page, None], ids=["API", "page", "undo"])
@pytest.mark.parametrize("gap", [71, 72, 73])
async def test_a_gap_of_up_to_72_hours_does_not_count(changer: Changer, gap: int, way: Step | None, on: Step) -> None:
    """The old app is kept as long as an undo can bring it back, although the link about its end has expired."""
    await OFF(changer)
    changer.clock.advance(gap * HOUR - timedelta(minutes=1))  # `token` waits a minute
    await on(changer)
    changer.clock.advance(65 * HOUR)
    await housekeeping.sweep(changer.ports, new_id())
    if way is None:
        page = await changer.undo(-1, -1)
        assert (page.status, "stays on. Use your earlier" in page.text) == (200, gap <= 72)
    else:
        await way(changer)
    assert await changer.asks_for_a_factor() is (gap <= 72)
    if gap <= 72 and way is not None:
        assert (await changer.undo(-1, 0)).status == 200
    assert await changer.accepts_old_app() or gap > 72


async def test_after_three_days_the_new_factor_is_as_good_as_the_old_one(changer: Changer) -> None:
    await OFF(changer)
    await ON(changer)
    changer.clock.advance(UNDO_TTL)
    await changer.reset_by_api()
    assert await changer.asks_for_a_factor()
    assert not await changer.accepts_old_app()
    changer.clock.advance(UNDO_TTL)
    assert (await housekeeping.sweep(changer.ports, new_id()) or {})["former_mfa"] == 1, "the secret is not kept longer"


async def read_texts(changer: Changer) -> tuple[str, str]:
    """Return the reset page, and the email afterwards."""
    await changer.ask_for_reset()
    page = await FakeBrowser(changer.app).open(f"/auth/reset-password?token={changer.resets[-1]}")
    await changer.reset_by_api()
    await deliver(changer.ports)
    return unescape(page.text), " ".join(changer.sent.newest("/auth/undo", EMAIL).text.split())


async def test_the_page_and_the_email_name_the_undo_link(changer: Changer) -> None:
    assert [NAMED in text for text in await read_texts(changer)] == [False, False], "the old one is there"
    await KEY(changer)
    assert [NAMED in text for text in await read_texts(changer)] == [False, False], "the reset ends the new one"
    await KEY(changer)
    await OFF(changer)
    assert [NAMED in text for text in await read_texts(changer)] == [True, True]
    changer.clock.advance(UNDO_TTL)
    assert [NAMED in text for text in await read_texts(changer)] == [False, False]


async def test_the_page_and_the_email_promise_nothing_that_no_undo_brings_back(changer: Changer) -> None:
    await changer.remove_by_admin()
    await ON(changer)
    assert [NAMED in text for text in await read_texts(changer)] == [False, False]


async def test_a_passkey_that_replaced_a_passkey_is_named_too(changer: Changer) -> None:
    """Passkeys are the second factor all the time."""
    await PASSKEY(changer)
    await OFF(changer)
    changer.clock.advance(UNDO_TTL)
    earlier = changer.passkey
    await PASSKEY(changer)
    changer.passkey = earlier
    await GONE(changer)
    assert [NAMED in text for text in await read_texts(changer)] == [True, True]


@pytest.mark.parametrize("on", [ON, KEY])
@pytest.mark.parametrize("steps", [(), (KEY,), (OFF, KEY), (OFF, ON)], ids=["app", "both", "key", "two apps"])
async def test_where_no_earlier_factor_can_come_back_one_stays(changer: Changer, pool: Pool, steps: Sequence[Step], on: Step) -> None:
    """An admin removed the lost factors, so no undo restores them."""
    for step in steps:
        await step(changer)
    changer.clock.advance(50 * HOUR)
    await changer.remove_by_admin()
    await on(changer)
    present = await run_sql(pool, PRESENT)
    page = await changer.undo(-1, -1)
    assert (page.status, "One of your present factors stays" in page.text) == (200, True)
    assert await run_sql(pool, PRESENT) == present
    assert await changer.asks_for_a_factor()


async def test_a_factor_before_a_removal_by_others_is_as_old_as_it_was(
    api: Api, ports: Ports, clock: FakeClock, sent: FakeMailTransport
) -> None:
    """A removal does not reset the factor's age to 72 hours. So the mailbox owner alone gets in, and the thief's factor ends."""
    user = await add_account(ports)
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add_key()
    clock.advance(50 * HOUR)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await mfa.force_removal(tx, SYSTEM, await tx.accounts.lock(user.id) or user, clock.now())
    await turn_on_second_factor(api, (await sign_in(ports, user)).access_token, clock)
    await reset(api, ports, sent, EMAIL, NEW_PASSWORD)
    assert "mfa_required" not in (await api.login(EMAIL, NEW_PASSWORD)).json


async def test_a_deactivated_account_that_a_reset_frees_keeps_its_second_factor(changer: Changer, pool: Pool) -> None:
    """The user's directory has deactivated the account.

    The account has neither a password nor a linked account, so that the mailbox frees it (security A-7).
    """
    await run_sql(pool, "update users set password_hash = null, deactivated_at = %s", changer.clock.now())
    assert await changer.asks_for_a_factor()
    assert await changer.accepts_old_app()


async def test_of_the_present_keys_only_the_oldest_stays(changer: Changer, pool: Pool) -> None:
    """A session thief added the later keys. A later key would stay a way in."""
    await changer.remove_by_admin()
    owner = PasskeyUser(changer.api, await changer.token())
    await owner.add_key(name="Owner")
    await PasskeyUser(changer.api, await changer.token()).add_key(name="Thief")
    thief = PasskeyUser(changer.api, await changer.token())
    await thief.add(name="Thief")
    page = await changer.undo(-1, 0)
    assert (page.status, "One of your present factors stays" in page.text) == (200, True)
    assert await run_sql(pool, "select name from passkeys") == [("Owner",)]
    assert (await sign_in_with_passkey(changer.api, thief.authenticator)).status == 401
    await changer.reset_by_api()
    login = (await changer.api.login(EMAIL, NEW_PASSWORD)).json
    assert (await verify_second(changer.api, login, owner.authenticator)).status == 200


async def test_the_app_stays_alone(changer: Changer, pool: Pool) -> None:
    """The backup codes, which a session thief has replaced, are gone, and so is the thief's passkey."""
    await changer.remove_by_admin()
    await ON(changer)
    answer = await changer.api.post("/api/user/mfa/backup-codes/regenerate", token=await changer.token())
    await PasskeyUser(changer.api, await changer.token()).add(name="Thief")
    assert "One of your present factors stays" in (await changer.undo(-1, 0)).text
    assert await run_sql(pool, "select count(*) from passkeys") == [(0,)]
    assert await changer.accepts(lambda: str(answer.json["backup_codes"][0])) is False
    assert changer.new is not None
    assert await changer.accepts(changer.new.code)


@pytest.mark.parametrize("way", [Changer.reset_by_api, Changer.reset_on_page, None], ids=["API", "page", "undo"])
@pytest.mark.parametrize("key", [KEY, PASSKEY])
async def test_keys_of_an_earlier_rp_id_are_no_factor_that_is_left(changer: Changer, pool: Pool, key: Step, way: Step | None) -> None:
    """The operator has changed the domain. The owner came in with a backup code, and added an app: without it, they are locked out."""
    await key(changer)
    await OFF(changer)
    changer.clock.advance(300 * HOUR)
    await run_sql(pool, "update passkeys set rp_id = 'old.test'")
    changer.authenticator = None
    await ON(changer)
    assert [NAMED in text for text in await read_texts(changer)] == [False, False]
    if way is None:
        assert "One of your present factors stays" in (await changer.undo(-1, 0)).text
    else:
        await way(changer)
    assert changer.new is not None
    assert await changer.accepts(changer.new.code)

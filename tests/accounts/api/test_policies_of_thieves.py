"""A session thief adds a way in, and joins an organization of their own that asks for it (security A-6).

A reset on the page ends the way in. The mailbox owner then leaves the organization, and needs no recovery.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, RecoveryRequired
from core.accounts.model.security_notices import UNDO_TTL
from core.kernel.causes import SYSTEM
from core.kernel.connections import PlatformCredentials
from core.kernel.sign_in_policy.rules import Document, Rules
from core.kernel.values import digest
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.accounts.api.test_reset_and_policies import PASSKEY, PROVIDER_OR_PASSKEY, TWO, try_to_add
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.provider import FakeProvider
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    Answer,
    Api,
    add_account,
    add_invitation,
    add_organization,
    deliver,
    link,
    run_sql,
    sign_in,
)
from tests.support.identities import add_identity
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser, sign_in_with_passkey

HOUR = timedelta(hours=1)
RESET = "/auth/reset-password"
WAYS_IN = """
    select (select count(*) from passkeys), (select count(*) from identities), (select count(*) from mfa), recovery_required_at is not null
    from users where email = %s"""


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


@dataclass
class Theft:
    """An account that the mailbox owner and a thief with a session share."""

    api: Api
    app: QuartTrio
    ports: Ports
    pool: Pool
    clock: FakeClock
    sent: FakeMailTransport
    user: Account
    passkey: PasskeyUser | None = None

    async def token(self) -> str:
        self.clock.advance(timedelta(minutes=1))
        token = (await sign_in(self.ports, self.user, second_factor=True)).access_token
        if self.passkey is not None:
            await PasskeyUser(self.api, token).confirm(self.passkey.authenticator)
        return token

    async def add_passkey(self) -> None:
        self.passkey = PasskeyUser(self.api, await self.token())
        await self.passkey.add(name="Thief")

    async def add_security_key(self) -> None:
        await PasskeyUser(self.api, await self.token()).add_key(name="Thief")

    async def add_app(self) -> None:
        self.clock.advance(timedelta(minutes=1))
        await add_mfa(self.ports, self.user)

    async def link(self) -> None:
        self.clock.advance(timedelta(minutes=1))
        await add_identity(self.pool, self.user.id, "websuite", linked_at=self.clock.now())

    async def join(self, policy: Document, slug: str = "evil") -> None:
        """Accept an organization's invitation, by default from the thief's organization."""
        org, secret = await add_organization(self.pool, slug), str(uuid4())
        await add_invitation(self.ports, org, EMAIL, token_hash=digest(secret))
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            rules = Rules.read(policy)
            await tx.sign_in_policies.put(SignInPolicy(org_id=org, service_id=None, rules=rules, changed_at=self.clock.now()))
        assert (await self.api.post("/api/invitations/accept", {"token": secret}, token=await self.token())).status == 200

    async def reset(self, *, keeps: bool) -> str:
        """Set a new password on the page with all boxes ticked or with none, and return the page's text."""
        assert (await self.api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
        await deliver(self.ports)
        browser = FakeBrowser(self.app)
        page = await browser.open(f"{RESET}?token={link(self.sent.newest(RESET, EMAIL))}")
        boxes = re.findall(r'name="(keep:[0-9a-f-]+)"', page.text) if keeps else []
        fields = {**hidden_fields(page), "new_password": NEW_PASSWORD, **dict.fromkeys(boxes, "yes")}
        assert (await browser.send(RESET, **fields)).status == 200
        await deliver(self.ports)
        return unescape(page.text)

    async def reset_by_api(self) -> None:
        assert (await self.api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
        await deliver(self.ports)
        body = {"token": link(self.sent.newest(RESET, EMAIL)), "new_password": NEW_PASSWORD}
        assert (await self.api.post("/api/auth/reset-password", body)).status == 200

    async def ways_in(self) -> tuple[object, ...]:
        """Return how many passkeys, linked accounts and apps the account has, and whether it needs a recovery."""
        return (await run_sql(self.pool, WAYS_IN, EMAIL))[0]

    def newest_email(self) -> str:
        return " ".join(self.sent.newest("/auth/undo", EMAIL).text.split())

    async def leave(self, token: str) -> Answer:
        return await self.api.post("/api/organizations/evil/leave", token=token)


@pytest.fixture
async def theft(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> Theft:
    return Theft(api, app, ports, pool, clock, sent, await add_account(ports))


CASES: list[tuple[Callable[[Theft], Awaitable[None]], Document]] = [
    (Theft.add_passkey, PASSKEY),
    (Theft.add_passkey, TWO),
    (Theft.add_passkey, {"methods": ["passkey"]}),
    (Theft.add_security_key, TWO),
    (Theft.add_app, TWO),
    (Theft.add_app, {**TWO, "due_at": {"second_factor": "2100-01-01T00:00:00+00:00"}}),
    (Theft.add_app, {"second_factor": ["high_risk"]}),
    (Theft.link, PROVIDER_OR_PASSKEY),
]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("add", "policy"), CASES)
async def test_a_reset_on_the_page_ends_what_an_organization_of_a_thief_asks_for(
    theft: Theft, add: Callable[[Theft], Awaitable[None]], policy: Document, later: bool
) -> None:
    """Another organization that the user joins later asks for no recovery either."""
    await add(theft)
    await theft.join(policy)
    theft.clock.advance(HOUR)
    page = await theft.reset(keeps=False)
    assert (page.count('name="keep:'), "Asked for by Evil: without it, only a recovery lets you in there again." in page) == (1, True)
    assert await theft.ways_in() == (0, 0, 0, True)
    assert "Only a recovery lets you set up another one" in theft.newest_email()
    if theft.passkey is not None:
        assert (await sign_in_with_passkey(theft.api, theft.passkey.authenticator)).status == 401
    login = (await theft.api.login(EMAIL, NEW_PASSWORD)).json
    assert "mfa_required" not in login
    refused = await theft.api.post("/api/user/mfa/setup", token=login["access_token"])
    assert (refused.status, refused.json["error"]) == (403, RecoveryRequired.__doc__)
    assert (await theft.leave(login["access_token"])).status == 204
    if later:
        theft.passkey = None
        theft.clock.advance(timedelta(days=60))
        await theft.join(policy, "honest")
        login = (await theft.api.login(EMAIL, NEW_PASSWORD)).json
    assert await try_to_add(theft.api, login["access_token"]) == [200] * 4
    assert (await theft.ways_in())[3] is False


@pytest.mark.parametrize(("add", "policy"), CASES)
async def test_a_reset_on_the_page_keeps_what_its_user_recognizes(
    theft: Theft, add: Callable[[Theft], Awaitable[None]], policy: Document
) -> None:
    await add(theft)
    await theft.join(policy)
    before = await theft.ways_in()
    await theft.reset(keeps=True)
    assert await theft.ways_in() == before
    assert "Only a recovery lets you" not in theft.newest_email()


async def test_what_the_owner_has_had_for_longer_stays_and_meets_the_policy(theft: Theft) -> None:
    await theft.add_passkey()
    theft.clock.advance(UNDO_TTL)
    await theft.add_passkey()
    await theft.join(PASSKEY)
    page = await theft.reset(keeps=False)
    assert (page.count('name="keep:'), "Asked for by" in page) == (1, False)
    assert await theft.ways_in() == (1, 0, 0, False)


async def test_an_older_linked_account_that_the_policy_needs_is_not_listed(theft: Theft) -> None:
    await theft.link()
    theft.clock.advance(UNDO_TTL)
    await theft.join(PROVIDER_OR_PASSKEY)
    page = await theft.reset(keeps=False)
    assert 'name="keep:' not in page
    assert await theft.ways_in() == (0, 1, 0, False)


@pytest.mark.parametrize("way", ["page", "api"])
@pytest.mark.parametrize("keys", ["of an earlier RP ID", "beside the second factor"])
async def test_a_reset_ends_a_second_factor_that_a_thief_made_of_older_keys(theft: Theft, way: str, keys: str) -> None:
    """The backup codes are the thief's, and the owner cannot show the key."""
    own = PasskeyUser(theft.api, await theft.token())
    await own.add_key(second_factor=False)
    theft.clock.advance(100 * HOUR)
    thief = PasskeyUser(theft.api, (await sign_in(theft.ports, theft.user)).access_token)
    if keys == "of an earlier RP ID":
        await run_sql(theft.pool, "update passkeys set rp_id = 'old.example'")
        await thief.add_key(name="Thief")
    else:
        assert (await theft.api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=thief.token)).status == 200
    assert (await theft.api.login()).json["mfa_required"] is True
    theft.clock.advance(HOUR)
    if way == "page":
        assert "Keep two-factor authentication" in await theft.reset(keeps=False)
    else:
        await theft.reset_by_api()
    assert "mfa_required" not in (await theft.api.login(EMAIL, NEW_PASSWORD)).json


@pytest.mark.parametrize("way", ["page", "api"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1,)])
@pytest.mark.parametrize("has_older_key", [False, True])
async def test_the_backup_codes_of_a_thief_end_with_all_factors(
    theft: Theft, order: tuple[int, ...], has_older_key: bool, way: str
) -> None:
    """Over the API the thief's key stays, but is no second factor."""
    if has_older_key:
        await PasskeyUser(theft.api, await theft.token()).add_key(second_factor=False)
        theft.clock.advance(100 * HOUR)
    for number in order:
        await (theft.add_app, theft.add_security_key)[number]()
    await (theft.reset(keeps=False) if way == "page" else theft.reset_by_api())
    assert "mfa_required" not in (await theft.api.login(EMAIL, NEW_PASSWORD)).json
    assert await run_sql(theft.pool, "select from backup_codes") == []


async def test_the_user_keeps_a_second_factor_of_older_keys(theft: Theft) -> None:
    own = PasskeyUser(theft.api, await theft.token())
    await own.add_key(second_factor=False)
    theft.clock.advance(100 * HOUR)
    token = (await sign_in(theft.ports, theft.user)).access_token
    assert (await theft.api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=token)).status == 200
    await theft.reset(keeps=True)
    assert (await theft.api.login(EMAIL, NEW_PASSWORD)).json["mfa_required"] is True


async def test_an_older_linked_account_that_the_user_does_not_keep_ends_beside_a_recent_way(theft: Theft) -> None:
    """The passkey and the linked account meet the policy, so the page lists them."""
    await theft.link()
    theft.clock.advance(UNDO_TTL)
    await theft.add_passkey()
    await theft.join(PROVIDER_OR_PASSKEY)
    page = await theft.reset(keeps=False)
    assert page.count('name="keep:') == 2
    assert await theft.ways_in() == (0, 0, 0, True)


@pytest.mark.parametrize("squatter_joins", [False, True])
@pytest.mark.parametrize("then", ["nothing", "links it again", "links another"])
async def test_linked_accounts_are_listed_if_the_address_was_verified_after_the_sign_up(
    theft: Theft, squatter_joins: bool, then: str
) -> None:
    """A squatter signs up at a provider, and the mailbox owner later opens a verification link.

    The provider did not verify the address, or another address that the squatter changes afterwards.
    """
    await add_identity(theft.pool, theft.user.id, "websuite", linked_at=theft.clock.now())
    await run_sql(theft.pool, "update users set created_at = %s", theft.clock.now())
    assert 'name="keep:' not in await theft.reset(keeps=False)
    await run_sql(theft.pool, "update users set email_verified_at = created_at + interval '1 minute'")
    theft.clock.advance(HOUR)
    if then == "links it again":
        await run_sql(theft.pool, "update identities set linked_at = %s", theft.clock.now())
    elif then == "links another":
        await add_identity(theft.pool, theft.user.id, "codehost", linked_at=theft.clock.now())
    if squatter_joins:
        await theft.join(PROVIDER_OR_PASSKEY)
        await theft.join({"methods": ["passkey", "provider:codehost"]}, "second")
    theft.clock.advance(100 * HOUR)
    assert (await theft.reset(keeps=False)).count('name="keep:') == (2 if then == "links another" else 1)
    assert await theft.ways_in() == (0, 0, 0, squatter_joins)


async def test_a_second_factor_of_recent_keys_is_listed_if_it_was_turned_on_later(theft: Theft) -> None:
    """The owner keeps the own key. The second factor that a thief turned on, with the thief's backup codes, would stay otherwise."""
    own = PasskeyUser(theft.api, await theft.token())
    await own.add_key(name="Own", second_factor=False)
    theft.clock.advance(HOUR)
    token = (await sign_in(theft.ports, theft.user)).access_token
    assert (await theft.api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=token)).status == 200
    theft.clock.advance(HOUR)
    assert (await theft.reset(keeps=False)).count('name="keep:') == 2
    assert await run_sql(theft.pool, "select from backup_codes") == []

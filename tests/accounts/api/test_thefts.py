"""A thief who knows the password makes random changes. One link in an email gives the account back (security A-13)."""

import random
import re
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import security_notices
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind
from core.authentication.model.identities import Identity
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST, ProviderTokens
from core.kernel.values import Email, new_id
from ports import Ports
from tests.accounts.email_changes import open_proof, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, PASSWORD, Api, add_account, deliver, link, run_sql, sign_in, two_factors
from tests.support.connections.proofs import write_proofs
from tests.support.mfa import Authenticator, add_mfa

pytestmark = pytest.mark.slow

NEW = "chosen by the owner"
STATE = """
    select u.email, u.email_verified_at is not null, u.mfa_enabled_at, u.deactivated_at, u.erase_at,
           (select array_agg(i.provider_user_id) from identities i where i.user_id = u.id),
           (select count(*) from email_changes c
            where c.user_id = u.id and c.proved_at is null and c.undone_at is null and c.expires_at > %s),
           (select count(*) from sessions s where s.user_id = u.id and s.ended_at is null),
           (select count(*) from one_time_tokens t where t.user_id = u.id and t.used_at is null),
           exists (select from mfa m where m.user_id = u.id)
    from users u where u.id = %s"""


@dataclass
class Theft:
    """An account that a thief controls with a session that is always fresh."""

    api: Api
    ports: Ports
    pool: Pool
    clock: FakeClock
    sent: FakeMailTransport
    user: Account
    has_mfa: bool
    token: str = ""
    email: str = EMAIL
    password: str = PASSWORD
    count: int = 0
    addresses: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        await self.second_session()

    async def act(self, name: str) -> None:
        """Act a minute later."""
        self.count += 1
        self.clock.advance(timedelta(minutes=1))
        await write_proofs(self.pool, self.user.id, two_factors(self.clock.now()))
        await run_sql(self.pool, "update sessions set mfa_missing = false")
        await getattr(self, name)()

    async def second_session(self) -> None:
        self.token = (await sign_in(self.ports, self.user, second_factor=True)).access_token
        self.tokens.append(self.token)

    async def change_password(self) -> None:
        chosen = f"chosen by the thief {self.count}"
        body = {"current_password": self.password, "new_password": chosen}
        assert (await self.api.post("/api/user/change-password", body, token=self.token)).status == 200
        self.password = chosen

    async def request_address(self) -> str:
        address = f"thief{self.count}@example.com"
        answer = await self.api.patch("/api/user", {"email": address}, token=self.token)
        assert answer.status == 200, answer.text
        self.addresses.append(address)
        return address

    async def change_address(self) -> None:
        address = await self.request_address()
        await deliver(self.ports)
        [*_, proof] = [mail for mail in self.sent.emails if mail.to == address]
        assert (await open_proof(self.api, link(proof))).status == 200
        self.email = address

    async def change_back(self) -> None:
        """The owner gives the account its address back, before they undo anything."""
        if self.email != EMAIL:
            assert (await self.api.patch("/api/user", {"email": EMAIL}, token=self.token)).status == 200
            await deliver(self.ports)
            [*_, proof] = [mail for mail in self.sent.emails if mail.to == EMAIL and "/auth/verify-email" in mail.text]
            assert (await open_proof(self.api, link(proof))).status == 200
            self.email = EMAIL

    async def link_identity(self) -> None:
        now, session, tokens = self.clock.now(), await self._session(), ProviderTokens("access", None, None, ())
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            account = await tx.accounts.lock(self.user.id)
            assert account is not None
            provider, kind = CODEHOST, EmailKind.IDENTITY_LINKED
            identity = Identity(new_id(), account.id, None, provider, "https://codehost.example", "thief", Email(self.email), now, tokens)
            if await tx.identities.add(identity):
                await security_notices.notify(tx, account, kind, now, session_id=session, detail=provider)

    async def _session(self) -> UUID:
        [(session,)] = await run_sql(self.pool, "select id from sessions where ended_at is null order by created_at desc limit 1")
        assert isinstance(session, UUID)
        return session

    async def switch_second_factor(self) -> None:
        if self.has_mfa:
            assert (await self.api.delete("/api/user/mfa", token=self.token)).status == 200
        else:
            secret = (await self.api.post("/api/user/mfa/setup", token=self.token)).json["secret"]
            enabled = await self.api.post("/api/user/mfa/verify", {"code": Authenticator(secret, self.clock).code()}, token=self.token)
            assert enabled.status == 200, enabled.text
        self.has_mfa = not self.has_mfa

    async def begin_second_factor(self) -> None:
        assert (await self.api.post("/api/user/mfa/setup", token=self.token)).status == (400 if self.has_mfa else 200)

    async def new_backup_codes(self) -> None:
        assert (await self.api.post("/api/user/mfa/backup-codes/regenerate", token=self.token)).status == (200 if self.has_mfa else 400)

    async def create_token(self) -> None:
        body = {"name": f"Token {self.count}", "scopes": ["account:read"], "expires_in_days": 30}
        answer = await self.api.post("/api/user/personal-tokens", body, token=self.token)
        assert answer.status == 200, answer.text
        self.tokens.append(answer.json["token"])

    async def reset_password(self) -> None:
        """Reset the password by email, if the thief has changed the address."""
        if self.email != EMAIL:
            self.password = f"reset by the thief {self.count}"
            await reset(self, self.email, self.password)
            [(mfa,)] = await run_sql(self.pool, "select mfa_enabled_at is not null from users where id = %s", self.user.id)
            self.has_mfa = mfa
            await self.second_session()


async def reset(theft: Theft, email: str, password: str) -> None:
    await theft.api.post("/api/auth/forgot-password", {"email": email})
    await deliver(theft.ports)
    [*_, message] = [mail for mail in theft.sent.emails if mail.to == email and "/auth/reset-password" in mail.text]
    answer = await theft.api.post("/api/auth/reset-password", {"token": link(message), "new_password": password})
    assert answer.status == 200, answer.text


async def undo_links(theft: Theft, address: str) -> list[str]:
    await deliver(theft.ports)
    texts = [mail.text for mail in theft.sent.emails if mail.to == address]
    return [found for text in texts for found in re.findall(r"/auth/undo\?token=([0-9a-f-]+)", text)]


ACTIONS = (
    *(
        "change_password",
        "request_address",
        "change_address",
        "change_back",
        "link_identity",
        "switch_second_factor",
        "switch_second_factor",
    ),
    *("begin_second_factor", "new_backup_codes", "create_token", "second_session", "reset_password"),
)


@pytest.mark.parametrize("seed", range(24))
async def test_any_link_in_an_email_to_the_owner_gives_the_account_back(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  (a test that can be repeated)
    user = await add_account(ports)
    own_app = await add_mfa(ports, user) if seed % 2 else None
    clock.advance(timedelta(days=10))
    before = (await run_sql(pool, STATE, clock.now(), user.id))[0]
    theft = Theft(api, ports, pool, clock, sent, user, has_mfa=own_app is not None)
    await theft.begin()
    done = []
    for _ in range(chance.randint(2, 8)):
        done.append(chance.choice(ACTIONS))
        await theft.act(done[-1])
    if chance.random() < 0.6:
        done.append("delete")
        clock.advance(timedelta(minutes=1))
        await write_proofs(pool, theft.user.id, two_factors(clock.now()))
        is_final = await undo_links(theft, EMAIL) == []
        assert (await api.delete("/api/user", token=theft.token)).status == 200
        if is_final:
            return  # nothing was changed before
    owners = await undo_links(theft, EMAIL)
    if not owners:
        return  # for example only another session
    clock.advance(timedelta(hours=1))
    assert (await undo(api, chance.choice(owners))).status == 200, done

    async def check() -> None:
        [(email, verified, mfa_at, deactivated, erase_at, identities, pending, sessions, links, has_secret)] = await run_sql(
            pool, STATE, clock.now(), user.id
        )
        assert (email, verified, mfa_at, deactivated, erase_at) == (EMAIL, True, before[2], None, None), done
        assert (identities, pending, sessions, links) == (None, 0, 0, 0), done
        assert has_secret is (own_app is not None), done

    await check()
    for address in theft.addresses:
        assert await undo_links(theft, address) == [], done
    for token in theft.tokens:
        assert (await api.get("/api/user", token=token)).status == 401, done
    for found in owners:
        await undo(api, found)
        await check()
    for address in [*theft.addresses, EMAIL]:
        if theft.password != PASSWORD:
            assert (await api.login(address, theft.password)).status == 401, done
    await reset(theft, EMAIL, NEW)
    signed_in = (await api.login(EMAIL, NEW)).json
    assert signed_in.get("mfa_required", False) is (own_app is not None), done
    if own_app is not None:
        code = {"code": own_app.code()}
        assert (await api.post("/api/auth/mfa/verify", code, token=signed_in["access_token"])).status == 200, done

"""Several steps by a user who has to come through a connection: the password never opens the organization (security SP-9)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest

from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Domain, digest
from core.tenancy.model.sign_in_policies import SignInPolicy
from tests.accounts.email_changes import UNDO, open_proof, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import NEW_PASSWORD, PASSWORD, Answer, add_account, add_invitation, add_member, deliver, link, run_sql, sign_in
from tests.support.connections import add_connection
from tests.support.scim import Directory
from tests.support.services import add_service, enroll_user
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow
DOMAIN: Final = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'corp.example', 'x', now(), now())"
LINK: Final = """
    insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
    values (%s, %s, %s, %s, now(), now())"""
CREATED_BY_DIRECTORY: Final = "update users set origin = 'scim', origin_org_id = %s where id = %s"
# How the user begins, and the steps. Steps with a ! are refused.
WALKS: Final[Sequence[tuple[str, str]]] = (
    ("member", "private!"),
    ("unconfirmed member", "private!, leave, private"),
    ("user of an application", "private"),
    ("linked user of an application", "private, unlink"),
    ("linked user of an application", "private, wait, company, unlink, undo"),
    ("linked member and user of an application", "private, unlink!, leave, unlink"),
    ("member and user of an application", "private!, leave, private"),
    ("linked member", "unlink, private!"),
    ("linked member", "private, unlink!"),
    ("linked member", "private, company, unlink, undo, private!"),
    ("linked member", "private, wait, company, unlink!, undo, unlink!"),
    ("linked member", "private, wait, company, wait, unlink, undo!, private!"),
    ("linked member", "private, wait, company, delete, undo, unlink!"),
    ("linked member", "private, reset, unlink!"),
    ("linked member", "private, wait, company, leave, accept!, undo"),
    ("stranger", "company, accept!, undo"),
    ("stranger", "company, wait, accept, undo!, private!"),
    ("linked member", "private, block, unlink!, activate, unlink!"),
    ("linked member", "block, unlink!, private, activate"),
    ("linked user of the directory", "private, block, reset, activate, unlink!"),
)


@dataclass(slots=True)
class User:
    """An Acme user; Acme requires a connection for addresses at corp.example."""

    acme: Tenant
    directory: Directory
    clock: FakeClock
    sent: FakeMailTransport
    connection_id: UUID
    account: Account
    uses_application: bool

    @property
    def name(self) -> str:
        """The user part, before the @, in all the user's addresses."""
        return self.account.email.partition("@")[0]

    async def token(self) -> str:
        """The access token for a session that began with the password."""
        return (await sign_in(self.acme.ports, self.account)).access_token

    async def opens(self) -> bool:
        """Whether the password opens the organization, or the application that the user used at the beginning."""
        if (await self.acme.api.get("/api/organizations/acme", token=await self.token())).status == 200:
            return True
        if not self.uses_application:
            return False
        [(email,)] = await run_sql(self.acme.pool, "select email from users where id = %s", self.account.id)
        body = {"email": email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
        return (await self.acme.api.post("/api/auth/login", body)).status == 200

    async def private(self) -> Answer:
        return await self._change_email("elsewhere.org")

    async def company(self) -> Answer:
        return await self._change_email("corp.example")

    async def _change_email(self, domain: str) -> Answer:
        email = f"{self.name}@{domain}"
        answer = await self.acme.api.patch("/api/user", {"email": email}, token=await self.token())
        if answer.status != 200:
            return answer
        await deliver(self.acme.ports)
        return await open_proof(self.acme.api, link(self.sent.newest("/auth/verify-email", to=email)))

    async def undo(self) -> Answer:
        """Undo everything that the newest link can undo."""
        await deliver(self.acme.ports)
        emails = [email for email in self.sent.emails if UNDO in email.text and email.to.startswith(self.name)]
        return await undo(self.acme.api, link(emails[-1]))

    async def wait(self) -> None:
        """Wait until no link can undo the earlier changes."""
        self.clock.advance(timedelta(hours=73))

    async def unlink(self) -> Answer:
        return await self.acme.api.delete(f"/api/user/connections/{self.connection_id}", token=await self.token())

    async def delete(self) -> Answer:
        return await self.acme.api.delete("/api/user", token=await self.token())

    async def reset(self) -> Answer:
        [(email,)] = await run_sql(self.acme.pool, "select email from users where id = %s", self.account.id)
        assert (await self.acme.api.post("/api/auth/forgot-password", {"email": email})).status == 200
        await deliver(self.acme.ports)
        token = link(self.sent.newest("/auth/reset-password", to=email))
        return await self.acme.api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})

    async def leave(self) -> Answer:
        return await self.acme.api.post("/api/organizations/acme/leave", token=await self.token())

    async def accept(self) -> Answer:
        """Accept an invitation to the present address."""
        [(email,)] = await run_sql(self.acme.pool, "select email from users where id = %s", self.account.id)
        token = str(uuid4())
        await add_invitation(self.acme.ports, self.acme.org, email, token_hash=digest(token))
        return await self.acme.api.post("/api/invitations/accept", {"token": token}, token=await self.token())

    async def block(self) -> Answer:
        return await self.directory.activate(self.account.id, active=False)

    async def activate(self) -> Answer:
        return await self.directory.activate(self.account.id)


@pytest.fixture
async def begin(acme: Tenant, directory: Directory, clock: FakeClock, sent: FakeMailTransport) -> Callable[[str], Awaitable[User]]:
    """Adds a user in this state. Acme requires the connection."""
    await run_sql(acme.pool, DOMAIN, acme.org)
    shop = await add_service(acme.pool, acme.org)
    connection = await add_connection(acme.ports.storage, acme.org)
    rules = Rules(required_connections={Domain("corp.example"): RequiredConnection(connection.id, connection.slug)})
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(SignInPolicy(org_id=acme.org, rules=rules, changed_at=clock.now()))

    async def begin(state: str) -> User:
        domain = "elsewhere.org" if state.startswith(("stranger", "contractor")) else "corp.example"
        # A directory user without a password takes a deactivated account over with a reset.
        account = await add_account(acme.ports, f"{uuid4()}@{domain}", None if "directory" in state else PASSWORD)
        uses_application = "application" in state
        if uses_application:
            async with acme.ports.storage.transaction(by=SYSTEM) as tx:
                assert await enroll_user(tx, shop, account.id, clock.now())
        if "member" in state or "directory" in state or state == "contractor":
            await add_member(acme.pool, acme.org, account.id, confirmed="unconfirmed" not in state)
        if "linked" in state:
            await run_sql(acme.pool, LINK, acme.org, connection.id, account.id, str(account.id))
        if "directory" in state:
            await run_sql(acme.pool, CREATED_BY_DIRECTORY, acme.org, account.id)
        return User(acme, directory, clock, sent, connection.id, account, uses_application)

    return begin


async def test_no_steps_of_a_user_open_the_organization_to_the_password(begin: Callable[[str], Awaitable[User]]) -> None:
    for state in ("contractor", "contractor who uses an application"):
        assert await (await begin(state)).opens(), "the rule does not bind this user"
    findings = []
    for state, steps in WALKS:
        user = await begin(state)
        for step in steps.split(", "):
            user.clock.advance(timedelta(seconds=1))
            answer = await getattr(user, step.removesuffix("!"))()
            if answer is not None and (answer.status >= 400) is not step.endswith("!"):
                findings.append(f"{state}: {steps}: {step} is {answer.status} {answer.text[:200]}")
            if await user.opens():
                findings.append(f"{state}: {steps}: the password opens the organization after {step}")
                break
    assert not findings, "\n".join(findings)


async def test_an_admin_who_ends_a_block_ends_the_link(acme: Tenant, begin: Callable[[str], Awaitable[User]]) -> None:
    """Then the user is no member, and an admin's invitation chooses the address."""
    user = await begin("linked member")
    links = "select count(*) from connection_identities"
    assert (await user.block()).status == 200
    assert await run_sql(acme.pool, links) == [(1,)]
    block = f"/api/organizations/acme/directory-blocks/{user.account.id}"
    assert (await acme.api.delete(block, token=acme.token("owner"))).status == 204
    assert await run_sql(acme.pool, links) == [(0,)]

"""Organization A with a hostile identity provider, organization B on the same provider, and a comparison over all rows."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, AccountOrigin
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.settings import ClaimMapping, OidcSettings
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer
from tests.federation.connections.saml.saml_case import SamlCase
from tests.proof.access.state import UNWATCHED
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_account, add_member, run_sql
from tests.support.connections import add_connection
from tests.support.tenants import Tenant

NOISE: Final = UNWATCHED
# Columns in a user's account that every sign-in changes
TIMES: Final = {"updated_at", "last_login_at"}
DOMAIN: Final = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', now(), now())"

Row = tuple[str, str]


async def connect(ports: Ports, tenant: Tenant, issuer: FakeIssuer, slug: str = "okta") -> OrganizationConnection:
    """Give an organization an active connection at this provider. The provider knows them all as the same client."""
    settings = OidcSettings(issuer=issuer.url, client_id=CLIENT_ID, trusts_second_factor=True)
    connection = await add_connection(ports.storage, tenant.org, slug, settings=settings, mapping=ClaimMapping(groups="groups"))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(tenant.org, connection.id, SECRET, ports.clock.now())
    return connection


@dataclass(slots=True)
class World:
    """Two organizations. The provider asserts whatever an attack wants, in the name of A's admins."""

    ports: Ports
    app: QuartTrio
    pool: Pool
    issuer: FakeIssuer
    a: Tenant
    b: Tenant
    of_a: OrganizationConnection
    of_b: OrganizationConnection
    over_saml: list[SamlCase] = field(default_factory=list)  # A's and B's, once a row needs them

    async def set(self, sql: str, *values: object) -> None:
        await run_sql(self.pool, sql, *values)

    async def add(self, email: str, *organizations: Tenant, role: str = "member", **values: Any) -> Account:
        """Add the user's own account, and make it a member in these organizations."""
        account = await add_account(self.ports, email, **values)
        for tenant in organizations:
            await add_member(self.pool, tenant.org, account.id, role, confirmed=True)
        return account

    async def add_controlled(self, email: str, **values: Any) -> Account:
        """Add an account that A controls."""
        return await self.add(email, self.a, origin=AccountOrigin.SCIM, origin_org_id=self.a.org, **values)

    async def link(self, account: Account, subject: str, connection: OrganizationConnection | None = None) -> None:
        """Make the account known at a connection, by default at A's, as its user once agreed to."""
        connection = connection or self.of_a
        sql = """
            insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
            values (%s, %s, %s, %s, now(), now())"""
        await self.set(sql, connection.org_id, connection.id, account.id, subject)

    def browser(self) -> FakeBrowser:
        return FakeBrowser(self.app)

    async def leave(self, browser: FakeBrowser, connection: OrganizationConnection | None = None, **query: str) -> Answer:
        """Begin a sign-in at a connection in this browser."""
        path = f"/auth/connections/{(connection or self.of_a).id}/start?{urlencode(query or {'next': '/app'})}"
        return await browser.open(path, follows=False)

    def authorize(self, answer: Answer, subject: str, **claims: Any) -> dict[str, str]:
        """Let the provider assert this person. Return what the browser brings back."""
        assert answer.status in (302, 303), (answer.status, answer.text)
        self.issuer.subject, self.issuer.claims = subject, {"email_verified": True, **claims}
        return self.issuer.authorize(answer.headers["Location"])

    async def come_back(self, browser: FakeBrowser, returned: dict[str, str], connection: OrganizationConnection | None = None) -> Answer:
        return await browser.open(f"/auth/connections/{(connection or self.of_a).id}/callback?{urlencode(returned)}", follows=False)

    async def arrive(
        self,
        subject: str,
        browser: FakeBrowser | None = None,
        *,
        at: OrganizationConnection | None = None,
        query: dict[str, str] | None = None,
        **claims: Any,
    ) -> Answer:
        """Sign in at the provider as this person, in this browser or in a new browser. Return the callback's answer."""
        browser = browser or self.browser()
        left = await self.leave(browser, at, **(query or {}))
        return await self.come_back(browser, self.authorize(left, subject, **claims), at)

    # The comparison

    async def rows(self) -> frozenset[Row]:
        """Return all rows in the database, with their tables."""
        sql = """
            select c.relname from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"""
        tables = sorted({name for (name,) in await run_sql(self.pool, sql)} - NOISE)
        selects = (f"select '{table}', to_jsonb(t)::text from {table} t" for table in tables)  # noqa: S608
        return frozenset((table, row) for table, row in await run_sql(self.pool, " union all ".join(selects)))

    def harm(self, before: Collection[Row], after: Collection[Row]) -> Iterable[str]:
        """Yield the changes that are not about A alone."""
        # The attack's browser begins and ends its own sign-ins.
        gone = [each for row in set(before) - set(after) if not self._is_of_a(*(each := self._read(row)))]
        come = [each for row in set(after) - set(before) if not self._is_of_a(*(each := self._read(row)))]
        for table, row in gone:
            if (table, row) not in come:
                yield f"{table} lost {row}"
        for table, row in come:
            if (table, row) not in gone:
                yield f"{table} got {row}"

    def _read(self, row: Row) -> tuple[str, dict[str, Any]]:
        """Return table and content of a row, without a user's times, and without A's statements in an own session of the user."""
        table, content = row[0], json.loads(row[1])
        if table == "users":
            return table, {name: value for name, value in content.items() if name not in TIMES}
        if table == "sessions":
            content["proofs"] = [proof for proof in content["proofs"] or () if proof.get("org") != str(self.a.org)]
        return table, content

    def _is_of_a(self, table: str, row: dict[str, Any]) -> bool:
        """Return whether a row belongs to A: to its data, to an account that it created, or to a session that is good there alone."""
        a = str(self.a.org)
        if table == "organizations":
            return bool(row["id"] == a)
        if table == "users":
            return bool(row["origin_org_id"] == a and row["password_hash"] is None)
        if table in ("sessions", "current_sessions"):
            return a in (row.get("restricted_to"), row.get("org_id"))
        if table == "sign_in_flows":
            return row["user_id"] is None
        if table == "login_events" and row["user_id"] is None:  # a failure that names no user
            return True
        if "org_id" in row and row["org_id"] is not None:
            return bool(row["org_id"] == a)
        # Devices, mails and events for a user of A, who is told about the sign-in
        return table in OF_SIGN_INS


OF_SIGN_INS: Final = {"devices", "mails", "events", "refresh_tokens"}


async def count_sessions(pool: Pool, user_id: UUID) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from sessions where user_id = %s and ended_at is null", user_id)
    return int(count)

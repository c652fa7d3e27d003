"""Tests of the API of linked accounts and provider tokens: fields, contexts, refusals, records and
races (decisions 73, 74, 75, 77; security J-9, O-6, O-7, I-4, T-3, S-6).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.http.providers import HttpProviders
from core.accounts.accounts_rules import Account
from core.kernel.providers import Provider
from core.kernel.values import digest
from entrypoints.http.edge.context import app_context, bind_context
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    BASE_URL,
    Answer,
    Api,
    SignedIn,
    add_account,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.direct import change_ports
from tests.support.identities import NOWHERE, add_identity
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant, Tenants

PATH = "/api/user/identities"
PLATFORM, SHOP, DESK = "platform", "shop", "desk"


@dataclass(frozen=True, slots=True)
class Person:
    """A user without a password, with a session of the account and sessions of two services of two organizations."""

    tenants: Tenants
    account: Account
    services: dict[str, UUID]
    sessions: dict[str, SignedIn]

    @property
    def api(self) -> Api:
        return self.tenants.api

    def token(self, where: str = PLATFORM) -> str:
        return self.sessions[where].access_token

    async def has(self, provider: str = "codehost", where: str = PLATFORM, **fields: Any) -> UUID:
        return await add_identity(self.tenants.pool, self.account.id, provider, self.services.get(where), **fields)

    async def gets_password(self) -> None:
        await run_sql(self.tenants.pool, "update users set password_hash = 'hash' where id = %s", self.account.id)

    async def listed(self, where: str = PLATFORM) -> Any:
        answer = await self.api.get(PATH, token=self.token(where))
        assert answer.status == 200, answer.text
        return answer.json

    async def providers(self, where: str = PLATFORM) -> list[str]:
        return sorted(each["provider"] for each in await self.listed(where))

    async def link(self, provider: str = "codehost", where: str = PLATFORM) -> Answer:
        return await self.api.post(f"{PATH}/{provider}/link", token=self.token(where))

    async def unlink(self, provider: str = "codehost", where: str = PLATFORM) -> Answer:
        return await self.api.delete(f"{PATH}/{provider}", token=self.token(where))

    async def gets_token(self, provider: str = "codehost", where: str = PLATFORM) -> Answer:
        return await self.api.get(f"/api/provider-token/{provider}", token=self.token(where))

    async def tickets(self) -> list[tuple[Any, ...]]:
        columns = "token_hash, user_id, session_id, service_id, provider, expires_at - created_at, created_at"
        return await run_sql(self.tenants.pool, f"select {columns} from link_tickets order by provider")  # noqa: S608

    async def left(self) -> list[tuple[Any, ...]]:
        """Return the rows of all tables that linking and unlinking change."""
        pool, records = self.tenants.pool, "where t.{} like 'security.%%'"
        tables = {"identities": "", "link_tickets": "", "audit_log": records.format("action"), "events": records.format("name")}
        rows = [await run_sql(pool, f"select t::text from {table} t {which} order by 1") for table, which in tables.items()]  # noqa: S608
        return [row for found in rows for row in found]


@pytest.fixture
async def user(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> Person:
    account = await add_account(tenants.ports, password=None)
    services = {SHOP: await add_service(tenants.pool, acme.org), DESK: await add_service(tenants.pool, other_tenant.org, "desk")}
    sessions = {name: await sign_in_to(tenants.ports, tenants.pool, service, account) for name, service in services.items()}
    return Person(tenants, account, services, {PLATFORM: await sign_in(tenants.ports, account), **sessions})


def set_up(app: QuartTrio, providers: Sequence[Provider] = tuple(Provider)) -> None:
    change_ports(app, providers=HttpProviders(dict.fromkeys(providers, NOWHERE), FakeClock()))


# The list


async def test_the_list_shows_every_field(user: Person) -> None:
    assert await user.listed() == []
    await user.has("websuite", subject="w-1", email="ada@websuite.example")
    await user.has("codehost", subject="c-1")
    await run_sql(user.tenants.pool, "update identities set linked_at = '2026-02-01T10:00:00Z' where provider = 'codehost'")
    assert await user.listed() == [
        {"provider": "codehost", "provider_user_id": "c-1", "email": None, "linked_at": "2026-02-01T10:00:00Z"},
        {"provider": "websuite", "provider_user_id": "w-1", "email": "ada@websuite.example", "linked_at": "2026-03-01T12:00:00Z"},
    ]


async def test_each_context_lists_its_own_identities(user: Person) -> None:
    for where in (PLATFORM, SHOP, DESK):
        await user.has(where=where, subject=f"in {where}", token=f"secret of {where}")
    eve = await add_account(user.tenants.ports, "eve@example.com", None)
    await add_identity(user.tenants.pool, eve.id, "websuite")
    for where in (PLATFORM, SHOP, DESK):
        [shown] = await user.listed(where)
        assert shown["provider_user_id"] == f"in {where}"
        assert shown.keys() == {"provider", "provider_user_id", "email", "linked_at"}, "without tokens"


async def test_a_selected_organization_does_not_change_the_list(user: Person, acme: Tenant) -> None:
    await user.has()
    await acme.join("ada", user.account)
    assert [each["provider"] for each in (await user.api.get(PATH, token=acme.token("ada"))).json] == ["codehost"]


# The start of a link


async def test_a_link_starts_with_a_ticket_for_the_browser(user: Person, app: QuartTrio, clock: FakeClock) -> None:
    set_up(app)
    answer = await user.link("websuite")
    assert (answer.status, answer.json.keys()) == (200, {"authorization_url"})
    address = urlsplit(answer.json["authorization_url"])
    assert f"{address.scheme}://{address.netloc}" == BASE_URL
    assert address.path == "/auth/websuite"
    [(name, [ticket])] = parse_qs(address.query).items()
    assert (name, len(ticket)) == ("link", 43)
    kept = (digest(ticket), user.account.id, user.sessions[PLATFORM].session_id, None, "websuite", timedelta(seconds=60), clock.now())
    assert await user.tickets() == [kept]
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await user.link("websuite")).json != answer.json


@pytest.mark.parametrize("base_url", ["https://id.example.com", "https://example.com/id"])
async def test_the_url_of_a_link_starts_with_the_base_url(user: Person, app: QuartTrio, base_url: str) -> None:
    set_up(app)
    bind_context(app, replace(app_context(app), base_url=base_url))
    assert (await user.link()).json["authorization_url"].startswith(f"{base_url}/auth/codehost?link=")


async def test_only_configured_providers_can_be_linked(user: Person, app: QuartTrio) -> None:
    assert refused(await user.link()) == MISSING
    set_up(app, [Provider.WEBSUITE])
    for provider in ("codehost", "Websuite", "websuite%20", "nothing", "password"):
        assert refused(await user.link(provider)) == MISSING, provider
    assert (await user.link("websuite")).status == 200
    assert [row[4] for row in await user.tickets()] == ["websuite"]


async def test_an_already_linked_provider_is_refused(user: Person, app: QuartTrio) -> None:
    set_up(app)
    await user.has("codehost")
    await user.has("websuite", SHOP)
    assert refused(await user.link("codehost")) == BAD
    assert await user.tickets() == []
    assert (await user.link("websuite")).status == 200  # an identity of a service does not count


async def test_an_application_cannot_start_a_link(user: Person, app: QuartTrio) -> None:
    set_up(app)
    assert refused(await user.link(where=SHOP)) == FORBIDDEN
    assert await user.tickets() == []


async def test_a_session_that_ends_during_the_request_starts_no_link(user: Person, app: QuartTrio) -> None:
    set_up(app)
    locked = ("select 1 from users where id = %s for no key update", (user.account.id,))
    ended = ("update sessions set ended_at = now() where user_id = %s", (user.account.id,))
    assert refused(await run_during(user.tenants.pool, [locked, ended], user.link)) == UNAUTHORIZED
    assert await user.tickets() == []


# Unlinking


async def test_an_unlinked_identity_is_deleted_and_can_be_linked_again(user: Person, app: QuartTrio) -> None:
    set_up(app)
    await user.gets_password()
    await user.has(token="a token")
    answer = await user.unlink()
    assert (answer.status, answer.json.keys()) == (200, {"message"})
    assert await user.listed() == []
    assert [refused(await user.unlink()), refused(await user.gets_token())] == [MISSING, MISSING]
    assert (await user.link()).status == 200


async def test_an_application_unlinks_the_identity_of_its_service(user: Person) -> None:
    await user.gets_password()
    for where in (PLATFORM, SHOP, DESK):
        await user.has(where=where)
    await user.has("websuite", DESK)
    assert refused(await user.unlink("websuite", SHOP)) == MISSING
    assert (await user.unlink(where=SHOP)).status == 200
    assert [await user.providers(where) for where in (PLATFORM, SHOP, DESK)] == [["codehost"], [], ["codehost", "websuite"]]


async def test_the_account_also_unlinks_the_identities_of_services(user: Person) -> None:
    """A sign-in at a service gives the whole account in the browser."""
    await user.gets_password()
    for where in (PLATFORM, SHOP, DESK):
        await user.has(where=where)
    await user.has("websuite", DESK)
    await user.has("officesuite")
    assert (await user.unlink()).status == 200
    assert [await user.providers(where) for where in (PLATFORM, SHOP, DESK)] == [["officesuite"], [], ["websuite"]]
    assert (await user.unlink("websuite")).status == 200, "although it is only linked at a service"
    assert await user.providers(DESK) == []
    assert refused(await user.unlink("websuite")) == MISSING


async def test_the_last_sign_in_method_can_be_an_identity_of_a_service(user: Person) -> None:
    await user.has(where=SHOP)
    assert refused(await user.unlink()) == BAD
    assert await user.providers(SHOP) == ["codehost"]
    await user.has("websuite")
    assert (await user.unlink()).status == 200


async def test_other_users_identities_cannot_be_unlinked(user: Person) -> None:
    eve = await add_account(user.tenants.ports, "eve@example.com")
    await add_identity(user.tenants.pool, eve.id)
    await user.gets_password()
    before = await user.left()
    assert refused(await user.unlink()) == MISSING
    assert await user.left() == before


@pytest.mark.parametrize("where", [PLATFORM, SHOP])
async def test_the_last_sign_in_method_cannot_be_unlinked(user: Person, where: str) -> None:
    await user.has(where=where)
    for other in {PLATFORM, SHOP, DESK} - {where}:
        await user.has("websuite", other)  # an identity of another context does not count
    before = await user.left()
    assert refused(await user.unlink(where=where)) == BAD
    assert await user.left() == before
    await user.has("officesuite", where)
    assert (await user.unlink(where=where)).status == 200
    assert refused(await user.unlink("officesuite", where)) == BAD
    await user.gets_password()
    assert (await user.unlink("officesuite", where)).status == 200


async def test_unknown_providers_are_not_found(user: Person) -> None:
    await user.gets_password()
    await user.has()
    for provider in ("nothing", "Codehost", "password", "code%00host"):
        assert [refused(await act(provider)) for act in (user.unlink, user.gets_token, user.link)] == [MISSING] * 3, provider


async def test_unlinking_is_reported_to_the_users_organizations(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.gets_password()
    await user.has()
    await user.unlink()
    name, ada_id, details = "security.identity.unlinked", str(user.account.id), {"provider": "codehost"}
    assert await acme.recorded() == [(name, "user", ada_id, user.account.id, details)]
    assert await acme.webhook_events() == [(name, ada_id, details)]
    assert (await other_tenant.log(), await other_tenant.webhook_events()) == ([], [])


async def test_unlinking_from_a_service_is_reported_to_its_organization_only(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.gets_password()
    await user.has(where=DESK)
    await user.unlink(where=DESK)
    details = {"provider": "codehost", "service_slug": "desk"}
    assert await other_tenant.recorded() == [("security.identity.unlinked", "user", str(user.account.id), user.account.id, details)]
    assert await other_tenant.webhook_events() == [("security.identity.unlinked", str(user.account.id), details)]
    assert (await acme.log(), await acme.webhook_events()) == ([], [])


async def test_identities_that_services_lose_are_reported_to_their_organizations(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await user.gets_password()
    await user.has()
    for where in (SHOP, DESK):
        await user.has(where=where)
    await user.unlink()
    name, ada_id = "security.identity.unlinked", str(user.account.id)
    for tenant, service in ((acme, "shop"), (other_tenant, "desk")):
        details = {"provider": "codehost", "service_slug": service}
        assert await tenant.recorded() == [(name, "user", ada_id, user.account.id, details)]
        assert await tenant.webhook_events() == [(name, ada_id, details)]


async def test_an_identity_linked_during_the_request_is_unlinked_too(user: Person) -> None:
    """A concurrent sign-in at a service holds the account while the unlink waits."""
    await user.gets_password()
    await user.has()
    locked = ("select 1 from users where id = %s for no key update", (user.account.id,))
    row = (user.account.id, user.account.id, user.services[DESK])
    columns = "id, user_id, service_id, provider, provider_user_id, linked_at"
    added = (f"insert into identities ({columns}) values (%s, %s, %s, 'codehost', 'x', now())", row)  # noqa: S608
    answer = await run_during(user.tenants.pool, [locked, added], user.unlink)
    assert answer.status == 200
    assert await run_sql(user.tenants.pool, "select * from identities") == []


async def test_of_two_identities_unlinked_concurrently_one_stays(user: Person) -> None:
    for provider in ("codehost", "websuite"):
        await user.has(provider)
    answers = await run_concurrently(2, lambda number: user.unlink(("codehost", "websuite")[number]))
    assert sorted(answer.status for answer in answers) == [200, 400]
    assert len(await user.listed()) == 1


@pytest.mark.slow
async def test_of_twenty_concurrent_unlinks_one_succeeds(user: Person, acme: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.gets_password()
    await user.has()
    answers = await run_concurrently(20, lambda _: user.unlink())
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert await acme.actions() == {"security.identity.unlinked": 1}


async def test_an_identity_deleted_with_its_service_is_not_reported_as_unlinked(user: Person) -> None:
    await user.gets_password()
    await user.has(where=SHOP)
    gone = [("delete from identities where service_id = %s", (user.services[SHOP],))]
    assert refused(await run_during(user.tenants.pool, gone, lambda: user.unlink(where=SHOP))) == MISSING
    assert await run_sql(user.tenants.pool, "select count(*) from audit_log") == [(0,)]


# Provider tokens


async def test_a_provider_token_is_returned_with_every_field(user: Person, clock: FakeClock) -> None:
    await user.has(token="gho_1", expires_at=clock.now() + timedelta(seconds=1), scopes=["repo", "user"])
    answer = await user.gets_token()
    shown = {"provider": "codehost", "access_token": "gho_1", "expires_at": "2026-03-14T15:09:27.535897Z", "scopes": ["repo", "user"]}
    assert (answer.status, answer.json) == (200, shown)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_unknown_expiry_and_scopes_are_returned_as_null_and_empty(user: Person) -> None:
    await user.has(token="gho_1")
    assert (await user.gets_token()).json == {"provider": "codehost", "access_token": "gho_1", "expires_at": None, "scopes": []}


async def test_each_context_has_its_own_tokens(user: Person) -> None:
    for where in (PLATFORM, SHOP):
        await user.has(where=where, token=f"of {where}")
    assert [(await user.gets_token(where=where)).json["access_token"] for where in (PLATFORM, SHOP)] == ["of platform", "of shop"]
    assert refused(await user.gets_token(where=DESK)) == MISSING


async def test_without_an_identity_or_a_token_the_response_is_404(user: Person) -> None:
    await user.has("websuite", token="of websuite")
    await user.has("codehost")
    eve = await add_account(user.tenants.ports, "eve@example.com", None)
    await add_identity(user.tenants.pool, eve.id, "officesuite", token="of eve")
    assert [refused(await user.gets_token(provider)) for provider in ("codehost", "officesuite")] == [MISSING, MISSING]


async def test_an_expired_token_without_a_refresh_token_is_not_returned(user: Person, clock: FakeClock) -> None:
    await user.has(token="gho_1", expires_at=clock.now())
    answer = await user.gets_token()
    assert refused(answer) == (500, "OAUTH_ERROR")
    assert "gho_1" not in answer.text


# Other callers


async def test_an_impersonator_can_only_list_identities(user: Person, app: QuartTrio) -> None:
    set_up(app)
    await user.gets_password()
    await user.has(token="gho_1")
    token = await impersonate(user.tenants.ports, await add_platform_owner(user.tenants.ports), user.account)
    before = await user.left()
    assert [each["provider"] for each in (await user.api.get(PATH, token=token)).json] == ["codehost"]
    answers = [
        await user.api.post(f"{PATH}/websuite/link", token=token),
        await user.api.delete(f"{PATH}/codehost", token=token),
        await user.api.get("/api/provider-token/codehost", token=token),
    ]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3
    assert await user.left() == before


async def test_an_application_of_a_former_user_sees_nothing(user: Person) -> None:
    await user.has(where=SHOP, token="gho_1")
    await run_sql(user.tenants.pool, "delete from service_users where service_id = %s", user.services[SHOP])
    answers = [await user.api.get(PATH, token=user.token(SHOP)), await user.unlink(where=SHOP), await user.gets_token(where=SHOP)]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3

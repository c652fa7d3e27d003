"""Tests of the API of linked accounts and provider tokens: fields, contexts, refusals, records and races (decisions 73 to 75, 77;
security J-9, O-6, O-7, I-4, T-3, S-6).
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
    everyone,
    impersonate,
    meanwhile,
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
async def ada(tenants: Tenants, acme: Tenant, twin: Tenant) -> Person:
    account = await add_account(tenants.ports, password=None)
    services = {SHOP: await add_service(tenants.pool, acme.org), DESK: await add_service(tenants.pool, twin.org, "desk")}
    sessions = {name: await sign_in_to(tenants.ports, tenants.pool, service, account) for name, service in services.items()}
    return Person(tenants, account, services, {PLATFORM: await sign_in(tenants.ports, account), **sessions})


def set_up(app: QuartTrio, providers: Sequence[Provider] = tuple(Provider)) -> None:
    change_ports(app, providers=HttpProviders(dict.fromkeys(providers, NOWHERE), FakeClock()))


# The list


async def test_the_list_shows_every_field(ada: Person) -> None:
    assert await ada.listed() == []
    await ada.has("websuite", subject="w-1", email="ada@websuite.example")
    await ada.has("codehost", subject="c-1")
    await run_sql(ada.tenants.pool, "update identities set linked_at = '2026-02-01T10:00:00Z' where provider = 'codehost'")
    assert await ada.listed() == [
        {"provider": "codehost", "provider_user_id": "c-1", "email": None, "linked_at": "2026-02-01T10:00:00Z"},
        {"provider": "websuite", "provider_user_id": "w-1", "email": "ada@websuite.example", "linked_at": "2026-03-01T12:00:00Z"},
    ]


async def test_each_context_lists_its_own_identities(ada: Person) -> None:
    for where in (PLATFORM, SHOP, DESK):
        await ada.has(where=where, subject=f"in {where}", token=f"secret of {where}")
    eve = await add_account(ada.tenants.ports, "eve@example.com", None)
    await add_identity(ada.tenants.pool, eve.id, "websuite")
    for where in (PLATFORM, SHOP, DESK):
        [shown] = await ada.listed(where)
        assert shown["provider_user_id"] == f"in {where}"
        assert shown.keys() == {"provider", "provider_user_id", "email", "linked_at"}, "without tokens"


async def test_a_selected_organization_does_not_change_the_list(ada: Person, acme: Tenant) -> None:
    await ada.has()
    await acme.join("ada", ada.account)
    assert [each["provider"] for each in (await ada.api.get(PATH, token=acme.token("ada"))).json] == ["codehost"]


# The start of a link


async def test_a_link_starts_with_a_ticket_for_the_browser(ada: Person, app: QuartTrio, clock: FakeClock) -> None:
    set_up(app)
    answer = await ada.link("websuite")
    assert (answer.status, answer.json.keys()) == (200, {"authorization_url"})
    address = urlsplit(answer.json["authorization_url"])
    assert f"{address.scheme}://{address.netloc}" == BASE_URL
    assert address.path == "/auth/websuite"
    [(name, [ticket])] = parse_qs(address.query).items()
    assert (name, len(ticket)) == ("link", 43)
    kept = (digest(ticket), ada.account.id, ada.sessions[PLATFORM].session_id, None, "websuite", timedelta(seconds=60), clock.now())
    assert await ada.tickets() == [kept]
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await ada.link("websuite")).json != answer.json


@pytest.mark.parametrize("base_url", ["https://id.example.com", "https://example.com/id"])
async def test_the_url_of_a_link_starts_with_the_base_url(ada: Person, app: QuartTrio, base_url: str) -> None:
    set_up(app)
    bind_context(app, replace(app_context(app), base_url=base_url))
    assert (await ada.link()).json["authorization_url"].startswith(f"{base_url}/auth/codehost?link=")


async def test_only_configured_providers_can_be_linked(ada: Person, app: QuartTrio) -> None:
    assert refused(await ada.link()) == MISSING
    set_up(app, [Provider.WEBSUITE])
    for provider in ("codehost", "Websuite", "websuite%20", "nothing", "password"):
        assert refused(await ada.link(provider)) == MISSING, provider
    assert (await ada.link("websuite")).status == 200
    assert [row[4] for row in await ada.tickets()] == ["websuite"]


async def test_an_already_linked_provider_is_refused(ada: Person, app: QuartTrio) -> None:
    set_up(app)
    await ada.has("codehost")
    await ada.has("websuite", SHOP)
    assert refused(await ada.link("codehost")) == BAD
    assert await ada.tickets() == []
    assert (await ada.link("websuite")).status == 200  # an identity of a service does not count


async def test_an_application_cannot_start_a_link(ada: Person, app: QuartTrio) -> None:
    set_up(app)
    assert refused(await ada.link(where=SHOP)) == FORBIDDEN
    assert await ada.tickets() == []


async def test_a_session_that_ends_during_the_request_starts_no_link(ada: Person, app: QuartTrio) -> None:
    set_up(app)
    locked = ("select 1 from users where id = %s for no key update", (ada.account.id,))
    ended = ("update sessions set ended_at = now() where user_id = %s", (ada.account.id,))
    assert refused(await meanwhile(ada.tenants.pool, [locked, ended], ada.link)) == UNAUTHORIZED
    assert await ada.tickets() == []


# Unlinking


async def test_an_unlinked_identity_is_deleted_and_can_be_linked_again(ada: Person, app: QuartTrio) -> None:
    set_up(app)
    await ada.gets_password()
    await ada.has(token="a token")
    answer = await ada.unlink()
    assert (answer.status, answer.json.keys()) == (200, {"message"})
    assert await ada.listed() == []
    assert [refused(await ada.unlink()), refused(await ada.gets_token())] == [MISSING, MISSING]
    assert (await ada.link()).status == 200


async def test_an_application_unlinks_the_identity_of_its_service(ada: Person) -> None:
    await ada.gets_password()
    for where in (PLATFORM, SHOP, DESK):
        await ada.has(where=where)
    await ada.has("websuite", DESK)
    assert refused(await ada.unlink("websuite", SHOP)) == MISSING
    assert (await ada.unlink(where=SHOP)).status == 200
    assert [await ada.providers(where) for where in (PLATFORM, SHOP, DESK)] == [["codehost"], [], ["codehost", "websuite"]]


async def test_the_account_also_unlinks_the_identities_of_services(ada: Person) -> None:
    """A sign-in at a service gives the whole account in the browser."""
    await ada.gets_password()
    for where in (PLATFORM, SHOP, DESK):
        await ada.has(where=where)
    await ada.has("websuite", DESK)
    await ada.has("officesuite")
    assert (await ada.unlink()).status == 200
    assert [await ada.providers(where) for where in (PLATFORM, SHOP, DESK)] == [["officesuite"], [], ["websuite"]]
    assert (await ada.unlink("websuite")).status == 200, "although it is only linked at a service"
    assert await ada.providers(DESK) == []
    assert refused(await ada.unlink("websuite")) == MISSING


async def test_the_last_sign_in_method_can_be_an_identity_of_a_service(ada: Person) -> None:
    await ada.has(where=SHOP)
    assert refused(await ada.unlink()) == BAD
    assert await ada.providers(SHOP) == ["codehost"]
    await ada.has("websuite")
    assert (await ada.unlink()).status == 200


async def test_other_users_identities_cannot_be_unlinked(ada: Person) -> None:
    eve = await add_account(ada.tenants.ports, "eve@example.com")
    await add_identity(ada.tenants.pool, eve.id)
    await ada.gets_password()
    before = await ada.left()
    assert refused(await ada.unlink()) == MISSING
    assert await ada.left() == before


@pytest.mark.parametrize("where", [PLATFORM, SHOP])
async def test_the_last_sign_in_method_cannot_be_unlinked(ada: Person, where: str) -> None:
    await ada.has(where=where)
    for other in {PLATFORM, SHOP, DESK} - {where}:
        await ada.has("websuite", other)  # an identity of another context does not count
    before = await ada.left()
    assert refused(await ada.unlink(where=where)) == BAD
    assert await ada.left() == before
    await ada.has("officesuite", where)
    assert (await ada.unlink(where=where)).status == 200
    assert refused(await ada.unlink("officesuite", where)) == BAD
    await ada.gets_password()
    assert (await ada.unlink("officesuite", where)).status == 200


async def test_unknown_providers_are_not_found(ada: Person) -> None:
    await ada.gets_password()
    await ada.has()
    for provider in ("nothing", "Codehost", "password", "code%00host"):
        assert [refused(await act(provider)) for act in (ada.unlink, ada.gets_token, ada.link)] == [MISSING] * 3, provider


async def test_unlinking_is_reported_to_the_users_organizations(ada: Person, acme: Tenant, twin: Tenant) -> None:
    await acme.join("ada", ada.account)
    await ada.gets_password()
    await ada.has()
    await ada.unlink()
    name, ada_id, details = "security.identity.unlinked", str(ada.account.id), {"provider": "codehost"}
    assert await acme.recorded() == [(name, "user", ada_id, ada.account.id, details)]
    assert await acme.told() == [(name, ada_id, details)]
    assert (await twin.log(), await twin.told()) == ([], [])


async def test_unlinking_from_a_service_is_reported_to_its_organization_only(ada: Person, acme: Tenant, twin: Tenant) -> None:
    await acme.join("ada", ada.account)
    await ada.gets_password()
    await ada.has(where=DESK)
    await ada.unlink(where=DESK)
    details = {"provider": "codehost", "service_slug": "desk"}
    assert await twin.recorded() == [("security.identity.unlinked", "user", str(ada.account.id), ada.account.id, details)]
    assert await twin.told() == [("security.identity.unlinked", str(ada.account.id), details)]
    assert (await acme.log(), await acme.told()) == ([], [])


async def test_identities_that_services_lose_are_reported_to_their_organizations(ada: Person, acme: Tenant, twin: Tenant) -> None:
    await ada.gets_password()
    await ada.has()
    for where in (SHOP, DESK):
        await ada.has(where=where)
    await ada.unlink()
    name, ada_id = "security.identity.unlinked", str(ada.account.id)
    for tenant, service in ((acme, "shop"), (twin, "desk")):
        details = {"provider": "codehost", "service_slug": service}
        assert await tenant.recorded() == [(name, "user", ada_id, ada.account.id, details)]
        assert await tenant.told() == [(name, ada_id, details)]


async def test_an_identity_linked_during_the_request_is_unlinked_too(ada: Person) -> None:
    """A concurrent sign-in at a service holds the account while the unlink waits."""
    await ada.gets_password()
    await ada.has()
    locked = ("select 1 from users where id = %s for no key update", (ada.account.id,))
    row = (ada.account.id, ada.account.id, ada.services[DESK])
    columns = "id, user_id, service_id, provider, provider_user_id, linked_at"
    added = (f"insert into identities ({columns}) values (%s, %s, %s, 'codehost', 'x', now())", row)  # noqa: S608
    answer = await meanwhile(ada.tenants.pool, [locked, added], ada.unlink)
    assert answer.status == 200
    assert await run_sql(ada.tenants.pool, "select * from identities") == []


async def test_of_two_identities_unlinked_concurrently_one_stays(ada: Person) -> None:
    for provider in ("codehost", "websuite"):
        await ada.has(provider)
    answers = await everyone(2, lambda number: ada.unlink(("codehost", "websuite")[number]))
    assert sorted(answer.status for answer in answers) == [200, 400]
    assert len(await ada.listed()) == 1


@pytest.mark.slow
async def test_of_twenty_concurrent_unlinks_one_succeeds(ada: Person, acme: Tenant) -> None:
    await acme.join("ada", ada.account)
    await ada.gets_password()
    await ada.has()
    answers = await everyone(20, lambda _: ada.unlink())
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert await acme.actions() == {"security.identity.unlinked": 1}


async def test_an_identity_deleted_with_its_service_is_not_reported_as_unlinked(ada: Person) -> None:
    await ada.gets_password()
    await ada.has(where=SHOP)
    gone = [("delete from identities where service_id = %s", (ada.services[SHOP],))]
    assert refused(await meanwhile(ada.tenants.pool, gone, lambda: ada.unlink(where=SHOP))) == MISSING
    assert await run_sql(ada.tenants.pool, "select count(*) from audit_log") == [(0,)]


# Provider tokens


async def test_a_provider_token_is_returned_with_every_field(ada: Person, clock: FakeClock) -> None:
    await ada.has(token="gho_1", expires_at=clock.now() + timedelta(seconds=1), scopes=["repo", "user"])
    answer = await ada.gets_token()
    shown = {"provider": "codehost", "access_token": "gho_1", "expires_at": "2026-03-14T15:09:27.535897Z", "scopes": ["repo", "user"]}
    assert (answer.status, answer.json) == (200, shown)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_unknown_expiry_and_scopes_are_returned_as_null_and_empty(ada: Person) -> None:
    await ada.has(token="gho_1")
    assert (await ada.gets_token()).json == {"provider": "codehost", "access_token": "gho_1", "expires_at": None, "scopes": []}


async def test_each_context_has_its_own_tokens(ada: Person) -> None:
    for where in (PLATFORM, SHOP):
        await ada.has(where=where, token=f"of {where}")
    assert [(await ada.gets_token(where=where)).json["access_token"] for where in (PLATFORM, SHOP)] == ["of platform", "of shop"]
    assert refused(await ada.gets_token(where=DESK)) == MISSING


async def test_without_an_identity_or_a_token_the_response_is_404(ada: Person) -> None:
    await ada.has("websuite", token="of websuite")
    await ada.has("codehost")
    eve = await add_account(ada.tenants.ports, "eve@example.com", None)
    await add_identity(ada.tenants.pool, eve.id, "officesuite", token="of eve")
    assert [refused(await ada.gets_token(provider)) for provider in ("codehost", "officesuite")] == [MISSING, MISSING]


async def test_an_expired_token_without_a_refresh_token_is_not_returned(ada: Person, clock: FakeClock) -> None:
    await ada.has(token="gho_1", expires_at=clock.now())
    answer = await ada.gets_token()
    assert refused(answer) == (500, "OAUTH_ERROR")
    assert "gho_1" not in answer.text


# Other callers


async def test_an_impersonator_can_only_list_identities(ada: Person, app: QuartTrio) -> None:
    set_up(app)
    await ada.gets_password()
    await ada.has(token="gho_1")
    token = await impersonate(ada.tenants.ports, await add_platform_owner(ada.tenants.ports), ada.account)
    before = await ada.left()
    assert [each["provider"] for each in (await ada.api.get(PATH, token=token)).json] == ["codehost"]
    answers = [
        await ada.api.post(f"{PATH}/websuite/link", token=token),
        await ada.api.delete(f"{PATH}/codehost", token=token),
        await ada.api.get("/api/provider-token/codehost", token=token),
    ]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3
    assert await ada.left() == before


async def test_an_application_of_a_former_user_sees_nothing(ada: Person) -> None:
    await ada.has(where=SHOP, token="gho_1")
    await run_sql(ada.tenants.pool, "delete from service_users where service_id = %s", ada.services[SHOP])
    answers = [await ada.api.get(PATH, token=ada.token(SHOP)), await ada.unlink(where=SHOP), await ada.gets_token(where=SHOP)]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3

"""Linked accounts over the API: lists, links and unlinking (decision 73; security I-4, O-6, S-6, T-3)."""

from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from core.kernel.connections import WEBSUITE
from core.kernel.values import digest
from entrypoints.http.base.context import app_context, bind_context
from tests.authentication.api.identities.person import DESK, PATH, PLATFORM, SHOP, Person, set_up_providers
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, add_account, add_platform_owner, impersonate, run_concurrently, run_during, run_sql
from tests.support.identities import add_identity
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.tenants import Tenant


async def test_the_list_shows_every_field(user: Person) -> None:
    assert await user.list_identities() == []
    await user.add_identity("websuite", subject="w-1", email="ada@websuite.example")
    await user.add_identity("codehost", subject="c-1")
    await run_sql(user.tenants.pool, "update identities set linked_at = '2026-02-01T10:00:00Z' where provider = 'codehost'")
    assert await user.list_identities() == [
        {"provider": "codehost", "provider_user_id": "c-1", "email": None, "linked_at": "2026-02-01T10:00:00Z"},
        {"provider": "websuite", "provider_user_id": "w-1", "email": "ada@websuite.example", "linked_at": "2026-03-01T12:00:00Z"},
    ]


async def test_each_context_lists_its_own_identities(user: Person) -> None:
    for context in (PLATFORM, SHOP, DESK):
        await user.add_identity(context=context, subject=f"in {context}", token=f"secret of {context}")
    eve = await add_account(user.tenants.ports, "eve@example.com", None)
    await add_identity(user.tenants.pool, eve.id, "websuite")
    for context in (PLATFORM, SHOP, DESK):
        [identity] = await user.list_identities(context)
        assert identity["provider_user_id"] == f"in {context}"
        assert identity.keys() == {"provider", "provider_user_id", "email", "linked_at"}, "without tokens"


async def test_a_selected_organization_does_not_change_the_list(user: Person, acme: Tenant) -> None:
    await user.add_identity()
    await acme.join("ada", user.account)
    assert [each["provider"] for each in (await user.api.get(PATH, token=acme.token("ada"))).json] == ["codehost"]


# How a link starts


async def test_a_link_starts_with_a_ticket_for_the_browser(user: Person, app: QuartTrio, clock: FakeClock) -> None:
    await set_up_providers(app)
    answer = await user.link("websuite")
    assert (answer.status, answer.json.keys()) == (200, {"authorization_url"})
    address = urlsplit(answer.json["authorization_url"])
    assert f"{address.scheme}://{address.netloc}" == BASE_URL
    assert address.path == "/auth/websuite"
    [(name, [ticket])] = parse_qs(address.query).items()
    assert (name, len(ticket)) == ("link", 43)
    expected = (digest(ticket), user.account.id, user.sessions[PLATFORM].session_id, None, "websuite", timedelta(minutes=10), clock.now())
    assert await user.tickets() == [expected]
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await user.link("websuite")).json != answer.json


@pytest.mark.parametrize("base_url", ["https://id.example.com", "https://example.com/id"])
async def test_the_url_of_a_link_starts_with_the_base_url(user: Person, app: QuartTrio, base_url: str) -> None:
    await set_up_providers(app)
    bind_context(app, replace(app_context(app), base_url=base_url))
    assert (await user.link()).json["authorization_url"].startswith(f"{base_url}/auth/codehost?link=")


async def test_only_configured_providers_can_be_linked(user: Person, app: QuartTrio) -> None:
    assert refused(await user.link()) == MISSING
    await set_up_providers(app, [WEBSUITE])
    for provider in ("codehost", "Websuite", "websuite%20", "nothing", "password"):
        assert refused(await user.link(provider)) == MISSING, provider
    assert (await user.link("websuite")).status == 200
    assert [row[4] for row in await user.tickets()] == ["websuite"]


async def test_an_already_linked_provider_is_refused(user: Person, app: QuartTrio) -> None:
    await set_up_providers(app)
    await user.add_identity("codehost")
    await user.add_identity("websuite", SHOP)
    assert refused(await user.link("codehost")) == BAD
    assert await user.tickets() == []
    assert (await user.link("websuite")).status == 200  # a service identity does not count


async def test_an_application_cannot_start_a_link(user: Person, app: QuartTrio) -> None:
    await set_up_providers(app)
    assert refused(await user.link(context=SHOP)) == FORBIDDEN
    assert await user.tickets() == []


async def test_a_session_that_ends_during_the_request_starts_no_link(user: Person, app: QuartTrio) -> None:
    await set_up_providers(app)
    lock = ("select 1 from users where id = %s for no key update", (user.account.id,))
    end = ("update sessions set ended_at = now() where user_id = %s", (user.account.id,))
    assert refused(await run_during(user.tenants.pool, [lock, end], user.link)) == UNAUTHORIZED
    assert await user.tickets() == []


# Unlinking


async def test_an_unlinked_identity_is_deleted_and_can_be_linked_again(user: Person, app: QuartTrio) -> None:
    await set_up_providers(app)
    await user.set_password()
    await user.add_identity(token="a token")
    answer = await user.unlink()
    assert (answer.status, answer.json.keys()) == (200, {"message"})
    assert await user.list_identities() == []
    assert [refused(await user.unlink()), refused(await user.get_provider_token())] == [MISSING, MISSING]
    assert (await user.link()).status == 200


async def test_an_application_unlinks_the_identity_of_its_service(user: Person) -> None:
    await user.set_password()
    for context in (PLATFORM, SHOP, DESK):
        await user.add_identity(context=context)
    await user.add_identity("websuite", DESK)
    assert refused(await user.unlink("websuite", SHOP)) == MISSING
    assert (await user.unlink(context=SHOP)).status == 200
    assert [await user.list_providers(context) for context in (PLATFORM, SHOP, DESK)] == [["codehost"], [], ["codehost", "websuite"]]


async def test_the_account_also_unlinks_the_identities_of_services(user: Person) -> None:
    """A sign-in at a service gives the whole account in the browser."""
    await user.set_password()
    for context in (PLATFORM, SHOP, DESK):
        await user.add_identity(context=context)
    await user.add_identity("websuite", DESK)
    await user.add_identity("officesuite")
    assert (await user.unlink()).status == 200
    assert [await user.list_providers(context) for context in (PLATFORM, SHOP, DESK)] == [["officesuite"], [], ["websuite"]]
    assert (await user.unlink("websuite")).status == 200, "although it is only linked at a service"
    assert await user.list_providers(DESK) == []
    assert refused(await user.unlink("websuite")) == MISSING


async def test_the_last_sign_in_method_can_be_an_identity_of_a_service(user: Person) -> None:
    await user.add_identity(context=SHOP)
    assert refused(await user.unlink()) == BAD
    assert await user.list_providers(SHOP) == ["codehost"]
    await user.add_identity("websuite")
    assert (await user.unlink()).status == 200


async def test_other_users_identities_cannot_be_unlinked(user: Person) -> None:
    eve = await add_account(user.tenants.ports, "eve@example.com")
    await add_identity(user.tenants.pool, eve.id)
    await user.set_password()
    before = await user.changed_rows()
    assert refused(await user.unlink()) == MISSING
    assert await user.changed_rows() == before


@pytest.mark.parametrize("context", [PLATFORM, SHOP])
async def test_the_last_sign_in_method_cannot_be_unlinked(user: Person, context: str) -> None:
    await user.add_identity(context=context)
    for other in {PLATFORM, SHOP, DESK} - {context}:
        await user.add_identity("websuite", other)  # an identity from another context does not count
    before = await user.changed_rows()
    assert refused(await user.unlink(context=context)) == BAD
    assert await user.changed_rows() == before
    await user.add_identity("officesuite", context)
    assert (await user.unlink(context=context)).status == 200
    assert refused(await user.unlink("officesuite", context)) == BAD
    await user.set_password()
    assert (await user.unlink("officesuite", context)).status == 200


async def test_unknown_providers_are_not_found(user: Person) -> None:
    await user.set_password()
    await user.add_identity()
    for provider in ("nothing", "Codehost", "password", "code%00host"):
        assert [refused(await act(provider)) for act in (user.unlink, user.get_provider_token, user.link)] == [MISSING] * 3, provider


async def test_unlinking_is_reported_to_the_users_organizations(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.set_password()
    await user.add_identity()
    await user.unlink()
    name, ada_id, details = "security.identity.unlinked", str(user.account.id), {"provider": "codehost"}
    assert await acme.recorded() == [(name, "user", ada_id, user.account.id, details)]
    assert await acme.webhook_events() == [(name, ada_id, details)]
    assert (await other_tenant.log(), await other_tenant.webhook_events()) == ([], [])


async def test_unlinking_from_a_service_is_reported_to_its_organization_only(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.set_password()
    await user.add_identity(context=DESK)
    await user.unlink(context=DESK)
    details = {"provider": "codehost", "service_slug": "desk"}
    assert await other_tenant.recorded() == [("security.identity.unlinked", "user", str(user.account.id), user.account.id, details)]
    assert await other_tenant.webhook_events() == [("security.identity.unlinked", str(user.account.id), details)]
    assert (await acme.log(), await acme.webhook_events()) == ([], [])


async def test_identities_that_services_lose_are_reported_to_their_organizations(user: Person, acme: Tenant, other_tenant: Tenant) -> None:
    await user.set_password()
    await user.add_identity()
    for context in (SHOP, DESK):
        await user.add_identity(context=context)
    await user.unlink()
    name, ada_id = "security.identity.unlinked", str(user.account.id)
    for tenant, service in ((acme, "shop"), (other_tenant, "desk")):
        details = {"provider": "codehost", "service_slug": service}
        assert await tenant.recorded() == [(name, "user", ada_id, user.account.id, details)]
        assert await tenant.webhook_events() == [(name, ada_id, details)]


async def test_an_identity_linked_during_the_request_is_unlinked_too(user: Person) -> None:
    """A concurrent sign-in at a service holds the account while the unlink waits."""
    await user.set_password()
    await user.add_identity()
    lock = ("select 1 from users where id = %s for no key update", (user.account.id,))
    row = (user.account.id, user.account.id, user.services[DESK])
    columns = "id, user_id, service_id, provider, provider_user_id, linked_at"
    insert = (f"insert into identities ({columns}) values (%s, %s, %s, 'codehost', 'x', now())", row)  # noqa: S608
    answer = await run_during(user.tenants.pool, [lock, insert], user.unlink)
    assert answer.status == 200
    assert await run_sql(user.tenants.pool, "select * from identities") == []


async def test_of_two_identities_unlinked_concurrently_one_stays(user: Person) -> None:
    for provider in ("codehost", "websuite"):
        await user.add_identity(provider)
    answers = await run_concurrently(2, lambda number: user.unlink(("codehost", "websuite")[number]))
    assert sorted(answer.status for answer in answers) == [200, 400]
    assert len(await user.list_identities()) == 1


@pytest.mark.slow
async def test_of_twenty_concurrent_unlinks_one_succeeds(user: Person, acme: Tenant) -> None:
    await acme.join("ada", user.account)
    await user.set_password()
    await user.add_identity()
    answers = await run_concurrently(20, lambda _: user.unlink())
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert await acme.actions() == {"security.identity.unlinked": 1}


async def test_an_identity_deleted_with_its_service_is_not_reported_as_unlinked(user: Person) -> None:
    await user.set_password()
    await user.add_identity(context=SHOP)
    changes = [("delete from identities where service_id = %s", (user.services[SHOP],))]
    assert refused(await run_during(user.tenants.pool, changes, lambda: user.unlink(context=SHOP))) == MISSING
    assert await run_sql(user.tenants.pool, "select count(*) from audit_log") == [(0,)]


# Other callers


async def test_an_impersonator_can_only_list_identities(user: Person, app: QuartTrio) -> None:
    await set_up_providers(app)
    await user.set_password()
    await user.add_identity(token="gho_1")
    token = await impersonate(user.tenants.ports, await add_platform_owner(user.tenants.ports), user.account)
    before = await user.changed_rows()
    assert [each["provider"] for each in (await user.api.get(PATH, token=token)).json] == ["codehost"]
    answers = [
        await user.api.post(f"{PATH}/websuite/link", token=token),
        await user.api.delete(f"{PATH}/codehost", token=token),
        await user.api.get("/api/provider-token/codehost", token=token),
    ]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3
    assert await user.changed_rows() == before


async def test_an_application_of_a_former_user_sees_nothing(user: Person) -> None:
    await user.add_identity(context=SHOP, token="gho_1")
    await run_sql(user.tenants.pool, "delete from service_users where service_id = %s", user.services[SHOP])
    answers = [
        await user.api.get(PATH, token=user.token(SHOP)),
        await user.unlink(context=SHOP),
        await user.get_provider_token(context=SHOP),
    ]
    assert [refused(answer) for answer in answers] == [FORBIDDEN] * 3

"""External clients' names in logs: their hosts, because a client chooses its own name."""

from datetime import timedelta
from typing import Any, Final

import pytest

from core.accounts.model.accounts import Account
from core.applications.model.client_settings import SELF_REGISTERED
from entrypoints.http.app import Application, configure
from entrypoints.http.base.context import app_context
from entrypoints.http.base.request_record import RequestRecord
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.relying import TOKEN, add_relying_party, sign_in_browser
from tests.support.builders import make_edge, run_sql, sign_in

CONSOLE: Final = "/app/organizations/acme"
NAME: Final = "Payroll of Acme"  # that the client gives itself


@pytest.fixture
def named(client: ExternalParty) -> ExternalParty:
    client.server.publish(client_name=NAME)
    return client


async def sign_ins(client: ExternalParty, path: str, token: str) -> list[tuple[Any, ...]]:
    answer = await client.api.get(f"{path}/sign-ins", token=token)
    assert answer.status == 200, answer.text
    return [(each["success"], each["service_name"]) for each in answer.json["sign_ins"]]


async def test_logs_and_pages_name_an_external_client_by_its_host(named: ExternalParty, user: Account) -> None:
    tenant, host = named.tenant, named.host
    await named.tokens()
    own = (await sign_in(tenant.ports, user)).access_token
    assert await sign_ins(named, "/api/user", own) == [(True, host)]
    assert await sign_ins(named, tenant.path, tenant.token("admin")) == [(True, host)]
    security = (await named.browser.open("/app/account/security")).text
    assert (NAME in security, f"{host}, acting at Acme" in security) == (False, True)
    await named.api.call("DELETE", f"/api/user/consents/{await service_of(named)}", token=own)
    await sign_in_browser(await add_relying_party(tenant, named.browser, "desk"), tenant.people["admin"], provider="password")
    timeline = (await named.browser.open(f"{CONSOLE}/users/{user.id}")).text
    for text in (f"Signed in to {host}", f"consented to {named.address}", f"withdrew the consent to {named.address}"):
        assert text in timeline, text
    for path in (f"/users/{user.id}", "/sign-ins", "/audit-log", "/analytics", "/users"):
        page = await named.browser.open(f"{CONSOLE}{path}")
        assert page.status == 200, path
        assert host in page.text, path
        assert NAME not in page.text, path


async def service_of(client: ExternalParty) -> str:
    [(service,)] = await run_sql(client.tenant.pool, "select id from services where client_uri is not null")
    return str(service)


async def test_failures_before_any_consent_are_in_the_log_with_the_host(named: ExternalParty, registered: ExternalParty) -> None:
    """The log also has attempts that are counted without an account, separately per client. A client that registered itself has no host."""
    tenant = named.tenant
    await named.set_policy(registration=True)
    named.browser.cookies.clear()
    for address in (registered.address, named.server.publish("/other")):
        for email in (tenant.people["admin"].email, "stranger@example.com"):
            page = await named.open(client_id=address)
            assert (await named.browser.fill(page, email=email, password="wrong")).status == 401
    found = await sign_ins(named, tenant.path, tenant.token("admin"))
    assert sorted(found) == sorted(2 * [(False, SELF_REGISTERED), (False, named.host)])


async def test_a_refused_user_is_in_the_log_with_the_host(named: ExternalParty) -> None:
    """The client may be stored or not."""
    tenant = named.tenant
    await named.code()
    await run_sql(tenant.pool, "update api_resources set access_policy = 'assigned'")
    for address in (named.address, named.server.publish("/new")):
        refused = await named.open(client_id=address)
        assert refused.status == 403
        assert "t have access to the API" in refused.text
    assert [request.path for request in named.server.requests] == ["/client"], "nothing is fetched for this user"
    assert await sign_ins(named, tenant.path, tenant.token("admin")) == 2 * [(False, named.host)]
    await sign_in_browser(await add_relying_party(tenant, named.browser, "desk"), tenant.people["admin"], provider="password")
    page = (await named.browser.open(f"{CONSOLE}/sign-ins")).text
    assert f"<bdi>{named.host}</bdi>" in page
    assert "External client" not in page


async def test_the_access_log_has_the_address_or_the_start_of_the_client_id(registered: ExternalParty, app: Application) -> None:
    """The whole client id of a self-registered client can have 2,000 characters."""
    await registered.set_policy(registration=True)
    records: list[RequestRecord] = []
    configure(app, app_context(app).ports, make_edge(), observe=records.append, exposition=lambda: b"", exposition_type="text/plain")
    sealed = registered.address
    await registered.refresh(await registered.tokens())
    registered.address = registered.server.publish()
    await registered.refresh(await registered.tokens())
    callers = [record.caller for record in records if record.route == TOKEN]
    assert callers == 2 * [f"{sealed[:64]}..."] + 2 * [registered.address]
    assert len(sealed) > 2 * len(callers[0] or "")


async def test_new_metadata_of_a_client_are_in_the_audit_log(client: ExternalParty, clock: FakeClock) -> None:
    """The same metadata, fetched again, are no change."""
    await client.code()
    clock.advance(timedelta(days=1))
    await client.code()
    other = "https://client.example/other"
    client.server.publish(client_name="Assistant 2", redirect_uris=[client.redirect_uri, other])
    clock.advance(timedelta(days=1))
    await client.code(redirect_uri=other)
    [(details,)] = await run_sql(client.tenant.pool, "select details from audit_log where action = 'external_client.updated'")
    assert details["client"] == client.address
    assert details["changes"] == {
        "name": {"old": "Assistant", "new": "Assistant 2"},
        "redirect_uris": {"old": [client.redirect_uri], "new": [client.redirect_uri, other]},
    }

"""External clients at the authorization endpoint, from their first request to the tokens."""

import json
from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.http.client_keys import HttpClientDocuments
from core.accounts.model.accounts import Account
from core.applications.model.client_settings import SELF_REGISTERED
from core.kernel.claims import external_client_id
from core.kernel.display import format_day
from entrypoints.http.base.context import app_context
from tests.fakes.http_server import Answer as Published
from tests.fakes.http_server import in_json
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.external.external import LOCAL, ExternalParty, assertion
from tests.federation.api.external.test_logs import service_of
from tests.federation.api.relying import VERIFIER, add_relying_party, claims, sign_in_browser
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, error
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import EMAIL, PASSWORD, add_account, add_member, run_sql, sign_in
from tests.support.direct import change_ports, set_up
from tests.support.mfa import add_mfa
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import save


async def test_an_external_client_gets_tokens_after_the_consent(client: ExternalParty) -> None:
    page = await client.open()
    assert page.status == 200
    for text in ("Assistant", client.host, "client.example", "Read your orders"):
        assert text in page.text, text
    assert await client.stored() == [], "before the consent it is nowhere but in memory"
    tokens = await client.tokens()
    assert await client.stored() == [(client.address, "Assistant", "spa")]
    token = claims(tokens)
    assert (token["client_id"], token["aud"], token["scope"]) == (client.address, ORDERS, READ)
    assert len(client.server.requests) == 1
    assert (await client.open()).status == 303, "the user agreed before"


async def test_an_id_token_names_the_address(client: ExternalParty) -> None:
    tokens = await client.tokens(scope=f"openid email roles groups {READ}")
    assert claims({"access_token": tokens["id_token"]})["aud"] == client.address
    assert tokens["scope"] == f"openid email {READ}", "roles and groups are for registered applications"


async def test_before_the_sign_in_the_page_has_the_host_alone(client: ExternalParty) -> None:
    client.browser.cookies.clear()
    page = await client.open()
    assert page.status == 200
    assert client.host in page.text
    assert "Assistant" not in page.text
    assert client.server.requests == []


@pytest.mark.parametrize("is_registered", [False, True])
@pytest.mark.parametrize("asked", [{"prompt": "login"}, {"max_age": "0"}, {"prompt": "create"}])
async def test_pages_besides_the_consent_have_the_host_alone_for_signed_in_users_too(
    registered: ExternalParty, clock: FakeClock, asked: dict[str, str], is_registered: bool
) -> None:
    """The document is known then. A client could call itself "Payroll of Acme", and ask for the password."""
    name = "Payroll of Acme"
    await registered.set_policy(registration=True)
    if is_registered:
        await registered.become_registered(client_name=name)
    else:
        registered.address = registered.server.publish(client_name=name)
    clock.advance(timedelta(seconds=1))
    assert name in (await registered.open()).text, "the consent quotes the name"
    pages = [await registered.open(**asked)]
    await registered.code()
    pages.append(await registered.open(**asked))
    for page in pages:
        assert page.status == 200
        assert (SELF_REGISTERED if is_registered else registered.host) in page.text
        for text in (name, "will see your email address"):
            assert text not in page.text


async def test_a_page_that_is_loaded_ahead_fetches_nothing(client: ExternalParty) -> None:
    assert (await client.browser.open(client.path(), (b"sec-purpose", b"prefetch;prerender"))).status == 403
    assert client.server.requests == []


async def test_the_sign_in_at_a_provider_goes_on_to_the_client(
    client: ExternalParty, app: QuartTrio, provider: FakeProvider, clock: FakeClock
) -> None:
    await set_up(app, [provider.connection()])
    client.browser.cookies.clear()
    answer = await client.browser.open(client.path().replace("/auth/authorize", "/auth/websuite"), follows=False)
    assert answer.status == 302
    flows = await run_sql(client.tenant.pool, "select org_id, external_client from sign_in_flows where target = 'oauth'")
    assert flows == [(client.tenant.org, client.host)]


async def test_no_other_organization_sees_the_sign_in_on_the_way_to_a_client(
    client: ExternalParty, user: Account, other_tenant: Tenant
) -> None:
    """As with applications, the user gets a sign-in that only the platform sees, and the client's organization sees its own."""
    await add_member(client.tenant.pool, other_tenant.org, user.id, confirmed=True)
    await run_sql(client.tenant.pool, "update organizations set approved_at = now()")
    await run_sql(client.tenant.pool, "delete from login_events")
    client.browser.cookies.clear()
    page = await client.open()
    consent = await client.browser.open(leads_to(await client.browser.fill(page, email=EMAIL, password=PASSWORD)))
    await client.browser.answer(consent, "continue")
    assert await run_sql(client.tenant.pool, "select seen_by from login_events where success") == [("platform",)]
    for tenant in (client.tenant, other_tenant):
        answer = await tenant.api.get(f"{tenant.path}/sign-ins", token=tenant.token("admin"))
        assert answer.json["sign_ins"] == []


async def test_a_request_without_a_known_resource_ends_on_our_page(client: ExternalParty) -> None:
    """Nothing is fetched, and nothing goes to an address that no document has confirmed."""
    for changes in ({"resource": None}, {"resource": "https://elsewhere.example/"}, {"resource": f"{ORDERS} {ORDERS}"}):
        answer = await client.open(**changes)
        assert answer.status == 400, changes
        assert "Location" not in answer.headers
        assert "asked for no API" in answer.text
    await run_sql(client.tenant.pool, "update organizations set status = 'suspended' where id = %s", client.tenant.org)
    assert (await client.open()).status == 400
    assert client.server.requests == []


async def test_a_policy_that_does_not_admit_the_host_is_told_on_our_page(client: ExternalParty) -> None:
    for admit, hosts in (("none", ()), ("none", (client.host,)), ("listed", ("client.example", "other.example"))):
        await client.set_policy(admit, hosts)
        answer = await client.open()
        assert answer.status == 403
        assert "does not let applications of" in answer.text
    assert client.server.requests == []
    await client.set_policy("listed", (client.host,))
    assert (await client.open()).status == 200


async def test_only_scopes_of_the_policy_are_granted(client: ExternalParty) -> None:
    await client.set_policy(scopes=(READ,))
    tokens = await client.tokens(scope=f"{READ} {WRITE}")
    assert tokens["scope"] == READ
    assert error(await client.open(scope=WRITE)) == "invalid_scope"


async def test_errors_go_to_the_client_only_after_its_redirect_uri_was_confirmed(client: ExternalParty) -> None:
    assert error(await client.open(code_challenge=None, code_challenge_method=None)) == "invalid_request"
    assert error(await client.open(prompt="none")) == "consent_required"
    unknown = "does not list this redirect URI"
    refused = {"https://other.example/callback": unknown, "https://client.example/callback/": unknown, None: "Send redirect_uri"}
    for redirect_uri, reason in refused.items():
        answer = await client.open(redirect_uri=redirect_uri)
        assert answer.status == 400
        assert reason in answer.text
    client.server.answers["/client"] = Published(404)
    client.browser.cookies.clear()
    answer = await client.open(prompt="none")
    assert answer.status == 400
    assert "Location" not in answer.headers


@pytest.mark.parametrize("uri", [LOCAL, "http://127.0.0.1:1/callback", "https://app.localhost/callback"])
async def test_a_native_client_listens_on_any_port(client: ExternalParty, uri: str) -> None:
    uris = ["http://127.0.0.1:33418/callback", "https://client.example/callback", "https://app.localhost/callback"]
    client.server.publish(redirect_uris=uris)
    client.redirect_uri = uri
    assert "program on this device" in (await client.open()).text
    tokens = await client.tokens()
    assert claims(tokens)["client_id"] == client.address
    assert (await client.open()).status == 200, "another program can claim the address, so the user is asked each time"


async def test_a_document_that_is_not_available_refuses_new_users_and_keeps_others(client: ExternalParty, clock: FakeClock) -> None:
    """For seven days. Then their tokens end, too, until the document is there again."""
    tokens = await client.tokens()
    client.server.answers["/client"] = Published(500)
    clock.advance(timedelta(days=8))
    assert (await client.open()).status == 303, "however old the stored one is"
    clock.advance(timedelta(days=6, hours=23))
    assert (await client.open()).status == 303
    tokens = (await client.refresh(tokens)).json
    refused = await client.open(scope=f"{READ} {WRITE}")
    assert refused.status == 400
    assert "answers 500" in refused.text
    clock.advance(timedelta(hours=2))
    assert (await client.open()).status == 400
    answer = await client.refresh(tokens)
    assert error(answer) == "invalid_grant"
    since = f"could not be fetched since {format_day(clock.now() - timedelta(days=7, hours=1))}."
    assert f"The description that the application at {client.host} publishes of itself {since}" in answer.json["error_description"]
    client.server.publish()
    assert (await client.open(scope=f"{READ} {WRITE}")).status == 200
    assert (await client.refresh(tokens)).status == 200, "the user need not agree again"


async def test_a_native_client_goes_on_by_its_stored_document_too(client: ExternalParty, clock: FakeClock) -> None:
    """A native client asks at every sign-in, so the question comes although the user has agreed to all scopes."""
    client.redirect_uri = LOCAL
    client.server.publish(redirect_uris=[LOCAL])
    await client.tokens()
    client.server.answers["/client"] = Published(500)
    clock.advance(timedelta(days=6))
    await client.tokens()
    assert (await client.open(scope=f"{READ} {WRITE}")).status == 400


async def test_the_newest_document_counts_and_a_new_redirect_uri_is_looked_up(
    client: ExternalParty, app: QuartTrio, clock: FakeClock
) -> None:
    """Processes have their own caches, and a cached document can be a day old."""
    second, third = "https://client.example/second", "https://client.example/third"
    for_a_day = {"Cache-Control": "max-age=86400"}
    client.server.publish(headers=for_a_day)
    await client.code()
    clock.advance(timedelta(minutes=6))
    here = app_context(app).ports.client_documents
    change_ports(app, client_documents=HttpClientDocuments(client.server.sender(), clock, app_context(app).ports.policy))
    client.server.publish(headers=for_a_day, redirect_uris=[second])
    client.redirect_uri = second
    await client.code()
    change_ports(app, client_documents=here)
    assert (await client.open()).status == 303, "the stored document is newer than that in the cache"
    count = len(client.server.requests)
    assert (await client.open(redirect_uri=third)).status == 400
    client.server.publish(headers=for_a_day, redirect_uris=[second, third])
    assert (await client.open(redirect_uri=third)).status == 400, "the document is not older than five minutes"
    clock.advance(timedelta(minutes=6))
    assert (await client.open(redirect_uri=third)).status == 200
    assert len(client.server.requests) == count + 2


@pytest.mark.parametrize("changes", [{"n": "\u0000x"}, {"n": client_key("RS256").jwk["n"][:172]}, {"x": "AQ", "y": "AQ"}])
async def test_a_document_with_weak_or_broken_keys_is_refused(client: ExternalParty, changes: dict[str, str]) -> None:
    key = client_key("ES256" if "x" in changes else "RS256").jwk
    client.server.publish(jwks={"keys": [{**key, **changes}]})
    for _ in ("fetched", "cached"):
        answer = await client.open()
        assert answer.status == 400
        assert "keys that are not allowed" in answer.text


async def test_a_change_of_what_the_consent_covered_asks_again(client: ExternalParty, clock: FakeClock) -> None:
    callbacks = ["https://client.example/callback", "https://client.example/second"]
    client.server.publish(redirect_uris=callbacks, jwks_uri="https://keys.example/one")
    await client.code()
    client.redirect_uri = callbacks[1]
    page = await client.open()
    assert "You continue at an address that is new." in page.text
    assert "with a key" not in page.text
    await client.code()
    assert (await client.open()).status == 303
    changes: list[tuple[dict[str, Any], str | None]] = [
        ({"jwks_uri": "https://keys.example/two"}, None),
        ({"jwks_uri": "https://other.example/two"}, "Its keys are now published at other.example."),
        ({"jwks_uri": "https://other.example/two", "client_name": "Renamed"}, None),
        ({"jwks": {"keys": [client_key().jwk]}}, "Its keys are now published in another place."),
        ({}, "It no longer proves with a key that it is this application."),
        ({"jwks_uri": "https://keys.example/one"}, "It now proves with a key that it is this application."),
    ]
    for members, news in changes:
        clock.advance(timedelta(minutes=5))
        client.server.publish(redirect_uris=callbacks, **members)
        page = await client.open()
        assert page.status == (303 if news is None else 200), members
        assert news is None or news in page.text
        await client.code()


async def test_the_consent_of_one_user_takes_the_keys_from_no_other(client: ExternalParty, app: QuartTrio, clock: FakeClock) -> None:
    """The client is one row for all users. Who stole a refresh token could publish a document without keys, and agree to it."""
    client.server.answers["/keys"] = in_json({"keys": [client_key().jwk]})
    client.server.publish(jwks_uri=client.server.address_of("/keys", "keys.example"))
    answer = await client.exchange(await client.code(), **assertion(client))
    assert answer.status == 200, answer.text
    clock.advance(timedelta(minutes=5))
    client.server.publish()
    here, desk = client.browser, await add_relying_party(client.tenant, FakeBrowser(app), "desk")
    await sign_in_browser(desk, await add_account(client.tenant.ports, "other@example.com"), provider="password", is_known=False)
    client.browser = desk.browser
    tokens = await client.tokens()
    assert (await client.refresh(tokens)).status == 200
    refused = await client.refresh(answer.json)
    assert (refused.status, refused.json["error"]) == (400, "invalid_grant")
    client.browser = here
    assert "no longer proves with a key" in (await client.open()).text
    assert (await client.refresh(await client.tokens())).status == 200


@pytest.mark.parametrize("scope", [READ, f"openid profile {READ}", f"email {READ}", f"openid email {READ}"])
async def test_the_email_address_goes_to_a_client_only_with_its_scope(client: ExternalParty, scope: str) -> None:
    """The consent page says no more, and neither does the account page."""
    page = await client.open(scope=scope)
    tokens = await client.tokens(scope=scope)
    sees = "openid email" in scope
    assert (EMAIL in json.dumps(claims(tokens))) == sees
    for text in (page.text, (await client.browser.open(f"/app/account/consents/{await service_of(client)}")).text):
        assert ("by your email address" in text) == sees


async def test_the_policy_decides_about_data_of_the_user_too(client: ExternalParty) -> None:
    scope = f"openid profile email offline_access {READ}"
    await client.set_policy(scopes=(READ, "profile"))
    page = await client.open(scope=scope, prompt="consent")
    assert "See your profile" in page.text
    assert "by your email address" not in page.text
    assert (await client.tokens(scope=scope, prompt="consent"))["scope"] == f"openid profile offline_access {READ}"
    await client.set_policy(scopes=())
    assert (await client.tokens(scope=scope, prompt="consent"))["scope"] == "openid offline_access"
    await client.set_policy()
    assert (await client.tokens(scope=scope, prompt="consent"))["scope"] == scope


async def test_wider_scopes_join_those_that_the_user_agreed_to(client: ExternalParty) -> None:
    page = await client.open()
    assert "New since" not in page.text
    await client.code()
    page = await client.open(scope=WRITE)
    news = page.text.partition("New since you last agreed")[2].partition("</ul>")[0]
    assert "Change your orders" in news
    assert "Read your orders" not in news
    assert "Read your orders" in page.text, "the access that it has then"
    tokens = await client.tokens(scope=WRITE)
    assert tokens["scope"] == claims(tokens)["scope"] == f"{READ} {WRITE}"
    assert (await client.refresh(tokens)).json["scope"] == f"{READ} {WRITE}"
    for scope in (READ, WRITE, f"{READ} {WRITE}"):
        assert (await client.open(scope=scope)).status == 303
        assert (await client.tokens(scope=scope))["scope"] == scope, "a request for no more than that gets its own scopes"


async def test_a_step_up_joins_only_scopes_that_the_policy_still_admits(client: ExternalParty) -> None:
    await client.code()
    await client.set_policy(scopes=(WRITE,))
    assert (await client.tokens(scope=WRITE))["scope"] == WRITE


async def test_the_client_has_one_id_in_each_organization(client: ExternalParty) -> None:
    await client.code()
    [(stored,)] = await run_sql(client.tenant.pool, "select id from services where client_uri is not null")
    assert stored == external_client_id(client.tenant.org, client.address)
    assert len(VERIFIER) > 43


async def test_the_sign_in_policy_of_the_organization_holds(client: ExternalParty) -> None:
    """The user has no second factor, and sets a second factor up before the consent is asked."""
    tenant = client.tenant
    await add_mfa(tenant.ports, tenant.people["owner"])
    tenant.sessions["owner"] = await sign_in(tenant.ports, tenant.people["owner"], tenant.org, second_factor=True)
    answer = await save(tenant, {"second_factor": ["everyone"]})
    assert answer.status == 200, answer.text
    page = await client.open()
    assert page.status == 303
    assert "/app/enroll" in page.headers["Location"]
    assert await client.stored() == []

"""A stored secret that we send belongs to the address that it was entered for (security #stored-secrets).

Every column with bytes, and every secret field in a sealed document, is in a table here. Otherwise the first test fails.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import ConnectionState
from core.federation.connections.model.settings import OidcSettings
from core.kernel.roles import ADMIN
from core.maintenance.model.housekeeping import SealedColumn
from core.setup.model.links import SetupDocument
from ports import Ports
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, OpenIdIssuers
from tests.federation.connections.openid.test_checks import reach_loopback
from tests.setup.test_links import STEPS, embedded, path_of, token_of
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import Answer, add_account, run_concurrently, run_sql
from tests.support.connections import add_connection
from tests.support.rows import NOW
from tests.support.tenants import Tenant

# Secrets that go to an address which a member, or a set-up link's reader, can change; and the fields with this address
SENT: Final[Mapping[str, str]] = {
    "connections.client_secret": "the issuer",
    "setup_proposals.document:client_secret": "the issuer",
    "setup_proposals.document:siem_token": "the URL; a proposal without a token is refused",
    "siem_configurations.token": "the URL; a configuration without a token is refused",
    "smtp_settings.password": "the server; settings without a password have none",
}
# Why other sealed values and bytes need no such rule
NOT_SENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "signing_keys.private_key",
            "saml_certificates.private_key",
            "connection_keys.private_key",
            "setup_proposals.document:private_key",
        ),
        "a key that signs or decrypts here, and is sent to no address",
    ),
    **dict.fromkeys(("webhooks.secret", "former_webhook_secrets.secret"), "it signs deliveries; the receiver never gets it from us"),
    "service_connections.client_secret": "the operator's settings have the addresses of these identity providers",
    **dict.fromkeys(("identities.access_token", "identities.refresh_token"), "the operator's settings have the provider's addresses"),
    "sign_in_flows.identity": "tokens as in identities, until the link is made",
    "connection_logins.logout": "the ID token with the sign-out address of its provider, in one value",
    "mails.token": "the row has the address that it was made for, which never changes",
    "billing_facts.action_page": "an address of the payment provider, which the user opens",
    **dict.fromkeys(
        ("mfa.secret", "former_mfa.secret", "account_recoveries.secret", "sign_in_flows.challenge_code"),
        "only its user gets it",
    ),
    "kept_forms.fields": "the form goes back to the session that sent it",
    "dpop_nonce_keys.secret": "the nonces of this server are made with it",
    **dict.fromkeys(("images.small", "images.large"), "a picture"),
    **dict.fromkeys(
        ("passkeys.credential_id", "passkeys.public_key", "former_passkeys.credential_id", "former_passkeys.public_key"),
        "the public part of a passkey",
    ),
    "users.passkey_handle": "a random name, which authenticators show to every site of ours",
    "guesses.subject": "the hash of a name of attempts",
}
ISSUERS: Final = (  # spellings are compared byte for byte, so every spelling is another address
    *("https://thief.example", "https://OKTA.example", "https://okta.example:443", "https://okta.example/"),
    *("https://okta.example/thief", "https://okta.example.thief.example", ""),
)
OIDC: Final[Mapping[str, Any]] = {"issuer": "https://okta.example", "client_id": CLIENT_ID}
PAGE: Final[Mapping[str, str]] = {**OIDC, "name": "Okta", "client_authentication": "client_secret_basic", "scopes": "email"}
PAGES: Final = "/app/organizations/acme/connections/okta"
DRAFT: Final[Mapping[str, Any]] = {"state": ConnectionState.DRAFT, "first_activated_at": None}


async def test_each_stored_secret_is_known_with_its_address_or_the_reason_why_it_has_none(pool: Pool) -> None:
    columns = await run_sql(
        pool,
        "select c.table_name || '.' || c.column_name from information_schema.columns c join information_schema.tables t using (table_name) "
        "where c.table_schema = 'public' and t.table_type = 'BASE TABLE' and c.data_type = 'bytea' "
        "and c.column_name !~ '(_hash|_salt)$'",
    )
    documents = {"setup_proposals.document": [field.name for field in fields(SetupDocument) if not field.repr]}
    expected = {f"{name}:{field}" for (name,) in columns for field in documents.get(name, ())}
    expected |= {name for (name,) in columns} - documents.keys()
    assert (SENT.keys() | NOT_SENT.keys()) ^ expected == set()
    assert SENT.keys() & NOT_SENT.keys() == set()
    assert {column.value for column in SealedColumn} <= {name.partition(":")[0] for name in expected}


async def add_draft(acme: Tenant, issuer: str, slug: str = "okta") -> str:
    """Add the owner's draft with a client secret, and a member with `integrations.manage` alone. Return a token with that scope."""
    await add_connection(acme.ports.storage, acme.org, slug, settings=OidcSettings(**{**OIDC, "issuer": issuer}), **DRAFT)
    path = f"{acme.path}/connections/{slug}/client-secret"
    assert (await acme.api.call("PUT", path, {"client_secret": SECRET, "issuer": issuer}, token=acme.token("owner"))).status == 204
    role = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
    if (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201:
        assert (await acme.set_role("owner", "member", "integrator")).status == 200
    return acme.token("member")


async def test_a_new_issuer_never_gets_the_client_secret_of_the_earlier_one(app: QuartTrio, acme: Tenant, ports: Ports) -> None:
    reach_loopback(app, ports)
    path = f"{acme.path}/connections/okta"
    with OpenIdIssuers(now=lambda: NOW.timestamp()) as server:
        thief, honest = server.add("thief"), server.add("honest")
        token = await add_draft(acme, honest.url)
        assert (await acme.api.post(f"{path}/check", token=token)).json["problems"][0]["code"] != "missing_client_secret"
        changed = await acme.api.patch(path, {"oidc": {**OIDC, "issuer": thief.url}}, token=token)
        assert (changed.status, changed.json["client_secret_set_at"], changed.json["missing"]) == (200, None, ["client_secret"])
        for issuer in (thief.url, honest.url):  # nor when it is the earlier address again
            await acme.api.patch(path, {"oidc": {**OIDC, "issuer": issuer}}, token=token)
            assert (await acme.api.post(f"{path}/check", token=token)).json["problems"][0]["code"] == "missing_client_secret"
            assert (await acme.api.post(f"{path}/activate", {}, token=acme.token("owner"))).status == 400
        assert thief.received == []
        for sent, status in (({}, 409), ({"issuer": None}, 409), ({"issuer": thief.url}, 409), ({"issuer": honest.url}, 204)):
            stored = await acme.api.call("PUT", f"{path}/client-secret", {"client_secret": SECRET, **sent}, token=acme.token("owner"))
            assert stored.status == status, "others have changed the issuer since the owner looked"
        assert "missing_client_secret" not in (await acme.api.post(f"{path}/check", token=token)).text
        assert honest.counted["/token"] == 2
    assert await run_sql(
        acme.pool, "select details->'changes'->'client_secret' from audit_log where details->'changes' ? 'client_secret'"
    ) == [({"old": "set", "new": None},)]


async def test_each_other_spelling_of_the_issuer_drops_the_secret_over_the_api_and_on_the_page(acme: Tenant, app: QuartTrio) -> None:
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    kept = list[tuple[str, str]]()
    for issuer in ISSUERS:
        for way in ("api", "page"):
            token = await add_draft(acme, OIDC["issuer"])
            if way == "api":
                await acme.api.patch(f"{acme.path}/connections/okta", {"oidc": {**OIDC, "issuer": issuer}}, token=token)
            else:
                saved = await browser.submit(PAGES, PAGES, **{**PAGE, "issuer": issuer})
                assert saved.status == 303, issuer
                shown = await browser.open(saved.headers["Location"])
                assert "The client secret of the earlier issuer was removed" in shown.text
                assert "removes the client secret" in (keys := (await browser.open(f"{PAGES}/keys")).text) or issuer in keys
            rows = await run_sql(acme.pool, "select client_secret, client_secret_set_at from connections where slug = 'okta'")
            kept += [(way, issuer)] if rows != [(None, None)] else []
            await run_sql(acme.pool, "delete from connections where slug = 'okta'")
    assert kept == []
    token = await add_draft(acme, OIDC["issuer"])
    assert (await acme.api.post(f"{acme.path}/connections/okta/keys", {}, token=token)).status == 201
    for kept_change in ({**OIDC, "client_id": "other"}, {**OIDC, "client_authentication": "client_secret_post"}, OIDC):
        changed = await acme.api.patch(f"{acme.path}/connections/okta", {"oidc": kept_change}, token=token)
        assert changed.json["client_secret_set_at"] is not None, "its address is the same"
    changed = await acme.api.patch(f"{acme.path}/connections/okta", {"oidc": {**OIDC, "issuer": "https://other.example"}}, token=token)
    assert (changed.json["client_secret_set_at"], len(changed.json["keys"])) == (None, 1), "a key only signs"


async def test_a_secret_is_stored_only_for_the_issuer_that_it_was_entered_for(acme: Tenant, app: QuartTrio) -> None:
    token = await add_draft(acme, OIDC["issuer"])
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    form = await browser.open(f"{PAGES}/keys")
    await acme.api.patch(f"{acme.path}/connections/okta", {"oidc": {**OIDC, "issuer": "https://thief.example"}}, token=token)
    refused = await browser.send(f"{PAGES}/keys/client-secret", **hidden_fields(form), client_secret=SECRET)
    assert (refused.status, "has changed since you read it" in refused.text, SECRET in refused.text) == (409, True, False)
    assert await run_sql(acme.pool, "select client_secret from connections where slug = 'okta'") == [(None,)]


async def test_changes_of_the_issuer_at_once_leave_no_secret_with_another_issuer(acme: Tenant) -> None:
    token = await add_draft(acme, OIDC["issuer"])
    path = f"{acme.path}/connections/okta"

    async def act(number: int) -> Answer:
        if number % 2:
            issuer = f"https://thief-{number}.example"
            return await acme.api.patch(path, {"oidc": {**OIDC, "issuer": issuer}}, token=token)
        sent = {"client_secret": SECRET, "issuer": OIDC["issuer"]}
        return await acme.api.call("PUT", f"{path}/client-secret", sent, token=acme.token("owner"))

    await run_concurrently(10, act)
    [(issuer, secret)] = await run_sql(acme.pool, "select settings->>'issuer', client_secret from connections where slug = 'okta'")
    assert (issuer != OIDC["issuer"], secret) == (True, None)


async def test_a_reader_of_a_setup_link_enters_the_secret_for_each_issuer(app: QuartTrio, acme: Tenant, ports: Ports) -> None:
    reach_loopback(app, ports)
    link, reader = await embedded(acme), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="oidc")
    with OpenIdIssuers(now=lambda: NOW.timestamp()) as server:
        thief, honest = server.add("thief"), server.add("honest")
        values = {"client_id": CLIENT_ID, "client_secret": SECRET, "issuer": honest.url}
        assert (await reader.submit(f"{STEPS}/connection/values", STEPS, **values)).status in (200, 303)
        asked = honest.counted["/token"]
        refused = await reader.submit(f"{STEPS}/connection/values", STEPS, **{**values, "client_secret": "", "issuer": thief.url})
        assert (refused.status, "Enter the client secret that it created" in refused.text) == (400, True)
        assert thief.received == []
        same = await reader.submit(f"{STEPS}/connection/values", STEPS, **{**values, "client_secret": "", "client_id": CLIENT_ID})
        assert (same.status in (200, 303), honest.counted["/token"]) == (True, asked + 1)
        replaced = await reader.submit(f"{STEPS}/connection/values", STEPS, **{**values, "client_secret": "of thief", "issuer": thief.url})
        assert replaced.status in (200, 303)
        assert SECRET not in "".join(str(request) for request in thief.received)
        siem = {"provider": "http", "endpoint_url": "https://siem.example.com/in"}
        assert (await reader.submit(f"{STEPS}/siem", STEPS, **siem, token="x" * 20)).status == 303
        assert (await reader.submit(f"{STEPS}/siem", STEPS, **siem, token="")).status == 400


@pytest.mark.parametrize(
    ("path", "page", "stored", "changes", "secret"),
    [
        (
            "smtp",
            "mail-server",
            {"host": "mail.acme.example", "port": 587, "username": "acme", "from_email": "a@acme.example", "tls": True},
            [{"host": "thief.example"}, {"port": 2525}, {"tls": False}, {"host": "mail.acme.example."}],
            "password",
        ),
        (
            "siem",
            "siem",
            {"provider": "http", "endpoint_url": "https://siem.acme.example/in", "enabled": True},
            [{"endpoint_url": "https://thief.example/in"}, {"endpoint_url": "https://siem.acme.example:8443/in"}, {"provider": "datadog"}],
            "token",
        ),
    ],
)
async def test_settings_that_are_replaced_as_a_whole_never_keep_a_secret(
    acme: Tenant, app: QuartTrio, path: str, page: str, stored: dict[str, Any], changes: list[dict[str, Any]], secret: str
) -> None:
    url, token = f"{acme.path}/{path}", acme.token("admin")
    assert (await acme.api.post(url, {**stored, secret: SECRET.replace(" ", "")}, token=token)).status == 200
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    table = {"smtp": "smtp_settings", "siem": "siem_configurations"}[path]
    before = await run_sql(acme.pool, f"select t::text from {table} t")  # noqa: S608  (a name of this test)
    for change in changes:
        changed = {**stored, **change}
        for sent in (changed, {**changed, secret: None}, {**changed, secret: ""}):
            assert (await acme.api.post(url, sent, token=token)).status == 400, sent
        typed = {name: ("yes" if value else "") if isinstance(value, bool) else str(value) for name, value in changed.items()}
        own = f"/app/organizations/acme/{page}"
        assert (await browser.submit(own, own, **{**typed, secret: ""})).status == 400
    assert await run_sql(acme.pool, f"select t::text from {table} t") == before  # noqa: S608  (a name of this test)

"""Set-up links: opening them in a browser, what they propose, and how admins apply it."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.callers import SetupPart
from entrypoints.http.edge.access.declaration import Credentials, access_of
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeTxtRecords
from tests.federation.connections.saml.saml_case import SSO_URL, connect
from tests.proof.access.calls import routes
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import Api, deliver, run_concurrently, run_sql
from tests.support.saml import identity_provider_metadata, new_certificate
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.test_group_role_pages import browser_of

RECIPIENT: Final = "it@globex.example"
DOMAIN: Final = "globex.example"
SUBSIDIARY: Final = "initech.example"
RETURN_URL: Final = "https://app.example.com/settings?tab=sso"
STEPS: Final = "/setup/steps"
SECRET: Final = "hushed-client-secret"
SIEM: Final = {"provider": "datadog", "endpoint_url": "https://siem.globex.example/logs", "token": SECRET}
# The tables that a link may write. Everything else in the database stays as it is until an admin applies a part.
OF_LINKS: Final = frozenset({"setup_links", "setup_proposals", "mails", "audit_log", "events", "audit_totals", "rates"})


async def create(acme: Tenant, by: str = "admin", **values: Any) -> dict[str, Any]:
    """Create a link. It renews a certificate, too, if `values` name a connection."""
    parts = [part.value for part in SetupPart if part is not SetupPart.CERTIFICATE or "connection" in values]
    body = {"name": "Globex", "kind": "mailed", "recipient": RECIPIENT, "parts": parts, **values}
    answer = await acme.api.post(f"{acme.path}/setup-links", body, token=acme.token(by))
    assert answer.status == 201, answer.text
    return dict(answer.json)


async def embedded(acme: Tenant, **values: Any) -> dict[str, Any]:
    return await create(acme, kind="embedded", recipient=None, **values)


async def look(acme: Tenant, link: dict[str, Any]) -> dict[str, Any]:
    return dict((await acme.api.get(f"{acme.path}/setup-links/{link['id']}", token=acme.token("admin"))).json)


def path_of(link: dict[str, Any]) -> str:
    return "/setup?" + str(link["url"]).partition("?")[2]


def token_of(link: dict[str, Any]) -> str:
    return str(link["url"]).partition("token=")[2]


async def code_of(ports: Ports, sent: FakeMailTransport) -> str:
    await deliver(ports)
    return next(code[1] for email in reversed(sent.emails) if (code := re.search(r"^(\d{6})$", email.text, re.MULTILINE)))


async def open_with_code(browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, link: dict[str, Any]) -> None:
    page = await browser.fill(await browser.open(path_of(link)), token=token_of(link))
    assert RECIPIENT in page.text
    code = await code_of(ports, sent)
    opened = await browser.fill(page, token=token_of(link), code=f" {code[:3]} {code[3:]} ")  # as people type it
    assert opened.headers["Location"] == STEPS


async def publish(dns: FakeTxtRecords, page: str) -> None:
    shown = re.findall(r"<code>(_gatehouse-[^<]+|gatehouse-verification=[^<]+)</code>", page)
    dns.published |= {name: [value] for name, value in zip(shown[::2], shown[1::2], strict=True)}


async def prepare_all(browser: FakeBrowser, dns: FakeTxtRecords) -> str:
    """Prepare every part, and return the proposed SCIM token."""
    values = {"issuer": "https://192.0.2.1/globex", "client_id": "gatehouse", "client_secret": SECRET}
    assert (await browser.submit(f"{STEPS}/connection/values", STEPS, **values)).status == 400, "no product is chosen"
    assert (await browser.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="oidc")).status == 303
    assert "In the Admin Console, open Applications" in (await browser.open(STEPS)).text
    wrong = await browser.submit(f"{STEPS}/connection/values", STEPS, **{**values, "issuer": "okta"})
    assert (wrong.status, "The issuer is not valid" in wrong.text, SECRET in wrong.text) == (400, True, False)
    assert "Your values are saved." in (await browser.submit(f"{STEPS}/connection/values", STEPS, **values)).text, "with a problem"
    await browser.submit(f"{STEPS}/domain", STEPS, domain=f"https://{DOMAIN}/")
    for domain in (SUBSIDIARY, "mistyped.example"):
        await browser.submit(f"{STEPS}/domain", STEPS, domain=domain)
    unproved = await browser.submit(f"{STEPS}/domain/check", STEPS, proposed_domain=DOMAIN)
    assert (unproved.status, "There is no TXT record" in unproved.text, "domain-error" in unproved.text) == (400, True, False)
    refused = await browser.submit(f"{STEPS}/domain", STEPS, domain="no domain")
    assert (refused.status, "domain-error" in refused.text, 'value="no domain"' in refused.text) == (400, True, True)
    await publish(dns, (await browser.open(STEPS)).text)
    for domain in (DOMAIN, SUBSIDIARY):
        assert (await browser.submit(f"{STEPS}/domain/check", STEPS, proposed_domain=domain)).status == 303
    assert (await browser.submit(f"{STEPS}/domain/remove", STEPS, proposed_domain="mistyped.example")).status == 303
    assert (await browser.submit(f"{STEPS}/domain/remove", STEPS, proposed_domain="mistyped.example")).status == 400
    for url, problem in (("siem.globex.example", "not allowed"), ("http://siem.globex.example/logs", "without encryption")):
        wrong = await browser.submit(f"{STEPS}/siem", STEPS, **{**SIEM, "endpoint_url": url})
        assert (wrong.status, problem in wrong.text, SECRET in wrong.text) == (400, True, False)
    assert (await browser.submit(f"{STEPS}/siem", STEPS, **SIEM)).status == 303
    shown = await browser.submit(f"{STEPS}/directory", STEPS)
    return str(re.findall(r"scim_live_[a-z2-7]{6}_[A-Za-z0-9_-]{43}", shown.text)[0])


async def everything(pool: Pool) -> dict[str, Any]:
    """Return the rows in all tables but the links'."""
    tables = [name for (name,) in await run_sql(pool, "select tablename from pg_tables where schemaname = 'public'")]
    return {
        name: sorted(row for (row,) in await run_sql(pool, f"select t::text from {name} t"))  # noqa: S608  (a name of the catalog)
        for name in tables
        if name not in OF_LINKS
    }


async def test_what_a_reader_prepares_has_no_effect_until_an_admin_applies_it(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport, dns: FakeTxtRecords
) -> None:
    await connect(ports, acme.org, "present")
    new = (await new_certificate(ports.clock.now())).certificate
    link, reader = await create(acme, connection="present"), FakeBrowser(app)
    await deliver(ports)
    assert (str(sent.emails[-1].to), link["url"] in sent.emails[-1].text) == (RECIPIENT, True)
    before = await everything(pool)
    await open_with_code(reader, ports, sent, link)
    token = await prepare_all(reader, dns)
    assert token not in (await reader.open(STEPS)).text
    assert (await reader.submit(f"{STEPS}/certificate", STEPS, new_certificate="none")).status == 400
    assert (await reader.submit(f"{STEPS}/certificate", STEPS, new_certificate=new)).status == 303
    shown = (await reader.open(STEPS)).text
    assert ("Present</bdi>, SAML" in shown, SSO_URL in shown, SECRET in shown) == (True, False, False)

    # Every way to use a token: the supported features and nothing else.
    answers = {}
    for route, view in routes(app):
        method, path = route.split()
        if access_of(view).credentials is Credentials.SCIM_TOKEN:
            called = re.sub("<[a-z_]+>", acme.id("member"), path)
            answers[route] = (await api.call(method, called, {} if method in ("POST", "PUT", "PATCH") else None, token=token)).status
    assert {route for route, status in answers.items() if status != 401} == {"GET /scim/v2/ServiceProviderConfig"}
    assert (await everything(pool)) == before, "a link writes nothing that anything else reads"

    details = await look(acme, link)
    assert [(each["part"], each["is_ready"], each["applied_at"]) for each in details["proposals"]] == [
        ("certificate", True, None),
        ("connection", True, None),
        ("directory", True, None),
        ("domain", True, None),
        ("siem", True, None),
    ]
    assert details["proposals"][2]["first_request"].endswith(" /scim/v2/Users")
    assert (details["state"], details["opened_address"] is not None) == ("open", True)

    redirect_uri = re.findall(r"<code>([^<]+/callback)</code>", (await reader.open(STEPS)).text)[0]
    for part in SetupPart:
        applied = await api.post(f"{acme.path}/setup-links/{link['id']}/parts/{part}/apply", token=acme.token("admin"))
        assert applied.status == 200, applied.text
        assert SECRET not in applied.text
        assert (await api.post(f"{acme.path}/setup-links/{link['id']}/parts/{part}/apply", token=acme.token("admin"))).status == 409
    domains = (await api.get(f"{acme.path}/domains", token=acme.token("admin"))).json["domains"]
    assert [(each["domain"], each["verified"]) for each in domains] == [(DOMAIN, True), (SUBSIDIARY, True)]
    assert (await api.get("/scim/v2/Users", token=token)).status == 200
    siem = (await api.get(f"{acme.path}/siem", token=acme.token("admin"))).json
    assert (siem["provider"], siem["endpoint_url"], siem["enabled"]) == ("datadog", SIEM["endpoint_url"], True)
    trusted = (await api.get(f"{acme.path}/connections/present", token=acme.token("admin"))).json["certificates"]
    assert (len(trusted), details["proposals"][0]["fingerprints"][0] in {each["fingerprint"] for each in trusted}) == (2, True)
    [connection, _] = (await api.get(f"{acme.path}/connections", token=acme.token("admin"))).json["connections"]
    assert (connection["state"], connection["name"], connection["id"] in redirect_uri) == ("draft", "Globex", True)
    async with ports.storage.reading() as read:
        assert await read.connections.client_secret(acme.org, UUID(connection["id"]), "https://192.0.2.1/globex") == SECRET
    assert (await reader.submit(f"{STEPS}/directory", STEPS)).status == 400, "an applied part is fixed"

    actors = await run_sql(pool, "select distinct actor_kind, actor_name from audit_log where action like 'setup_link.part.changed'")
    assert actors == [("setup_link", "Globex")]


async def test_opening_the_page_changes_nothing_and_one_of_twenty_browsers_opens_the_link(app: QuartTrio, acme: Tenant, pool: Pool) -> None:
    link = await embedded(acme)
    stored = await run_sql(pool, "select * from setup_links")
    browsers = [FakeBrowser(app) for _ in range(20)]
    pages = [await browser.open(path_of(link)) for browser in browsers]
    assert await run_sql(pool, "select * from setup_links") == stored
    await run_sql(pool, "delete from rates")
    answers = await run_concurrently(20, lambda number: browsers[number].fill(pages[number], token=token_of(link)))
    winners = [number for number, answer in enumerate(answers) if answer.status == 303]
    assert len(winners) == 1
    assert {answer.status for answer in answers} <= {303, 400, 429}
    assert (await browsers[winners[0]].open(STEPS)).status == 200
    loser = browsers[(winners[0] + 1) % 20]
    assert (await loser.open(STEPS)).status == 401
    assert (await loser.open(path_of(link))).status == 400


async def test_five_codes_can_be_tried_also_by_twenty_requests_at_once(
    app: QuartTrio, acme: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    link, browser = await create(acme), FakeBrowser(app)
    page = await browser.fill(await browser.open(path_of(link)), token=token_of(link))
    wrong = "000000" if await code_of(ports, sent) != "000000" else "111111"
    await run_concurrently(20, lambda _: browser.fill(page, token=token_of(link), code=wrong))
    assert await run_sql(pool, "select attempts, ended_by, browser_hash from setup_links") == [(5, "codes", None)]
    assert (await look(acme, link))["ended_by"] == "codes"
    await run_sql(pool, "delete from rates")
    assert (await browser.open(path_of(link))).status == 400


async def test_five_codes_of_a_link_and_five_links_to_an_address_are_sent_and_further_ones_are_refused(
    app: QuartTrio, acme: Tenant, other_tenant: Tenant, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    link, browser = await create(acme), FakeBrowser(app)
    for status in (*[200] * 5, 400):
        await run_sql(pool, "delete from rates")
        assert (await browser.fill(await browser.open(path_of(link)), token=token_of(link))).status == status
    for _ in range(4):
        await create(acme)
    await deliver(ports)
    assert [str(email.to) for email in sent.emails] == [RECIPIENT] * 10, "no email that was promised is dropped"
    stored = await run_sql(pool, "select count(*) from setup_links")
    body = {"name": "Globex", "kind": "mailed", "recipient": RECIPIENT, "parts": ["domain"]}
    refused = await acme.api.post(f"{acme.path}/setup-links", body, token=acme.token("admin"))
    assert (refused.status, refused.headers["Retry-After"]) == (429, "3600")
    assert await run_sql(pool, "select count(*) from setup_links") == stored
    assert (await create(other_tenant))["recipient"] == RECIPIENT, "the limit of another organization"


Ending = Callable[[Tenant, dict[str, Any], FakeClock], Any]


async def _end(acme: Tenant, link: dict[str, Any], _: FakeClock) -> None:
    assert (await acme.api.delete(f"{acme.path}/setup-links/{link['id']}", token=acme.token("admin"))).status == 204


async def _suspend(acme: Tenant, _: dict[str, Any], __: FakeClock) -> None:
    await run_sql(acme.pool, "update organizations set status = 'suspended'")


async def _expire(acme: Tenant, _: dict[str, Any], clock: FakeClock) -> None:
    # The admins' sessions would end with the clock.
    await run_sql(acme.pool, "update setup_links set expires_at = %s", clock.now())


@pytest.mark.parametrize("end", [_end, _suspend, _expire])
async def test_a_link_that_ended_is_refused_from_the_next_request_on(
    end: Ending, app: QuartTrio, acme: Tenant, api: Api, pool: Pool, clock: FakeClock, dns: FakeTxtRecords
) -> None:
    link, reader = await embedded(acme), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    token, page = await prepare_all(reader, dns), await reader.open(STEPS)
    await end(acme, link, clock)
    refused, reopened = await reader.open(STEPS), await reader.open(path_of(link))
    assert (refused.status, reopened.status) == (401, 400)
    assert ["expired" in each.text for each in (refused, reopened)] == [end is _expire] * 2
    assert (await reader.fill(page, domain="other.example")).status == 401
    if end is _expire:  # its proposals wait for an admin, who can delete them
        assert (await api.get("/scim/v2/ServiceProviderConfig", token=token)).status == 200
        assert (await api.post(f"{acme.path}/setup-links/{link['id']}/parts/domain/apply", token=acme.token("admin"))).status == 200
        await _end(acme, link, clock)
    assert (await api.get("/scim/v2/ServiceProviderConfig", token=token)).status == 401
    if end is not _suspend:
        refused = await api.post(f"{acme.path}/setup-links/{link['id']}/parts/directory/apply", token=acme.token("admin"))
        assert refused.status == 409
    assert f'href="{STEPS}"' not in (await reader.open(path_of(link))).text, "no button leads to a page that is refused"


async def test_an_embedded_link_opens_within_five_minutes(app: QuartTrio, acme: Tenant, clock: FakeClock) -> None:
    link, browser = await embedded(acme), FakeBrowser(app)
    page = await browser.open(path_of(link))
    clock.advance(timedelta(minutes=5))
    expired = await browser.fill(page, token=token_of(link))
    assert (expired.status, "has expired" in expired.text) == (400, True)
    assert (await look(acme, link))["state"] == "expired"


async def test_applying_needs_the_rights_of_the_admin(app: QuartTrio, acme: Tenant, api: Api, pool: Pool, dns: FakeTxtRecords) -> None:
    """A member who manages integrations makes links. They can neither give a directory admin rights, nor read the audit log."""
    role = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
    assert (await api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "integrator")).status == 200
    link, reader = await create(acme, by="member", kind="embedded", recipient=None), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await prepare_all(reader, dns)
    for part, status in (("domain", 200), ("directory", 403), ("siem", 403)):
        applied = await api.post(f"{acme.path}/setup-links/{link['id']}/parts/{part}/apply", token=acme.token("member"))
        assert applied.status == status, part


async def test_a_record_that_is_gone_is_not_applied(app: QuartTrio, acme: Tenant, api: Api, pool: Pool, dns: FakeTxtRecords) -> None:
    await add_service(pool, acme.org, "app")
    link, reader = await embedded(acme, return_url=RETURN_URL), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await prepare_all(reader, dns)
    dns.published.clear()
    assert (await api.post(f"{acme.path}/setup-links/{link['id']}/parts/domain/apply", token=acme.token("admin"))).status == 400
    finished = await reader.submit(f"{STEPS}/finish", STEPS)
    assert (finished.status, f'href="{RETURN_URL}"' in finished.text) == (200, True)
    assert (await reader.open(STEPS)).status == 401
    assert (await look(acme, link))["state"] == "finished"


async def test_the_return_url_is_shown_only_while_an_application_is_at_its_origin(app: QuartTrio, acme: Tenant, pool: Pool) -> None:
    await add_service(pool, acme.org, "app")
    link, reader = await embedded(acme, return_url=RETURN_URL), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await run_sql(pool, "update services set redirect_uris = '{}', launch_url = null")
    finished = await reader.submit(f"{STEPS}/finish", STEPS)
    assert (finished.status, RETURN_URL in finished.text, "You can close this page" in finished.text) == (200, False, True)


@pytest.mark.parametrize(
    "values",
    [
        {"recipient": None},
        {"kind": "embedded"},
        {"parts": ["domain", "domain"]},
        {"parts": ["members"]},
        {"days": 15},
        {"return_url": "https://app.example.com.evil.example/settings"},
        {"return_url": "javascript:alert(1)"},
        {"parts": ["certificate"]},
    ],
)
async def test_a_wrong_link_is_refused(values: dict[str, Any], acme: Tenant, api: Api) -> None:
    body = {"name": "Globex", "kind": "mailed", "recipient": RECIPIENT, "parts": ["domain"], **values}
    assert (await api.post(f"{acme.path}/setup-links", body, token=acme.token("admin"))).status == 400


async def test_twenty_links_can_be_open(acme: Tenant, api: Api) -> None:
    answers = await run_concurrently(25, lambda _: api.post(f"{acme.path}/setup-links", EMBEDDED, token=acme.token("admin")))
    assert sorted(answer.status for answer in answers) == [201] * 20 + [400] * 5


EMBEDDED: Final = {"name": "Globex", "kind": "embedded", "parts": ["domain"]}


async def test_a_connection_with_saml_takes_its_values_from_metadata(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, clock: FakeClock
) -> None:
    link, reader = await embedded(acme), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    refused = await reader.submit(f"{STEPS}/connection/metadata", STEPS, metadata="<nonsense/>", metadata_url="")
    assert refused.status == 400
    certificates = [(await new_certificate(clock.now(), name)).certificate for name in ("acme", "globex")]
    slo = 'https://idp.example.com/slo" ResponseLocation="https://idp.example.com/done'
    metadata = identity_provider_metadata("http://www.okta.com/exk1", slo=slo, certificates=[*certificates, certificates[0]])
    assert (await reader.submit(f"{STEPS}/connection/metadata", STEPS, metadata=metadata, metadata_url="")).status == 303
    assert "http://www.okta.com/exk1" in (await reader.open(STEPS)).text
    applied = await api.post(f"{acme.path}/setup-links/{link['id']}/parts/connection/apply", token=acme.token("admin"))
    assert applied.status == 200, applied.text
    [connection] = (await api.get(f"{acme.path}/connections", token=acme.token("admin"))).json["connections"]
    details = (await api.get(f"{acme.path}/connections/{connection['slug']}", token=acme.token("admin"))).json
    assert (details["saml"]["entity_id"], len(details["certificates"]), details["missing"]) == ("http://www.okta.com/exk1", 2, [])
    assert details["saml"]["slo_response_url"] == "https://idp.example.com/done"


async def test_a_proposal_that_changed_after_an_admin_looked_at_it_is_not_applied(
    app: QuartTrio, acme: Tenant, api: Api, clock: FakeClock, dns: FakeTxtRecords
) -> None:
    """The reader replaces the SIEM while the admin looks at it."""
    link, reader, admin = await embedded(acme), FakeBrowser(app), await browser_of(app, acme, "admin")
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await prepare_all(reader, dns)
    page = f"/app/organizations/acme/setup-links/{link['id']}"
    shown, [siem] = await admin.open(page), [each for each in (await look(acme, link))["proposals"] if each["part"] == "siem"]
    of_siem = shown.text.partition("/parts/siem/apply")[2]
    form = {"form_token": form_token(shown), "changed_at": re.findall(r'name="changed_at" value="([^"]+)"', of_siem)[0]}
    clock.advance(timedelta(seconds=1))
    await reader.submit(f"{STEPS}/siem", STEPS, **{**SIEM, "endpoint_url": "https://attacker.example/"})
    path = f"{acme.path}/setup-links/{link['id']}/parts/siem/apply"
    refused = await api.post(path, {"changed_at": siem["changed_at"]}, token=acme.token("admin"))
    assert (refused.status, "has changed this part after you looked at it" in refused.json["error"]) == (409, True)
    refused = await admin.send(f"{page}/parts/siem/apply", **form)
    assert (refused.status, "https://attacker.example/" in refused.text) == (409, True)
    assert (await api.get(f"{acme.path}/siem", token=acme.token("admin"))).status == 404


async def test_a_proposal_that_changes_while_it_is_applied_is_not_applied(
    app: QuartTrio, acme: Tenant, api: Api, pool: Pool, clock: FakeClock, dns: FakeTxtRecords
) -> None:
    """The reader removes a domain while its record is looked up again."""
    link, reader = await embedded(acme), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    await prepare_all(reader, dns)
    dns.lookup_started, dns.gate, answers = trio.Event(), trio.Event(), []

    async def apply() -> None:
        answers.append(await api.post(f"{acme.path}/setup-links/{link['id']}/parts/domain/apply", token=acme.token("admin")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(apply)
        await dns.lookup_started.wait()
        clock.advance(timedelta(seconds=1))
        assert (await reader.submit(f"{STEPS}/domain/remove", STEPS, proposed_domain=SUBSIDIARY)).status == 303
        dns.gate.set()
    assert [(each.status, "has changed this part" in each.json["error"]) for each in answers] == [(409, True)]
    assert await run_sql(pool, "select 1 from domains") == []

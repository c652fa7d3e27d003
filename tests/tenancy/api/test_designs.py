"""How emails, and the pages behind their links, are designed.

It is the named organization's design while it is active (decision 66; security B-2, B-3, E-1, E-2).
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from ports import Ports
from ports.outside import EmailMessage
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, Api, add_account, deliver, link, mail_server, run_sql
from tests.support.direct import ask
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.organizations import NOT_ACTIVE

LOGO = "https://cdn.acme.example/logo.svg"
DESIGN = {"logo_url": LOGO, "primary_color": "#7a1fa2", "product_name": "Acme Portal"}
BODIES: dict[str, dict[str, str]] = {"register": {"email": EMAIL, "password": PASSWORD}, "forgot-password": {"email": EMAIL}}
UNKNOWN = ["", " ", "nothing-there", "ACME", "acme ", "acme%", "%", "x" * 2048, "' or 1=1 --", "00000000-0000-0000-0000-000000000000"]
SendEmail = Callable[[Any], Awaitable[EmailMessage]]


@pytest.fixture
async def acme(tenants: Tenants) -> Tenant:
    acme = await tenants.add("acme")
    answer = await acme.api.patch(f"{acme.path}/branding", DESIGN, token=acme.token("owner"))
    assert answer.status == 200
    return acme


@pytest.fixture(params=["register", "forgot-password"])
def request_mail(request: pytest.FixtureRequest, api: Api, ports: Ports, sent: FakeMailTransport) -> SendEmail:
    """Return a function that requests an email for the organization with a slug, if any."""

    async def act(slug: Any = None) -> EmailMessage:
        if request.param == "forgot-password":
            await add_account(ports)
        body = BODIES[request.param] | ({} if slug is None else {"org_slug": slug})
        assert (await api.post(f"/api/auth/{request.param}", body)).status == 200
        await deliver(ports)
        [letter] = sent.emails
        return letter

    return act


def without_token(letter: EmailMessage) -> EmailMessage:
    """Return the email without its id and token."""
    token = link(letter)
    return replace(letter, message_id="", text=letter.text.replace(token, ""), html=letter.html.replace(token, ""))


def is_designed(page: Answer) -> bool:
    """Return whether the page has the organization's design.

    Checks that it has the whole design or nothing.
    """
    parts = {
        "name": " · Acme Portal</title>" in page.text and "<bdi>Acme Portal</bdi></span></header>" in page.text,
        "logo": f'src="{LOGO}"' in page.text,
        "color": "--button: #7a1fa2;" in page.text,
        "policy": "img-src 'self' data: https://cdn.acme.example;" in page.headers["Content-Security-Policy"],
    }
    assert len({*parts.values()}) == 1, parts
    assert ("Acme Portal" in page.text) == parts["name"]
    assert parts["name"] or " · Gatehouse</title>" in page.text
    return parts["name"]


async def submit(app: QuartTrio, path: str, **fields: str) -> Answer:
    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"accept", b"text/html")]
    return await ask(app, "POST", path, headers=headers, body=urlencode(fields).encode())


# Emails


async def test_an_email_has_the_design_of_the_named_organization(acme: Tenant, request_mail: SendEmail) -> None:
    letter = await request_mail("acme")
    assert letter.subject.endswith(" - Acme Portal")
    assert f'src="{LOGO}"' in letter.html
    assert 'class="button" style="background:#7a1fa2;' in letter.html
    assert "for Acme Portal." in letter.text
    # The links always point to the platform.
    assert {*re.findall(r'href="([^"?]*)', letter.html)} == {*re.findall(r"https?://[^\s?]+", letter.text)}
    assert f"{BASE_URL}/auth/" in letter.text


async def test_account_emails_never_use_the_mail_server_of_the_named_organization(
    acme: Tenant, request_mail: SendEmail, ports: Ports, sent: FakeMailTransport
) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.smtp.put(mail_server(acme.org), ports.clock.now())
    letter = await request_mail("acme")
    assert sent.servers == {letter.message_id: None}


@pytest.mark.parametrize("slug", UNKNOWN)
async def test_an_unknown_organization_is_ignored_silently(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, slug: str
) -> None:
    await add_account(ports)
    answers = [await api.post("/api/auth/forgot-password", body) for body in ({"email": EMAIL}, {"email": EMAIL, "org_slug": slug})]
    assert [(answer.status, answer.json) for answer in answers] == [(200, answers[0].json)] * 2
    await deliver(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    assert len({without_token(letter) for letter in sent.emails}) == 1
    assert await run_sql(acme.pool, "select distinct org_id from mails") == [(None,)]


@pytest.mark.parametrize("status", NOT_ACTIVE)
async def test_an_inactive_organization_is_ignored_silently(acme: Tenant, request_mail: SendEmail, status: str) -> None:
    await acme.set_status(status)
    letter = await request_mail("acme")
    assert letter.subject.endswith(" - Gatehouse")
    assert "Acme" not in letter.html + letter.text
    assert await run_sql(acme.pool, "select org_id from one_time_tokens") == [(None,)]


async def test_an_organization_without_branding_adds_its_name(tenants: Tenants, request_mail: SendEmail) -> None:
    await tenants.add("twin")
    letter = await request_mail("twin")
    assert letter.subject.endswith(" - Twin")
    assert "<img" not in letter.html
    assert 'class="button" style="background:#0b5d66;' in letter.html


@pytest.mark.parametrize("end", ["update organizations set status = 'suspended'", "delete from organizations"])
async def test_an_organization_that_ends_before_delivery_is_not_in_the_email(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, end: str
) -> None:
    await add_account(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL, "org_slug": "acme"})
    await run_sql(acme.pool, end)
    await deliver(ports)
    [letter] = sent.emails
    assert "Acme" not in letter.subject + letter.html + letter.text
    assert not is_designed(await api.get(f"/auth/reset-password?token={link(letter)}"))


async def test_the_response_and_the_queue_do_not_reveal_whether_an_account_exists(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports)
    await add_account(ports, "gone@example.com", deactivated_at=ports.clock.now())
    emails = (EMAIL, "unknown@example.com", "gone@example.com")
    answers = [await api.post("/api/auth/forgot-password", {"email": email, "org_slug": "acme"}) for email in emails]
    assert len({(answer.status, answer.text) for answer in answers}) == 1
    assert sorted(await run_sql(acme.pool, "select address, org_id from mails")) == sorted((email, acme.org) for email in emails)


async def test_naming_an_organization_neither_adds_a_member_nor_sets_the_origin(acme: Tenant, api: Api, ports: Ports) -> None:
    before = await acme.members()
    assert (await api.post("/api/auth/register", {**BODIES["register"], "org_slug": "acme"})).status == 200
    await deliver(ports)
    assert await acme.members() == before
    assert await run_sql(acme.pool, "select origin, origin_org_id from users where email = %s", EMAIL) == [("platform", None)]
    assert [entry["action"] for entry in await acme.log()] == ["branding.updated"]


async def test_a_second_verification_email_has_the_design_of_the_platform(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    await api.post("/api/auth/register", {**BODIES["register"], "org_slug": "acme"})
    await api.post("/api/auth/resend-verification", {"email": EMAIL, "org_slug": "acme"})
    await deliver(ports)
    assert sorted(letter.subject.rpartition(" - ")[2] for letter in sent.emails) == ["Acme Portal", "Gatehouse"]


async def test_a_slug_that_is_not_a_valid_text_is_refused(acme: Tenant, api: Api) -> None:
    slugs: list[Any] = [5, True, ["acme"], {}, "a\x00", "x" * 2049]
    for slug in slugs:
        for path, body in BODIES.items():
            answer = await api.post(f"/api/auth/{path}", {**body, "org_slug": slug})
            assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (path, slug)


# Pages behind the links


async def test_the_page_of_a_verification_link_has_the_design(acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await api.post("/api/auth/register", {**BODIES["register"], "org_slug": "acme"})
    await deliver(ports)
    page = await api.get(f"/auth/verify-email?token={link(sent.emails[0])}")
    assert page.status == 200
    assert is_designed(page)


async def test_the_page_has_the_design_even_if_the_database_fails_after_the_commit(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport, outage_after_commit: Callable[[], None]
) -> None:
    await api.post("/api/auth/register", {**BODIES["register"], "org_slug": "acme"})
    await deliver(ports)
    outage_after_commit()
    page = await api.get(f"/auth/verify-email?token={link(sent.emails[0])}")
    assert (page.status, is_designed(page)) == (200, True)


@pytest.fixture
async def reset_token(acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport) -> str:
    """The token for a password reset that was requested for the organization."""
    await add_account(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL, "org_slug": "acme"})
    await deliver(ports)
    return link(sent.emails[0])


async def test_every_page_of_a_password_reset_has_the_design(app: QuartTrio, api: Api, reset_token: str) -> None:
    form = await api.get(f"/auth/reset-password?token={reset_token}")
    assert (form.status, is_designed(form)) == (200, True)
    form_again = await submit(app, "/auth/reset-password", token=reset_token, new_password="short")
    assert (form_again.status, is_designed(form_again)) == (400, True)
    result = await submit(app, "/auth/reset-password", token=reset_token, new_password="another good password")
    assert (result.status, is_designed(result)) == (200, True)
    used_link = await submit(app, "/auth/reset-password", token=reset_token, new_password="another good password")
    assert (used_link.status, is_designed(used_link)) == (400, False)


async def test_pages_have_the_current_branding(acme: Tenant, api: Api, reset_token: str) -> None:
    await acme.api.patch(f"{acme.path}/branding", dict.fromkeys(DESIGN), token=acme.token("owner"))
    page = await api.get(f"/auth/reset-password?token={reset_token}")
    assert "<bdi>Acme</bdi></span></header>" in page.text
    assert "img-src 'self' data:;" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize("end", ["update organizations set status = 'suspended'", "delete from organizations"])
async def test_pages_have_the_design_of_the_platform_after_the_organization_ends(
    app: QuartTrio, acme: Tenant, api: Api, reset_token: str, end: str
) -> None:
    await run_sql(acme.pool, end)
    form = await api.get(f"/auth/reset-password?token={reset_token}")
    assert (form.status, is_designed(form)) == (200, False)
    result = await submit(app, "/auth/reset-password", token=reset_token, new_password="another good password")
    assert (result.status, is_designed(result)) == (200, False)


async def test_a_link_without_an_organization_has_the_design_of_the_platform(
    acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    await add_account(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    assert not is_designed(await api.get(f"/auth/reset-password?token={link(sent.emails[0])}"))


async def test_a_token_of_another_purpose_does_not_reveal_the_organization(acme: Tenant, api: Api, reset_token: str) -> None:
    for path in ("/auth/verify-email", "/app/invitations/accept"):
        page = await api.get(f"{path}?token={reset_token}", headers={"Accept": "text/html"})
        assert (page.status, is_designed(page)) == (400, False)


# Invitations


async def test_invitation_emails_and_pages_have_the_design_of_the_organization(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    for email, answer in ((EMAIL, "accept"), ("bob@example.com", "decline")):
        token = (await acme.invite(email))["token"]
        await deliver(ports)
        assert sent.emails[-1].subject == "You are invited to Acme - Acme Portal"
        assert f'src="{LOGO}"' in sent.emails[-1].html
        page = await api.get(f"/app/invitations/accept?token={token}", headers={"Accept": "text/html"})
        assert (page.status, is_designed(page)) == (200, True)
        result = await submit(app, f"/app/invitations/{answer}", token=token)
        assert (result.status, is_designed(result)) == (200, True)


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_the_answer_page_has_the_design_even_if_the_database_fails_after_the_commit(
    app: QuartTrio, acme: Tenant, outage_after_commit: Callable[[], None], answer: str
) -> None:
    token = (await acme.invite())["token"]
    outage_after_commit()
    page = await submit(app, f"/app/invitations/{answer}", token=token)
    assert (page.status, is_designed(page)) == (200, True)


async def test_an_invitation_of_a_suspended_organization_has_the_design_of_the_platform(
    app: QuartTrio, acme: Tenant, api: Api, ports: Ports, sent: FakeMailTransport
) -> None:
    token = (await acme.invite())["token"]
    await acme.set_status("suspended")
    await deliver(ports)
    assert "Acme Portal" not in sent.emails[0].subject + sent.emails[0].html + sent.emails[0].text
    page = await api.get(f"/app/invitations/accept?token={token}", headers={"Accept": "text/html"})
    assert (page.status, is_designed(page)) == (403, False)
    declined = await submit(app, "/app/invitations/decline", token=token)
    assert (declined.status, is_designed(declined)) == (200, False)


async def test_branding_does_not_change_the_emails_and_pages_of_other_organizations(
    acme: Tenant, other_tenant: Tenant, api: Api, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    token = (await other_tenant.invite())["token"]
    await deliver(ports)
    assert sent.emails[0].subject == "You are invited to Twin - Gatehouse"
    page = await api.get(f"/app/invitations/accept?token={token}", headers={"Accept": "text/html"})
    assert not is_designed(page)
    assert "<bdi>Twin</bdi></span></header>" in page.text

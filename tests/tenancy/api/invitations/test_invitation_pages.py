"""An invitation's pages: the redirect, the page and its forms.

The rules come from decision 196 and security G-1, G-2, L-3, R-3, R-7.
"""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.callers import Member, OrganizationContext, OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Strength
from core.kernel.roles import OWNER, rights_of
from core.kernel.sign_in_age import LastSignIn
from core.kernel.values import Email, new_id
from core.tenancy import inviting
from core.tenancy.model.organizations import Membership
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, EMAIL, Answer, Api, add_account, add_organization, run_sql, sign_in
from tests.support.direct import ask

LINK, PAGE = "/invitations/accept", "/app/invitations/accept"
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM = (b"content-type", b"application/x-www-form-urlencoded")
WEEK = timedelta(days=7)
UNKNOWN = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"  # looks like a token


@pytest.fixture
async def owner(ports: Ports, pool: Pool) -> Member:
    """The inviter: an organization's owner. The organization's name has markup characters."""
    org = await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set name = 'Acme <b>& Sons' where id = %s", org)
    grace = await add_account(ports, "grace@example.com", None)
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(Membership(id=new_id(), org_id=org, user_id=grace.id, role=OWNER, created_at=now, confirmed_at=now))
    context = OrganizationContext(org, "acme", OrganizationStatus.ACTIVE, OWNER, rights_of(OWNER))
    session = await sign_in(ports, grace)
    facts = LastSignIn(now, is_proof=True, strength=Strength.ONE, required=Strength.ONE)
    return Member(user_id=grace.id, email=grace.email, email_verified=True, session_id=session.session_id, acts_in=context, sign_in=facts)


@pytest.fixture
async def token(ports: Ports, owner: Member) -> str:
    """The token for an invitation with the role admin."""
    return (await inviting.invite(ports, owner, Email(EMAIL), "admin"))[1]


async def status(pool: Pool) -> str:
    [(status,)] = await run_sql(pool, "select status from invitations")
    return str(status)


async def open_page(api: Api, token: str, path: str = PAGE) -> Answer:
    return await api.get(f"{path}?{urlencode({'token': token})}", headers=HTML)


async def submit(app: QuartTrio, answer: str, token: str, *headers: tuple[bytes, bytes]) -> Answer:
    sent = [FORM, (b"accept", HTML["Accept"].encode()), *headers]
    return await ask(app, "POST", f"/app/invitations/{answer}", headers=sent, body=urlencode({"token": token}).encode())


def is_error_page(answer: Answer, status: int = 400) -> bool:
    return answer.status == status and answer.headers["Content-Type"].startswith("text/html") and "<h1>" in answer.text


# The redirect

FRONTENDS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({}, f"{BASE_URL}/app/invitations/accept"),
    "one": ({"frontend_url": "https://app.example.com"}, "https://app.example.com/invitations/accept"),
    "one with a path": ({"frontend_url": "https://example.com/console"}, "https://example.com/console/invitations/accept"),
    "the service itself": ({"frontend_url": BASE_URL}, f"{BASE_URL}/app/invitations/accept"),
    "the service in other words": ({"frontend_url": "http://GATEHOUSE.test:80"}, f"{BASE_URL}/app/invitations/accept"),
    "below the service": ({"frontend_url": f"{BASE_URL}/console"}, f"{BASE_URL}/console/invitations/accept"),
    "beside the service": ({"frontend_url": "http://gatehouse.test:8080"}, "http://gatehouse.test:8080/invitations/accept"),
}


@pytest.mark.parametrize(("edge", "page"), FRONTENDS.values(), ids=FRONTENDS.keys(), indirect=["edge"])
async def test_the_link_redirects_to_the_frontend_or_to_our_own_page(api: Api, page: str) -> None:
    answer = await open_page(api, UNKNOWN, LINK)  # the redirect does not check the token
    assert answer.status == 301
    assert answer.headers["Location"] == f"{page}?token={UNKNOWN}"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.text == ""


@pytest.mark.parametrize("edge", [{"frontend_url": "https://app.example.com"}], indirect=True)
async def test_no_request_header_changes_the_redirect(app: QuartTrio) -> None:
    for header in (b"host", b"x-forwarded-host", b"forwarded"):
        answer = await ask(app, "GET", f"{LINK}?token={UNKNOWN}", headers=[(header, b"evil.example")])
        assert answer.headers["Location"].startswith("https://app.example.com/invitations/accept?token="), header


MALFORMED = [
    *("", "x", "0", "//evil.example", "ß", UNKNOWN.replace("-", ""), f"{UNKNOWN}x"),
    *(UNKNOWN.upper(), f"{UNKNOWN}&", f"{{{UNKNOWN}}}", f"{UNKNOWN}\r\nX: y"),
]


async def test_a_link_with_a_malformed_token_or_without_one_is_an_error_page(api: Api) -> None:
    for token in MALFORMED:
        answer = await api.get(f"{LINK}?token={quote(token)}", headers=HTML)
        assert is_error_page(answer), token
        assert "Location" not in answer.headers, token
        assert (await api.get(f"{LINK}?token={quote(token)}", headers={"Accept": "application/json"})).code == "BAD_REQUEST", token
    assert is_error_page(await api.get(LINK, headers=HTML))


# The page


async def test_the_page_shows_the_invitation_and_changes_nothing(api: Api, token: str, pool: Pool) -> None:
    for _ in range(2):
        answer = await open_page(api, token)
        assert answer.status == 200
        text = unescape(answer.text)
        for part in ("Acme <b>& Sons", "grace@example.com", EMAIL, "an administrator", "21 March 2026 at 15:09 UTC"):
            assert part in text
        assert "<b>" not in answer.text
        assert "<script" not in answer.text
    assert await status(pool) == "pending"
    assert await run_sql(pool, "select count(*) from users") == [(1,)]


async def test_the_page_is_not_cached_and_sets_no_cookie(api: Api, token: str) -> None:
    answer = await open_page(api, token)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "form-action" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "Set-Cookie" not in answer.headers


async def test_a_deleted_inviter_is_not_named(api: Api, token: str, pool: Pool) -> None:
    await run_sql(pool, "delete from memberships")
    await run_sql(pool, "delete from users")
    answer = await open_page(api, token)
    assert answer.status == 200
    assert "You've been invited" in answer.text


@pytest.mark.parametrize("end", ["accepted", "rejected", "cancelled"])
async def test_an_answered_invitation_is_an_error_page(api: Api, app: QuartTrio, token: str, pool: Pool, end: str) -> None:
    await run_sql(pool, "update invitations set status = %s, ended_at = now()", end)
    for answer in (await open_page(api, token), await submit(app, "accept", token), await submit(app, "decline", token)):
        assert is_error_page(answer)
        assert "already been answered or canceled" in answer.text
        assert "Acme" not in answer.text
        assert token not in answer.text


async def test_an_expired_invitation_is_an_error_page(api: Api, app: QuartTrio, token: str, pool: Pool, clock: FakeClock) -> None:
    clock.advance(WEEK)
    page = await open_page(api, token)
    assert is_error_page(page)
    assert "has expired" in page.text
    assert await status(pool) == "pending"  # opening the page changes nothing
    accepted = await submit(app, "accept", token)
    assert is_error_page(accepted)
    assert "has expired" in accepted.text
    assert "can send a new one" in accepted.text


async def test_an_unknown_token_is_an_error_page_that_does_not_repeat_it(api: Api, app: QuartTrio, owner: Member) -> None:
    for token in ("", "x", UNKNOWN, "0" * 64, '"><script>alert(1)</script>'):
        for answer in (await open_page(api, token), await submit(app, "accept", token), await submit(app, "decline", token)):
            assert is_error_page(answer), token
            assert not token or len(token) < 2 or token not in answer.text
    answer = await api.get(PAGE, headers=HTML)
    assert (is_error_page(answer), "This link is incomplete." in answer.text) == (True, True)


async def test_the_hash_of_a_token_does_not_work_on_pages(api: Api, app: QuartTrio, owner: Member, ports: Ports, pool: Pool) -> None:
    invited, _ = await inviting.invite(ports, owner, Email(EMAIL), "member")
    hashed = invited.invitation.token_hash.hex()
    for answer in (await open_page(api, hashed), await submit(app, "accept", hashed), await submit(app, "decline", hashed)):
        assert is_error_page(answer)
    assert await status(pool) == "pending"


# The forms


async def test_accepting_adds_the_member_and_the_page_names_the_next_step(app: QuartTrio, token: str, pool: Pool) -> None:
    answer = await submit(app, "accept", token)
    assert answer.status == 200
    assert "Welcome to Acme &lt;b&gt;&amp; Sons" in answer.text
    assert 'action="/app/forgot-password"' in answer.text
    assert "gatehouse-session" not in str(answer.headers.getlist("Set-Cookie"))
    assert await status(pool) == "accepted"
    assert await run_sql(
        pool,
        "select m.role, u.email_verified_at, u.password_hash from memberships m join users u on u.id = m.user_id where u.email = %s",
        EMAIL,
    ) == [("admin", None, None)]


async def test_the_page_after_accepting_does_not_reveal_whether_an_account_existed(app: QuartTrio, owner: Member, ports: Ports) -> None:
    await add_account(ports, "known@example.com")
    pages = []
    device = (b"cookie", b"gatehouse-device=" + b"x" * 43)
    for email in ("known@example.com", "unknown@example.com"):
        _, token = await inviting.invite(ports, owner, Email(email), "member")
        page = re.sub('name="form_key" value="[^"]+"', "", (await submit(app, "accept", token, device)).text)
        pages.append(page.partition("<body>")[2].replace(email, ""))  # the head contains a nonce
    assert pages[0] == pages[1] != ""


async def test_accepting_on_the_page_leaves_the_membership_of_an_existing_account_unconfirmed(
    app: QuartTrio, token: str, ports: Ports, pool: Pool
) -> None:
    user = await add_account(ports)
    assert (await submit(app, "accept", token)).status == 200
    assert await run_sql(pool, "select confirmed_at from memberships where user_id = %s", user.id) == [(None,)]


async def test_declining_is_confirmed_and_final(app: QuartTrio, token: str, pool: Pool) -> None:
    answer = await submit(app, "decline", token)
    assert answer.status == 200
    assert "You declined the invitation" in answer.text
    assert "Acme &lt;b&gt;&amp; Sons" in answer.text
    assert await status(pool) == "rejected"
    assert is_error_page(await submit(app, "accept", token))


async def test_a_form_from_another_site_is_refused(app: QuartTrio, token: str, pool: Pool) -> None:
    for header in (
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-site", b"same-site"),
        (b"sec-fetch-site", b"none"),
        (b"origin", b"https://evil.example"),
    ):
        for answer in ("accept", "decline"):
            assert is_error_page(await submit(app, answer, token, header), 403), (answer, header)
    assert await status(pool) == "pending"


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_a_form_from_our_own_page_is_accepted(app: QuartTrio, token: str, answer: str) -> None:
    assert (await submit(app, answer, token, (b"sec-fetch-site", b"same-origin"), (b"origin", BASE_URL.encode()))).status == 200


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_only_a_form_post_answers_an_invitation(app: QuartTrio, api: Api, token: str, pool: Pool, answer: str) -> None:
    path = f"/app/invitations/{answer}"
    assert (await api.post(path, {"token": token})).status == 415
    assert (await ask(app, "POST", f"{path}?token={token}", headers=[FORM], body=b"")).status == 400
    for method in ("PUT", "DELETE"):
        assert (await ask(app, method, f"{path}?token={token}")).status == 405
    assert (await ask(app, "GET", f"/app/invitations/decline?token={token}")).status == 303
    await ask(app, "HEAD", f"{PAGE}?token={token}")
    assert await status(pool) == "pending"


async def test_a_full_organization_is_reported_and_the_link_stays_valid(app: QuartTrio, token: str, pool: Pool) -> None:
    await run_sql(pool, "update organizations set max_users = 1")
    answer = await submit(app, "accept", token)
    assert is_error_page(answer)
    assert "accept again" in answer.text
    await run_sql(pool, "update organizations set max_users = 2")
    assert (await submit(app, "accept", token)).status == 200


async def test_an_inactive_organization_is_reported_before_a_password_is_chosen(app: QuartTrio, api: Api, token: str, pool: Pool) -> None:
    await run_sql(pool, "update organizations set status = 'suspended'")
    for answer in (await open_page(api, token), await submit(app, "accept", token)):
        assert is_error_page(answer, 403)
        assert "not active" in answer.text
    assert (await submit(app, "decline", token)).status == 200

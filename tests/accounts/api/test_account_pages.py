"""The account page and those below it (decisions, points 53 and 176; security.md A-8, A-9, G-1, G-2, I-4, M-1 to M-6, S-5, Y-1)."""

import base64
import json
import re
from datetime import timedelta
from html import unescape
from urllib.parse import unquote, urlencode
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, CODE, FORM, HTML, SIGN_IN, Visitor, form_token, leads_to, set_cookies
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, add_organization, impersonate, run_sql, sign_in
from tests.support.direct import ask
from tests.support.mfa import Authenticator, add_mfa
from tests.support.services import add_service

EMAIL_PAGE, PASSWORD_PAGE, TWO_FACTOR = f"{ACCOUNT}/email", f"{ACCOUNT}/password", f"{ACCOUNT}/two-factor"
DEVICES, SESSIONS, EXPORT = f"{ACCOUNT}/devices", f"{ACCOUNT}/sessions", f"{ACCOUNT}/export"
NOBODYS = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"  # the id of nothing that there is
PAGES = [ACCOUNT, EMAIL_PAGE, PASSWORD_PAGE, TWO_FACTOR, DEVICES, SESSIONS]


@pytest.fixture
async def visitor(app: QuartTrio, ada: Account) -> Visitor:
    """Ada, signed in."""
    browser = Visitor(app)
    assert leads_to(await browser.sign_in()) == ACCOUNT
    return browser


def words(answer: Answer) -> str:
    """What a page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text.partition("<main>")[2])).split())


async def told(visitor: Visitor, answer: Answer) -> str:
    """What the page says that a form has led to."""
    return words(await visitor.open(leads_to(answer)))


# Forms of others, and looking


CHANGES = {
    EXPORT: {},
    EMAIL_PAGE: {"email": "moved@example.com"},
    f"{EMAIL_PAGE}/verification": {},
    PASSWORD_PAGE: {"current_password": PASSWORD, "new_password": NEW_PASSWORD},
    f"{TWO_FACTOR}/setup": {},
    f"{TWO_FACTOR}/confirm": {"code": "123456"},
    f"{TWO_FACTOR}/backup-codes": {},
    f"{TWO_FACTOR}/disable": {},
    f"{DEVICES}/{NOBODYS}/name": {"name": "Mine"},
    f"{DEVICES}/{NOBODYS}/revoke": {},
    f"{SESSIONS}/{NOBODYS}/end": {},
    f"{SESSIONS}/end-others": {},
    "/app/sign-out": {},
}
STATE = """
    select u.email, u.password_hash, u.mfa_enabled_at, (select count(*) from mfa), (select count(*) from mfa_events),
           (select count(*) from mails), (select count(*) from sessions where ended_at is null), (select array_agg(name) from devices),
           (select count(*) from events)
    from users u"""


@pytest.mark.parametrize(("path", "fields"), CHANGES.items())
async def test_a_form_without_the_token_of_this_session_changes_nothing(
    visitor: Visitor, pool: Pool, app: QuartTrio, path: str, fields: dict[str, str]
) -> None:
    before = await run_sql(pool, STATE)
    foreign = form_token(await Visitor(app).open(SIGN_IN))
    for token in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "ü"}):
        answer = await visitor.send(path, **fields, **token)
        assert answer.status == 403
        assert "<h1>Not allowed</h1>" in answer.text
    assert await run_sql(pool, STATE) == before


@pytest.mark.parametrize(("path", "fields"), CHANGES.items())
async def test_a_form_of_somebody_elses_page_changes_nothing(
    visitor: Visitor, pool: Pool, app: QuartTrio, path: str, fields: dict[str, str]
) -> None:
    before = await run_sql(pool, STATE)
    token = form_token(await visitor.open(ACCOUNT))
    cookie = (b"cookie", f"gatehouse-session={visitor.cookies['gatehouse-session']}".encode())
    body = urlencode({"form_token": token, **fields}).encode()
    for header in ((b"origin", b"https://evil.example"), (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-site")):
        answer = await ask(app, "POST", path, headers=[HTML, FORM, cookie, header], body=body)
        assert answer.status == 403
    assert await run_sql(pool, STATE) == before


@pytest.mark.parametrize("path", CHANGES)
async def test_whoever_is_not_signed_in_is_sent_to_sign_in(app: QuartTrio, path: str) -> None:
    answer = await Visitor(app).send(path, form_token="x")
    assert leads_to(answer).startswith(SIGN_IN)


@pytest.mark.parametrize("path", [*PAGES, f"{DEVICES}/{NOBODYS}"])
async def test_nobody_else_sees_a_page(app: QuartTrio, path: str) -> None:
    assert leads_to(await Visitor(app).open(path)) == f"{SIGN_IN}?{urlencode({'next': path})}"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_looking_changes_nothing(visitor: Visitor, pool: Pool, method: str) -> None:
    before = await run_sql(pool, STATE)
    for path in PAGES:
        answer = await visitor.open(path, method=method)
        assert answer.status == 200
    for path in CHANGES.keys() - {*PAGES}:
        assert (await visitor.open(path, method=method)).status == 405
    assert await run_sql(pool, STATE) == before


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_for_this_browser_alone_and_lets_nothing_in(visitor: Visitor, path: str) -> None:
    answer = await visitor.open(path)
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert answer.text.count("<h1>") == 1
    assert "<script" not in answer.text
    assert "Set-Cookie" not in answer.headers


async def test_a_session_that_has_ended_opens_no_page(visitor: Visitor, pool: Pool) -> None:
    await run_sql(pool, "update sessions set ended_at = now()")
    for path in PAGES:
        assert (await visitor.open(path)).status == 303


@pytest.mark.parametrize("change", ["deactivated_at = now()", "anonymized_at = now()"])
async def test_an_account_that_may_not_sign_in_any_more_opens_no_page(visitor: Visitor, pool: Pool, change: str) -> None:
    await run_sql(pool, f"update users set {change}")  # noqa: S608
    assert not await visitor.is_in()


# The account page


async def test_the_account_page_says_how_things_stand(visitor: Visitor, ports: Ports, ada: Account, pool: Pool) -> None:
    page = words(await visitor.open(ACCOUNT))
    for part in (f"{EMAIL} verified", "You sign in with a password.", "off A password alone", "signed in from 1 device.", "nowhere else"):
        assert part in page
    await add_mfa(ports, ada)
    await sign_in(ports, ada)
    await run_sql(pool, "update users set password_hash = null, email_verified_at = null")
    page = words(await visitor.open(ACCOUNT))
    for part in (f"{EMAIL} not verified", "You have no password yet.", "on since 14 March 2026", "There are 2, with this one."):
        assert part in page


async def test_a_notice_is_said_once(visitor: Visitor) -> None:
    answer = await visitor.submit(f"{SESSIONS}/end-others")
    cookie = set_cookies(answer)["gatehouse-notice"]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == ("others", True, "Lax")
    assert "All other sessions were ended." in words(await visitor.open(SESSIONS))
    assert "All other sessions were ended." not in words(await visitor.open(SESSIONS))


@pytest.mark.parametrize("name", ["<b>x</b>", "You owe us money", "__class__", ""])
async def test_a_notice_is_one_of_ours(visitor: Visitor, name: str) -> None:
    visitor.cookies["gatehouse-notice"] = name
    page = await visitor.open(ACCOUNT)
    assert page.status == 200
    assert 'role="status"' not in page.text


async def test_the_own_data_are_a_file_to_keep(visitor: Visitor, api: Api, ports: Ports, ada: Account) -> None:
    answer = await visitor.submit(EXPORT)
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == 'attachment; filename="gatehouse-export.json"'
    assert answer.headers["Cache-Control"] == "no-store"
    token = (await sign_in(ports, ada)).access_token
    assert json.loads(answer.text) == (await api.get(f"/api/privacy/export/{ada.id}", token=token)).json
    assert json.loads(answer.text)["email"] == EMAIL


# The address


async def test_an_address_is_changed_and_must_be_verified(visitor: Visitor, ports: Ports, ada: Account, pool: Pool) -> None:
    await sign_in(ports, ada)
    answer = await visitor.submit(EMAIL_PAGE, EMAIL_PAGE, email=" Moved@Example.com ")
    page = await told(visitor, answer)
    assert "The address was changed." in page
    assert "It is moved@example.com , and not verified yet" in page
    assert await run_sql(pool, "select kind, address from mails order by kind") == [
        ("email_changed", EMAIL),
        ("verify_email", "moved@example.com"),
    ]
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(1,)]
    answer = await visitor.submit(f"{EMAIL_PAGE}/verification", EMAIL_PAGE)
    assert "The mail is on its way." in await told(visitor, answer)
    assert await run_sql(pool, "select count(*) from mails where kind = 'verify_email'") == [(2,)]


@pytest.mark.parametrize("email", ["", "x", "taken@example.com"])
async def test_an_address_that_cannot_be_had_is_explained(visitor: Visitor, ports: Ports, pool: Pool, email: str) -> None:
    await add_account(ports, "taken@example.com")
    answer = await visitor.submit(EMAIL_PAGE, EMAIL_PAGE, email=email)
    assert answer.status == 400
    assert 'aria-invalid="true" aria-describedby="problem' in answer.text
    assert f'value="{email}"' in answer.text
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]


# The password


async def test_a_password_is_changed_and_all_others_are_signed_out(
    visitor: Visitor, ada: Account, app: QuartTrio, pool: Pool, ports: Ports
) -> None:
    await sign_in(ports, ada)
    answer = await visitor.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=PASSWORD, new_password=NEW_PASSWORD)
    assert "The password was saved." in await told(visitor, answer)
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(1,)]
    other = Visitor(app)
    assert (await other.sign_in()).status == 401
    assert leads_to(await other.sign_in(password=NEW_PASSWORD)) == ACCOUNT


@pytest.mark.parametrize(
    ("current", "new", "status", "wrong"),
    [
        ("not it", NEW_PASSWORD, 401, "current_password"),
        (PASSWORD, "short", 400, "new_password"),
        (PASSWORD, "x" * 129, 400, "new_password"),
    ],
)
async def test_a_password_that_is_refused_is_explained_at_its_field(
    visitor: Visitor, current: str, new: str, status: int, wrong: str
) -> None:
    answer = await visitor.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=current, new_password=new)
    assert answer.status == status
    [marked] = re.findall(r'<input id="(\w+)"[^>]*aria-invalid="true"', answer.text)
    assert marked == wrong
    assert current not in answer.text
    assert new not in answer.text


async def test_a_first_password_is_set_and_ends_nothing(visitor: Visitor, pool: Pool, ports: Ports, ada: Account) -> None:
    await run_sql(pool, "update users set password_hash = null")
    await sign_in(ports, ada)
    page = await visitor.open(PASSWORD_PAGE)
    assert "<h1>Set a password</h1>" in page.text
    assert 'name="current_password"' not in page.text
    answer = await visitor.send(PASSWORD_PAGE, form_token=form_token(page), new_password=NEW_PASSWORD)
    assert "The password was saved." in await told(visitor, answer)
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(2,)]


async def test_a_form_that_time_went_over_shows_the_page_as_it_is_now(visitor: Visitor, pool: Pool) -> None:
    assert leads_to(await visitor.submit(PASSWORD_PAGE, PASSWORD_PAGE, new_password=NEW_PASSWORD)) == PASSWORD_PAGE
    await run_sql(pool, "update users set password_hash = null")
    answer = await visitor.submit(PASSWORD_PAGE, PASSWORD_PAGE, current_password=PASSWORD, new_password=NEW_PASSWORD)
    assert leads_to(answer) == PASSWORD_PAGE


# The second factor


async def begin(visitor: Visitor, clock: FakeClock) -> tuple[Answer, Authenticator]:
    answer = await visitor.submit(f"{TWO_FACTOR}/setup", TWO_FACTOR)
    assert answer.status == 200, answer.text
    [secret] = re.findall(r'<code class="secret">([A-Z2-7 ]+)</code>', answer.text)
    return answer, Authenticator(secret.replace(" ", ""), clock)


async def test_the_second_factor_is_set_up_by_a_qr_code_a_link_or_by_hand(visitor: Visitor, clock: FakeClock) -> None:
    answer, app = await begin(visitor, clock)
    [uri] = re.findall(r'href="(otpauth:[^"]+)"', answer.text)
    assert f"secret={app.secret}" in unescape(uri)
    assert EMAIL in unquote(unescape(uri))
    [image] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', answer.text)
    assert base64.b64decode(image).startswith(b"<svg ")
    assert "img-src 'self' data:;" in answer.headers["Content-Security-Policy"]
    assert 'alt="QR code' in answer.text
    assert answer.headers["Cache-Control"] == "no-store"


async def test_the_second_factor_is_confirmed_and_the_backup_codes_are_shown_once(
    visitor: Visitor, clock: FakeClock, app: QuartTrio, pool: Pool
) -> None:
    answer, authenticator = await begin(visitor, clock)
    wrong = await visitor.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.wrong())
    assert wrong.status == 400
    assert f"secret={authenticator.secret}" in wrong.text, "what can still be confirmed is there still"
    assert (await visitor.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code="12345")).status == 400
    shown = await visitor.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.code())
    assert shown.status == 200
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", shown.text)
    assert len({*codes}) == 10
    assert shown.headers["Cache-Control"] == "no-store"
    later = await visitor.open(TWO_FACTOR)
    assert "You have 10 backup codes left." in words(later)
    assert not any(code in later.text for code in codes)
    assert authenticator.secret not in later.text
    other = Visitor(app)
    assert leads_to(await other.sign_in()) == CODE
    assert leads_to(await other.show_code(codes[3])) == ACCOUNT
    assert "You have 9 backup codes left." in words(await other.open(TWO_FACTOR))
    assert await visitor.is_in()
    assert ("mfa_enabled",) in await run_sql(pool, "select event_type from mfa_events")


async def test_what_was_set_up_lapses(visitor: Visitor, clock: FakeClock) -> None:
    answer, authenticator = await begin(visitor, clock)
    clock.advance(timedelta(minutes=15))
    late = await visitor.send(f"{TWO_FACTOR}/confirm", form_token=form_token(answer), code=authenticator.code())
    assert late.status == 400
    assert "<h1>Two-factor authentication</h1>" in late.text
    assert authenticator.secret not in late.text


async def test_a_second_factor_that_is_on_is_neither_replaced_nor_told(visitor: Visitor, ports: Ports, ada: Account, pool: Pool) -> None:
    factor = await add_mfa(ports, ada)
    answer = await visitor.submit(f"{TWO_FACTOR}/setup", TWO_FACTOR)
    assert answer.status == 400
    assert "is on already" in answer.text
    assert factor.secret not in answer.text
    answer = await visitor.submit(f"{TWO_FACTOR}/confirm", TWO_FACTOR, code=factor.code())
    assert answer.status == 400
    assert factor.secret not in answer.text


async def test_new_backup_codes_take_the_place_of_the_old_ones(visitor: Visitor, ports: Ports, ada: Account, app: QuartTrio) -> None:
    assert (await visitor.submit(f"{TWO_FACTOR}/backup-codes", TWO_FACTOR)).status == 400
    factor = await add_mfa(ports, ada)
    answer = await visitor.submit(f"{TWO_FACTOR}/backup-codes", TWO_FACTOR)
    codes = re.findall(r"<code>([A-Z0-9]{4}-[A-Z0-9]{4})</code>", answer.text)
    assert (answer.status, len(codes)) == (200, 10)
    other = Visitor(app)
    await other.sign_in()
    assert (await other.show_code(factor.backup_codes[0])).status == 401
    assert leads_to(await other.show_code(codes[0])) == ACCOUNT


async def test_the_second_factor_is_switched_off(visitor: Visitor, ports: Ports, ada: Account, app: QuartTrio) -> None:
    await add_mfa(ports, ada)
    answer = await visitor.submit(f"{TWO_FACTOR}/disable", TWO_FACTOR)
    assert "Two-factor authentication is off." in await told(visitor, answer)
    assert leads_to(await Visitor(app).sign_in()) == ACCOUNT


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_the_second_factor_has_the_limits_of_the_interface(visitor: Visitor, api: Api, ports: Ports, ada: Account) -> None:
    statuses = [
        (await visitor.submit(f"{TWO_FACTOR}/{act}", TWO_FACTOR)).status for act in ("setup", "disable", "setup", "disable", "setup")
    ]
    assert 429 not in statuses
    limited = await visitor.submit(f"{TWO_FACTOR}/disable", TWO_FACTOR)
    assert limited.status == 429
    assert "A little slower, please" in limited.text
    assert int(limited.headers["Retry-After"]) > 0


# Devices


async def device_of(pool: Pool, name: str) -> UUID:
    [(found,)] = await run_sql(pool, "select id from devices where name = %s", name)
    assert isinstance(found, UUID)
    return found


@pytest.fixture
async def program(visitor: Visitor, api: Api, pool: Pool) -> tuple[UUID, str]:
    """Another device of Ada's, and the access token of its session."""
    token = (await api.login(headers={"User-Agent": "curl/8.5.0"})).json["access_token"]
    return await device_of(pool, "curl on unknown system"), token


async def test_devices_are_listed_with_this_one_marked(visitor: Visitor, program: tuple[UUID, str], pool: Pool) -> None:
    page = await visitor.open(DEVICES)
    here, there = sorted(re.findall(r"<li>(.*?)</li>", page.text, re.DOTALL), key=lambda row: "this device" not in row)
    assert "Firefox 121.0 on Linux" in here
    assert str(await device_of(pool, "Firefox on Linux")) in here
    assert "this device" not in there
    assert "curl" in there
    assert str(program[0]) in there


async def test_a_device_is_looked_at_and_renamed(visitor: Visitor, program: tuple[UUID, str], pool: Pool) -> None:
    path = f"{DEVICES}/{program[0]}"
    page = words(await visitor.open(path))
    for part in ("What it is curl 8.5.0 on unknown system", "Last used 14 March 2026", "Trusted No.", "Revoke this device"):
        assert part in page
    answer = await visitor.submit(f"{path}/name", path, name="  The <b>script</b> ")
    shown = await visitor.open(leads_to(answer))
    assert "The name was saved." in words(shown)
    assert "<h1>The &lt;b&gt;script&lt;/b&gt;</h1>" in shown.text
    for name in ("", "   ", "x" * 101, "a\x00b", "\u202ex"):
        refused = await visitor.submit(f"{path}/name", path, name=name)
        assert refused.status == 400
        assert 'aria-invalid="true"' in refused.text
    assert await run_sql(pool, "select name from devices where id = %s", program[0]) == [("The <b>script</b>",)]


async def test_a_device_is_revoked_with_its_sessions(visitor: Visitor, program: tuple[UUID, str], api: Api) -> None:
    device_id, token = program
    path = f"{DEVICES}/{device_id}"
    answer = await visitor.submit(f"{path}/revoke", path)
    assert leads_to(answer) == DEVICES
    page = await visitor.open(DEVICES)
    assert "The device was revoked" in words(page)
    assert str(device_id) not in page.text
    assert (await api.get("/api/user", token=token)).status == 401
    assert (await visitor.open(path)).status == 404


async def test_the_device_in_use_is_not_revoked(visitor: Visitor, pool: Pool) -> None:
    path = f"{DEVICES}/{await device_of(pool, 'Firefox on Linux')}"
    page = await visitor.open(path)
    assert "Revoke this device" not in page.text
    refused = await visitor.submit(f"{path}/revoke", path)
    assert refused.status == 400
    assert await visitor.is_in()


async def test_somebody_elses_device_is_none_of_ones_business(visitor: Visitor, ports: Ports, app: QuartTrio, pool: Pool) -> None:
    await add_account(ports, "eve@example.com")
    eve = Visitor(app)
    await eve.sign_in("eve@example.com")
    [(hers,)] = await run_sql(pool, "select d.id from devices d join users u on u.id = d.user_id where u.email = 'eve@example.com'")
    for path in (f"{DEVICES}/{hers}", f"{DEVICES}/{uuid4()}", f"{DEVICES}/x"):
        expected = 403 if str(hers) in path else 404
        assert (await visitor.open(path)).status == expected
        assert (await visitor.submit(f"{path}/name", name="Mine")).status == expected
        assert (await visitor.submit(f"{path}/revoke")).status == expected
    assert await eve.is_in()


# Sessions


async def test_sessions_are_listed_with_where_they_are(
    visitor: Visitor, ports: Ports, ada: Account, pool: Pool, api: Api, clock: FakeClock
) -> None:
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    await sign_in(ports, ada, org, agent="curl/8.5.0")
    in_service = await sign_in(ports, ada)
    await run_sql(pool, "update sessions set service_id = %s, org_id = %s where id = %s", service, org, in_service.session_id)
    steward = await add_account(ports, "steward@platform.example", None, is_platform_owner=True)
    await impersonate(ports, steward, ada)
    ended = await sign_in(ports, ada)
    await run_sql(pool, "update sessions set ended_at = now() where id = %s", ended.session_id)
    page = await visitor.open(SESSIONS)
    rows = [words(Answer(200, page.headers, f"<main>{row}")) for row in re.findall(r"<li>(.*?)</li>", page.text, re.DOTALL)]
    assert len(rows) == 4
    [here] = [row for row in rows if "this session" in row]
    assert here.startswith("Your account, in a browser this session Firefox on Linux · 203.0.113.9 Since 14 March 2026")
    assert "End" not in here
    assert any(row.startswith("Gatehouse, for Acme curl on unknown system") for row in rows)
    assert any(row.startswith("Shop of Acme") for row in rows)
    [support] = [row for row in rows if row.startswith("Platform support")]
    assert "steward" not in page.text
    assert "End the session Platform support" in support
    assert "There are 4, with this one." in words(await visitor.open(ACCOUNT))


async def test_one_session_is_ended(visitor: Visitor, ports: Ports, ada: Account, api: Api) -> None:
    one, other = await sign_in(ports, ada), await sign_in(ports, ada)
    answer = await visitor.submit(f"{SESSIONS}/{one.session_id}/end", SESSIONS)
    assert leads_to(answer) == SESSIONS
    assert "The session was ended." in words(await visitor.open(SESSIONS))
    assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.post("/api/auth/refresh", {"refresh_token": one.refresh_token})).status == 401
    assert (await api.get("/api/user", token=other.access_token)).status == 200
    assert leads_to(await visitor.submit(f"{SESSIONS}/{one.session_id}/end")) == SESSIONS, "twice is as good as once"


async def test_support_is_shown_the_door(visitor: Visitor, ports: Ports, ada: Account, api: Api, pool: Pool) -> None:
    steward = await add_account(ports, "steward@platform.example", None, is_platform_owner=True)
    token = await impersonate(ports, steward, ada)
    [(session_id,)] = await run_sql(pool, "select id from sessions where impersonator_id is not null")
    await visitor.submit(f"{SESSIONS}/{session_id}/end", SESSIONS)
    assert (await api.get("/api/user", token=token)).status == 401


async def test_all_other_sessions_are_ended(visitor: Visitor, ports: Ports, ada: Account, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    hers = await sign_in(ports, eve)
    others = [await sign_in(ports, ada) for _ in range(2)]
    answer = await visitor.submit(f"{SESSIONS}/end-others", SESSIONS)
    assert leads_to(answer) == SESSIONS
    for one in others:
        assert (await api.get("/api/user", token=one.access_token)).status == 401
    assert (await api.get("/api/user", token=hers.access_token)).status == 200
    page = await visitor.open(SESSIONS)
    assert "End all others" not in page.text


async def test_somebody_elses_session_goes_on(visitor: Visitor, ports: Ports, api: Api) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    hers = await sign_in(ports, eve)
    for session_id in (hers.session_id, uuid4(), "x"):
        assert leads_to(await visitor.submit(f"{SESSIONS}/{session_id}/end")) == SESSIONS
    assert (await api.get("/api/user", token=hers.access_token)).status == 200


async def test_to_end_this_session_is_to_sign_out(visitor: Visitor, pool: Pool) -> None:
    [(mine,)] = await run_sql(pool, "select id from sessions")
    assert leads_to(await visitor.submit(f"{SESSIONS}/{mine}/end")) == SIGN_IN
    assert not await visitor.is_in()


@pytest.mark.slow
async def test_a_page_of_many_sessions_has_an_end(visitor: Visitor, ports: Ports, ada: Account) -> None:
    for _ in range(104):
        await sign_in(ports, ada)
    page = await visitor.open(SESSIONS)
    assert len(re.findall("<li>", page.text)) == 100
    assert "These are the newest 100 of 105." in words(page)

"""What A's hostile provider tries with the session that it gets for a linked member of A and B."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import cache
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from core.kernel.page_paths import REAUTHENTICATION_PATH
from entrypoints.http.edge.access.declaration import Credentials, Restricted, access_of
from entrypoints.http.edge.reauthentication import OWN_PROOF
from tests.federation.api.relying import RelyingParty, add_relying_party
from tests.proof.access.calls import routes
from tests.proof.hostile.asserted import REFUSED, Attack, adds_to, outcome
from tests.proof.hostile.world import World, count_sessions
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Answer, add_member, application, run_sql
from tests.support.services import add_service_user

OWN, GOOD, LIVE = "asks for a proof of the account's own", "good in A", "still there"
PASSWORD_PATH: Final = "/app/account/password"
SESSIONS: Final[dict[str, tuple[Attack, str]]] = {}


ends = adds_to(SESSIONS)


def of_account(answer: Answer) -> str:
    """Return what a page for the account itself answers."""
    target = urlsplit(answer.headers.get("Location", ""))
    asks = target.path == REAUTHENTICATION_PATH and parse_qs(target.query).get("policy") == [OWN_PROOF]
    return OWN if answer.status == 303 and asks else REFUSED if 400 <= answer.status < 500 else f"{answer.status} {target.geturl()}"


@cache
def closed_pages() -> list[str]:
    """Return the pages without parameters that are about the account itself or the platform."""
    pages = ((route, access_of(view)) for route, view in routes(application()))
    return sorted(
        route.removeprefix("GET ")
        for route, access in pages
        if route.startswith("GET /app/")
        and "<" not in route
        and access.credentials is Credentials.COOKIE
        and access.restricted is Restricted.NO
    )


async def enter(world: World, name: str, subject: str | None = None) -> tuple[FakeBrowser, RelyingParty]:
    """Link a member in A and B, who has a password, and let the provider sign in as them. Return the browser, and an application in A."""
    account, browser = await world.add(f"{name}@a.example", world.a, world.b, password=PASSWORD), world.browser()
    await world.link(account, subject or name)
    application = await add_relying_party(world.a, browser, name)
    await add_service_user(world.ports, application.service, account.id, signed_in=False)
    return browser, application


@ends(OWN)
async def pages_of_the_account_and_the_platform(world: World) -> AsyncIterator[str]:
    browser, _ = await enter(world, "pages")
    yield ""
    await world.arrive("pages", browser)
    for path in closed_pages():
        answer = of_account(await browser.open(path, follows=False))
        yield OWN if answer == OWN else f"{path}: {answer}"


@ends(OWN)
async def organization_b_in_the_console(world: World) -> AsyncIterator[str]:
    browser, _ = await enter(world, "console")
    yield ""
    await world.arrive("console", browser)
    assert (await browser.open(f"/app/organizations/{world.a.slug}")).status == 200
    yield of_account(await browser.open(f"/app/organizations/{world.b.slug}", follows=False))


@ends("alike")
async def membership_of_b(world: World) -> AsyncIterator[str]:
    """Pages that take an organization answer as if B did not exist. Its policy asks members for a second factor."""
    policy = """
        insert into sign_in_policies (id, org_id, rules, changed_at)
        values (gen_random_uuid(), %s, '{"second_factor": ["everyone"]}', now())"""
    await world.set(policy, world.b.org)
    users = {f"where-{state}@a.example": world.browser() for state in ("member", "pending", "stranger")}
    for email in users:
        await world.link(await world.add(email, world.a, *([] if "stranger" in email else [world.b])), email)
    await world.set(
        "update memberships set confirmed_at = null where user_id = (select id from users where email = 'where-pending@a.example')"
    )
    yield ""
    for email, browser in users.items():
        await world.arrive(email, browser)
        for path in ("/app/organizations/{}", "/app/enroll?org={}", f"{REAUTHENTICATION_PATH}?policy={{}}"):
            of_b, unknown = [await browser.open(path.format(slug), follows=False) for slug in (world.b.slug, "no-such-org")]
            answers = {
                (each.status, each.headers.get("Location", "").replace(slug, ""), each.text.replace(slug, ""))
                for each, slug in ((of_b, world.b.slug), (unknown, "no-such-org"))
            }
            yield "alike" if len(answers) == 1 else f"{path} as {email}: {answers}"


@ends(REFUSED)
async def organization_b_in_the_api(world: World) -> AsyncIterator[str]:
    browser, application = await enter(world, "api")
    yield ""
    await world.arrive("api", browser)
    token = (await application.tokens())["access_token"]
    for path in (f"/api/organizations/{world.b.slug}", f"/api/organizations/{world.b.slug}/members", "/api/platform/users"):
        answer = await world.a.api.get(path, token=token)
        yield REFUSED if answer.status in (401, 403, 404) else f"{path}: {answer.status}"


@ends(OWN)
async def organization_of_an_asserted_owner(world: World) -> AsyncIterator[str]:
    """A's admin lets the provider assert the owner. The ownership needs a proof by the account itself."""
    await world.link(world.a.people["owner"], "owning")
    browser, page = world.browser(), f"/app/organizations/{world.a.slug}/settings"
    yield ""
    await world.arrive("owning", browser)
    yield OWN if (await browser.open(page)).status == 200 else "the settings are closed"
    for action in ("transfer", "delete"):
        yield of_account(await browser.open(f"{page}/{action}", follows=False))


@ends("no code")
async def application_of_b(world: World) -> AsyncIterator[str]:
    browser, _ = await enter(world, "store")
    application = await add_relying_party(world.b, browser, "till")
    yield ""
    await world.arrive("store", browser)
    for prompt in (None, "none"):
        answer = await browser.open(application.request(response_type="code", scope="openid", prompt=prompt), follows=False)
        yield "code" if "code=" in answer.headers.get("Location", "") else "no code"


@ends(OWN)
async def confirming_at_the_connection(world: World) -> AsyncIterator[str]:
    """The user's own sign-in in this browser is too old. Confirming at the connection makes it no younger."""
    browser, _ = await enter(world, "confirm")
    await browser.sign_in("confirm@a.example")
    world.ports.clock.advance(timedelta(hours=3))  # type: ignore[attr-defined]
    await world.arrive("confirm", browser)
    yield ""
    page = await browser.open(f"{REAUTHENTICATION_PATH}?{urlencode({'next': PASSWORD_PATH})}", follows=False)
    assert 'name="password"' in page.text, "the page asks for a way of the account's own"
    yield OWN


@ends(REFUSED)
async def tokens_after_the_end_of_the_connection(world: World) -> AsyncIterator[str]:
    browser, application = await enter(world, "end")
    await world.arrive("end", browser)
    tokens, code = await application.tokens(), await application.code()
    yield ""
    await world.a.sign_in("owner")
    path = f"{world.a.path}/connections/{world.of_a.slug}"
    answer = await world.a.api.post(f"{path}/deactivate", {}, token=world.a.token("owner"))
    assert answer.status == 200, answer.text
    yield outcome(await application.refresh(tokens["refresh_token"]))
    yield outcome(await application.exchange(code))
    yield REFUSED if not await application.is_live(tokens) else LIVE
    yield REFUSED if (await browser.open(f"/app/organizations/{world.a.slug}", follows=False)).status != 200 else GOOD
    await world.set("update connections set state = 'active' where id = %s", world.of_a.id)


@ends(LIVE)
async def sign_out_of_the_session_of_b(world: World) -> AsyncIterator[str]:
    """The same subject and session at a shared provider: A's connection ends nothing that B's connection began."""
    account = await world.add("out@a.example", world.a, world.b)
    for connection in (world.of_a, world.of_b):
        await world.link(account, "out", connection)
    browser = world.browser()
    await world.arrive("out", browser, at=world.of_b, sid="s1")
    yield ""
    world.issuer.subject = "out"
    changes: tuple[dict[str, None], ...] = ({}, {"sid": None}, {"sub": None})
    for left_out in changes:
        raw = urlencode({"logout_token": world.issuer.logout_token(**left_out)}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await world.a.api.call("POST", f"/auth/connections/{world.of_a.id}/backchannel-logout", raw=raw, headers=headers)
        assert answer.status == 200, answer.text
        yield LIVE if await count_sessions(world.pool, account.id) == 1 else "ended"


@ends(LIVE)
async def sign_out_of_a_session_of_the_account(world: World) -> AsyncIterator[str]:
    """A's provider signs the user in beside their own sign-in, and out again. The own sign-in stays, with its end."""
    await enter(world, "beside")
    browser = world.browser()
    await browser.sign_in("beside@a.example")
    select = """
        select ends_at, expires_at from sessions s join users u on u.id = s.user_id
        where u.email = 'beside@a.example' and ended_at is null"""
    ends = await run_sql(world.pool, select)
    soon = world.ports.clock.now().timestamp() + 60
    await world.arrive("beside", browser, sid="s2", session_expiry=soon)
    world.issuer.subject = "beside"
    raw = urlencode({"logout_token": world.issuer.logout_token(sid="s2")}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    yield ""
    await world.a.api.call("POST", f"/auth/connections/{world.of_a.id}/backchannel-logout", raw=raw, headers=headers)
    world.ports.clock.advance(timedelta(minutes=2))  # type: ignore[attr-defined]
    yield LIVE if (await run_sql(world.pool, select), (await browser.open("/app/account")).status) == (ends, 200) else "ended"


@ends(LIVE)
async def session_of_another_user(world: World) -> AsyncIterator[str]:
    """A page sends the browser to the connection, also as a sign-in that the provider initiates. The provider asks nothing."""
    victim, browser = await world.add("kept@b.example", world.b, password=PASSWORD), world.browser()
    await browser.sign_in("kept@b.example")
    yield ""
    initiate = f"/auth/connections/{world.of_a.id}/initiate?{urlencode({'iss': world.issuer.url})}"
    for left in (await world.leave(browser), await browser.open(initiate, follows=False)):
        answer = await world.come_back(browser, world.authorize(left, "swap", email="swap@a.example"))
        yield LIVE if (answer.status, await count_sessions(world.pool, victim.id)) == (200, 1) else f"{answer.status}"


@ends("no session")
async def test_provider_request_as_a_sign_in(world: World) -> AsyncIterator[str]:
    """A's admin tests the connection, and the provider asserts a linked member."""
    await enter(world, "tested")
    browser, thief = world.browser(), world.browser()
    admin = await world.add("tester@a.example", password=PASSWORD)
    await add_member(world.pool, world.a.org, admin.id, "admin", confirmed=True)
    await browser.sign_in("tester@a.example")
    await thief.open("/app/sign-in")
    yield ""
    start = f"/app/organizations/{world.a.slug}/connections/{world.of_a.slug}/test/start"
    for back in (browser, thief):
        returned = world.authorize(await browser.open(start, follows=False), "tested")
        answer = await world.come_back(back, returned)
        name = next((name for name in back.cookies if "session" in name), None)
        mine = back is browser
        yield "no session" if (answer.status == 200) is mine and (name is not None) is mine else f"{answer.status} {sorted(back.cookies)}"
    [(count,)] = await run_sql(
        world.pool, "select count(*) from sessions s join users u on u.id = s.user_id where u.email = 'tested@a.example'"
    )
    yield "no session" if count == 0 else "a session"

"""Organization A's attacks on B without claims about a person: by hints, groups, invitations, messages and impersonations."""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlencode

from core.kernel.values import digest
from tests.federation.connections.saml.saml_case import arrive
from tests.federation.connections.saml.test_logout import LogoutCase
from tests.proof.hostile.asserted import PAGE, REFUSED, SESSION, Attack, adds_to, outcome
from tests.proof.hostile.responses import begin, connect
from tests.proof.hostile.sessions import LIVE, enter
from tests.proof.hostile.world import World, count_sessions
from tests.support.browser import leads_to
from tests.support.builders import PASSWORD, run_sql
from tests.tenancy.groups import add_group

ELSEWHERE: Final[dict[str, tuple[Attack, str]]] = {}


leads_nowhere = adds_to(ELSEWHERE)


# Impersonations


@leads_nowhere(PAGE)
async def browser_of_an_impersonation(world: World) -> AsyncIterator[str]:
    """A page sends the browser of a platform owner, who acts as a member of B, to the connection."""
    await world.add("actor@b.example", is_platform_owner=True, password=PASSWORD)
    target, browser = await world.add("acted@b.example", world.b), world.browser()
    await browser.sign_in("actor@b.example")
    page = f"/app/platform/people/{target.id}"
    assert leads_to(await browser.submit(f"{page}/impersonate", page, reason="Ticket 4711")) == "/app"
    yield ""
    yield outcome(await world.arrive("acting", browser, email="acting@a.example"))


@leads_nowhere(REFUSED)
async def impersonation_by_a_session_of_the_connection(world: World) -> AsyncIterator[str]:
    """The user became a platform owner after the sign-in. The session gives no power over the platform."""
    browser, application = await enter(world, "rising")
    target = await world.add("risen@b.example", world.b)
    await world.arrive("rising", browser)
    await world.set("update users set is_platform_owner = true where email = 'rising@a.example'")
    token = (await application.tokens())["access_token"]
    yield ""
    answers = [await world.a.api.post(f"/api/platform/impersonate/{target.id}", {"reason": "curious"}, token=token)]
    page = f"/app/platform/people/{target.id}"
    answers.append(await browser.send(f"{page}/impersonate", reason="curious"))
    for answer in answers:
        is_refused = 400 <= answer.status < 500 or answer.headers.get("Location", "").startswith("/app/sign-in")
        yield REFUSED if is_refused else f"{answer.status}"


# Invitations


@leads_nowhere(REFUSED)
async def invitation_of_b(world: World) -> AsyncIterator[str]:
    """B invites an address at A's domain, for which the provider signs a person in. It lacks the email's token."""
    browser, application = await enter(world, "invited")
    await world.set(
        "delete from memberships where org_id = %s and user_id = (select id from users where email = 'invited@a.example')", world.b.org
    )
    await world.b.sign_in("owner")
    shown = digest((await world.b.invite("invited@a.example"))["token"]).hex()
    yield ""
    await world.arrive("invited", browser)
    token = (await application.tokens())["access_token"]
    for answer in (
        await world.a.api.get("/api/invitations", token=token),
        await world.a.api.post("/api/invitations/accept", {"token": shown}, token=token),
        await world.a.api.post("/api/invitations/accept", {"token": shown}),
        await browser.open(f"/app/invitations/accept?{urlencode({'token': shown})}"),
        await browser.send("/app/invitations/accept", token=shown),
    ):
        yield REFUSED if 400 <= answer.status < 500 else f"{answer.status} {answer.headers.get('Location', '')}"


# Hints and routes


@leads_nowhere(REFUSED)
async def hints_about_users_of_b(world: World) -> AsyncIterator[str]:
    await world.add("hinted@b.example", world.b)
    yield ""
    hints = {"next": "/app", "login_hint": "hinted@b.example", "domain_hint": "b.example"}
    yield outcome(await world.arrive("hinted", query=hints, email="hinted@b.example"))
    yield outcome(await world.arrive("hinted", query=hints, email=None))


@leads_nowhere(REFUSED)
async def route_of_a_domain_of_b(world: World) -> AsyncIterator[str]:
    """A stores a route for a domain that it has not proved. It leads no user anywhere."""
    await world.a.sign_in("owner")
    yield ""
    for domain in ("b.example", "eu.a.example"):
        body = {"connection": world.of_a.slug}
        stored = await world.a.api.call("PUT", f"{world.a.path}/hrd/{domain}", body, token=world.a.token("owner"))
        found = await world.a.api.post("/api/auth/lookup-email", {"email": f"ada@{domain}"})
        yield REFUSED if (stored.json["verified"], found.json["connection"]) == (False, None) else found.text


# Groups


@leads_nowhere(SESSION)
async def names_of_groups_of_b(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("grouped@a.example", world.a, world.b), "grouped")
    group = await add_group(world.pool, world.b.org, name="payroll")
    yield ""
    claimed = ["payroll", str(group), "owner", "admin", "organization.own", "platform"]
    yield outcome(await world.arrive("grouped", email="grouped@a.example", groups=claimed, roles=["owner"]))
    roles = await run_sql(
        world.pool, "select m.role from memberships m join users u on u.id = m.user_id where u.email = 'grouped@a.example'"
    )
    yield SESSION if {role for (role,) in roles} == {"member"} else f"{roles}"


@leads_nowhere(REFUSED)
async def group_of_b_in_the_mapping_of_a(world: World) -> AsyncIterator[str]:
    group = await add_group(world.pool, world.b.org, name="finance")
    await world.a.sign_in("owner")
    yield ""
    body = {"value": "staff", "group_id": str(group)}
    answer = await world.a.api.post(f"{world.a.path}/connections/{world.of_a.slug}/groups", body, token=world.a.token("owner"))
    yield REFUSED if 400 <= answer.status < 500 else f"{answer.status} {answer.text}"


# SAML provider messages that nothing asked for


@leads_nowhere("no session")
async def unsolicited_response_with_a_target_of_b(world: World) -> AsyncIterator[str]:
    """A allows unsolicited responses. Even so they sign no user in, and lead to no page that the connection does not list."""
    of_a, of_b = await connect(world)
    browser = world.browser()
    yield ""
    allowed = "update connections set settings = settings || jsonb_build_object('unsolicited', %s::boolean) where id = %s"
    await world.set(allowed, True, of_a.connection.id)
    content = of_a.content("_none")
    texts = {"response_attributes": content.response_attributes, "bearer": content.bearer}
    unasked: dict[str, Any] = {name: text.replace('InResponseTo="_none"', "") for name, text in texts.items()}
    response = of_a.respond("_none", **unasked)
    for path in (of_a.acs, of_b.acs):
        for target in ("https://shop.b.example/callback", f"/app/organizations/{world.b.slug}"):
            answer = await browser.send(path, SAMLResponse=response, RelayState=target, again="1")
            is_started = answer.status < 400 and target in answer.text + answer.headers.get("Location", "")
            yield "no session" if not is_started and not any("session" in name for name in browser.cookies) else f"{answer.status}"
    await world.set(allowed, False, of_a.connection.id)


@leads_nowhere(LIVE)
async def single_logout_of_a_session_of_b(world: World) -> AsyncIterator[str]:
    """B's connection knows the same NameID and SessionIndex. A signs requests for its own endpoint, and for B's endpoint."""
    of_a, of_b = await connect(world)
    browser = world.browser()
    await arrive(browser, of_b.acs, of_b.respond(await begin(world, browser, of_b)))
    [(user_id,)] = await run_sql(world.pool, "select id from users where email = 'saml@b.example'")
    yield ""
    for at, key, status in ((of_a, of_a.provider.certificate, 200), (of_b, of_a.provider.attacker, 400)):
        logout = LogoutCase(at, world.app, world.pool, browser)
        for indexes in (("_s",), ()):
            answer = await logout.redirect(logout.request(*indexes), key)
            assert answer.status == status, answer.text
            yield LIVE if await count_sessions(world.pool, user_id) == 1 else "ended"

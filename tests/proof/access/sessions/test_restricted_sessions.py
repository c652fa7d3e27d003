"""A session that began at an organization's connection, at every route: it is good in that organization alone (docs/adr/0047)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.page_paths import REAUTHENTICATION_PATH
from core.kernel.proofs import Proofs
from core.kernel.roles import Capability
from entrypoints.http.edge.access.declaration import Access, Credentials, Restricted, access_of
from entrypoints.http.edge.reauthentication import OWN_PROOF
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.console import DONE
from tests.proof.access.state import Changes, changes_since, mark, state, undo
from tests.proof.access.table import CODES, REQUESTS, read_matrix
from tests.proof.access.test_matrix import difference
from tests.proof.access.world import Caller, World
from tests.support.builders import Answer, application
from tests.support.connections.proofs import connection_proof, merged, write_proofs

pytestmark = pytest.mark.slow

TABLE = read_matrix()
ACCESS = {route: access_of(view) for route, view in routes(application())}
OF_PEOPLE: Final = (Credentials.ACCESS_TOKEN, Credentials.OPTIONAL_ACCESS_TOKEN, Credentials.ACCESS_TOKEN_OR_COOKIE, Credentials.COOKIE)
USERS: Final = ("owner", "member", "admin", "stranger", "guest", "with-mfa", "owner-application", "application", "platform")
BROWSERS: Final = ("browser", "admin-browser", "stranger-browser", "browser-with-mfa", "platform-browser")
PIECES = 6
SAMPLED = 8
# The application that the request names decides.
OF_THE_APPLICATION: Final = {
    "POST /auth/device/verify",
    "GET /api/organizations/<org_slug>/services/<service_slug>/saml/login",
}

# The pages outside organizations that such a session can open: they show nothing about other organizations. API routes are marked in
# ops/docs/description.txt.
OPEN_PAGES: Final = {
    "GET /app",
    "GET /app/account/applications",
    "GET /app/account/organizations",
    "GET /app/enroll",
    "POST /app/enroll",
    "GET /app/reauthenticate",
    "POST /app/reauthenticate",
    "POST /app/reauthenticate/<provider:provider>",
    "POST /app/reauthenticate/connection",
    "POST /app/reauthenticate/email",
    "GET /app/signed-in",
}


def walked() -> Iterator[tuple[str, Access, str]]:
    """Yield every route that reads a session, and a user that it answers."""
    for route, row in TABLE.items():
        access = ACCESS[without_variant(route)]
        candidates = () if access.credentials not in OF_PEOPLE else BROWSERS if access.credentials is Credentials.COOKIE else USERS
        if access.credentials is Credentials.ACCESS_TOKEN_OR_COOKIE and "form" in route:
            candidates = BROWSERS
        users = [name for name in candidates if row.get(name, "").startswith((DONE, "2", "3")) and row[name] not in CODES]
        if users:
            yield route, access, users[0]


def states(caller: Caller, world: World, now: datetime) -> Mapping[str, Proofs]:
    here, elsewhere = caller.at.organization.id, (world.rival if caller.at is world.home else world.home).organization.id
    return {
        "restricted here": (connection_proof(here, now),),
        "restricted elsewhere": (connection_proof(elsewhere, now),),
        "merged": merged(elsewhere, now, second=True),
    }


def test_pages_outside_of_organizations_are_closed_unless_they_are_listed() -> None:
    pages = {route: access for route, access in ACCESS.items() if access.credentials is Credentials.COOKIE and "/app" in route}
    outside = {route for route, access in pages.items() if access.name != "member_page" and access.restricted is not Restricted.NO}
    assert outside == OPEN_PAGES
    for access in ACCESS.values():
        if access.name in ("member", "member_page"):
            needs_own_proof = access.capability is Capability.ORGANIZATION_OWN
            assert access.restricted is (Restricted.NO if needs_own_proof else Restricted.ITS_ORGANIZATION)
    assert not [route for route, access in ACCESS.items() if access.is_of_platform and access.restricted is not Restricted.NO]


def test_a_user_of_the_table_can_open_each_route() -> None:
    reading = {route for route, access in ACCESS.items() if access.credentials in OF_PEOPLE}
    assert reading - {without_variant(route) for route, _, _ in walked()} == NEVER_ANSWERED


# It asks for a factor from the account itself (security Y-4).
LEAVING: Final = ("POST /api/organizations/<org_slug>/leave", "restricted here")
# No user in the table gets more than an error there.
NEVER_ANSWERED: Final = {
    "GET /app/account/subscriptions/<subscription_id>",
    "POST /app/account/subscriptions/<subscription_id>/cancel",
    "POST /api/auth/reauthenticate/<provider>",
    "POST /app/reauthenticate/<provider:provider>",
    "POST /app/reauthenticate/connection",
    "DELETE /api/user/passkeys/wait",
    "POST /app/account/passkeys/lost/cancel",
}


@pytest.mark.parametrize("piece", range(PIECES))
async def test_a_session_is_good_in_its_organization_alone(piece: int, app: QuartTrio, pool: Pool, world: World, clock: FakeClock) -> None:
    wrong: list[str] = []
    part = list(enumerate(walked()))[piece::PIECES]
    callers = {name: world.callers[name] for _, (_, _, name) in part}
    cases = ((name, caller, *state) for name, caller in callers.items() for state in states(caller, world, clock.now()).items())
    for name, caller, kind, proofs in cases:
        assert caller.account is not None
        await write_proofs(pool, caller.account.id, proofs)
        written = await mark(pool)
        for route, access in ((route, access) for number, (route, access, by) in part if by == name and not is_alike(access, kind, number)):
            request, is_open = REQUESTS.get(route, Request()), is_good(route, access, kind)
            if request.setup_sql:  # which can write the caller's sessions
                await prepare(pool, request, caller)
                await write_proofs(pool, caller.account.id, proofs)
            before = await mark(pool)
            answer = await call(app, route, request, caller)
            expected = "401" if (route, kind) == LEAVING else TABLE[route][name]
            if is_open and (finding := difference(answer, expected)):
                wrong.append(f"{route} as {name}, {kind}: {finding}")
            elif not is_open and not asks_for_own_proof(access, answer):
                wrong.append(f"{route} as {name}, {kind}: {answer.status} {answer.headers.get('Location', '')} asks for no own proof")
            elif finding := await difference_to_unknown(app, route, kind, caller, answer):
                wrong.append(f"{route} as {name}: it tells members from strangers: {finding}")
            elif not is_open and (changes := but_kept_forms(await changes_since(pool, before))):
                wrong.append(f"{route} as {name}, {kind}: it was refused, and changed {changes}")
            await undo(pool, written)
        await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state


def is_alike(access: Access, kind: str, number: int) -> bool:
    """Return whether the route with this number is left out, because another route shows the same. No refusal is left out.

    The matrix covers sessions with an own proof. All pages for organizations open through the same decorator. A route for the account does
    not ask which organization the session belongs to.
    """
    if kind == "merged" or (kind == "restricted here" and access.name == "member_page"):
        return number % SAMPLED > 0
    return access.restricted is Restricted.NO and kind == ("restricted here", "restricted elsewhere")[number % 2]


def is_good(route: str, access: Access, kind: str) -> bool:
    """Return whether such a session is good at the route."""
    if kind == "restricted elsewhere":
        return access.restricted is Restricted.YES and without_variant(route) not in OF_THE_APPLICATION
    return kind == "merged" or access.restricted is not Restricted.NO


def asks_for_own_proof(access: Access, answer: Answer) -> bool:
    if answer.status == 303:
        location = urlsplit(answer.headers.get("Location", ""))
        return location.path == REAUTHENTICATION_PATH and parse_qs(location.query).get("policy") == [OWN_PROOF]
    challenge = answer.headers.get("WWW-Authenticate", "")
    return answer.status == 401 and 'error="insufficient_user_authentication"' in challenge and 'max_age="0"' in challenge


async def difference_to_unknown(app: QuartTrio, route: str, kind: str, caller: Caller, answer: Answer) -> str | None:
    """Return how the answer for another organization differs from the answer for a missing organization, but for its slug."""
    if kind != "restricted elsewhere" or "<org_slug>" not in route:
        return None
    request = REQUESTS.get(route, Request())
    unknown = await call(app, route, replace(request, things={**request.things, "org_slug": "no-such-org"}), caller)
    here, there = plain(answer), plain(unknown)
    return None if here == there else f"{here} for a member, {there} without the organization"


def plain(answer: Answer) -> tuple[object, ...]:
    """Return the whole answer, without the slug, the time, and the ids of the request and a kept form."""
    headers = (f"{name}: {value}" for name, value in sorted(answer.headers.items()) if name.lower() not in OF_REQUEST)
    return answer.status, *(re.sub(VARIABLE, "<variable>", text) for text in (*headers, answer.text))


OF_REQUEST: Final = ("x-request-id", "content-length")
VARIABLE: Final = r'(?:organizations(?:/|%2F)|form=|"timestamp": ")[^/%&"]*'


def but_kept_forms(changes: Changes) -> list[str]:
    """Return the tables that a request has changed, but for the form that waits for the confirmation."""
    return sorted({table for table, _ in changes.lost | changes.got} - {"kept_forms"})

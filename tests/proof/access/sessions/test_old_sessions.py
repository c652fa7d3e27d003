"""What a stolen session can't do: every route that outlives its caller needs a recent or a fresh sign-in (security A-12)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import Access, access_of
from tests.proof.access.calls import Request, age_sessions, call, prepare, routes, without_variant
from tests.proof.access.state import changes_since, mark, state, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.support.builders import application, run_sql
from tests.support.connections.proofs import older_sessions

pytestmark = pytest.mark.slow

TABLE = read_matrix()
ACCESS = {route: access_of(view) for route, view in routes(application())}
SECOND = timedelta(seconds=1)

# Changes that outlive the session, and still need no recent sign-in.
WITHOUT_RECENT_SIGN_IN = {
    "PATCH /api/user": "a name needs none; another address does, as tested below",
    "PUT /api/user/picture": "an image needs none, like a name",
    "DELETE /api/user/picture": "an image needs none, like a name",
    "PATCH /api/user/attributes": "an attribute that users may write needs none, like a name",
    "PATCH /api/user/devices/<device_id>": "a name needs none",
    "DELETE /api/user/devices/<device_id>": "only ends access",
    "DELETE /api/user/consents/<service_id>": "only ends access of an application",
    "POST /api/invitations/accept": "callers without a session can do the same with the token of the invitation",
    "POST /api/invitations/decline": "callers without a session can do the same with the token of the invitation",
    "DELETE /api/user/passkeys/wait": "only keeps the passkeys",
    "POST /api/auth/reauthenticate": "renews the sign-in itself",
    "POST /api/auth/reauthenticate/email": "renews the sign-in itself",
    "POST /api/auth/reauthenticate/passkey/options": "renews the sign-in itself",
    "POST /api/auth/reauthenticate/<provider>": "renews the sign-in itself",
    **{
        f"POST {of}/sign-in-policy/preview": "a preview changes nothing, and is refused to impersonators alone"
        for of in ("/api/organizations/<org_slug>", "/api/organizations/<org_slug>/services/<service_slug>", "/api/platform")
    },
    "POST /auth/device/verify": "single sign-on: the session signs the user in to applications",
}


def outlives(route: str) -> bool:
    """Return whether an API operation outlives its caller. Reading is none, except for an export."""
    access = ACCESS[without_variant(route)]
    if not access.is_of_api:
        return False  # pages have their own walk
    row = access.row(route.partition(" ")[0])
    return (row.outlives and not route.startswith("GET")) or row.age is SignInAge.FRESH


def old_sign_ins() -> Iterator[tuple[str, Access, str]]:
    """Yield every operation that needs a recent sign-in, and a user who may call it."""
    for route, row in TABLE.items():
        access = ACCESS[without_variant(route)]
        users = [name for name, status in row.items() if name in USERS and status.startswith("2")]
        if outlives(route) and without_variant(route) not in WITHOUT_RECENT_SIGN_IN and users:
            yield route, access, users[0]


USERS = ("stranger", "member", "admin", "owner", "platform", "with-mfa")


def test_the_table_has_all_exceptions() -> None:
    exceptions = {route for route, access in ACCESS.items() if outlives(route) and access.row(route.partition(" ")[0]).age is SignInAge.ANY}
    assert exceptions == WITHOUT_RECENT_SIGN_IN.keys()
    walked = {without_variant(route) for route, _, _ in old_sign_ins()}
    expected = {route for route in ACCESS if outlives(route)} - exceptions
    assert expected - walked == set(), "a user of the table may call each of these"


@pytest.mark.parametrize("piece", range(4))
async def test_an_old_session_does_nothing_that_outlives_it(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    """Ten days old: every route. As old as a recent sign-in may be: too old only where a fresh sign-in is needed."""
    wrong: list[str] = []
    policy = Policy()
    for route, access, name in list(old_sign_ins())[piece::4]:
        request, caller = REQUESTS.get(route, Request()), world.callers[name]
        needed = access.row(route.partition(" ")[0]).age
        for age in (timedelta(days=10), policy.recent_sign_in_ttl + SECOND, policy.fresh_sign_in_ttl + SECOND):
            is_refused = age > needed.limit(policy)
            await prepare(pool, request, caller)
            await age_sessions(pool, caller, age)
            aged = await mark(pool)
            answer = await call(app, route, request, caller)
            challenge = answer.headers.get("WWW-Authenticate", "")
            if is_refused:
                seconds = int(needed.limit(policy).total_seconds())
                is_challenge = 'error="insufficient_user_authentication"' in challenge and f'max_age="{seconds}"' in challenge
                if answer.status != 401 or not is_challenge:
                    wrong.append(f"{route} as {name}, {age} after the sign-in: {answer.status} {challenge}")
                if await changes_since(pool, aged):
                    wrong.append(f"{route} as {name}, {age} after the sign-in: it was refused, and changed something")
            elif str(answer.status) != TABLE[route][name][:3]:
                wrong.append(f"{route} as {name}, {age} after the sign-in: {answer.status} instead of {TABLE[route][name]}")
            await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state


# The only route with a part that needs more: the request, whether it needs a sign-in, and its maximum age.
PARTS: list[tuple[dict[str, Any], str | None]] = [
    ({"name": "Ada Lovelace"}, None),
    ({"email": "thief@example.com"}, "600"),
    ({"email": "thief@example.com", "name": "Ada Lovelace"}, "600"),
]


async def test_an_old_session_changes_a_name_but_no_address(app: QuartTrio, pool: Pool, world: World) -> None:
    for body, max_age in PARTS:
        await run_sql(pool, older_sessions("10 days"))
        before = await mark(pool)
        answer = await call(app, "PATCH /api/user", Request(body), world.callers["member"])
        if max_age is None:
            assert answer.status == 200, (body, answer.text)
        else:
            assert answer.status == 401, (body, answer.text)
            assert f'error="insufficient_user_authentication", max_age="{max_age}"' in answer.headers["WWW-Authenticate"]
            assert not await changes_since(pool, before)
        await undo(pool)

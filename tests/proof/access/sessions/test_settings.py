"""Changes to an organization that outlive their callers: not by an old session, an impersonator, or a program without grants.

The access matrix and the walk with old sessions try every route. These requests do the most harm.
"""

from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.proof.access.calls import Request, call, prepare
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import OF_THE_SESSION, ORG, PAGES_OF_ORG, REQUESTS, SERVICE
from tests.proof.access.world import Caller, World
from tests.support.builders import run_sql
from tests.support.connections.proofs import older_sessions

pytestmark = pytest.mark.slow

APPLICATION: Final = f"{PAGES_OF_ORG}/applications/<service_slug>"
CHANGED: Final = {"organization_attributes", "plans", "organizations", "branding", "invitations", "memberships"}
PRICE: Final = {"name": "Plan", "price_cents": "1", "currency": "eur", "features": "everything"}
# Every change by the API, and on the page.
CHANGES: Final[dict[str, tuple[tuple[str, Request], tuple[str, Request]]]] = {
    "who writes a claim": (
        (f"PATCH {ORG}/attributes/<attribute_name>", Request({"writers": ["user", "admin"]})),
        (
            f"POST {PAGES_OF_ORG}/attributes/<attribute_name>",
            Request(form={**OF_THE_SESSION, "label": "Team", "position": "1", "writer:user": "yes", "writer:admin": "yes"}),
        ),
    ),
    "an attribute": (
        (f"DELETE {ORG}/attributes/<attribute_name>", REQUESTS[f"DELETE {ORG}/attributes/<attribute_name>"]),
        (f"POST {PAGES_OF_ORG}/attributes/<attribute_name>/delete", REQUESTS[f"POST {PAGES_OF_ORG}/attributes/<attribute_name>/delete"]),
    ),
    "a price": (
        (f"PATCH {SERVICE}/plans/<plan_id>", Request({"price_cents": 1, "features": ["everything"]})),
        (f"POST {APPLICATION}/plans/<plan_id>", Request(form={**OF_THE_SESSION, **PRICE})),
    ),
    "who sees end users": (
        (f"PATCH {ORG}", Request({"members_see_end_users": False})),
        (f"POST {PAGES_OF_ORG}/settings", Request(form={**OF_THE_SESSION, "name": "Acme", "device_trust_days": "7"})),
    ),
    "the name": (
        (f"PATCH {ORG}", Request({"name": "Acme Bank"})),
        (f"POST {PAGES_OF_ORG}/settings", REQUESTS[f"POST {PAGES_OF_ORG}/settings"]),
    ),
    "the branding": (
        (f"PATCH {ORG}/branding", REQUESTS[f"PATCH {ORG}/branding"]),
        (f"POST {PAGES_OF_ORG}/branding", REQUESTS[f"POST {PAGES_OF_ORG}/branding"]),
    ),
    "an invitation": (
        (f"POST {ORG}/invitations/<invitation_id>", Request()),
        (f"POST {PAGES_OF_ORG}/invitations/<invitation_id>/cancel", Request(form=OF_THE_SESSION)),
    ),
    "a member's role": (
        (f"PATCH {ORG}/members/<user_id>", Request({"role": "admin"})),
        (f"POST {PAGES_OF_ORG}/members/<user_id>/role", Request(form={**OF_THE_SESSION, "role": "admin"})),
    ),
}


async def tried(app: QuartTrio, pool: Pool, route: str, request: Request, caller: Caller, *, is_old: bool = False) -> tuple[int, str, bool]:
    """Return the status, the answer's reason or target, and whether the organization has changed. It is undone."""
    await run_sql(pool, "delete from rates")
    await prepare(pool, request, caller)
    if is_old:
        assert caller.account is not None
        await run_sql(pool, f"{older_sessions('3 hours')} where user_id = %s", caller.account.id)
    before = await mark(pool)
    answer = await call(app, route, request, caller)
    changes = await changes_since(pool, before)
    changed = {table for table, _ in changes.got | changes.lost} & CHANGED
    await undo(pool)
    reason = answer.headers.get("Location", "") or answer.headers.get("WWW-Authenticate", "") or answer.text
    return answer.status, reason, bool(changed)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_the_organization_outlives_its_caller(change: str, app: QuartTrio, pool: Pool, world: World) -> None:
    (route, request), (page, form) = CHANGES[change]
    callers = world.callers

    status, challenge, changed = await tried(app, pool, route, request, callers["owner"], is_old=True)
    assert (status, 'error="insufficient_user_authentication"' in challenge, changed) == (401, True, False), challenge
    status, target, changed = await tried(app, pool, page, form, callers["browser"], is_old=True)
    assert (status, target.startswith("/app/reauthenticate?form="), changed) == (303, True, False), target
    for way, sent, name, because in (
        (route, request, "as-owner", "impersonating"),
        (page, form, "impersonating-browser", "impersonating"),
        # The admin role does not change roles.
        (route, request, "owner-robot" if change == "a member's role" else "admin-robot", "remains when the service account is gone"),
    ):
        status, reason, changed = await tried(app, pool, way, sent, callers[name])
        assert (status, because in reason, changed) == (403, True, False), (name, reason)

    for way, sent, name in ((route, request, "owner"), (page, form, "browser"), (route, request, "granted-robot")):
        status, reason, changed = await tried(app, pool, way, sent, callers[name])
        assert (status in (200, 204, 303), "/app/reauthenticate" in reason, changed) == (True, False, True), (name, status, reason)

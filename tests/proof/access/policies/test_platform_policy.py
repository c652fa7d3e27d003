"""The platform's sign-in policy counts wherever a platform owner's right opens a route (security SP-1)."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.sign_in_policy.rules import Document, Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from entrypoints.http.edge.access.declaration import access_of
from ports import Ports
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import changes_since, mark, state, undo
from tests.proof.access.table import CODES, REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.proof.policy.world import ENROLL, REFUSED, outcome_of, outcome_of_page
from tests.support.builders import Answer, application, run_sql

pytestmark = pytest.mark.slow

TABLE = read_matrix()
ACCESS = {route: access_of(view) for route, view in routes(application())}
# All platform owners, and a user in the same place without any right.
OWNERS = {"platform": "stranger", "platform-application": "application", "platform-browser": "stranger-browser"}
# Platform owners who act as a user, and the same caller without a session.
IMPERSONATORS = {"as-member": "anonymous", "as-owner": "anonymous", "impersonating-browser": "ended-browser"}
# The platform owners have no factor, or another network.
POLICIES: dict[str, Document] = {
    ENROLL: {"second_factor": ["everyone"]},
    REFUSED: {"second_factor": ["everyone"], "admin_networks": ["198.51.100.0/24"]},
}


def opened_by_rights() -> Iterator[tuple[str, str]]:
    """Yield every route that opens to a platform owner and is closed to everyone else, and this owner."""
    for names in (OWNERS, IMPERSONATORS):
        for route, row in TABLE.items():
            yield from ((route, name) for name, other in names.items() if row.get(name, "401") not in CODES and row.get(other) in CODES)


def walked() -> list[tuple[str, str]]:
    """Return the routes that check the rights themselves, and a further route per access decorator."""
    found = dict[tuple[str, ...], tuple[str, str]]()
    for route, name in opened_by_rights():
        access = ACCESS[without_variant(route)]
        is_checked_by_decorator = access.is_of_platform or name in IMPERSONATORS
        is_of_own_user = access.name == "sign_in_session"  # also in a browser that impersonates another user
        if not access.row(route.partition(" ")[0]).ends_session and not is_of_own_user:
            found.setdefault((access.name, name) if is_checked_by_decorator else (route, name), (route, name))
    return list(found.values())


def test_only_the_privacy_api_has_rights_of_the_platform_elsewhere() -> None:
    elsewhere = {route for route, name in opened_by_rights() if name in OWNERS and not ACCESS[without_variant(route)].is_of_platform}
    assert elsewhere == {"GET /api/privacy/export/<user_id>", "DELETE /api/privacy/forget/<user_id>"}
    assert elsewhere <= {route for route, _ in walked()}


def test_impersonators_below_the_policy_can_only_end_the_impersonation() -> None:
    ends = {route for route, access in ACCESS.items() if access.row(route.partition(" ")[0]).ends_session}
    assert ends == {"POST /api/auth/logout", "POST /app/impersonation/end"}


@pytest.mark.parametrize("expected", POLICIES)
async def test_a_right_of_the_platform_needs_its_policy(expected: str, app: QuartTrio, pool: Pool, ports: Ports, world: World) -> None:
    wrong: list[str] = []
    for route, name in walked():
        request, caller = REQUESTS.get(route, Request()), world.callers[name]
        await put_on_platform(ports, POLICIES[expected])
        await run_sql(pool, "update users set mfa_enabled_at = null, passkey_second_at = null, passkey_count = 0 where is_platform_owner")
        await prepare(pool, request, caller)
        before = await mark(pool)
        answer = await call(app, route, request, caller)
        if outcome(answer) != expected:
            wrong.append(f"{route} as {name}: {answer.status} {answer.text[:200]}")
        changes = await changes_since(pool, before)
        # An impersonator's requests are recorded before they are judged (security I-5).
        if others := [row for _, row in changes.got | changes.lost if '"impersonation.request"' not in row]:
            wrong.append(f"{route} as {name}: it was refused, and changed {others}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state


def outcome(answer: Answer) -> str:
    is_of_page = answer.status == 303 or answer.headers["Content-Type"].startswith("text/html")
    return outcome_of_page(answer) if is_of_page else outcome_of(answer)


async def put_on_platform(ports: Ports, document: Document) -> None:
    policy = SignInPolicy(id=uuid4(), org_id=None, rules=Rules.read(document), changed_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)

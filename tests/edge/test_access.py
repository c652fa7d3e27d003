"""The access decorators, and the check at start: every route has exactly one access decorator, as the outermost."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

import pytest
from quart import Quart
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication import sessions
from core.kernel.callers import Person
from core.kernel.causes import Anonymous
from core.kernel.rate_limits import LOGIN
from core.kernel.roles import Capability
from entrypoints.http.base.context import agent, caller, signed_in
from entrypoints.http.edge.access import anyone, effects, member, operations, page_session, person, person_anywhere
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.access.effects import GIVES, MINE, Effect, EffectRow
from entrypoints.http.edge.access.guards import AccessDecorator
from entrypoints.http.edge.bodies import Message
from entrypoints.http.edge.dispatch import check_every_route
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import routes
from tests.support.builders import Api, add_account, add_member, add_organization, application, run_sql
from tests.support.direct import PEER, ask
from tests.tables import table

View = Callable[..., Awaitable[Any]]


async def bare() -> Message:
    return Message(message="reached")


def wrapped(view: View) -> View:
    """A decorator that copies the view's attributes, as `functools.wraps` does."""

    @wraps(view)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await view(*args, **kwargs)

    return wrapper


def app_with(view: View) -> Quart:
    app = Quart("sample", static_folder=None)
    app.add_url_rule("/sample", "sample", view)
    return app


GOOD = {
    "anyone": anyone(bare),
    "person": person(bare),
    "person_anywhere": person_anywhere(bare),
    "operations": operations(bare),
    "with a limit of its own": anyone(limit=LOGIN)(bare),
    "above other decorators": person(wrapped(wrapped(bare))),
}
BAD = {
    "none": bare,
    "none, but others": wrapped(wrapped(bare)),
    "not outermost": wrapped(anyone(bare)),
    "deep inside": wrapped(wrapped(person(wrapped(bare)))),
    "two": anyone(person(bare)),
    "the same twice": person(person(bare)),
    "two, one with a limit": anyone(limit=LOGIN)(person(bare)),
    "two with another between": anyone(wrapped(person(bare))),
    "operations over another": operations(person(bare)),
}


@table("name", GOOD)
def test_one_decorator_as_the_outermost_is_accepted(name: str) -> None:
    check_every_route(app_with(GOOD[name]))


@table("name", BAD)
def test_a_wrong_decorator_stops_the_start(name: str) -> None:
    with pytest.raises(ValueError, match=r"/sample: it"):
        check_every_route(app_with(BAD[name]))


@table(
    ("name", "reason"),
    [
        ("none, but others", "has no access decorator"),
        ("deep inside", "not the outermost"),
        ("two", "more than one"),
        ("two with another between", "more than one"),
    ],
)
def test_the_error_names_the_mistake(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        access_of(BAD[name])


def test_the_error_names_all_wrong_routes() -> None:
    app = app_with(bare)
    app.add_url_rule("/other", "other", wrapped(anyone(bare)))
    app.add_url_rule("/right", "right", anyone(bare))
    with pytest.raises(ValueError, match=r"/other: .*outermost.*; /sample: .*no access") as error:
        check_every_route(app)
    assert "/right" not in str(error.value)


def test_a_static_route_is_found() -> None:
    app = Quart("sample", static_folder="/tmp")  # noqa: S108
    with pytest.raises(ValueError, match="no access decorator"):
        check_every_route(app)


@table(
    ("decorator", "methods", "starts"),
    [
        (person, ["GET"], True),
        (person, ["GET", "POST"], False),
        (person(MINE), ["GET", "POST"], True),
        (member(Capability.MEMBERS_MANAGE), ["DELETE"], False),
        (member(Capability.MEMBERS_MANAGE, GIVES), ["DELETE"], True),
        (page_session, ["POST"], False),
        (operations, ["POST"], False),
        (anyone, ["POST"], True),
    ],
)
def test_a_route_that_changes_something_without_an_effect_stops_the_start(
    decorator: AccessDecorator, methods: list[str], starts: bool
) -> None:
    app = Quart("sample", static_folder=None)
    app.add_url_rule("/sample", "sample", decorator(bare), methods=methods)
    if starts:
        check_every_route(app)
    else:
        with pytest.raises(ValueError, match="/sample: it does not declare its effect"):
            check_every_route(app)


def test_an_exception_of_the_table_has_a_reason_and_is_used() -> None:
    table = {name: row for name, row in vars(effects).items() if isinstance(row, EffectRow)}
    assert {row.effect for name, row in table.items() if name in Effect.__members__} == set(Effect)
    assert {name for name, row in table.items() if not row.reason} == Effect.__members__.keys()
    assert len(set(table.values())) == len(table)
    used = {access_of(view).row(route.partition(" ")[0]) for route, view in routes(application())}
    assert used == set(table.values())


async def test_every_route_of_the_application_passes(app: QuartTrio) -> None:
    check_every_route(app)


async def test_unknown_organizations_and_pending_sign_ins_are_refused(app: QuartTrio) -> None:
    """The access matrix has only existing organizations, verified accounts and no pending sign-ins."""
    named: dict[str, set[str]] = defaultdict(set)
    for route, view in routes(app):
        named[access_of(view).name].add(route)
    assert named["verified_person"] == {
        *("POST /api/organizations", "POST /api/user/personal-tokens"),
        *("POST /api/user/passkeys", "POST /api/user/passkeys/options"),
    }
    assert named["person_anywhere"] == {
        *("GET /api/auth/reauthenticate", "POST /api/auth/reauthenticate", "POST /api/auth/reauthenticate/email"),
        *("POST /api/auth/reauthenticate/<provider>", "POST /api/auth/reauthenticate/passkey/options"),
        *("POST /api/auth/logout", "GET /api/organizations", "GET /api/invitations", "GET /api/user/applications"),
        *("GET /api/user/consents", "DELETE /api/user/consents/<service_id>"),
        *("GET /api/user/personal-tokens", "DELETE /api/user/personal-tokens/<personal_token_id>"),
        *("GET /api/privacy/export/<user_id>", "DELETE /api/privacy/forget/<user_id>"),
    }
    assert named["pre_auth"] == {"POST /api/auth/mfa/verify"}
    assert all(route.split()[1].startswith("/app/") or route == "GET /app" for route in named["page_session"])
    assert named["sign_in_session"] == {
        *("GET /app/enroll", "POST /app/enroll", "GET /app/passkey", "POST /app/passkey", "GET /app/signed-in"),
        *("GET /auth/device/verify", "GET /app/reauthenticate", "POST /app/reauthenticate", "POST /app/reauthenticate/email"),
        *("POST /app/reauthenticate/<provider:provider>", "POST /app/reauthenticate/connection"),
    }
    assert named["person_or_browser"] == {
        "POST /auth/device/verify",
        "GET /api/organizations/<org_slug>/services/<service_slug>/saml/login",
    }
    assert {route for route, view in routes(app) if access_of(view).limit is None} == {
        "GET /",
        "GET /health",
        "GET /health/live",
        "GET /health/ready",
        "GET /metrics",
        "GET /.well-known/jwks.json",
        "GET /.well-known/oauth-authorization-server",
        "GET /.well-known/oauth-protected-resource/api",
        "GET /.well-known/openid-configuration",
        "GET /.well-known/authzen-configuration",
        "GET /.well-known/webauthn",
        "GET /.well-known/apple-app-site-association",
        "GET /.well-known/assetlinks.json",
        "GET /openapi.json",
        "GET /docs",
        "GET /docs/api",
        "GET /docs/<path:page>",
        "GET /assets/<name>",
        *(
            "POST /auth/token",
            "POST /auth/revoke",
            "POST /auth/introspect",
            "POST /auth/par",
            "GET /auth/userinfo",
            "POST /auth/userinfo",
        ),  # these count by application when they know it
        *("GET /auth/authorize", "POST /auth/authorize"),  # these count where they show a page
        "POST /auth/connections/<connection_id>/initiate",  # it counts if it is refused, and the GET that follows counts
    }


# The caller that a decorator passes on


SEEN: Final[list[Any]] = []


@pytest.fixture
def seen() -> list[Any]:
    """The callers that this module's routes saw."""
    SEEN.clear()
    return SEEN


def add_routes(app: QuartTrio) -> None:
    async def view() -> str:
        SEEN.append(caller())
        return "reached"

    async def person_view() -> str:
        SEEN.append(signed_in())
        return "reached"

    async def agent_view() -> str:
        SEEN.append(agent())
        return "reached"

    app.add_url_rule("/test/anyone", "test_anyone", anyone(view))
    app.add_url_rule("/test/person", "test_person", person(person_view))
    app.add_url_rule("/test/agent", "test_agent", anyone(agent_view))


async def test_an_anonymous_caller_has_an_address_and_an_agent(app: QuartTrio, seen: list[Any]) -> None:
    assert (await ask(app, "GET", "/test/anyone", headers=[(b"user-agent", b"tests/1.0")])).status == 200
    [found] = seen
    assert (found.address, found.agent) == (PEER, "tests/1.0")
    assert not isinstance(found, Person)


async def test_a_long_agent_is_cut(app: QuartTrio, seen: list[Any]) -> None:
    await ask(app, "GET", "/test/agent", headers=[(b"user-agent", b"x" * 600)])
    await ask(app, "GET", "/test/agent")
    assert seen == ["x" * 512, None]


async def test_an_agent_has_no_control_characters(app: QuartTrio, seen: list[Any]) -> None:
    for sent in (b"evil\x1b[2Jagent", b"evil\x9b2Jagent", "evil\u202eagent".encode(), b"plain/1.0 (x; y)"):
        await ask(app, "GET", "/test/agent", headers=[(b"user-agent", sent)])
    assert seen[0] == "evil?[2Jagent"
    assert all(agent.isprintable() for agent in seen)
    assert seen[-1] == "plain/1.0 (x; y)"


async def test_a_signed_in_caller_has_the_data_of_the_database(app: QuartTrio, api: Api, ports: Ports, pool: Pool, seen: list[Any]) -> None:
    account = await add_account(ports)
    token = (await api.login()).json["access_token"]
    async with pool.connection() as connection:
        await connection.execute("update users set is_platform_owner = true, email = 'new@example.com', email_verified_at = null")
    assert (await ask(app, "GET", "/test/person", headers=[(b"user-agent", b"tests/1.0")], token=token)).status == 200
    [found] = seen
    assert (found.user_id, found.email, found.email_verified, found.is_platform_owner) == (account.id, "new@example.com", False, True)
    assert (found.address, found.agent, found.organization, found.impersonator_id) == (PEER, "tests/1.0", None, None)


async def test_an_ended_session_is_refused(app: QuartTrio, api: Api, ports: Ports, clock: FakeClock, pool: Pool, seen: list[Any]) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    for column, value in (("ended_at", clock.now()), ("expires_at", clock.now())):
        async with pool.connection() as connection:
            await connection.execute(f"update sessions set {column} = %s", (value,))  # noqa: S608
        answer = await ask(app, "GET", "/test/person", token=token)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
        async with pool.connection() as connection:
            await connection.execute("update sessions set ended_at = null, expires_at = ends_at")
    assert (await ask(app, "GET", "/test/person", token=token)).status == 200
    clock.advance(timedelta(minutes=16))
    assert (await ask(app, "GET", "/test/person", token=token)).code == "TOKEN_EXPIRED"
    assert len(seen) == 1


async def test_a_token_with_the_session_of_another_user_is_refused(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, seen: list[Any]
) -> None:
    await add_account(ports)
    other = await add_account(ports, "other@example.com")
    token = (await api.login()).json["access_token"]
    async with pool.connection() as connection:
        await connection.execute("update sessions set user_id = %s", (other.id,))
    assert (await ask(app, "GET", "/test/person", token=token)).code == "UNAUTHORIZED"
    assert seen == []


async def test_the_token_of_a_deleted_account_is_refused(app: QuartTrio, api: Api, ports: Ports, pool: Pool, seen: list[Any]) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    async with pool.connection() as connection:
        await connection.execute("delete from users")
    assert (await ask(app, "GET", "/test/person", token=token)).code == "UNAUTHORIZED"
    assert seen == []


async def test_claims_of_a_token_give_no_access_to_another_organization(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, seen: list[Any]
) -> None:
    account = await add_account(ports)
    login = (await api.login()).json
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "acme-two")
    for one in (org, other_tenant):
        await add_member(pool, one, account.id, "admin")
    await run_sql(pool, "update sessions set org_id = %s", org)
    pair = await sessions.refresh(ports, Anonymous(), login["refresh_token"])
    assert (await ask(app, "GET", "/test/person", token=pair.access_token)).status == 200
    assert (seen[0].organization.slug, seen[0].organization.role) == ("acme", "admin")
    async with pool.connection() as connection:
        await connection.execute("delete from memberships where org_id = %s", (org,))
    answer = await ask(app, "GET", "/test/person", token=pair.access_token)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert len(seen) == 1

"""A table of paths times rules: what every sign-in rule does on every path to a session or a token."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from core.kernel.values import digest
from core.provisioning.model.directories import new_token
from entrypoints.http.edge.client_address import NO_ADDRESS
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import (
    ALLOWED,
    DUE,
    ENROLL,
    REFUSED,
    STATES,
    STEP_UP,
    World,
    new_world,
    outcome_of,
    outcome_of_flow,
    outcome_of_page,
)
from tests.support.browser import form_token
from tests.support.builders import PASSWORD, Api, add_invitation, add_member, add_organization, run_sql, sign_in
from tests.support.passkeys.users import PasskeyUser, sign_in_with_passkey
from tests.support.programs import add_credential, add_service_account
from tests.support.services import add_api_key

ORGANIZATION: Final = "/api/organizations/acme"


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy, and the outcome per user state. `wait` passes between the sign-in and the use."""

    document: Mapping[str, Any]
    outcomes: Mapping[str, str]
    wait: timedelta = timedelta(0)


def _of(*outcomes: str) -> dict[str, str]:
    return dict(zip(STATES, outcomes, strict=True))


RULES: Final[Mapping[str, Rule]] = {
    "no rules": Rule({}, _of(*[ALLOWED] * 5)),
    "second factor": Rule({"second_factor": ["everyone"]}, _of(ENROLL, STEP_UP, ALLOWED, STEP_UP, ALLOWED)),
    "second factor of admins": Rule({"second_factor": ["admins"]}, _of(ENROLL, STEP_UP, ALLOWED, STEP_UP, ALLOWED)),
    "second factor at a high risk": Rule({"second_factor": ["high_risk"]}, _of(*[ALLOWED] * 5)),
    "phishing-resistant": Rule({"phishing_resistant": ["everyone"]}, _of(ENROLL, ENROLL, ENROLL, STEP_UP, ALLOWED)),
    "only passkeys": Rule({"methods": ["passkey"]}, _of(ENROLL, ENROLL, ENROLL, STEP_UP, ALLOWED)),
    "only passwords": Rule({"methods": ["password"]}, _of(ALLOWED, ALLOWED, ALLOWED, ALLOWED, STEP_UP)),
    "later": Rule(
        {"phishing_resistant": ["everyone"], "due_at": {"phishing_resistant": "2999-01-01T00:00:00Z"}},
        _of(DUE, DUE, DUE, ALLOWED, ALLOWED),
    ),
    "lifetime": Rule({"session_lifetime_minutes": 10}, _of(*[STEP_UP] * 5), timedelta(minutes=11)),
    "younger than the lifetime": Rule({"session_lifetime_minutes": 15}, _of(*[ALLOWED] * 5), timedelta(minutes=14)),
    "idle": Rule({"session_idle_minutes": 5}, _of(*[STEP_UP] * 5), timedelta(minutes=6)),
    "networks": Rule({"admin_networks": ["198.51.100.0/24"]}, _of(*[REFUSED] * 5)),
    "networks with the address": Rule({"admin_networks": ["203.0.113.0/24", NO_ADDRESS]}, _of(*[ALLOWED] * 5)),
}
OF_AGE: Final = ("lifetime", "idle")
OF_NETWORKS: Final = ("networks",)


async def _nothing(_: World) -> object:
    return None


@dataclass(frozen=True, slots=True)
class Path:
    """A path to a session or token.

    `prepare` runs before the policy is stored, and its result is passed on; it runs after the wait if `is_short`. `ignores` are the rules
    that do not concern the path, and `skips` the states and rules that cannot take it. `says` has what its answer says in an outcome's
    place.
    """

    walk: Callable[[World, Any], Awaitable[str]]
    prepare: Callable[[World], Awaitable[object]] = _nothing
    is_short: bool = False
    ignores: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)

    def result(self, rule: str, state: str) -> str:
        outcome = ALLOWED if rule in self.ignores else RULES[rule].outcomes[state]
        return self.says.get(outcome, ALLOWED if outcome == DUE else outcome)


# Acting in the organization


async def _call_the_api(world: World, _: object) -> str:
    return outcome_of(await world.api.get(f"{ORGANIZATION}/members", token=world.token))


async def _select(world: World, _: object) -> str:
    return outcome_of(await world.api.post(f"{ORGANIZATION}/select", token=world.token))


async def _open_the_console(world: World, _: object) -> str:
    return outcome_of_page(await world.browser.open("/app/organizations/acme"))


async def _create_personal_token(world: World, name: object = None) -> str:
    body = {"name": "Nightly", "scopes": ["members:read"], "org_slug": "acme", "expires_in_days": 30}
    return outcome_of(await world.api.post("/api/user/personal-tokens", body, token=world.token))


async def _prepare_personal_token(world: World) -> object:
    body = {"name": "Nightly", "scopes": ["members:read"], "org_slug": "acme", "expires_in_days": 30}
    answer = await world.api.post("/api/user/personal-tokens", body, token=world.token)
    assert answer.status == 200, answer.text
    return answer.json["token"]


async def _use_personal_token(world: World, token: Any) -> str:
    return outcome_of(await world.api.get(f"{ORGANIZATION}/members", token=token))


# The application's sessions


async def _prepare_code(world: World) -> object:
    return await world.code()


async def _exchange_code(world: World, code: Any) -> str:
    return outcome_of(await world.exchange(code))


async def _prepare_session_of_application(world: World) -> object:
    answer = await world.exchange(await world.code())
    assert answer.status == 200, answer.text
    return answer.json["refresh_token"]


async def _refresh_application(world: World, refresh_token: Any) -> str:
    return outcome_of(await world.send("/auth/token", grant_type="refresh_token", refresh_token=refresh_token))


async def _prepare_session(world: World) -> object:
    session = await sign_in(world.ports, world.ada, world.org)
    await world.prove(session.session_id)
    return session.refresh_token


async def _refresh(world: World, refresh_token: Any) -> str:
    return outcome_of(await world.api.post("/api/auth/refresh", {"refresh_token": refresh_token}))


async def _prepare_device(world: World) -> object:
    return (await world.send("/auth/device/code", with_secret=False)).json


async def _approve_device(world: World, codes: Any) -> str:
    body = {"user_code": codes["user_code"], "action": "approve"}
    return outcome_of(await world.api.post("/auth/device/verify", body, token=world.token))


async def _approve_device_in_browser(world: World, codes: Any) -> str:
    page = await world.browser.open("/auth/device/verify")
    fields = {"form_token": form_token(page), "user_code": codes["user_code"], "action": "approve"}
    return outcome_of_page(await world.browser.send("/auth/device/verify", **fields))


async def _prepare_approved_device(world: World) -> object:
    codes = await _prepare_device(world)
    assert await _approve_device(world, codes) == ALLOWED
    return codes


async def _poll_of_device(world: World, codes: Any) -> str:
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    return outcome_of(await world.send("/auth/token", with_secret=False, grant_type=grant, device_code=codes["device_code"]))


# The application in the browser


async def _authorize(world: World, _: object) -> str:
    return await outcome_of_flow(world, await world.authorize())


async def _authorize_silently(world: World, _: object) -> str:
    return await outcome_of_flow(world, await world.authorize(prompt="none"))


async def _sign_on(world: World, _: object) -> str:
    return await outcome_of_flow(world, await world.sign_on())


async def _sign_on_silently(world: World, _: object) -> str:
    return await outcome_of_flow(world, await world.sign_on(IsPassive="true"))


async def _sign_on_without_request(world: World, _: object) -> str:
    return await outcome_of_flow(world, await world.browser.open(f"{world.application.management}/login", follows=False))


async def _sign_on_over_the_api(world: World, _: object) -> str:
    path = f"{world.application.management}/login"
    return outcome_of(await world.api.get(path, token=world.token, headers={"Accept": "application/json"}))


# Sign-ins to the application over the API


async def _sign_in_with_password(world: World, _: object) -> str:
    body = {"email": world.ada.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    answer = await world.api.post("/api/auth/login", body)
    if answer.status == 200 and answer.json.get("mfa_required"):
        assert world.authenticator is not None
        answer = await world.api.post("/api/auth/mfa/verify", {"code": world.authenticator.code(1)}, token=answer.json["access_token"])
    return outcome_of(answer)


async def _prepare_passkey(world: World) -> object:
    user = PasskeyUser(world.api, world.token)
    await user.add()
    return user.authenticator


async def _sign_in_with_passkey(world: World, authenticator: Any) -> str:
    target = {"org_slug": "acme", "service_slug": "shop"}
    return outcome_of(await sign_in_with_passkey(world.api, authenticator, target))


RULES_WITH_WAIT: Final = tuple(name for name, rule in RULES.items() if rule.wait)
# Paths that no organization's policy concerns: sign-ins to the platform, the user's own account, and programs


async def _sign_in_to_the_platform(world: World, _: object) -> str:
    answer = await world.api.login(world.ada.email, PASSWORD)
    if answer.json.get("mfa_required"):
        return ALLOWED  # the platform asks for the account's second factor
    return outcome_of(answer)


async def _use_own_account(world: World, _: object) -> str:
    answers = [await world.api.get(path, token=world.token) for path in ("/api/user", "/api/organizations", "/api/user/personal-tokens")]
    pages = [await world.browser.open(path) for path in ("/app/account", "/app/account/security", "/app/account/organizations")]
    return ALLOWED if {answer.status for answer in (*answers, *pages)} == {200} else "not allowed"


async def _accept_an_invitation(world: World, _: object) -> str:
    globex = await add_organization(world.pool, "globex")
    await world.put(STRICTEST, org=globex)
    secret = str(uuid4())
    await add_invitation(world.ports, globex, world.ada.email, token_hash=digest(secret))
    return outcome_of(await world.api.post("/api/invitations/accept", {"token": secret}, token=world.token))


async def _leave(world: World, _: object) -> str:
    return outcome_of(await world.api.post(f"{ORGANIZATION}/leave", token=world.token))


async def _leave_on_a_page(world: World, _: object) -> str:
    await add_member(world.pool, world.org, world.ada.id, ADMIN, confirmed=True)
    page = "/app/account/organizations/acme/leave"
    left = await world.browser.submit(page, page)
    is_member = await run_sql(world.pool, "select 1 from memberships where user_id = %s and org_id = %s", world.ada.id, world.org)
    return ALLOWED if (left.status, is_member) == (303, []) else "not allowed"


async def _prepare_api_key(world: World) -> object:
    return await add_api_key(world.pool, world.service)


async def _use_api_key(world: World, key: Any) -> str:
    return outcome_of(await world.api.get("/api/service/users", headers={"X-Api-Key": key}))


async def _prepare_directory(world: World) -> object:
    token, prefix = new_token()
    await run_sql(
        world.pool,
        """
        insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at)
        values (%s, %s, 'Directory', %s, %s, %s, now())""",
        uuid4(),
        world.org,
        prefix,
        digest(token),
        world.ada.id,
    )
    return token


async def _provision(world: World, token: Any) -> str:
    return outcome_of(await world.api.get("/scim/v2/Users", token=token))


async def _prepare_service_account(world: World) -> object:
    robot = await add_service_account(world.pool, world.org, world.ada.id)
    return await add_credential(world.pool, world.api, robot, world.org)


async def _use_service_account(world: World, robot: Any) -> str:
    return outcome_of(await world.api.get(f"{ORGANIZATION}/members", token=await robot.token()))


async def _introspect(world: World, refresh_token: Any) -> str:
    answer = await world.send("/auth/introspect", token=refresh_token)
    return ALLOWED if answer.json["active"] else "inactive"


STRICTEST: Final = {"phishing_resistant": ["everyone"], "admin_networks": ["198.51.100.0/24"], "session_lifetime_minutes": 1}
OF_CODE: Final = ("code left out", "code used")
ALL: Final = tuple(RULES)
STATES_OF_IGNORING_PATHS: Final = ("bare", "passkey left out")
ALWAYS_NEW: Final = (*OF_AGE, *OF_NETWORKS)
INVALID_GRANT: Final = {STEP_UP: "invalid grant", ENROLL: "invalid grant"}
PATHS: Final[Mapping[str, Path]] = {
    "API": Path(_call_the_api),
    "selection": Path(_select),
    "console": Path(_open_the_console, says={DUE: ENROLL}),
    "creation of a personal token": Path(_create_personal_token, skips=("code left out", *RULES_WITH_WAIT)),
    "personal token": Path(
        _use_personal_token, _prepare_personal_token, ignores=OF_AGE, skips=("code left out",), says={STEP_UP: REFUSED, ENROLL: REFUSED}
    ),
    "code": Path(_exchange_code, _prepare_code, is_short=True, ignores=OF_NETWORKS, says=INVALID_GRANT),
    "refresh of an application": Path(_refresh_application, _prepare_session_of_application, ignores=OF_NETWORKS),
    "refresh": Path(_refresh, _prepare_session, ignores=OF_NETWORKS),
    "approval of a device": Path(_approve_device, _prepare_device, is_short=True, ignores=OF_NETWORKS),
    "approval of a device in a browser": Path(_approve_device_in_browser, _prepare_device, is_short=True, ignores=OF_NETWORKS),
    "device": Path(_poll_of_device, _prepare_approved_device, is_short=True, ignores=OF_NETWORKS, says=INVALID_GRANT),
    "authorization": Path(_authorize, ignores=OF_NETWORKS, says={DUE: ENROLL}),
    "silent authorization": Path(_authorize_silently, ignores=OF_NETWORKS),
    "SAML": Path(_sign_on, ignores=OF_NETWORKS, says={DUE: ENROLL}),
    "passive SAML": Path(_sign_on_silently, ignores=OF_NETWORKS),
    "SAML without a request": Path(_sign_on_without_request, ignores=OF_NETWORKS),
    "SAML over the API": Path(_sign_on_over_the_api, ignores=OF_NETWORKS),
    "sign-in to the platform": Path(_sign_in_to_the_platform, ignores=ALL, skips=("passkey used",)),
    "own account": Path(_use_own_account, ignores=ALL),
    "invitation": Path(_accept_an_invitation, ignores=ALL),
    "API key": Path(_use_api_key, _prepare_api_key, ignores=ALL),
    "SCIM": Path(_provision, _prepare_directory, ignores=ALL),
    "service account": Path(_use_service_account, _prepare_service_account, ignores=ALL),
    "introspection": Path(_introspect, _prepare_session_of_application, ignores=ALL),
    "password": Path(_sign_in_with_password, ignores=ALWAYS_NEW, skips=("code left out", "passkey used")),
    "passkey": Path(_sign_in_with_passkey, _prepare_passkey, ignores=ALWAYS_NEW, skips=("bare", *OF_CODE, "passkey left out")),
    # These paths come last, because they end the membership. An admin leaves from any network: it is an act about
    # oneself.
    "leaving": Path(_leave, ignores=ALL, skips=("code left out",)),
    # The page asks to confirm a sign-in that a provider did not ask for.
    "leaving on a page": Path(_leave_on_a_page, ignores=ALL, skips=("code left out", *OF_AGE)),
}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_has_its_outcome_on_every_path(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, rule: str, state: str
) -> None:
    """The paths are taken one by one, always as if the path was the first after the policy was stored.

    Paths that ignore all rules are taken in two states only. In the first state, most rules ask to enroll. In the second state, they ask
    for a step up.
    """
    world = await new_world(api, app, ports, pool, clock)
    paths = {name: path for name, path in PATHS.items() if not {state, rule} & {*path.skips}}
    if state not in STATES_OF_IGNORING_PATHS:
        paths = {name: path for name, path in paths.items() if path.ignores != ALL}
    await world.enter(STATES[state])
    prepared = {name: await path.prepare(world) for name, path in paths.items() if not path.is_short}
    clock.advance(RULES[rule].wait)
    if rule in OF_AGE:
        await world.sign_in_silently()
    prepared |= {name: await path.prepare(world) for name, path in paths.items() if path.is_short}
    await world.put(RULES[rule].document)
    outcomes = dict[str, str]()
    for name, path in paths.items():
        await run_sql(pool, "update users set policy_reminded_at = null")
        outcomes[name] = await path.walk(world, prepared[name])
    assert outcomes == {name: path.result(rule, state) for name, path in paths.items()}


OF_APPLICATION: Final = ("authorization", "silent authorization", "SAML", "passive SAML", "SAML without a request")
ELSEWHERE: Final = ("API", "console")
MET: Final[Mapping[str, tuple[str, ...]]] = {"mfa": ("code used", "passkey used"), "phr": ("passkey used",)}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
async def test_a_required_strength_leads_to_another_sign_in_with_each_protocol(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, state: str
) -> None:
    """The application alone requires it."""
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES[state])
    for acr, states in MET.items():
        await run_sql(pool, "update services set required_acr = %s", acr)
        outcomes = {name: await PATHS[name].walk(world, None) for name in (*OF_APPLICATION, *ELSEWHERE)}
        of_application = ALLOWED if state in states else STEP_UP
        assert outcomes == dict.fromkeys(OF_APPLICATION, of_application) | dict.fromkeys(ELSEWHERE, ALLOWED), acr


async def test_a_session_without_proofs_meets_no_policy(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """Only an impersonation has no proofs, and a policy never judges it. No other session may pass as an impersonation."""
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    names = ("API", "selection", "console", "personal token", "refresh of an application", "refresh")
    prepared = {name: await PATHS[name].prepare(world) for name in names}
    await world.put({"session_lifetime_minutes": 600})
    await run_sql(pool, "update sessions set proofs = null")
    outcomes = {name: await PATHS[name].walk(world, prepared[name]) for name in names}
    assert outcomes == dict.fromkeys(names, STEP_UP) | {"personal token": REFUSED}

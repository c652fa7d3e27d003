"""A row of the judgement that refuses, without a sign-in policy as its reason: every path answers with the sentence of its reason."""

from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel import judgement
from core.kernel.errors import Forbidden
from core.kernel.sign_in_policy.steps import Refuse
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import CALLBACK, REFUSED, STATES, World, new_world
from tests.support.builders import PASSWORD, Answer, Api, run_sql, sign_in
from tests.support.saml import posted_response

ORGANIZATION: Final = "/api/organizations/acme"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"


class OnHold(Forbidden):
    """The account is on hold."""


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    return world


async def refuse_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge all sessions by a policy that they meet, and refuse them for another reason."""
    await world.put({"session_lifetime_minutes": 600})

    def refuse(facts: judgement.SignInFacts, _: object) -> Refuse | None:
        return None if facts.policy is None else Refuse(OnHold())

    monkeypatch.setattr(judgement, "_AFTER_THE_POLICY", (refuse, *judgement._AFTER_THE_POLICY))


def sentence(answer: Answer) -> str:
    body = answer.json
    text = body["error_description"] if body["error"] == "invalid_grant" else body["error"]
    assert isinstance(text, str)
    return text


async def test_programs_get_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await PATHS["personal token"].prepare(world)
    code, devices = await world.code(), [(await world.send("/auth/device/code", with_secret=False)).json for _ in range(2)]
    approval = {"user_code": devices[0]["user_code"], "action": "approve"}
    assert (await world.api.post("/auth/device/verify", approval, token=world.token)).status == 200
    session = await sign_in(world.ports, world.ada, world.org)
    of_application = (await world.exchange(await world.code())).json["refresh_token"]
    await refuse_all(world, monkeypatch)
    approval["user_code"] = devices[1]["user_code"]
    login = {"email": world.ada.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    answers: dict[str, Answer] = {
        "password": await world.api.post("/api/auth/login", login),
        "API": await world.api.get(f"{ORGANIZATION}/members", token=world.token),
        "personal token": await world.api.get(f"{ORGANIZATION}/members", token=str(token)),
        "code": await world.exchange(code),
        "refresh": await world.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token}),
        "refresh of an application": await world.send("/auth/token", grant_type="refresh_token", refresh_token=of_application),
        "approval": await world.api.post("/auth/device/verify", approval, token=world.token),
        "device": await world.send("/auth/token", with_secret=False, grant_type=DEVICE_GRANT, device_code=devices[0]["device_code"]),
    }
    assert {name: (answer.status, sentence(answer)) for name, answer in answers.items()} == {
        name: (status, "The account is on hold.")
        for name, status in (
            *(("password", 403), ("API", 403), ("personal token", 403), ("code", 400), ("refresh", 401)),
            *(("refresh of an application", 400), ("approval", 403), ("device", 400)),
        )
    }


async def test_a_refused_refresh_does_not_use_up_the_token(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await sign_in(world.ports, world.ada, world.org)
    with monkeypatch.context() as patch:
        await refuse_all(world, patch)
        assert (await world.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 401
    assert (await world.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 200


@pytest.mark.parametrize("fields", [{}, {"prompt": "none"}], ids=["shown", "silent"])
async def test_an_application_gets_an_error(world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]) -> None:
    await refuse_all(world, monkeypatch)
    target = (await world.authorize(**fields)).headers["Location"]
    answer = parse_qs(urlsplit(target).query)
    assert target.startswith(CALLBACK)
    assert (answer["error"], answer["error_description"]) == (["unmet_authentication_requirements"], ["The account is on hold."])


@pytest.mark.parametrize("request_fields", [{}, {"IsPassive": "true"}], ids=["shown", "passive"])
async def test_a_saml_service_gets_a_status(world: World, monkeypatch: pytest.MonkeyPatch, request_fields: dict[str, str]) -> None:
    await refuse_all(world, monkeypatch)
    assert posted_response(await world.sign_on(**request_fields)).statuses[-1] == "NoAuthnContext"


async def test_the_user_reads_the_reason_on_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = (await world.send("/auth/device/code", with_secret=False)).json
    await refuse_all(world, monkeypatch)
    assert await PATHS["approval of a device in a browser"].walk(world, codes) == REFUSED
    for path in ("/app/organizations/acme", f"{world.application.management}/login"):
        page = await world.browser.open(path, follows=False)
        assert (page.status, "The account is on hold." in page.text) == (403, True), path
    # No way of the user helps, so these pages ask for none.
    for path in ("/app/enroll?org=acme&next=/app/account", "/app/reauthenticate?policy=acme&next=/app/account"):
        left = await world.browser.open(path, follows=False)
        assert (left.status, left.headers["Location"]) == (303, "/app/account"), path


async def test_the_page_for_another_user_needs_no_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request names a user, and the refused session belongs to another user."""
    await refuse_all(world, monkeypatch)
    claims = '{"id_token": {"sub": {"value": "00000000-0000-0000-0000-000000000001"}}}'
    answer = await world.authorize(scope="openid", response_type="code", claims=claims)
    page = await world.browser.open(answer.headers["Location"])
    assert (page.status, 'name="password"' in page.text) == (200, True)


async def test_the_preview_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await run_sql(world.pool, "update services set redirect_uris = %s where id = %s", [CALLBACK], world.service)
    await world.put({"session_lifetime_minutes": 600})

    def refuse_previews(facts: judgement.SignInFacts, _: object) -> Refuse | None:
        return Refuse(OnHold()) if facts.path is judgement.PolicyPath.PREVIEW else None

    monkeypatch.setattr(judgement, "_AFTER_THE_POLICY", (refuse_previews, *judgement._AFTER_THE_POLICY))
    preview = (await world.api.get(f"{ORGANIZATION}/services/shop/sign-in-preview", token=world.token)).json
    for protocol in ("openid", "saml"):
        assert (preview[protocol]["outcome"], preview[protocol]["message"]) == ("refused", "The account is on hold."), protocol

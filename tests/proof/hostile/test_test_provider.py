"""The test provider answers an admin's open test sign-in, and nothing else comes from it (docs/adr/0049)."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import psycopg
import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import ConnectionState, OrganizationConnection
from core.federation.connections.model.settings import SamlSettings
from core.federation.model.sign_in import STATE_TTL
from core.kernel.connections import TEST_PROVIDER
from ports import Ports
from ports.saml import SamlDocuments
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml import saml_case
from tests.proof.hostile import responses
from tests.proof.hostile.world import World
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import PASSWORD, Answer, run_concurrently, run_sql
from tests.support.connections import add_connection
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow
DEVICE, SETUP = "gatehouse-device", "gatehouse-setup"
DRAFT: Final = {"preset": TEST_PROVIDER, "state": ConnectionState.DRAFT, "first_activated_at": None}
TYPED: Final = {"subject": "4711", "email": "ada@a.example", "name": "Ada", "groups": "staff"}


@dataclass(slots=True)
class KeptDocuments:
    """SAML documents, and the responses among them that were written."""

    documents: SamlDocuments
    responses: list[bytes] = field(default_factory=list)

    async def response(self, *arguments: Any) -> bytes:
        self.responses.append(await self.documents.response(*arguments))
        return self.responses[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.documents, name)


@dataclass(slots=True)
class Stage:
    """An admin at Acme with a connection to the test provider per protocol."""

    world: World
    acme: Tenant
    browser: FakeBrowser
    clock: FakeClock
    connections: Mapping[str, OrganizationConnection]
    others: dict[str, FakeBrowser] = field(default_factory=dict)

    def page(self, slug: str = "test") -> str:
        return f"/app/organizations/acme/connections/{slug}/test"

    async def begin(self, slug: str = "test") -> str:
        """Begin a test sign-in. Return its secret."""
        await self.world.set("delete from rates")  # for an organization, which may begin 10 a minute
        target = urlsplit(leads_to(await self.browser.open(f"{self.page(slug)}/start")))
        assert target.path == f"{self.page(slug)}/provider"
        return parse_qs(target.query)["test"][0]

    async def open(self, secret: str, browser: FakeBrowser | None = None, slug: str = "test") -> Answer:
        return await (browser or self.browser).open(f"{self.page(slug)}/provider?{urlencode({'test': secret})}", follows=False)

    async def answer(self, secret: str, browser: FakeBrowser | None = None, slug: str = "test", **fields: str) -> Answer:
        """Send the form with a token from the browser's session."""
        browser = browser or self.browser
        account = await browser.open("/app/account")
        token = {"form_token": form_token(account)} if account.status == 200 else {}
        return await browser.send(f"{self.page(slug)}/provider", **token, test=secret, **(TYPED | fields))

    async def try_both(self, secret: str, browser: FakeBrowser | None = None, slug: str = "test") -> set[str]:
        """Return the statuses for the page and its form."""
        answers = [await self.open(secret, browser, slug), await self.answer(secret, browser, slug)]
        return {urlsplit(each.headers["Location"]).path if each.status == 303 else str(each.status) for each in answers}

    async def enter(self, email: str, *organizations: Tenant, role: str) -> FakeBrowser:
        """Sign in as a new member in these organizations."""
        await self.world.add(email, *organizations, role=role, password=PASSWORD)
        return await self.sign_in(email)

    async def sign_in(self, email: str) -> FakeBrowser:
        browser = self.world.browser()
        await browser.sign_in(email)
        return browser


Attempt = Callable[[Stage], Awaitable[object]]


async def of_another_admin(stage: Stage) -> object:
    other, secret = stage.others["admin"], await stage.begin()
    found, own = await stage.try_both(secret, other), other.cookies[DEVICE]
    other.cookies[DEVICE] = stage.browser.cookies[DEVICE]  # in the same browser
    found |= await stage.try_both(secret, other)
    other.cookies[DEVICE] = own
    return found


async def of_a_member(stage: Stage) -> object:
    return await stage.try_both(await stage.begin(), stage.others["member"])


async def of_an_admin_elsewhere(stage: Stage) -> object:
    other = stage.others["elsewhere"]
    other.cookies[DEVICE] = stage.browser.cookies[DEVICE]
    return await stage.try_both(await stage.begin(), other)


async def in_another_browser(stage: Stage) -> object:
    return await stage.try_both(await stage.begin(), stage.others["same"])


async def without_a_session(stage: Stage) -> object:
    browser, secret = stage.world.browser(), await stage.begin()
    browser.cookies = {DEVICE: stage.browser.cookies[DEVICE], SETUP: "a set-up link's"}
    return await stage.try_both(secret, browser)


async def with_a_token(stage: Stage) -> object:
    browser, header = stage.world.browser(), (b"authorization", f"Bearer {stage.acme.token('owner')}".encode())
    browser.cookies = {DEVICE: stage.browser.cookies[DEVICE]}
    path = f"{stage.page()}/provider"
    answers = [await browser.open(f"{path}?test={await stage.begin()}", header), await browser.send(path, header, test=await stage.begin())]
    return {urlsplit(leads_to(each)).path for each in answers}


async def guessed(stage: Stage) -> object:
    await stage.begin()
    return await stage.try_both("") | await stage.try_both("_" + "0" * 40)


async def twice(stage: Stage) -> object:
    secret = await stage.begin()
    return (await stage.answer(secret)).status, await stage.try_both(secret)


async def twenty_at_once(stage: Stage) -> object:
    secret = await stage.begin()
    token = form_token(await stage.browser.open("/app/account"))
    answers = await run_concurrently(
        20, lambda _: stage.browser.send(f"{stage.page()}/provider", form_token=token, test=secret, answer="refuse")
    )
    return sorted(each.status for each in answers) == [200, *[404] * 19]


async def expired(stage: Stage) -> object:
    secret = await stage.begin("test-saml")
    stage.clock.advance(STATE_TTL)
    return await stage.try_both(secret, slug="test-saml")


async def at_another_connection(stage: Stage) -> object:
    return await stage.try_both(await stage.begin(), slug="test-saml")


async def at_a_real_connection(stage: Stage) -> object:
    """Neither its own test sign-ins nor the test provider's can be answered there."""
    real = await stage.browser.open(f"{stage.page('okta')}/start")
    [state] = parse_qs(urlsplit(real.headers["Location"]).query)["state"]
    return await stage.try_both(state, slug="okta") | await stage.try_both(await stage.begin(), slug="okta")


async def at_its_own_callback(stage: Stage) -> object:
    """It ends the test sign-in, and reads nothing."""
    secret, id_ = await stage.begin(), stage.connections["test"].id
    back = await stage.browser.open(f"/auth/connections/{id_}/callback?{urlencode({'state': secret, 'code': 'made up'})}")
    return back.status, await stage.try_both(secret)


async def at_a_real_callback(stage: Stage) -> object:
    back = {"state": await stage.begin(), "code": "made up", "iss": stage.world.issuer.url}
    return (await stage.world.come_back(stage.browser, back)).status


async def signed_response_in_a_real_sign_in(stage: Stage) -> object:
    """The test provider's response reaches a real endpoint for responses, as an attacker inside the process would send it."""
    documents = stage.world.ports.saml
    assert isinstance(documents, KeptDocuments)
    real, secret = stage.world.over_saml[0], await stage.begin("test-saml")
    assert (await stage.answer(secret, slug="test-saml")).status == 200
    await responses.begin(stage.world, stage.browser, real)
    text = base64.b64encode(documents.responses[-1]).decode()
    own = f"/auth/connections/{stage.connections['test-saml'].id}/acs"
    return {(await saml_case.arrive(stage.browser, path, text)).status for path in (real.acs, own)}


async def real_sign_in_through_it(stage: Stage) -> object:
    paths = [f"/auth/connections/{each.id}/{end}" for each in stage.connections.values() for end in ("start?next=/app", "initiate")]
    return {(await stage.browser.open(path, follows=False)).status for path in paths}


async def activated(stage: Stage) -> object:
    answers = [await stage.acme.api.post(f"{stage.acme.path}/connections/{slug}/activate", token=stage.acme.token("owner"))
               for slug in stage.connections]  # fmt: skip
    by_hand = 0
    for change in ("state = 'active'", "state = 'inactive'", "first_activated_at = now()"):
        try:
            await run_sql(stage.world.pool, f"update connections set {change} where slug = 'test'")  # noqa: S608
        except psycopg.errors.CheckViolation:
            by_hand += 1
    return {each.status for each in answers}, by_hand


async def required_or_routed(stage: Stage) -> object:
    token, path = stage.acme.token("owner"), stage.acme.path
    route = await stage.acme.api.call("PUT", f"{path}/hrd/a.example", {"connection": "test"}, token=token)
    policy = {"required_connections": {"a.example": "test"}}
    required = await stage.acme.api.call("PUT", f"{path}/sign-in-policy", policy, token=token)
    return route.status, required.status


async def of_a_former_admin(stage: Stage) -> object:
    secret = await stage.begin()
    set_role = "update memberships set role = %s from users u where u.id = user_id and u.email = 'admin@a.example'"
    await stage.world.set(set_role, "member")
    found = await stage.try_both(secret)
    await stage.world.set(set_role, "admin")
    return found


async def after_deletion(stage: Stage) -> object:
    secret, path = await stage.begin(), f"{stage.acme.path}/connections/test"
    assert (await stage.acme.api.delete(path, token=stage.acme.token("owner"))).status == 204
    return await stage.try_both(secret)


SIGN_IN: Final = "/app/sign-in"
FAILED: Final = {"login_events"}  # for a sign-in that came back without leaving
NOTED: Final = {"audit_log", "audit_totals", "events"}  # belongs to a refused member, or to a removed connection
# Every attempt's outcome, and the tables that it changes through anything but the test provider.
TABLE: Final[Mapping[Attempt, tuple[object, set[str]]]] = {
    of_another_admin: ({"404"}, set()),
    of_a_member: ({"403"}, NOTED),
    of_an_admin_elsewhere: ({"404"}, set()),
    in_another_browser: ({"404"}, set()),
    without_a_session: ({SIGN_IN}, set()),
    with_a_token: ({SIGN_IN}, set()),
    guessed: ({"404"}, set()),
    twice: ((200, {"404"}), set()),
    twenty_at_once: (True, set()),
    at_another_connection: ({"404"}, set()),
    at_a_real_connection: ({"404"}, set()),
    at_its_own_callback: ((400, {"404"}), set()),
    at_a_real_callback: (400, FAILED),
    signed_response_in_a_real_sign_in: ({400}, {*FAILED, "sign_in_flows"}),
    real_sign_in_through_it: ({400, 409}, set()),
    activated: (({409}, 3), set()),
    required_or_routed: ((400, 400), set()),
    of_a_former_admin: ({"403"}, NOTED),
    after_deletion: ({"404"}, {"connections", *NOTED}),
    expired: ({"404"}, set()),  # last, because access tokens end earlier
}


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return replace(ports, saml=KeptDocuments(ports.saml))


@pytest.fixture
async def stage(app: QuartTrio, world: World, acme: Tenant, clock: FakeClock, pool: Pool) -> Stage:
    settings = {"test": world.of_a.settings, "test-saml": SamlSettings()}
    connections = {
        slug: await add_connection(world.ports.storage, acme.org, slug, settings=each, **DRAFT) for slug, each in settings.items()
    }
    stage = Stage(world, acme, world.browser(), clock, connections)
    stage.browser = await stage.enter("admin@a.example", acme, role="admin")
    stage.others = {
        "same": await stage.sign_in("admin@a.example"),
        "admin": await stage.enter("grace@a.example", acme, role="admin"),
        "member": await stage.enter("mary@a.example", acme, role="member"),
        "elsewhere": await stage.enter("eve@b.example", world.b, role="admin"),
    }
    await responses.connect(world)
    return stage


def changes_of(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> set[str]:
    """Return the tables in which rows differ, without the test sign-ins themselves."""
    return {table for table, row in before ^ after if table != "sign_in_flows" or '"target": "test"' not in row}


async def test_the_test_provider_answers_one_open_test_of_one_admin(stage: Stage) -> None:
    wrong: list[str] = []
    for attempt, (expected, changed) in TABLE.items():
        before = await stage.world.rows()
        outcome = await attempt(stage)
        if outcome != expected:
            wrong.append(f"{attempt.__name__}: {outcome}, not {expected}")
        if (found := changes_of(before, await stage.world.rows())) != changed:
            wrong.append(f"{attempt.__name__} changed {found}, not {changed}")
    assert not wrong, "\n".join(wrong)

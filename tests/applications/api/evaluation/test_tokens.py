"""Questions with an access token that the application got for itself (RFC 6749 section 4.4)."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from core.applications.model.evaluation import ACCEPTED_CREDENTIALS, EVALUATION_PATH
from tests.applications.api.evaluation.asking import Asking, question, reason_of
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, Answer, run_sql
from tests.support.dpop import proof_key
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import add_credential, add_service_account
from tests.support.refusals import NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

RESOURCE = f"{BASE_URL}/access/v1"


class OwnTokens:
    """The application as a client that calls `/auth/token`."""

    def __init__(self, shop: Asking, client_id: object) -> None:
        self.shop, self.client_id = shop, client_id

    async def request(self, headers: dict[str, str] | None = None, /, **fields: str) -> Answer:
        form = {"grant_type": "client_credentials", "client_id": str(self.client_id), "client_secret": "a client secret", **fields}
        sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self.shop.api.call("POST", "/auth/token", headers=sent, raw=urlencode(form).encode())

    async def token(self, **fields: str) -> str:
        answer = await self.request(**{"resource": RESOURCE, **fields})
        assert answer.status == 200, answer.text
        token: str = answer.json["access_token"]
        return token

    async def ask(self, token: str, scheme: str = "Bearer", **headers: str) -> Answer:
        sent = {"Authorization": f"{scheme} {token}", **headers}
        return await self.shop.api.post(EVALUATION_PATH, question(self.shop.store.tenant.id("member")), headers=sent)


@pytest.fixture
async def own(shop: Asking, acme: Tenant) -> OwnTokens:
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services")
    return OwnTokens(shop, client_id)


async def test_an_application_asks_with_its_own_token(own: OwnTokens) -> None:
    answer = await own.request(resource=RESOURCE)
    assert (answer.status, answer.json["scope"], answer.json["token_type"]) == (200, "evaluate:access", "Bearer")
    assert reason_of(await own.ask(answer.json["access_token"])) == "viewer"


async def test_the_token_has_the_lifetime_of_the_application(own: OwnTokens, acme: Tenant) -> None:
    assert (await own.request(resource=RESOURCE)).json["expires_in"] == acme.ports.policy.access_token_ttl.total_seconds()
    await run_sql(acme.pool, "update services set access_token_seconds = 120")
    assert (await own.request(resource=RESOURCE)).json["expires_in"] == 120


@pytest.mark.parametrize("fields", [{"scope": "members:read"}, {"scope": "evaluate:access members:read"}])
async def test_the_token_has_one_scope(own: OwnTokens, fields: dict[str, str]) -> None:
    assert (await own.request(resource=RESOURCE, **fields)).json["error"] == "invalid_scope"


async def test_tokens_of_others_are_refused(own: OwnTokens, acme: Tenant) -> None:
    await verify_domain(acme.pool, acme.org)
    await add_api_resource(acme.pool, acme.org, services=(own.shop.store.service,))
    await run_sql(acme.pool, "update api_resource_clients set own_scopes = '{orders:read}'")
    orders = await own.token(resource="https://api.example.com/")
    personal = (await add_personal_token(acme.ports, acme.people["owner"], acme.org)).text
    robot = await add_service_account(acme.pool, acme.org, acme.people["owner"].id)
    program = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token()
    for token in (orders, acme.token("owner"), personal, program, "x.y.z", "scim_live_x"):
        answer = await own.ask(token)
        assert refused(answer) == UNAUTHORIZED
        assert answer.json["error"] == f"This credential cannot ask for decisions. {ACCEPTED_CREDENTIALS}", token
    nothing = await own.shop.api.post(EVALUATION_PATH, question(acme.id("member")))
    assert (nothing.status, nothing.json["error"]) == (401, f"No credential was sent. {ACCEPTED_CREDENTIALS}")


async def test_a_token_ends_with_its_credential(own: OwnTokens, acme: Tenant, clock: FakeClock) -> None:
    token = await own.token()
    await run_sql(acme.pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    assert refused(await own.ask(token)) == NOT_ACTIVE
    await run_sql(acme.pool, "update organizations set status = 'active' where id = %s", acme.org)
    await run_sql(acme.pool, "update services set credential_id = gen_random_uuid()")
    assert refused(await own.ask(token)) == UNAUTHORIZED
    late = await own.token()
    clock.advance(timedelta(hours=1))
    assert (await own.ask(late)).status == 401


async def test_introspection_shows_the_own_token_until_it_ends(own: OwnTokens, acme: Tenant) -> None:
    token = await own.token()

    async def introspect() -> Any:
        form = {"client_id": str(own.client_id), "client_secret": "a client secret", "token": token}
        sent = {"Content-Type": "application/x-www-form-urlencoded"}
        return (await own.shop.api.call("POST", "/auth/introspect", headers=sent, raw=urlencode(form).encode())).json

    state = await introspect()
    assert (state["active"], state["aud"], state["scope"], state["sub"]) == (True, RESOURCE, "evaluate:access", str(own.client_id))
    await run_sql(acme.pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    assert await introspect() == {"active": False}


async def test_a_bound_token_needs_a_new_proof_each_time(own: OwnTokens, clock: FakeClock) -> None:
    key = proof_key()

    def proof(path: str, nonce: str | None, token: str | None = None) -> str:
        return key.proof("POST", BASE_URL + path, clock.now(), nonce, token)

    nonce = (await own.request({"DPoP": proof("/auth/token", None)}, resource=RESOURCE)).headers["DPoP-Nonce"]
    answer: Any = await own.request({"DPoP": proof("/auth/token", nonce)}, resource=RESOURCE)
    assert answer.json["token_type"] == "DPoP", answer.text
    token = answer.json["access_token"]
    used = proof(EVALUATION_PATH, nonce, token)
    assert reason_of(await own.ask(token, "DPoP", DPoP=used)) == "viewer"
    assert (await own.ask(token, "DPoP", DPoP=used)).status == 401, "a replay"
    assert (await own.ask(token)).status == 401, "without a proof"
    assert reason_of(await own.ask(token, "DPoP", DPoP=proof(EVALUATION_PATH, nonce, token))) == "viewer"

"""Tokens that another API accepts: requests for another organization's API, and for other scopes (RFC 8707 section 3).

An API trusts a token if its audience is the API's identifier, character by character. So only the API's applications
may get a token with this audience, and no similar identifier may give such a token.
"""

from typing import Any, Final
from urllib.parse import urlencode

import jwt
import pytest

from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import CODE, DeviceClient
from tests.federation.api.relying import FORM, RelyingParty, answer_fields, redirect_parts
from tests.federation.attacks.world import unchanged
from tests.support.builders import BASE_URL, Answer, sign_in
from tests.support.services import add_api_resource, add_service, service_context, verify_domain
from tests.support.tenants import Tenant

VICTIM: Final = "https://api.example.com/v1"
OWN: Final = "https://api.evil.example/v1"
# What the attacker's application asks for. The list does not contain its own API.
TARGETS: Final = {
    "the victim's API": VICTIM,
    "another spelling of it": "HTTPS://API.EXAMPLE.COM:443/v1",
    "its host": "https://api.example.com/",
    "its origin": "https://api.example.com",
    "a host below it": "https://x.api.example.com/v1",
    "the parent host": "https://example.com/v1",
    "another port": "https://api.example.com:8443/v1",
    "a trailing slash": "https://api.example.com/v1/",
    "another case of the path": "https://api.example.com/V1",
    "a deeper path": "https://api.example.com/v1/orders",
    "dots in the path": "https://api.example.com/x/../v1",
    "an escaped path": "https://api.example.com/%76%31",
    "a query": "https://api.example.com/v1?x",
    "a fragment": "https://api.example.com/v1#x",
    "a user name": "https://api.evil.example@api.example.com/v1",
    "a backslash": "https://api.example.com\\@api.evil.example/v1",
    "a final dot": "https://api.example.com./v1",
    "without TLS": "http://api.example.com/v1",
    "a letter that looks the same": "https://api.ex\u0430mple.com/v1",
    "full-width letters": "https://api.\uff45xample.com/v1",
    "its punycode twin": "https://api.xn--exmple-4nf.com/v1",
    "with a space": f" {VICTIM}",
    "two at once": f"{OWN} {VICTIM}",
    "the own host as a prefix": "https://api.evil.example.example.com/v1",
    "our API in another spelling": f"{BASE_URL}/api/",
    "our issuer": BASE_URL,
    "loopback": "http://localhost/v1",
    "nothing": "/v1",
}


def error(answer: Answer) -> str:
    if answer.status == 303:
        return answer_fields(answer)["error"]
    return str(answer.json["error"]) if answer.headers["Content-Type"] == "application/json" else f"page {answer.status}"


@pytest.fixture
async def victim(acme: Tenant, shop: RelyingParty) -> str:
    """The identifier of the honest organization's API; the organization has a second API with a URN."""
    await verify_domain(acme.pool, acme.org)
    await add_api_resource(acme.pool, acme.org, f"urn:gatehouse:{acme.org}:orders", services=(shop.service,))
    await add_api_resource(acme.pool, acme.org, VICTIM, services=(shop.service,), scopes={"read": "Read", "secret": "See secrets"})
    return VICTIM


@pytest.fixture
async def attacker(victim: str, other_tenant: Tenant, evil: RelyingParty) -> RelyingParty:
    """The attacker's application, which may ask for the attacker's API. The victim is signed in in the browser."""
    assert victim != OWN
    await verify_domain(other_tenant.pool, other_tenant.org, "evil.example")
    await add_api_resource(other_tenant.pool, other_tenant.org, OWN, services=(evil.service,), scopes={"read": "Read"})
    return evil


def path(application: RelyingParty, resource: str, scope: str | None = "read", **changes: str | None) -> str:
    return application.request(response_type="code", scope=scope, resource=resource, **changes)


async def code_for(application: RelyingParty, resource: str, scope: str | None = "read") -> str:
    """Return a code. The user agrees."""
    request = path(application, resource, scope)
    answer = await application.browser.open(request)
    if answer.status == 200:
        answer = await application.browser.answer(answer, "continue")
    return redirect_parts(answer)[1]["code"]


async def tokens_for(application: RelyingParty, resource: str, scope: str | None = "read") -> dict[str, Any]:
    tokens: dict[str, Any] = (await application.exchange(await code_for(application, resource, scope))).json
    return tokens


def audience(tokens: dict[str, Any]) -> str:
    return str(jwt.decode(tokens["access_token"], options={"verify_signature": False})["aud"])


async def test_no_request_reaches_the_api_of_another_organization(attacker: RelyingParty, acme: Tenant, clock: FakeClock) -> None:
    """At the authorization endpoint, as a form, as a pushed request, and in the device flow."""
    targets = TARGETS | {"the victim's URN": f"urn:gatehouse:{acme.org}:orders"}
    device = DeviceClient(acme.api, acme.pool, clock, await service_context(acme.pool, attacker.service))
    credentials = {"client_id": str(attacker.client_id), "client_secret": attacker.secret}
    findings = []
    async with unchanged(acme.pool):
        for name, resource in targets.items():
            for scope in ("read", "openid read"):
                fields = {"response_type": "code", "scope": scope, "resource": resource, "redirect_uri": attacker.redirect_uri}
                form = {"client_id": str(device.service.client_id), "scope": scope, "resource": resource}
                answers = [
                    await attacker.browser.open(path(attacker, resource, scope)),
                    await attacker.post("/auth/par", **credentials, **fields),
                    await acme.api.call("POST", CODE, raw=urlencode(form).encode(), headers=FORM),
                ]
                findings += [(name, scope, error(answer)) for answer in answers if error(answer) != "invalid_target"]
    assert findings == []
    assert audience(await tokens_for(attacker, OWN)) == OWN, "otherwise the table would prove nothing"


async def test_no_token_request_changes_the_api(attacker: RelyingParty, acme: Tenant, clock: FakeClock, user: Account) -> None:
    code, tokens = await code_for(attacker, OWN), await tokens_for(attacker, OWN)
    device = DeviceClient(acme.api, acme.pool, clock, await service_context(acme.pool, attacker.service))
    await device.begin(scope="read", resource=OWN)
    await device.decide((await sign_in(acme.ports, user)).access_token)
    findings = []
    for name, resource in (TARGETS | {"the victim's URN": f"urn:gatehouse:{acme.org}:orders"}).items():
        for answer in (
            await attacker.exchange(code, resource=resource),
            await attacker.refresh(tokens["refresh_token"], resource=resource),
            await device.poll(resource=resource),
        ):
            if error(answer) != "invalid_target":
                findings.append((name, answer.text))
    assert findings == []


async def test_a_scope_belongs_to_its_api(attacker: RelyingParty, shop: RelyingParty) -> None:
    """`secret` is a scope at the victim's API, and `orders:read` at its second API."""
    assert error(await attacker.browser.open(path(attacker, OWN, "secret"))) == "invalid_scope"
    assert error(await shop.browser.open(path(shop, VICTIM, "orders:read"))) == "invalid_scope"
    both = await tokens_for(shop, VICTIM, "read orders:read secret")
    assert both["scope"] == "read secret"
    refreshed = await shop.refresh(both["refresh_token"], scope="secret orders:read")
    assert refreshed.json["scope"] == "secret"


async def test_another_application_of_the_organization_needs_to_be_listed(victim: str, acme: Tenant, shop: RelyingParty) -> None:
    service = await add_service(acme.pool, acme.org, "blog", secret="a client: secret + more %")
    context = await service_context(acme.pool, service)
    blog = RelyingParty(acme, shop.browser, service, "blog", context.client_id, "https://blog.example.com/callback", shop.secret)
    assert error(await blog.browser.open(path(blog, victim))) == "invalid_target"
    # The listed application's code and refresh token are of no use to the attacker's application.
    code, tokens = await code_for(shop, victim), await tokens_for(shop, victim)
    assert error(await blog.exchange(code, redirect_uri=shop.redirect_uri)) == "invalid_grant"
    assert error(await blog.refresh(tokens["refresh_token"])) == "invalid_grant"


async def test_a_suspended_organization_gives_no_tokens(
    victim: str, acme: Tenant, shop: RelyingParty, clock: FakeClock, user: Account
) -> None:
    code, tokens = await code_for(shop, victim), await tokens_for(shop, victim)
    device = DeviceClient(acme.api, acme.pool, clock, await service_context(acme.pool, shop.service))
    await device.begin(scope="read", resource=victim)
    await device.decide((await sign_in(acme.ports, user)).access_token)
    await acme.set_status("suspended")
    assert error(await shop.browser.open(path(shop, victim))) == "page 403"
    for answer in (await shop.exchange(code), await shop.refresh(tokens["refresh_token"]), await device.poll()):
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    introspected = await shop.post(
        "/auth/introspect", client_id=str(shop.client_id), client_secret=shop.secret, token=tokens["access_token"]
    )
    assert introspected.json == {"active": False}


async def test_a_domain_that_changes_its_owner_takes_the_identifier_along(
    victim: str, acme: Tenant, shop: RelyingParty, other_tenant: Tenant, evil: RelyingParty
) -> None:
    """The former owner gets no further tokens for it, and the new owner is not blocked (decision 300)."""
    tokens = await tokens_for(shop, victim)
    await verify_domain(acme.pool, acme.org, "elsewhere.example")
    await verify_domain(acme.pool, other_tenant.org)
    await add_api_resource(acme.pool, other_tenant.org, victim, services=(evil.service,), scopes={"read": "Read"})
    assert error(await shop.browser.open(path(shop, victim))) == "invalid_target"
    assert error(await shop.refresh(tokens["refresh_token"])) == "invalid_grant"
    assert audience(await tokens_for(evil, victim)) == victim

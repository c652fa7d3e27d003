"""Attacks by clients that registered themselves: anyone can do so without a trace, and send a user to us with the client id."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import pytest

from adapters.crypto import AesVault
from core.federation.oauth import client_registration
from core.federation.oauth.model.client_registration import MAX_LENGTH, PREFIX, parse_registration, to_payload
from core.kernel.policy import Policy
from ports import Ports
from ports.crypto import SecretContext
from tests.federation.api.external.conftest import client, open_client, registered, server
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.resources.orders import ORDERS, READ, error
from tests.federation.attacks.world import is_code, unchanged
from tests.support.builders import BASE_URL, make_vault, run_sql
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant

__all__ = ["client", "open_client", "registered", "server"]  # the fixtures

OTHER: Final = "urn:gatehouse:other"  # another organization's API
MARKUP: Final = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'{{7*7}}"
METADATA: Final = {"client_name": "Assistant", "redirect_uris": ["https://client.example/callback"]}


def sealed(client_id: str) -> bytes:
    text = client_id.removeprefix(PREFIX)
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def to_client_id(raw: bytes) -> str:
    return PREFIX + urlsafe_b64encode(raw).rstrip(b"=").decode()


async def assert_refused(party: ExternalParty, client_id: str) -> None:
    """Check that the client id opens nothing: our page says so, and no program learns more than that the client is unknown."""
    async with unchanged(party.tenant.pool):
        page = await party.open(client_id=client_id)
        assert page.status == 400, client_id
        assert not is_code(page)
        assert "Location" not in page.headers
        for path, fields in (
            ("/auth/token", {"code": "unknown"}),
            ("/auth/token", {"refresh_token": "unknown"}),
            ("/auth/revoke", {"token": "unknown"}),
            ("/auth/par", {"resource": ORDERS, "redirect_uri": party.redirect_uri}),
            ("/auth/device/code", {"resource": ORDERS, "scope": READ}),
        ):
            answer = await party.post(path, client_id=client_id, **fields)
            assert (answer.status, error(answer)) == (401, "invalid_client"), (path, client_id)


@pytest.mark.parametrize("place", [0, 1, 2, 5, 6, 11, 17, 18, 40, -17, -16, -8, -1])
async def test_an_altered_client_id_is_refused(registered: ExternalParty, place: int) -> None:
    """The test alters the version, key id, nonce, ciphertext and tag."""
    raw = bytearray(sealed(registered.address))
    raw[place] ^= 1
    await assert_refused(registered, to_client_id(bytes(raw)))


async def test_a_client_id_of_another_installation_or_purpose_is_refused(registered: ExternalParty, ports: Ports) -> None:
    payload = to_payload(parse_registration(METADATA, Policy()).metadata, ports.clock.now())
    own, other = make_vault(), AesVault([("test", bytes(32))])
    renamed = AesVault([("other", bytes(range(32)))])
    context = SecretContext("registered_clients", BASE_URL, "client_id")
    assert client_registration.open_sealed(registered.tenant.ports, to_client_id(own.seal(payload, context))).name == "Assistant"
    for vault, purpose in (
        (other, context),
        (renamed, context),
        (own, replace(context, row="https://elsewhere.example")),
        (own, replace(context, column="client_secret")),
        (own, SecretContext("ended_forms", "", "form")),
    ):
        await assert_refused(registered, to_client_id(vault.seal(payload, purpose)))


async def test_texts_that_only_look_like_a_client_id_are_refused(registered: ExternalParty) -> None:
    genuine = registered.address
    for client_id in (
        PREFIX,
        f"{PREFIX}{'A' * (MAX_LENGTH + 1)}",
        f"{genuine}=",
        f"{genuine}A",
        f"{genuine[:-4]}",
        f"{genuine} ",
        genuine.replace(":", ":/"),
    ):
        await assert_refused(registered, client_id)
    tail = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same = [f"{genuine[:-1]}{letter}" for letter in tail if sealed(f"{genuine[:-1]}{letter}") == sealed(genuine)]
    for client_id in same:
        if client_id != genuine:
            await assert_refused(registered, client_id)
    assert (await registered.open(client_id=genuine.upper())).status in (400, 404)


async def test_a_resource_of_another_organization_decides_for_itself(registered: ExternalParty, other_tenant: Tenant) -> None:
    """The second organization's API admits no clients that registered themselves, and a consent here does not count there."""
    await add_api_resource(other_tenant.pool, other_tenant.org, OTHER)
    await run_sql(other_tenant.pool, "update api_resources set host = null where canonical = %s", OTHER)
    code = await registered.code()
    async with unchanged(registered.tenant.pool):
        page = await registered.open(resource=OTHER)
        assert page.status == 403
        assert "Location" not in page.headers
        assert error(await registered.exchange(code, resource=OTHER)) == "invalid_target"
    await registered.set_policy("any", registration=True)
    assert (await registered.open(resource=OTHER)).status == 200, "asked again"
    swapped = await registered.exchange(await registered.code(resource=OTHER), resource=ORDERS)
    assert error(swapped) == "invalid_target"
    assert len(await registered.stored()) == 2


async def test_two_registrations_with_the_same_metadata_are_two_clients(registered: ExternalParty) -> None:
    """The second client cannot use the first client's code or token, and the user agrees to every client."""
    first, code = registered.address, await registered.code()
    await registered.become_registered()
    assert registered.address != first
    assert (await registered.open()).status == 200
    assert error(await registered.exchange(code)) == "invalid_grant"
    second, other_code = registered.address, await registered.code()
    registered.address = first
    assert error(await registered.exchange(other_code)) == "invalid_grant"
    tokens = (await registered.exchange(code)).json
    registered.address = second
    assert error(await registered.refresh(tokens)) == "invalid_grant"


async def test_the_id_of_a_stored_client_is_no_second_name(registered: ExternalParty) -> None:
    await registered.code()
    [(client_id,)] = await run_sql(registered.tenant.pool, "select client_id from services where client_uri is not null")
    assert (await registered.open(client_id=str(client_id))).status == 404
    code = await registered.code()
    assert error(await registered.exchange(code, client_id=str(client_id))) == "invalid_client"


async def test_no_secret_and_no_assertion_is_taken_and_pkce_is_required(registered: ExternalParty) -> None:
    assert error(await registered.open(code_challenge=None, code_challenge_method=None)) == "invalid_request"
    code = await registered.code()
    assert error(await registered.exchange(code, client_secret="secret")) == "invalid_client"
    assert error(await registered.exchange(code, code_verifier=None)) == "invalid_grant"
    assert error(await registered.post("/auth/token", grant_type="client_credentials", resource=ORDERS)) in (
        "unauthorized_client",
        "invalid_client",
    )
    assert (await registered.exchange(code)).status == 200


@pytest.mark.parametrize(
    "member",
    ["client_name", "client_uri", "logo_uri", "tos_uri", "policy_uri", "scope", "contacts", "software_id", "client_name#ja"],
)
async def test_no_member_of_a_registration_reaches_a_page_as_markup(registered: ExternalParty, member: str) -> None:
    members: dict[str, Any] = {member: [MARKUP] if member == "contacts" else MARKUP}
    await registered.become_registered(**members)
    page = await registered.open()
    assert page.status == 200
    await registered.code()
    [(service,)] = await run_sql(registered.tenant.pool, "select id from services where client_uri is not null")
    paths = ("/app/account", "/app/account/consents", f"/app/account/consents/{service}")
    pages = [page, *[await registered.browser.open(path) for path in paths]]
    for each in pages:
        assert each.status == 200
        assert "<script>alert" not in each.text
        assert "<img src=x" not in each.text
    assert "&lt;script&gt;" in page.text or member != "client_name"


async def test_markup_in_a_redirect_uri_stays_text(registered: ExternalParty) -> None:
    refused = await registered.register(redirect_uris=[f"https://client.example/{MARKUP}"])
    assert (refused.status, error(refused)) == (400, "invalid_redirect_uri")
    assert "<script>" not in refused.text
    registered.redirect_uri = f"com.example.app:/{quote(MARKUP)}"
    await registered.become_registered()
    page = await registered.open()
    assert page.status == 200
    assert "<script>alert" not in page.text
    answer = await registered.open(client_id=f"{PREFIX}{MARKUP}")
    assert answer.status == 400
    assert "<script>alert" not in answer.text

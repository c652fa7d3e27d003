"""Client secrets in the header and in the body, and two that overlap (RFC 6749 section 2.3.1, decision 92)."""

from base64 import b64encode
from datetime import timedelta
from urllib.parse import quote

import pytest

from tests.fakes.outside import FakeClock
from tests.federation.api.cli import CODE, INVALID_CLIENT, oauth_error
from tests.federation.api.relying import REVOKE, SECRET, TOKEN, RelyingParty, basic
from tests.support.builders import Answer


def header(client_id: object, secret: str) -> dict[str, str]:
    """Return a header with these values, not encoded."""
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()}


async def revoke(client: RelyingParty, secret: str) -> Answer:
    return await client.post(REVOKE, client_id=str(client.client_id), client_secret=secret, token="x")


async def test_clients_may_encode_their_secret_in_the_header_or_not(relying_party: RelyingParty) -> None:
    client = relying_party.client_id
    for credentials in (
        basic(client, SECRET),
        header(client, SECRET),
        header(client, quote(SECRET, safe="")),
        header(quote(str(client).replace("-", "%2D"), safe="%"), quote(SECRET, safe="")),
    ):
        assert (await relying_party.post(REVOKE, credentials, token="x")).status == 200, credentials
        assert (await relying_party.post(REVOKE, credentials, token="x", client_id="")).status == 200, (
            "an empty parameter counts as left out"
        )
    for wrong in (quote(quote(SECRET)), SECRET + "x", SECRET[:-1]):
        assert oauth_error(await relying_party.post(REVOKE, header(client, wrong), token="x")) == INVALID_CLIENT
    assert (await revoke(relying_party, SECRET)).status == 200
    assert oauth_error(await revoke(relying_party, quote(SECRET))) == INVALID_CLIENT, "only the header may be encoded twice"


async def test_an_empty_secret_in_the_header_is_a_wrong_one(relying_party: RelyingParty, mobile_app: RelyingParty) -> None:
    """An empty secret is wrong wherever clients authenticate, even for public clients, which send none (RFC 6749 section 2.3.1)."""
    code = await relying_party.code()
    requests = {
        TOKEN: {"code": code, "redirect_uri": relying_party.redirect_uri},
        REVOKE: {"token": "x"},
        "/auth/introspect": {"token": "x"},
        "/auth/par": {"redirect_uri": relying_party.redirect_uri},
        CODE: {"scope": "openid"},
    }
    for path, fields in requests.items():
        for client_id in (relying_party.client_id, mobile_app.client_id, "frontend"):
            answer = await relying_party.post(path, header(client_id, ""), **fields)
            assert oauth_error(answer) == INVALID_CLIENT, path
            assert answer.headers["WWW-Authenticate"].startswith("Basic "), path
    assert (await relying_party.exchange(code)).status == 200, "the code was not used up"


async def rotate(client: RelyingParty, **body: object) -> Answer:
    path = f"{client.tenant.path}/services/{client.slug}/rotate-secret"
    return await client.api.post(path, body or None, token=client.tenant.token("admin"))


async def test_two_secrets_can_overlap(relying_party: RelyingParty, clock: FakeClock) -> None:
    second = (await rotate(relying_party, overlap_seconds=300)).json["client_secret"]
    service = (await relying_party.api.get(f"{relying_party.tenant.path}/services/shop", token=relying_party.tenant.token("member"))).json
    assert service["former_secret_expires_at"].startswith(f"{clock.now() + timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}")
    assert not {SECRET, second} & set(map(str, service.values()))
    clock.advance(timedelta(seconds=299))
    assert [(await revoke(relying_party, secret)).status for secret in (SECRET, second)] == [200, 200]
    code = await relying_party.code()
    assert (await relying_party.exchange(code, client_secret=SECRET)).status == 200
    clock.advance(timedelta(seconds=1))
    assert [(await revoke(relying_party, secret)).status for secret in (SECRET, second)] == [401, 200]
    third = (await rotate(relying_party, overlap_seconds=60)).json["client_secret"]
    assert [(await revoke(relying_party, secret)).status for secret in (SECRET, second, third)] == [401, 200, 200]
    fourth = (await rotate(relying_party)).json["client_secret"]
    assert [(await revoke(relying_party, secret)).status for secret in (SECRET, second, third, fourth)] == [401, 401, 401, 200]


@pytest.mark.parametrize("overlap", [-1, 604801, "60", None, 1.5, True])
async def test_an_overlap_has_at_most_seven_days(relying_party: RelyingParty, overlap: object) -> None:
    assert (await rotate(relying_party, overlap_seconds=overlap)).status == 400
    assert (await revoke(relying_party, SECRET)).status == 200
    assert (await rotate(relying_party, overlap_seconds=604800)).status == 200


async def test_a_service_that_becomes_public_loses_both_secrets(relying_party: RelyingParty) -> None:
    await rotate(relying_party, overlap_seconds=3600)
    path, token = f"{relying_party.tenant.path}/services/shop", relying_party.tenant.token("admin")
    assert "former_secret_expires_at" not in (await relying_party.api.patch(path, {"service_type": "spa"}, token=token)).json
    await relying_party.api.patch(path, {"service_type": "web"}, token=token)
    assert oauth_error(await revoke(relying_party, SECRET)) == INVALID_CLIENT

"""Back-Channel Logout OP: logout tokens to the applications when a user is signed out."""

from collections.abc import AsyncIterator
from urllib.parse import parse_qsl

import jwt
import pytest

from actors.dispatching import logout_notifier
from core.federation.oauth.model.authorization import ResponseMode
from ports import Ports
from tests.actors.helpers import run_actors
from tests.fakes.receiver import Receiver, receiving
from tests.federation.api.end_session.applications import END_SESSION
from tests.federation.conformance.client import CONFIGURATION, Client
from tests.federation.conformance.logout import BYE, STATE, SignedIn
from tests.federation.conformance.test_config import ISSUER, check_endpoints
from tests.support.builders import BASE_URL, Api, run_sql, with_loopback_sender


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that can send to the loopback interface, where the application listens."""
    return with_loopback_sender(ports)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
def mode() -> ResponseMode:
    return ResponseMode.QUERY


@pytest.fixture
async def signed_in(client: Client, receiver: Receiver) -> SignedIn:
    statement = "update services set post_logout_redirect_uris = %s, backchannel_logout_uri = %s"
    await run_sql(client.party.tenant.pool, statement, [BYE], receiver.url("/backchannel_logout"))
    return SignedIn(client, await client.sign_in())


@pytest.mark.parametrize("edge", [{"base_url": ISSUER}], indirect=True)
async def test_oidcc_backchannel_logout_discovery_endpoint_verification(api: Api) -> None:
    """The metadata says that logout tokens are sent, with `sid`, and has an https end_session_endpoint."""
    metadata = (await api.get(CONFIGURATION)).json
    check_endpoints(metadata)
    assert metadata["backchannel_logout_supported"] is True
    assert metadata["backchannel_logout_session_supported"] is True
    assert metadata["end_session_endpoint"] == f"{ISSUER}{END_SESSION}"


@pytest.mark.slow
async def test_oidcc_backchannel_rp_initiated_logout(signed_in: SignedIn, receiver: Receiver, ports: Ports) -> None:
    """After a sign-out, the application gets one valid logout token for its session, and the user returns and is signed out.

    The token has `iss`, `aud`, `iat`, `jti` and `events` (section 2.4), the ID token's `sub` and `sid`, and no nonce.
    """
    await signed_in.check_returned(await signed_in.request_logout(), {"state": STATE})
    async with run_actors(logout_notifier, ports):
        [request] = await receiver.wait_for_answered(1)
    assert (request.path, request.headers["content-type"]) == ("/backchannel_logout", "application/x-www-form-urlencoded")
    [(name, token)] = parse_qsl(request.body.decode(), strict_parsing=True)
    assert name == "logout_token"
    client, id_token = signed_in.client, signed_in.grant.claims
    claims = await client.verify(token)
    now = int(ports.clock.now().timestamp())
    assert (claims["iss"], claims["aud"], claims["iat"]) == (BASE_URL, client.id, now)
    assert now < claims["exp"] <= now + 120, "section 4: short-lived"
    assert claims["jti"]
    assert claims["events"] == {"http://schemas.openid.net/event/backchannel-logout": {}}
    assert (claims["sub"], claims["sid"]) == (id_token["sub"], id_token["sid"])
    assert "nonce" not in claims
    assert jwt.get_unverified_header(token)["typ"] == "logout+jwt"

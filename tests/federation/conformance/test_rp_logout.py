"""RP-Initiated Logout OP: sign-outs that an application requests."""

import json
from base64 import urlsafe_b64encode

import jwt
import pytest

from core.federation.oauth.model.authorization import ResponseMode
from tests.federation.api.end_session.applications import END_SESSION
from tests.federation.conformance.client import CONFIGURATION, Client
from tests.federation.conformance.logout import BYE, STATE, SignedIn
from tests.federation.conformance.test_config import ISSUER, check_endpoints
from tests.support.builders import BASE_URL, Api, run_sql


@pytest.fixture
def mode() -> ResponseMode:
    return ResponseMode.QUERY


@pytest.fixture
async def signed_in(client: Client) -> SignedIn:
    await run_sql(client.party.tenant.pool, "update services set post_logout_redirect_uris = %s", [BYE])
    return SignedIn(client, await client.sign_in())


@pytest.mark.parametrize("edge", [{"base_url": ISSUER}], indirect=True)
async def test_oidcc_rp_initiated_logout_discovery_endpoint_verification(api: Api) -> None:
    """The metadata has an https end_session_endpoint."""
    metadata = (await api.get(CONFIGURATION)).json
    check_endpoints(metadata)
    assert metadata["end_session_endpoint"] == f"{ISSUER}{END_SESSION}"


async def test_oidcc_rp_initiated_logout(signed_in: SignedIn) -> None:
    """With an ID token from the browser's session, the user is signed out and returns with the 128-character state alone."""
    await signed_in.check_returned(await signed_in.request_logout(), {"state": STATE})


async def test_oidcc_rp_initiated_logout_no_state(signed_in: SignedIn) -> None:
    """Without state, the user returns without state."""
    await signed_in.check_returned(await signed_in.request_logout(state=None), {})


async def test_oidcc_rp_initiated_logout_bad_post_logout_redirect_uri(signed_in: SignedIn) -> None:
    """A URI that is not registered gets an error page."""
    bad = "https://first.example.com/bad_post_logout_redirect_uri"
    await signed_in.check_error_page(await signed_in.request_logout(post_logout_redirect_uri=bad))


async def test_oidcc_rp_initiated_logout_query_added_to_post_logout_redirect_uri(signed_in: SignedIn) -> None:
    """A registered URI with another query is not registered."""
    await signed_in.check_error_page(await signed_in.request_logout(post_logout_redirect_uri=f"{BYE}?foo=bar"))


async def test_oidcc_rp_initiated_logout_modified_id_token_hint(signed_in: SignedIn) -> None:
    """An ID token that was changed to the algorithm `none` is no hint: the user is asked, and stays on our site."""
    _, payload, _ = signed_in.grant.tokens["id_token"].split(".")
    header = urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).rstrip(b"=").decode()
    page = await signed_in.check_question(await signed_in.request_logout(id_token_hint=f"{header}.{payload}."))
    assert BYE not in page.text


async def test_oidcc_rp_initiated_logout_bad_id_token_hint(signed_in: SignedIn) -> None:
    """An ID token that the application signed itself is no hint: the user is asked, and stays on our site."""
    client, now = signed_in.client, int(signed_in.client.party.tenant.ports.clock.now().timestamp())
    claims = {"iss": client.id, "sub": "SubjectID", "aud": BASE_URL, "nonce": "flibble", "iat": now, "exp": now + 300}
    forged = jwt.encode(claims, "a client secret of at least thirty-two bytes", algorithm="HS256")
    page = await signed_in.check_question(await signed_in.request_logout(id_token_hint=forged))
    assert BYE not in page.text


async def test_oidcc_rp_initiated_logout_no_id_token_hint(signed_in: SignedIn) -> None:
    """A URI to return to without id_token_hint and client_id gets an error page."""
    await signed_in.check_error_page(await signed_in.request_logout(id_token_hint=None))


async def test_oidcc_rp_initiated_logout_no_params(signed_in: SignedIn) -> None:
    """Without parameters, the user is asked, signed out, and told so."""
    await signed_in.check_question(await signed_in.request_logout(id_token_hint=None, post_logout_redirect_uri=None, state=None))


async def test_oidcc_rp_initiated_logout_only_state(signed_in: SignedIn) -> None:
    """With only a state, the user is asked, signed out, and told so."""
    await signed_in.check_question(await signed_in.request_logout(id_token_hint=None, post_logout_redirect_uri=None))


async def test_oidcc_rp_initiated_logout_no_post_logout_redirect_uri(signed_in: SignedIn) -> None:
    """Without a URI to return to, the user is signed out without a question, and told so."""
    await signed_in.check_signed_out(await signed_in.request_logout(post_logout_redirect_uri=None))

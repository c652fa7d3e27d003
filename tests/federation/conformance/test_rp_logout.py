"""RP-Initiated Logout OP: sign-outs that an application requests."""

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import jwt
import pytest

from core.federation.oauth.authorization_rules import ResponseMode
from tests.federation.conformance.client import CONFIGURATION, Client, Grant
from tests.federation.conformance.person import Visit
from tests.federation.conformance.test_config import ISSUER, check_endpoints
from tests.support.builders import BASE_URL, Answer, Api, run_sql

END_SESSION: Final = "/auth/end-session"
BYE: Final = "https://first.example.com/post_logout_redirect"
STATE: Final = "s" * 128


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A client after a sign-in, with a registered post-logout redirect URI."""

    client: Client
    grant: Grant

    async def request_logout(self, **changes: str | None) -> Visit:
        """Send the user to the end-session endpoint. Omit parameters with the value None."""
        fields = {"id_token_hint": self.grant.tokens["id_token"], "post_logout_redirect_uri": BYE, "state": STATE, **changes}
        return await self.client.person.open(f"{END_SESSION}?{urlencode({name: value for name, value in fields.items() if value})}")

    async def check_returned(self, visit: Visit, parameters: dict[str, str]) -> None:
        assert (visit.page, visit.address, visit.query) == (None, BYE, parameters)
        assert await self.client.is_signed_out()

    async def check_error_page(self, visit: Visit) -> None:
        """Check that a page of ours says why the request is refused, and that the user stays signed in."""
        assert visit.page is not None
        assert (visit.page.status, "post_logout_redirect_uri" in visit.page.text) == (400, True)
        assert not await self.client.is_signed_out()

    async def check_question(self, visit: Visit) -> Answer:
        """Check that a page of ours asks the user, and agree. Return the page that follows: the application is not called."""
        assert visit.page is not None
        assert (visit.page.status, "<h1>Sign out of " in visit.page.text) == (200, True)
        assert not await self.client.is_signed_out()
        after = await self.client.person.agree(visit.page)
        assert after.page is not None
        return await self.check_signed_out(after)

    async def check_signed_out(self, visit: Visit) -> Answer:
        assert visit.page is not None
        assert (visit.page.status, "<h1>You're signed out</h1>" in visit.page.text) == (200, True)
        assert await self.client.is_signed_out()
        return visit.page


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
    """With an ID token of the browser's session, the user is signed out and returns with the state of 128 characters alone."""
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

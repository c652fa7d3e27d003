"""Redirect URIs with an international host: exactly two spellings are equal (security O-2, decision 393)."""

from typing import Final

import pytest
from quart_trio import QuartTrio

from tests.federation.api.end_session.applications import end_session_path
from tests.federation.api.relying import RelyingParty, redirect_parts
from tests.federation.api.test_pushed_requests import push, pushed
from tests.support.browser import FakeBrowser

pytestmark = pytest.mark.slow
TYPED: Final = "https://Bücher.example/Cb/%c3%bc?a=%2F"
STORED: Final = "https://xn--bcher-kva.example/Cb/%c3%bc?a=%2F"
UNICODE: Final = "https://bücher.example/Cb/%c3%bc?a=%2F"
NEAR_MISSES: Final = [
    TYPED,  # in another case than the A-labels' name
    UNICODE.replace("bücher", "bu\u0308cher"),  # decomposed
    UNICODE.replace("bücher", "bücheR"),
    UNICODE.replace("bücher", "bücher\u200d"),
    UNICODE.replace("bücher", "b\u00adücher"),
    UNICODE.replace("bücher", "bucher"),
    UNICODE.replace("bücher", "b\u0444cher"),
    UNICODE.replace("bücher", "www.bücher"),
    UNICODE.replace("bücher", "bücher."),
    UNICODE.replace("bücher", "b%C3%BCcher"),
    UNICODE.replace("bücher", "\uff42ücher"),  # a full-width letter
    UNICODE.replace(".example", "\u3002example"),  # an ideographic full stop
    UNICODE.replace(".example", "\uff0eexample"),
    UNICODE.replace(".example", ".Example"),
    UNICODE.replace(".example", ".example."),
    UNICODE.replace(".example", ".example.evil.example"),
    UNICODE.replace(".example", ".example:443"),
    UNICODE.replace(".example", ".example:"),
    UNICODE.replace(".example", ".example:8443"),
    UNICODE.replace("https://", "http://"),
    UNICODE.replace("https://", "HTTPS://"),
    UNICODE.replace("https://", "https://user@"),
    UNICODE.replace("https://", "https://evil.example@"),
    UNICODE.replace("https://", "https:/"),
    UNICODE.replace("/Cb", "//Cb"),
    UNICODE.replace("/Cb", "/cb"),
    UNICODE.replace("/Cb", "/./Cb"),
    UNICODE.replace("/Cb", "/x/../Cb"),
    UNICODE.replace("/Cb", "\\Cb"),
    UNICODE.replace("%c3%bc", "%C3%BC"),
    UNICODE.replace("%c3%bc", "ü"),
    UNICODE.replace("?a=%2F", "?a=/"),
    UNICODE.replace("?a=%2F", ""),
    UNICODE + "&b",
    UNICODE + "#",
    UNICODE + "/",
    " " + UNICODE,
    UNICODE + " ",
    STORED.replace("xn--", "XN--"),
    STORED.replace(".example", ".EXAMPLE"),
    STORED.replace("xn--bcher-kva", "xn--bcher-kv"),
    STORED.replace(".example", ".example:443"),
    STORED.replace("%c3%bc", "ü"),
]


@pytest.fixture
def browser(app: QuartTrio) -> FakeBrowser:
    return FakeBrowser(app)


@pytest.fixture
async def shop(relying_party: RelyingParty) -> RelyingParty:
    """An application that an owner has given URIs with an international host."""
    tenant = relying_party.tenant
    changes = {"redirect_uris": [TYPED], "post_logout_redirect_uris": [TYPED]}
    answer = await tenant.api.patch(f"/api/organizations/{tenant.slug}/services/{relying_party.slug}", changes, token=tenant.token("owner"))
    assert (answer.status, answer.json["redirect_uris"]) == (200, [STORED]), answer.text
    relying_party.redirect_uri = STORED
    return relying_party


@pytest.mark.parametrize("spelling", [STORED, UNICODE])
async def test_both_spellings_lead_to_the_stored_uri(shop: RelyingParty, spelling: str) -> None:
    url, fields = redirect_parts(await shop.open_request(redirect_uri=spelling))
    assert url + "?a=%2F" == STORED
    assert (await shop.exchange(fields["code"], redirect_uri=spelling)).status == 200
    request_uri = await pushed(shop, redirect_uri=spelling)
    answer = await shop.browser.open(f"/auth/authorize?client_id={shop.client_id}&request_uri={request_uri}")
    url, fields = redirect_parts(answer)
    assert url + "?a=%2F" == STORED
    signed_out = await shop.browser.open(end_session_path(client_id=shop.client_id, post_logout_redirect_uri=spelling))
    assert signed_out.status == 200


async def test_no_other_spelling_is_accepted(shop: RelyingParty) -> None:
    assert len(set(NEAR_MISSES) - {STORED, UNICODE}) >= 40

    async def accepted(spelling: str) -> list[str]:
        code = redirect_parts(await shop.open_request(redirect_uri=None))[1]["code"]
        answers = {
            "authorize": await shop.open_request(redirect_uri=spelling),
            "push": await push(shop, redirect_uri=spelling),
            "token": await shop.exchange(code, redirect_uri=spelling),
            "end session": await shop.browser.open(end_session_path(client_id=shop.client_id, post_logout_redirect_uri=spelling)),
        }
        return [f"{place} {spelling}: {answer.status}" for place, answer in answers.items() if answer.status != 400]

    assert [each for spelling in NEAR_MISSES for each in await accepted(spelling)] == []


async def test_two_spellings_of_one_uri_are_a_duplicate(shop: RelyingParty) -> None:
    tenant = shop.tenant
    path = f"/api/organizations/{tenant.slug}/services/{shop.slug}"
    answer = await tenant.api.patch(path, {"redirect_uris": [STORED, UNICODE]}, token=tenant.token("owner"))
    assert (answer.status, "listed twice" in answer.text) == (400, True)


async def test_a_host_that_idna_2003_cannot_write_is_found_by_its_unicode_form(relying_party: RelyingParty) -> None:
    stored = "https://xn--strae-oqa.example/cb"
    await relying_party.set_redirect_uris(stored)
    for asked, status in (("https://straße.example/cb", 303), ("https://strasse.example/cb", 400)):
        answer = await relying_party.open_request(redirect_uri=asked)
        assert answer.status == status, asked
        assert status == 400 or redirect_parts(answer)[0] == stored


@pytest.mark.parametrize("stored", ["https://XN--BCHER-KVA.example/cb", "https://xn--bcher-kva.Example:443/cb", "https://xn--0/cb"])
async def test_values_of_before_stay_as_they_are(relying_party: RelyingParty, stored: str) -> None:
    await relying_party.set_redirect_uris(stored)
    url, _ = redirect_parts(await relying_party.open_request(redirect_uri=stored))
    assert url == stored
    assert (await relying_party.open_request(redirect_uri="https://bücher.example/cb")).status == 400

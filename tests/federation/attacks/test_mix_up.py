"""Mix-up: an answer that seems to come from another issuer, or that belongs to another request (RFC 9700 section 4.4, RFC 9207)."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import RelyingParty, openid_tokens, path_of
from tests.support.browser import hidden_fields
from tests.support.builders import BASE_URL, Answer, run_sql
from tests.support.connections.proofs import older_sessions

ESSENTIAL_GOLD: Final = '{"id_token": {"acr": {"essential": true, "value": "gold"}}}'
# Requests and the errors to which they lead. None is a code.
ANSWERS: Final[dict[str | None, dict[str, str | None]]] = {
    None: {},
    "invalid_request": {"prompt": "none login"},
    "unsupported_response_type": {"response_type": "code id_token"},
    "request_not_supported": {"request": "e30.e30."},
    "request_uri_not_supported": {"request_uri": "https://shop.example.com/request"},
    "invalid_target": {"resource": "https://elsewhere.example"},
    "login_required": {"prompt": "none", "max_age": "0", "asked": "none"},
    "unmet_authentication_requirements": {"claims": ESSENTIAL_GOLD},
}


def fields_of(answer: Answer, mode: str) -> dict[str, str]:
    """Return the parameters in an answer, which must be where the response mode says, and nowhere else."""
    if mode == "form_post":
        assert (answer.status, answer.headers.get("Location")) == (200, None)
        return hidden_fields(answer)
    target = urlsplit(answer.headers["Location"])
    elsewhere = target.query if mode == "fragment" else target.fragment
    assert elsewhere == ""
    return dict(parse_qsl(target.fragment if mode == "fragment" else target.query, strict_parsing=True))


@pytest.mark.parametrize("mode", ["query", "fragment", "form_post"])
async def test_every_answer_names_the_issuer_and_the_request(shop: RelyingParty, mode: str) -> None:
    """So a client that talks to several issuers sends a code to the right issuer, and stops at a wrong issuer's error."""
    issuer = (await shop.api.get("/.well-known/openid-configuration")).json["issuer"]
    findings = []
    for error, changes in ANSWERS.items():
        await run_sql(shop.tenant.pool, older_sessions("1 hour"))
        answer = await shop.browser.open(path_of(shop, response_mode=mode, **changes))
        fields = fields_of(answer, mode)
        if (fields["iss"], fields["state"], fields.get("error"), "code" in fields) != (issuer, "af0ifjsldkj", error, error is None):
            findings.append((error, fields))
    assert findings == []
    assert issuer == BASE_URL


@pytest.mark.parametrize("answer", ["continue", "refuse"])
async def test_the_answer_of_the_consent_page_names_the_issuer_too(shop: RelyingParty, answer: str) -> None:
    response = await shop.browser.answer(await shop.browser.open(path_of(shop, prompt="consent")), answer)
    fields = fields_of(response, "query")
    assert (fields["iss"], fields["state"], fields.get("error")) == (
        BASE_URL,
        "af0ifjsldkj",
        None if answer == "continue" else "access_denied",
    )


async def test_a_request_cannot_choose_the_issuer_or_the_fields_of_its_answer(shop: RelyingParty) -> None:
    """The test tries a parameter, and a state that looks like more parameters."""
    hostile = "x&iss=https://evil.example&code=evil#iss=https://evil.example"
    path = path_of(shop, state=hostile) + "&iss=https://evil.example&code=evil&error=evil"
    target = urlsplit((await shop.browser.open(path)).headers["Location"])
    pairs = parse_qsl(target.query, strict_parsing=True)
    assert [name for name, _ in pairs] == ["code", "state", "iss"]
    assert dict(pairs)["state"] == hostile
    assert (dict(pairs)["iss"], target.fragment) == (BASE_URL, "")
    assert dict(pairs)["code"] != "evil"


async def test_the_page_that_posts_an_answer_runs_no_script_of_the_request(shop: RelyingParty) -> None:
    hostile = '"><script>alert(1)</script>'
    page = await shop.browser.open(path_of(shop, response_mode="form_post", state=hostile))
    assert fields_of(page, "form_post")["state"] == hostile
    assert "<script>alert" not in page.text


async def test_all_applications_of_all_organizations_have_one_issuer(shop: RelyingParty, evil: RelyingParty, user: Account) -> None:
    """There is no second issuer (docs/adr/0029), so an organization cannot pretend to be another organization's issuer."""
    tokens = [await openid_tokens(application) for application in (shop, evil)]
    keys = await shop.api.get("/.well-known/jwks.json")
    assert len(keys.json["keys"]) == 1
    assert len({token["id_token"].partition(".")[0] for token in tokens}) == 1
    for path in ("acme", "organizations/acme", "auth", "api"):
        for document in ("openid-configuration", "oauth-authorization-server"):
            assert (await shop.api.get(f"/{path}/.well-known/{document}")).status == 404

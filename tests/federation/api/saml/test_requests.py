"""Invalid SAML requests: status 400, no message to the application, nothing stored.

Covers security X-1, X-2, X-3, X-9 and X-10.
"""

import base64
import re
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.messages import MAX_DOCUMENT_LENGTH, MAX_ENCODED_LENGTH
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import HTML
from tests.support.builders import Answer, run_sql
from tests.support.direct import ask
from tests.support.saml import (
    SamlApplication,
    add_application,
    authn_request,
    deflate,
    encode_base64,
    format_instant,
    logout_request,
    logout_response,
    posted_response,
    redirect_url,
)
from tests.support.saml.browser import SamlBrowser, redirect_target, sign_out
from tests.support.services import add_service_user
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(ports: Ports, pool: Pool, acme: Tenant) -> SamlApplication:
    return await add_application(ports, pool, acme.org, acme.slug)


async def problems_with(answer: Answer, pool: Pool) -> list[str]:
    """Return how this answer differs from a refusal that sends and stores nothing."""
    text = re.sub(r'nonce="[^"]*"', "", answer.text)  # a nonce can contain any word
    rows = await run_sql(pool, "select (select count(*) from sign_in_flows) + (select count(*) from saml_logouts)")
    expectations = {
        f"status {answer.status}": answer.status == 400,
        "not a page": answer.headers["Content-Type"].startswith("text/html"),
        "a redirect": "Location" not in answer.headers,
        "a SAML response": "SAMLResponse" not in answer.text,
        "a link to the application": "shop.example.com" not in answer.text,
        "details of the parser": not any(word in text for word in ("lxml", "XML", "Errno", "parser", "Traceback")),
        "stored rows": rows == [(0,)],
    }
    return [problem for problem, holds in expectations.items() if not holds]


async def check_refused(answer: Answer, pool: Pool) -> None:
    assert await problems_with(answer, pool) == [], answer.text


XXE = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
LAUGHS = "<!DOCTYPE x [<!ENTITY a 'ha'>" + "".join(f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(9)) + "]>"
ISSUER = "https://shop.example.com/metadata"
# The differences from a valid request, by the mistake's name.
INVALID: dict[str, dict[str, Any]] = {
    "a document type": {"before": "<!DOCTYPE x>"},
    "an external entity": {"before": XXE, "inside": "<x>&e;</x>"},
    "an external entity in the issuer": {"before": XXE, "issuer": "<saml:Issuer>&e;</saml:Issuer>"},
    "a billion laughs": {"before": LAUGHS, "inside": "<x>&j;</x>"},
    "a parameter entity": {"before": '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x"> %p;]>'},
    "an instruction before the root": {"before": "<?php x?>"},
    "an instruction in the root": {"inside": "<?php x?>"},
    "an instruction in the issuer": {"issuer": f"<saml:Issuer>{ISSUER}<?x y?></saml:Issuer>"},
    "an instruction after the root": {"after": "<?php x?>"},
    "an element after the root": {"after": "<x/>"},
    "another encoding": {"before": '<?xml version="1.0" encoding="ISO-8859-1"?>'},
    "an unknown entity": {"inside": "<x>&nbsp;</x>"},
    "no version": {"Version": None},
    "version 1.1": {"Version": "1.1"},
    "version 2": {"Version": "2"},
    "no id": {"ID": None},
    "an empty id": {"ID": ""},
    "an id that begins with a digit": {"ID": "1abc"},
    "an id with a space": {"ID": "_a b"},
    "an id with a colon": {"ID": "a:b"},
    "an id with markup": {"ID": '_"><x'},
    "a long id": {"ID": "_" * 257},
    "no issuer": {"issuer": ""},
    "two issuers": {"issuer": f"<saml:Issuer>{ISSUER}</saml:Issuer>" * 2},
    "another issuer": {"issuer": "<saml:Issuer>https://evil.example.com</saml:Issuer>"},
    "an issuer of another case": {"issuer": f"<saml:Issuer>{ISSUER.upper()}</saml:Issuer>"},
    "an issuer cut off by a comment": {"issuer": f"<saml:Issuer>{ISSUER}<!-- -->.evil.example.com</saml:Issuer>"},
    "an element in the issuer": {"issuer": f"<saml:Issuer>{ISSUER}<x/></saml:Issuer>"},
    "an issuer of another namespace": {"issuer": f"<Issuer>{ISSUER}</Issuer>"},
    "an issuer in an extension": {"issuer": "", "inside": f"<samlp:Extensions><saml:Issuer>{ISSUER}</saml:Issuer></samlp:Extensions>"},
    "no time": {"IssueInstant": None},
    "text that is not a time": {"IssueInstant": "yesterday"},
    "a day that does not exist": {"IssueInstant": "2026-02-30T00:00:00Z"},
    "a time outside of the calendar": {"IssueInstant": "9999-12-31T23:59:59-23:00"},
    "another destination": {"Destination": "https://evil.example.com/sso"},
    "the destination of another service": {"Destination": "http://gatehouse.test/saml/acme/blog/sso"},
    "our endpoint for single logout": {"Destination": "http://gatehouse.test/saml/acme/shop/slo"},
    "another ACS URL": {"AssertionConsumerServiceURL": "https://evil.example.com/acs"},
    "an ACS URL that begins like the registered one": {"AssertionConsumerServiceURL": "https://shop.example.com/acs/../evil"},
    "an ACS URL of another case": {"AssertionConsumerServiceURL": "https://shop.example.com/ACS"},
    "an empty ACS URL": {"AssertionConsumerServiceURL": ""},
    "another binding": {"ProtocolBinding": "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Artifact"},
    "the redirect binding for the response": {"ProtocolBinding": "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"},
    "a flag that is not a boolean": {"ForceAuthn": "yes"},
    "a flag in capitals": {"IsPassive": "TRUE"},
    "two policies": {"inside": "<samlp:NameIDPolicy/>" * 2},
    "two subjects": {"inside": "<saml:Subject><saml:NameID>x</saml:NameID></saml:Subject>" * 2},
    "a subject with two names": {"inside": f"<saml:Subject>{'<saml:NameID>x</saml:NameID>' * 2}</saml:Subject>"},
    "a name with markup": {"inside": "<saml:Subject><saml:NameID>ada@<x/>example.com</saml:NameID></saml:Subject>"},
    "an unknown comparison": {"inside": '<samlp:RequestedAuthnContext Comparison="most"><x/></samlp:RequestedAuthnContext>'},
}  # fmt: skip


async def test_invalid_authn_requests_are_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    findings = []
    for mistake, changes in INVALID.items():
        message = authn_request(shop, clock.now(), **changes)
        for binding, answer in (
            ("redirect", await browser.open(redirect_url(f"{shop.path}/sso", message))),
            ("form", await browser.post_cross_site(f"{shop.path}/sso", SAMLRequest=encode_base64(message))),
        ):
            findings += [(mistake, binding, problem) for problem in await problems_with(answer, pool)]
    assert findings == []


async def test_invalid_logout_requests_are_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    findings, count = [], 0
    only_authn = {"AssertionConsumerServiceURL", "ProtocolBinding", "ForceAuthn", "IsPassive", "before", "after", "inside"}
    for mistake, changes in INVALID.items():
        if only_authn & changes.keys():
            continue
        count += 1
        changes = {key: value.replace("/slo", "/sso") if key == "Destination" and value else value for key, value in changes.items()}
        message = logout_request(shop, clock.now(), "ada@example.com", "_index", **changes)
        answer = await browser.open(redirect_url(f"{shop.path}/slo", message))
        findings += [(mistake, problem) for problem in await problems_with(answer, pool)]
    assert (findings, count) == ([], 25)


async def test_old_requests_and_requests_from_the_future_are_refused(
    browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool
) -> None:
    for difference in (timedelta(minutes=5, seconds=2), timedelta(minutes=-5, seconds=-2), timedelta(days=-4000)):
        message = authn_request(shop, clock.now(), IssueInstant=format_instant(clock.now() + difference))
        await check_refused(await browser.open(redirect_url(f"{shop.path}/sso", message)), pool)


VALID: dict[str, dict[str, Any]] = {
    "only the required attributes": {"Destination": None, "AssertionConsumerServiceURL": None, "ProtocolBinding": None},
    "a declaration": {"before": '<?xml version="1.0" encoding="UTF-8"?>'},
    "a comment": {"inside": "<!-- thank you -->", "before": "<!-- please -->"},
    "spaces around the issuer": {"issuer": f"<saml:Issuer>\n  {ISSUER}\n</saml:Issuer>"},
    "a comment in the issuer": {"issuer": f"<saml:Issuer>{ISSUER[:20]}<!-- x -->{ISSUER[20:]}</saml:Issuer>"},
    "a signature": {"inside": '<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:KeyInfo/></ds:Signature>'},
    "a policy": {"inside": '<samlp:NameIDPolicy AllowCreate="true" Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"/>'},
    "fractions of a second": {"IssueInstant": "2026-03-14T15:09:26.5358979323Z"},
    "an offset": {"IssueInstant": "2026-03-14T16:09:26+01:00"},
    "no offset": {"IssueInstant": "2026-03-14T15:09:26"},
    "an index for the ACS URL": {"AssertionConsumerServiceURL": None, "AssertionConsumerServiceIndex": "0"},
    "a letter that is not ASCII": {"ID": "_\u00e4"},
}


async def test_valid_variations_are_accepted(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> None:
    findings = []
    for variation, changes in VALID.items():
        answer = await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now(), **changes)))
        if answer.status != 302:
            findings.append((variation, answer.status))
    assert findings == []


async def test_other_elements_are_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    valid = authn_request(shop, clock.now()).decode()
    messages = [valid.replace("urn:oasis:names:tc:SAML:2.0:protocol", "urn:x")]
    for name in ("AuthnRequest", "samlp:Response", "samlp:LogoutRequest", "samlp:ArtifactResolve"):
        messages.append(valid.replace("samlp:AuthnRequest", name))
    for message in messages:
        await check_refused(await browser.open(redirect_url(f"{shop.path}/sso", message.encode())), pool)


# Encoding


def bomb() -> str:
    """Return 64 KiB of base64 that inflate to 12 MB."""
    return encode_base64(deflate(b" " * 12_000_000))


def just_too_long() -> str:
    return encode_base64(deflate(b" " * (MAX_DOCUMENT_LENGTH + 1)))


PACKED: dict[str, Callable[[bytes], str]] = {
    "nothing": lambda _: "",
    "no base64": lambda _: "%%%",
    "base64 without its end": lambda message: encode_base64(deflate(message)).rstrip("=") + "A",
    "no deflate": lambda message: encode_base64(message),
    "zlib instead of deflate": lambda message: encode_base64(zlib.compress(message)),
    "a deflate that is cut off": lambda message: encode_base64(deflate(message)[:-3]),
    "something after the deflate": lambda message: encode_base64(deflate(message) + b"x"),
    "a second deflate": lambda message: encode_base64(deflate(message) * 2),
    "a bomb": lambda _: bomb(),
    "a little too much": lambda _: just_too_long(),
    "another alphabet": lambda message: base64.urlsafe_b64encode(deflate(message + b"<!-- \xff\xfe\xfb -->")).decode() + "-_",
    "no XML": lambda _: encode_base64(deflate(b"hello")),
    "nothing at all": lambda _: encode_base64(deflate(b"")),
    "UTF-16": lambda message: encode_base64(deflate(message.decode().encode("utf-16"))),
    "a byte that is not UTF-8": lambda message: encode_base64(deflate(message.replace(b"</samlp", b"<!--\xff--></samlp"))),
    "a NUL": lambda message: encode_base64(deflate(message + b"\0")),
    "deep nesting": lambda message: encode_base64(deflate(message.replace(b"</samlp", b"<x>" * 500 + b"</x>" * 500 + b"</samlp"))),
}  # fmt: skip


async def test_invalid_encodings_are_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    findings = []
    for mistake, encode in PACKED.items():
        text = encode(authn_request(shop, clock.now()))
        for endpoint in ("sso", "slo"):
            answer = await browser.open(f"{shop.path}/{endpoint}?{urlencode({'SAMLRequest': text})}")
            findings += [(mistake, endpoint, problem) for problem in await problems_with(answer, pool)]
    assert findings == []


async def test_forms_are_decoded_as_strictly(browser: SamlBrowser, shop: SamlApplication, pool: Pool) -> None:
    for text in ("", "%%%", "AAA", "A" * (MAX_ENCODED_LENGTH + 4)):
        for endpoint in ("sso", "slo"):
            await check_refused(await browser.post_cross_site(f"{shop.path}/{endpoint}", SAMLRequest=text), pool)
            await check_refused(await browser.post_cross_site(f"{shop.path}/{endpoint}", Other=text), pool)


async def test_base64_in_a_form_can_have_line_breaks(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> None:
    wrapped = base64.encodebytes(authn_request(shop, clock.now())).decode()
    assert "\n" in wrapped
    redirect_target(await browser.post_cross_site(f"{shop.path}/sso", SAMLRequest=wrapped), 303)


async def test_a_post_must_be_a_form(app: QuartTrio, shop: SamlApplication) -> None:
    for kind in (b"application/json", b"text/xml", b"multipart/form-data; boundary=x", b""):
        answer = await ask(app, "POST", f"{shop.path}/sso", headers=[HTML, (b"content-type", kind)], body=b"SAMLRequest=x")
        assert answer.status == 415


async def test_repeated_fields_are_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    address = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()))
    for more in (address.partition("?")[2], "SAMLResponse=x", "RelayState=a&RelayState=b", "SAMLEncoding=urn:x"):
        await check_refused(await browser.open(f"{address}&{more}"), pool)
    redirect_target(
        await browser.open(f"{address}&SAMLEncoding=urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE&SigAlg=x&Signature=y")
    )


async def test_the_host_of_an_address_may_have_another_spelling(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> None:
    spellings = {"AssertionConsumerServiceURL": shop.acs_url.replace("https://shop", "HTTPS://Shop").replace(".com/", ".com:443/")}
    spellings["Destination"] = f"{shop.issuer}/sso".replace("http://gatehouse.test/", "HTTP://Gatehouse.test:80/")
    redirect_target(await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now(), **spellings))), 302)


async def test_the_length_of_a_relay_state_is_limited(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    for relay_state in ("x" * 4097, "\u00e9" * 2049, "a\nb"):
        answer = await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()), RelayState=relay_state))
        await check_refused(answer, pool)
    for relay_state in ("x" * 4096, "\u00e9" * 2048):
        answer = await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()), RelayState=relay_state))
        redirect_target(answer, 302)


async def test_a_request_id_works_once(
    browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, ports: Ports, pool: Pool, acme: Tenant
) -> None:
    first = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now(), ID="_same"))
    redirect_target(await browser.open(first))
    for address in (first, redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now(), ID="_same", ForceAuthn="true"))):
        page = await browser.open(address)
        assert page.status == 400
        assert "has already been used" in page.text
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog")
    redirect_target(await browser.open(redirect_url(f"{blog.path}/sso", authn_request(blog, clock.now(), ID="_same"))))


async def test_a_key_that_cannot_be_decrypted_is_a_server_error_without_details(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, user: Account, pool: Pool
) -> None:
    """This can happen after a restore with the wrong keys. Requests that need no signature still work."""
    await add_service_user(ports, shop.id, user.id, signed_in=False)
    await browser.sign_in()
    await browser.sign_on(shop)
    path = await browser.start_sign_on(shop)
    [(sealed,)] = await run_sql(pool, "select private_key from saml_certificates")
    await run_sql(pool, "update saml_certificates set private_key = decode('00', 'hex')")
    assert (await browser.open(f"{shop.path}/metadata")).status == 200
    answer = await browser.open(path)
    assert answer.status == 500
    assert "saml_certificates" not in answer.text
    await run_sql(pool, "update saml_certificates set private_key = %s", sealed)
    posted_response(await browser.open(path))
    await run_sql(pool, "update saml_certificates set private_key = decode('00', 'hex')")
    await sign_out(browser)
    assert not await browser.is_in(), "a request that needs no signature works"


async def test_a_response_without_a_request_is_refused(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock, pool: Pool) -> None:
    for id_ in ("_unknown", ""):
        message = logout_response(shop, clock.now(), id_)
        await check_refused(await browser.open(redirect_url(f"{shop.path}/slo", message, "SAMLResponse")), pool)
    request = logout_request(shop, clock.now(), "ada@example.com", "_index")
    await check_refused(await browser.open(redirect_url(f"{shop.path}/slo", request, "SAMLResponse")), pool)
    await check_refused(await browser.open(redirect_url(f"{shop.path}/slo", logout_response(shop, clock.now(), "_x"))), pool)
    await check_refused(await browser.open(f"{shop.path}/slo"), pool)

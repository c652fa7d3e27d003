"""LogoutRequests without SessionIndex, unsigned and signed with the registered certificate (security X-9)."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import NameIdFormat, SamlCertificate
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.saml_logout.progress import send_request
from tests.support.builders import EMAIL, PASSWORD, add_account, run_concurrently, run_sql
from tests.support.saml import SamlApplication, encode_base64, logout_request, new_certificate
from tests.support.saml.browser import LogoutWalk, RedirectedMessage, SamlApplications, SamlBrowser, redirect_target
from tests.support.saml.signatures import HASHES, MORE, SHA1, signed_document, signed_url
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

PARTIAL = ["Success", "PartialLogout"]
UNKNOWN = ["Requester", "UnknownPrincipal"]


@pytest.fixture
async def key(clock: FakeClock) -> SamlCertificate:
    return await new_certificate(clock.now(), "the application")


@pytest.fixture
async def other_key(clock: FakeClock) -> SamlCertificate:
    return await new_certificate(clock.now(), "an attacker")


@pytest.fixture
async def shop(applications: SamlApplications, key: SamlCertificate) -> SamlApplication:
    return await applications.add("shop", slo_certificate=key.certificate)


class Browsers:
    """The user's browsers, signed in to these applications, and a browser without a session."""

    def __init__(self, app: QuartTrio, clock: FakeClock) -> None:
        self._app, self._clock = app, clock
        self.stranger = SamlBrowser(app, clock)

    async def add(self, *applications: SamlApplication, email: str = EMAIL) -> SamlBrowser:
        browser = SamlBrowser(self._app, self._clock)
        await browser.sign_in(email, PASSWORD)
        for application in applications:
            await browser.sign_on(application)
        return browser


@pytest.fixture
def browsers(app: QuartTrio, clock: FakeClock) -> Browsers:
    return Browsers(app, clock)


async def test_without_session_index_an_unsigned_request_ends_the_sessions_of_this_browser(
    browsers: Browsers, shop: SamlApplication, blog: SamlApplication, user: Account
) -> None:
    browser, other = await browsers.add(shop, blog), await browsers.add(shop)
    walk = LogoutWalk(browser, shop, blog)
    step = await send_request(browser, shop, EMAIL)
    assert walk.pending_request(step) is not None
    assert RedirectedMessage(redirect_target(await walk.finish(step))).statuses == ["Success"]
    assert walk.notified == ["blog"]
    assert (await browser.is_in(), await other.is_in()) == (False, True)
    assert RedirectedMessage(redirect_target(await send_request(browsers.stranger, shop, EMAIL))).statuses == UNKNOWN
    assert await other.is_in()


@pytest.mark.slow
async def test_only_a_right_signature_ends_the_sessions_of_other_browsers(
    browsers: Browsers, shop: SamlApplication, key: SamlCertificate, other_key: SamlCertificate, user: Account, clock: FakeClock
) -> None:
    """A browser without a session delivers the request, while the user is signed in in another browser."""

    def message(**changes: Any) -> bytes:
        return logout_request(shop, clock.now(), EMAIL, **changes)

    def wrapped() -> bytes:
        """Return a request about the user around a signed request about another user."""
        signed = signed_document(logout_request(shop, clock.now(), "stranger@example.com"), key)
        return message().replace(b"</samlp:LogoutRequest>", b"<samlp:Extensions>" + signed + b"</samlp:Extensions></samlp:LogoutRequest>")

    def moved() -> bytes:
        """Return a request about the user with the signature from another request."""
        signed = signed_document(logout_request(shop, clock.now(), "stranger@example.com", ID="_same"), key)
        [signature] = re.findall(rb"<ds:Signature .*</ds:Signature>", signed, re.DOTALL)
        return message(ID="_same").replace(b"</saml:Issuer>", b"</saml:Issuer>" + signature)

    def exchange_message(url: str, other: str) -> str:
        [parameter] = re.findall("SAMLRequest=[^&]*", other)
        return re.sub("SAMLRequest=[^&]*", parameter, url)

    slo = f"{shop.path}/slo"
    redirects: dict[str, tuple[Callable[[], str], object]] = {
        **{algorithm: (partial(signed_url, slo, message(), key, algorithm), ["Success"]) for algorithm in HASHES},
        SHA1: (lambda: signed_url(slo, message(), key, SHA1), 400),
        "without RelayState": (lambda: signed_url(slo, message(), key, relay_state=None), ["Success"]),
        "another key": (lambda: signed_url(slo, message(), other_key), 400),
        "our own key": (lambda: signed_url(slo, message(), shop.certificate or key), 400),
        "another RelayState": (lambda: signed_url(slo, message(), key).replace("RelayState=a%20b", "RelayState=c"), 400),
        "another message": (lambda: exchange_message(signed_url(slo, message(), key), signed_url(slo, message(), key)), 400),
        "no algorithm": (lambda: re.sub("SigAlg=[^&]*&", "", signed_url(slo, message(), key)), 400),
        "no base64": (lambda: re.sub("Signature=[^&]*", "Signature=x", signed_url(slo, message(), key)), 400),
        "no signature": (lambda: re.sub("Signature=[^&]*&", "", signed_url(slo, message(), key)), UNKNOWN),
        "no destination": (lambda: signed_url(slo, message(Destination=None), key), 400),
        "another name": (lambda: signed_url(slo, logout_request(shop, clock.now(), "stranger@example.com"), key), UNKNOWN),
        "another index": (lambda: signed_url(slo, logout_request(shop, clock.now(), EMAIL, "_guessed"), key), UNKNOWN),
    }  # fmt: skip
    forms: dict[str, tuple[Callable[[], bytes], object]] = {
        "form": (lambda: signed_document(message(), key), ["Success"]),
        "form, SHA-1": (lambda: signed_document(message(), key, SHA1), 400),
        "form, another key": (lambda: signed_document(message(), other_key), 400),
        "form, changed": (lambda: signed_document(logout_request(shop, clock.now(), "x@example.com"), key).replace(b"x@ex", b"a@ex"), 400),
        "form, wrapped": (wrapped, 400),
        "form, moved": (moved, 400),
        "form, same xml:id": (lambda: signed_document(message(ID="_a"), key).replace(b"<saml:NameID", b'<saml:NameID xml:id="_a"'), 400),
        "form, no signature": (message, UNKNOWN),
    }
    findings = []
    other = await browsers.add(shop)
    for case, (make_url, expected) in redirects.items():
        other = other if await other.is_in() else await browsers.add(shop)
        answer = await browsers.stranger.open(make_url())
        outcome = answer.status if answer.status == 400 else RedirectedMessage(redirect_target(answer)).statuses
        findings += [(case, outcome)] if (outcome, await other.is_in()) != (expected, expected != ["Success"]) else []
    for case, (make_document, expected) in forms.items():
        other = other if await other.is_in() else await browsers.add(shop)
        repeated = await browsers.stranger.post_cross_site(slo, SAMLRequest=encode_base64(make_document()))
        answer = await browsers.stranger.open(redirect_target(repeated, 303))
        outcome = answer.status if answer.status == 400 else RedirectedMessage(redirect_target(answer)).statuses
        findings += [(case, outcome)] if (outcome, await other.is_in()) != (expected, expected != ["Success"]) else []
    assert findings == []


async def test_a_signed_request_ends_all_sessions_of_the_user_with_the_application(
    browsers: Browsers,
    shop: SamlApplication,
    blog: SamlApplication,
    key: SamlCertificate,
    user: Account,
    ports: Ports,
    clock: FakeClock,
    acme: Tenant,
    pool: Pool,
) -> None:
    """The user's sessions at other applications, and other users' sessions, continue."""
    await add_service_user(ports, shop.id, (await add_account(ports, "eve@example.com")).id, signed_in=False)
    browser, second, third = await browsers.add(shop, blog), await browsers.add(shop), await browsers.add(shop)
    bystanders = [await browsers.add(blog), await browsers.add(), await browsers.add(shop, email="eve@example.com")]
    walk = LogoutWalk(browser, shop, blog)
    step = await browser.open(signed_url(f"{shop.path}/slo", logout_request(shop, clock.now(), EMAIL), key))
    assert RedirectedMessage(redirect_target(await walk.finish(step))).statuses == ["Success"]
    assert walk.notified == ["blog"], "the applications of this browser are notified"
    assert [await other.is_in() for other in (browser, second, third)] == [False] * 3
    assert [await other.is_in() for other in bystanders] == [True] * 3
    events = await run_sql(
        pool, "select target_id, details, actor_id from audit_log where org_id = %s and action = 'user.sessions_revoked'", acme.org
    )
    assert events == [(str(user.id), {"sessions_revoked": 2}, None)]


async def test_applications_of_other_browsers_make_the_logout_partial(
    browsers: Browsers, shop: SamlApplication, blog: SamlApplication, key: SamlCertificate, user: Account, clock: FakeClock
) -> None:
    browser = await browsers.add(shop)
    for deliverer in (browser, browsers.stranger):
        other = await browsers.add(shop, blog)
        answer = await deliverer.open(signed_url(f"{shop.path}/slo", logout_request(shop, clock.now(), EMAIL), key))
        assert RedirectedMessage(redirect_target(answer)).statuses == PARTIAL
        assert not await other.is_in()
    assert not await browser.is_in()


async def test_a_signed_request_finds_all_sessions_by_any_transient_name_of_this_browser(
    browsers: Browsers, applications: SamlApplications, key: SamlCertificate, user: Account, clock: FakeClock
) -> None:
    once = await applications.add("once", slo_certificate=key.certificate, name_id_format=NameIdFormat.TRANSIENT)
    browser, other = await browsers.add(), await browsers.add(once)
    first, _ = await browser.sign_on(once), await browser.sign_on(once)
    answer = await browser.open(signed_url(f"{once.path}/slo", logout_request(once, clock.now(), first.name_id), key))
    assert RedirectedMessage(redirect_target(answer)).statuses == ["Success"]
    assert (await browser.is_in(), await other.is_in()) == (False, False)


async def test_without_a_registered_certificate_signatures_are_ignored(
    browsers: Browsers, blog: SamlApplication, key: SamlCertificate, user: Account, clock: FakeClock
) -> None:
    browser, other = await browsers.add(blog), await browsers.add(blog)
    for algorithm in (SHA1, f"{MORE}rsa-sha256"):
        answer = await browser.open(signed_url(f"{blog.path}/slo", logout_request(blog, clock.now(), EMAIL), key, algorithm))
        assert RedirectedMessage(redirect_target(answer)).statuses == (["Success"] if algorithm == SHA1 else UNKNOWN)
    assert await other.is_in()


@pytest.mark.slow
async def test_parallel_signed_requests_from_all_browsers_end_each_session_once(
    browsers: Browsers, shop: SamlApplication, key: SamlCertificate, user: Account, clock: FakeClock, pool: Pool
) -> None:
    deliverers = [await browsers.add(shop) for _ in range(10)] + [browsers.stranger] * 10

    async def deliver(number: int) -> list[str]:
        answer = await deliverers[number].open(signed_url(f"{shop.path}/slo", logout_request(shop, clock.now(), EMAIL), key))
        return RedirectedMessage(redirect_target(answer)).statuses

    outcomes = await run_concurrently(20, deliver)
    assert all(outcome in (["Success"], UNKNOWN) for outcome in outcomes)
    assert ["Success"] in outcomes
    assert not any([await browser.is_in() for browser in deliverers])
    [(counted,)] = await run_sql(
        pool, "select coalesce(sum((details->>'sessions_revoked')::int), 0) from audit_log where action = 'user.sessions_revoked'"
    )
    assert counted in (9, 10), "the session of a browser that delivers the first request is not counted"

"""A service's next and previous certificates (security X-11, decision 382)."""

from datetime import timedelta

import pytest
from lxml import etree

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import PREVIOUS_KEPT
from core.kernel.causes import SYSTEM
from core.kernel.values import rfc3339
from core.maintenance.model.housekeeping import Sweep
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, Api, add_member, run_concurrently, run_sql
from tests.support.saml import NS, SamlApplication
from tests.support.saml.browser import SamlBrowser
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

WITH_KEY = "select coalesce(standby, 'active') from saml_certificates where private_key is not null order by 1"


class Certificates:
    """An application's certificates: what an admin does, what the metadata has, and what signs."""

    def __init__(self, api: Api, acme: Tenant, shop: SamlApplication, browser: SamlBrowser) -> None:
        self._api, self._acme, self._shop, self._browser = api, acme, shop, browser

    async def call(self, method: str, action: str = "") -> Answer:
        return await self._api.call(method, f"{self._shop.management}/certificate{action}", token=self._acme.token("admin"))

    async def create(self, action: str = "") -> str:
        """Return the certificate that this action creates or makes active, as the metadata has it."""
        answer = await self.call("POST", action)
        assert answer.status == 200, answer.text
        return "".join(line for line in answer.json["public_key"].splitlines() if "-----" not in line)

    async def published(self) -> list[str]:
        document = etree.fromstring((await self._browser.open(f"{self._shop.path}/metadata")).text.encode())
        assert [key.get("use") for key in document.iter(f"{{{NS['md']}}}KeyDescriptor")].count("signing") > 0
        return ["".join(text.split()) for text in document.xpath("//ds:X509Certificate/text()", namespaces=NS)]

    async def signing(self) -> str:
        """Return the certificate in the response to a sign-on."""
        document = (await self._browser.sign_on(self._shop)).document.decode()
        return document.partition("X509Certificate>")[2].partition("<")[0]


@pytest.fixture
async def certificates(api: Api, acme: Tenant, shop: SamlApplication, browser: SamlBrowser, user: Account) -> Certificates:
    await browser.sign_in()
    return Certificates(api, acme, shop, browser)


async def test_a_certificate_is_published_before_it_signs_and_can_be_undone(
    certificates: Certificates, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    old = await certificates.signing()
    assert await certificates.published() == [old]
    new = await certificates.create("/next")
    assert (await certificates.call("GET", "/next")).json["is_active"] is False
    assert (await certificates.published(), await certificates.signing()) == ([old, new], old)

    activated = await certificates.call("POST", "/activate")
    assert (activated.json["is_active"], activated.json["undo_until"]) == (True, rfc3339(clock.now() + PREVIOUS_KEPT))
    assert (await certificates.published(), await certificates.signing()) == ([new, old], new)
    assert (await certificates.call("GET", "/next")).status == 404

    assert await certificates.create("/undo") == old
    assert (await certificates.published(), await certificates.signing()) == ([old, new], old)
    assert (await certificates.call("POST", "/undo")).status == 404
    assert await certificates.create("/activate") == new

    assert await run_sql(pool, "select kept_until from saml_certificates where standby is not null") == [(clock.now() + PREVIOUS_KEPT,)]
    await run_sql(pool, "update saml_certificates set kept_until = %s where standby is not null", clock.now())
    assert await certificates.published() == [new]
    assert (await certificates.call("POST", "/undo")).status == 404
    assert await run_sql(pool, WITH_KEY) == [("active",), ("previous",)]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.housekeeping.sweep(Sweep.PREVIOUS_SAML_KEYS, clock.now() + timedelta(seconds=1), 10) == 1
        assert await tx.housekeeping.sweep(Sweep.PREVIOUS_SAML_KEYS, clock.now() + timedelta(seconds=1), 10) == 0
    assert await run_sql(pool, WITH_KEY) == [("active",)]
    actions = [name for name, *_ in await acme.recorded() if name.startswith("saml.certificate.")]
    assert actions == [f"saml.certificate.{action}" for action in ("next_created", "activated", "activation_undone", "activated")]


async def test_replacing_at_once_and_disabling_delete_all_other_keys(
    certificates: Certificates, shop: SamlApplication, api: Api, acme: Tenant, pool: Pool
) -> None:
    await certificates.create("/next")
    await certificates.create("/activate")
    await certificates.create("/next")
    assert await run_sql(pool, WITH_KEY) == [("active",), ("next",), ("previous",)]
    assert len(await certificates.published()) == 3
    only = await certificates.create()
    assert await run_sql(pool, WITH_KEY) == [("active",)]
    assert (await certificates.published(), await certificates.signing()) == ([only], only)
    await certificates.create("/next")
    await certificates.create("/activate")
    assert (await api.delete(shop.management, token=acme.token("admin"))).status == 200
    assert await run_sql(pool, WITH_KEY) == []
    assert (await certificates.call("POST", "/undo")).status == 404


async def test_each_refusal_says_what_to_do(certificates: Certificates, acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    async def refusal(method: str, action: str) -> tuple[int, str]:
        answer = await certificates.call(method, action)
        return answer.status, answer.json["error"].partition(".")[0]

    missing = (404, "This application has no next certificate")
    for method, action in (("GET", "/next"), ("DELETE", "/next"), ("POST", "/activate")):
        assert await refusal(method, action) == missing
    assert await refusal("POST", "/undo") == (404, "There is no previous certificate to return to")
    await certificates.create("/next")
    assert await refusal("POST", "/next") == (409, "This application already has a next certificate")
    await certificates.create("/activate")
    await certificates.create("/next")
    assert await refusal("POST", "/undo") == (409, "This application already has a next certificate")
    assert (await certificates.call("DELETE", "/next")).status == 204
    assert (await acme.actions())["saml.certificate.next_deleted"] == 1
    assert await refusal("POST", "/activate") == missing
    await certificates.create("/undo")
    await run_sql(pool, "update saml_certificates set valid_until = %s where standby = 'next'", clock.now() + timedelta(seconds=1))
    clock.advance(timedelta(seconds=1))
    assert await refusal("POST", "/activate") == missing, "the next certificate has expired"
    await certificates.create("/next")
    await run_sql(pool, "update saml_certificates set deactivated_at = now(), private_key = null where deactivated_at is null")
    await run_sql(pool, "update saml_certificates set standby = null, private_key = null")
    assert await refusal("POST", "/next") == (404, "This application has no active certificate")
    await run_sql(pool, "update saml_configurations set enabled = false")
    assert await refusal("POST", "/next") == (400, "SAML is not enabled for this application")


@pytest.mark.parametrize("actions", [["/next"], ["/activate"], ["/undo"], ["/activate", "/undo"], ["/next", "/activate", "/undo", ""]])
async def test_parallel_changes_leave_one_active_certificate(certificates: Certificates, pool: Pool, actions: list[str]) -> None:
    if actions != ["/next"]:
        await certificates.create("/next")
    if actions == ["/undo"]:
        await certificates.create("/activate")
    answers = await run_concurrently(20, lambda number: certificates.call("POST", actions[number % len(actions)]))
    statuses = sorted(answer.status for answer in answers)
    assert set(statuses) <= {200, 404, 409}
    if len(actions) == 1:
        assert statuses == [200] + [409 if actions == ["/next"] else 404] * 19
    with_key = await run_sql(pool, WITH_KEY)
    assert with_key.count(("active",)) == 1
    assert len(with_key) == len(set(with_key))
    assert await certificates.signing() == (await certificates.published())[0]


async def test_the_page_leads_through_a_replacement(
    certificates: Certificates, browser: SamlBrowser, pool: Pool, user: Account, acme: Tenant
) -> None:
    await add_member(pool, acme.org, user.id, "admin", confirmed=True)
    path = "/app/organizations/acme/applications/shop/saml"
    old, steps = await certificates.signing(), []
    for label, action, published in (
        ("Create next certificate", "next", 2),
        ("Activate next certificate", "activate", 2),
        ("Use the previous certificate", "undo", 2),
        ("Delete next certificate", "next/delete", 1),
        ("Replace certificate", "", 1),
    ):
        page = await browser.open(path)
        assert label in page.text
        answer = await browser.submit(f"{path}/certificate{action and '/'}{action}", path)
        assert answer.status == 303, answer.text
        assert len(await certificates.published()) == published
        steps.append(await certificates.signing() == old)
    assert steps == [True, False, True, True, False]
    assert "refuse sign-ins until they have the new one" in (await browser.open(path)).text
    for action in ("/next", "/activate", "/next"):
        await certificates.create(action)
    assert "Delete the next certificate first." in (await browser.open(path)).text

"""Identity providers in a real browser without scripts: sign-in with the second factor, and linking accounts."""

from collections.abc import Iterator

import pytest

from core.kernel.connections import CODEHOST, WEBSUITE
from tests.fakes.provider import FakeProvider, Person
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.test_account import STEP, code_of, enrol

pytestmark = pytest.mark.slow


@pytest.fixture
def websuite() -> Iterator[FakeProvider]:
    with FakeProvider(WEBSUITE) as running:
        yield running


@pytest.fixture
def codehost() -> Iterator[FakeProvider]:
    with FakeProvider(CODEHOST) as running:
        running.person = Person(subject="99", email="ada@codehost.example")
        yield running


@pytest.fixture
def scriptless(browser: Browser) -> Iterator[Browser]:
    """A browser that runs no scripts."""
    browser.let_scripts_run(False)
    yield browser
    browser.let_scripts_run(True)


def photograph(browser: Browser, name: str) -> None:
    browser.let_scripts_run(True)  # they report when animations end
    browser.photograph(name)
    browser.let_scripts_run(False)


def test_a_user_signs_in_through_one_provider_and_links_another(
    service: Start, own_database: dict[str, str], scriptless: Browser, websuite: FakeProvider, codehost: FakeProvider
) -> None:
    running = service(**websuite.variables(), **codehost.variables(), **own_database).start()
    scriptless.open(f"{running.address}/app/sign-in?next=/app/account/identities")
    photograph(scriptless, "sign-in-providers")
    scriptless.follow("Continue with Websuite")
    assert scriptless.heading == "Linked accounts"
    assert scriptless.address == f"{running.address}/app/account/identities"
    photograph(scriptless, "linked-accounts")

    secret, _ = enrol(scriptless, running)
    scriptless.open(f"{running.address}/app/account")
    scriptless.press("Sign out")
    scriptless.follow("Continue with Websuite")
    assert scriptless.heading == "Enter your code", "the second factor is also required after a provider"
    scriptless.fill("Code", code_of(secret, later=STEP))
    scriptless.press("Continue")
    assert scriptless.heading == "Your applications"
    scriptless.open(f"{running.address}/app/account/security")

    scriptless.follow("Manage your linked accounts")
    scriptless.press("Link Codehost")
    scriptless.wait_until(lambda: "Account linked." in scriptless.text)
    assert scriptless.heading == "Linked accounts"
    assert "ada@codehost.example" in scriptless.text
    assert codehost.counted["/authorize"] == 1
    scriptless.press("Unlink Websuite")
    assert "Account unlinked." in scriptless.text
    scriptless.press("Unlink Codehost")
    assert "This is your only way to sign in" in scriptless.text
    scriptless.open(f"{running.address}/app/account")
    scriptless.press("Sign out")
    scriptless.follow("Continue with Codehost")
    assert scriptless.heading == "Enter your code"
    [script] = scriptless.find("script")
    assert "/assets/passkeys" in (script.get_attribute("src") or ""), "every page works without it"
    assert [line for line in scriptless.complaints() if "400" not in line] == []
    assert "access-" not in running.output
    assert "state=" not in running.output

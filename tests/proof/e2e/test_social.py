"""Identity providers in a real browser without scripts: sign-in with the second factor, and linking
on the account page."""

from collections.abc import Iterator

import pytest

from core.kernel.providers import Provider
from tests.fakes.provider import FakeProvider, Person
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.test_account import STEP, code_of, enrol

pytestmark = pytest.mark.slow


@pytest.fixture
def websuite() -> Iterator[FakeProvider]:
    with FakeProvider(Provider.WEBSUITE) as running:
        yield running


@pytest.fixture
def codehost() -> Iterator[FakeProvider]:
    with FakeProvider(Provider.CODEHOST) as running:
        running.person = Person(subject="99", email="ada@codehost.example")
        yield running


@pytest.fixture
def still(browser: Browser) -> Iterator[Browser]:
    """A browser that runs no scripts."""
    browser.let_scripts_run(False)
    yield browser
    browser.let_scripts_run(True)


def photograph(browser: Browser, name: str) -> None:
    browser.let_scripts_run(True)  # they report the end of animations
    browser.photograph(name)
    browser.let_scripts_run(False)


def test_a_user_signs_in_through_one_provider_and_links_another(
    service: Start, own_database: dict[str, str], still: Browser, websuite: FakeProvider, codehost: FakeProvider
) -> None:
    running = service(**websuite.variables(), **codehost.variables(), **own_database).start()
    still.open(f"{running.address}/app/sign-in?next=/app/account/identities")
    photograph(still, "sign-in-providers")
    still.follow("Continue with Websuite")
    assert still.heading == "Linked accounts"
    assert still.address == f"{running.address}/app/account/identities"
    photograph(still, "linked-accounts")

    secret, _ = enrol(still, running)
    still.open(f"{running.address}/app/account")
    still.press("Sign out")
    still.follow("Continue with Websuite")
    assert still.heading == "Enter your code", "the second factor is also required after a provider"
    still.fill("Code", code_of(secret, later=STEP))
    still.press("Continue")
    assert still.heading == "Your account"

    still.follow("Manage your linked accounts")
    still.press("Link Codehost")
    still.wait_until(lambda: "Account linked." in still.text)
    assert still.heading == "Linked accounts"
    assert "ada@codehost.example" in still.text
    assert codehost.counted["/authorize"] == 1
    still.press("Unlink Websuite")
    assert "Account unlinked." in still.text
    still.press("Unlink Codehost")
    assert "This is your only way to sign in" in still.text
    still.open(f"{running.address}/app/account")
    still.press("Sign out")
    still.follow("Continue with Codehost")
    assert still.heading == "Enter your code"
    assert still.find("script") == []
    assert [line for line in still.complaints() if "400" not in line] == []
    assert "access-" not in running.output
    assert "state=" not in running.output

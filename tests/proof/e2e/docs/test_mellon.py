"""Debian's Apache with mod_auth_mellon, set up with the files and commands in docs/guides/saml.md."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.apache import EMAIL, GUIDE, MODULES, PASSWORD, Apache, reader, require_programs, start_gatehouse
from tests.proof.e2e.docs.documented import files
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service
from tests.support.browser import is_step
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MODULE: Final = """
LoadModule auth_mellon_module {modules}/mod_auth_mellon.so
MellonLockFile {home}/mellon.lock
MellonPostDirectory {home}/posts
{documented}
"""


@pytest.fixture
def application(home: Path) -> Iterator[Apache]:
    require_programs(["mellon_create_metadata"], "mod_auth_mellon.so", "apache2-bin libapache2-mod-auth-mellon")
    application = Apache(home / "application", "/etc/apache2/mellon")
    yield application
    application.stop()


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Service:
    return start_gatehouse(service, own_database)


def set_up(running: Service, application: Apache, home: Path) -> None:
    """Do what the guide says, at Gatehouse and at the application."""
    with reader(running, application, home) as shell:
        (application.folder / "idp.xml").rename(home / "idp.xml")  # the next commands take *.xml
        shell.run(application.here(files(GUIDE)["mellon.sh"]), where="mellon.sh")
        shutil.move(home / "idp.xml", application.folder / "idp.xml")
        shell.run("cp shop.cert certificate.pem\n" + application.here(files(GUIDE)["certificate.sh"]), where="certificate.sh")


def start(application: Apache) -> None:
    (application.home / "posts").mkdir()
    if os.geteuid() == 0:
        shutil.chown(application.home / "posts", "www-data")
    documented = application.here(files(GUIDE)["mellon.conf"])
    application.start(MODULE.format(modules=MODULES, home=application.home, documented=documented))


def test_mellon_signs_users_on_and_out_as_the_guide_says(running: Service, application: Apache, home: Path) -> None:
    """Its LogoutRequests are signed with the registered certificate."""
    set_up(running, application, home)
    start(application)
    private = f"{application.address}/private/"
    with FormBrowser(application.address, running.address) as browser:
        browser.open(private)
        assert is_step(browser.address.removeprefix(running.address), "sign-in"), application.log
        browser.sign_in(EMAIL, PASSWORD)
        browser.submit_saml()
        assert (browser.address, browser.text) == (private, f"Private: {EMAIL}"), application.log

        # The application signs out: the session at Gatehouse ends too.
        browser.open(f"{application.address}/mellon/logout?ReturnTo={application.address}/")
        assert browser.text == "Welcome", application.log
        browser.open(f"{running.address}/app/account")
        assert "/app/sign-in" in browser.address
        browser.open(private)
        assert browser.address.startswith(running.address)

        # The user signs out at Gatehouse: the session at the application ends too.
        browser.sign_in(EMAIL, PASSWORD)
        browser.submit_saml()
        assert browser.address == private
        browser.open(f"{running.address}/app/account")
        browser.submit(next(form for form in browser.forms if form.action == "/app/sign-out"))
        assert browser.address == f"{running.address}/saml/acme/shop/slo", application.log
        browser.open(private)
        assert is_step(browser.address.removeprefix(running.address), "sign-in")


def test_without_the_name_id_format_of_the_guide_gatehouse_refuses_the_request(running: Service, application: Apache, home: Path) -> None:
    set_up(running, application, home)
    metadata = application.folder / "shop.xml"
    declared = "<NameIDFormat>urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress</NameIDFormat>"
    assert declared in metadata.read_text()
    metadata.write_text(metadata.read_text().replace(declared, ""))
    start(application)
    with FormBrowser(application.address, running.address) as browser:
        browser.open(f"{application.address}/private/")
        browser.submit_saml()
        assert browser.response.status_code == 401
    until(lambda: "InvalidNameIDPolicy" in application.log, "Apache logs the reason")

"""Debian's Apache with the Shibboleth SP, set up with the files and commands in docs/guides/saml.md."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import pytest

from core.federation.saml.model.configuration import SamlCertificate, SamlConfiguration
from core.kernel.values import new_id
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.apache import EMAIL, GUIDE, MODULES, PASSWORD, Apache, reader, require_programs, start_gatehouse
from tests.proof.e2e.docs.documented import files
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import NO_TLS, Service
from tests.support.browser import is_step
from tests.support.saml import SamlApplication, logout_request
from tests.support.saml.signatures import signed_url
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MODULE: Final = """
LoadModule mod_shib {modules}/mod_shib.so
<Location /Shibboleth.sso>
    AuthType None
    Require all granted
</Location>
{documented}
"""
DEFAULTS: Final = Path("/etc/shibboleth")


class Shibboleth(Apache):
    """Apache and shibd. Their files are in the test's folders, which environment variables set."""

    def __init__(self, home: Path) -> None:
        self._sockets = Path(tempfile.mkdtemp(prefix="shibd-"))  # a socket's path must be short
        self._sockets.chmod(0o755)
        self._socket = self._sockets / "shibboleth" / "shibd.sock"
        self._socket.parent.mkdir()
        # Shibboleth looks for a directory `shibboleth` in all of them.
        names = {"SHIBSP_CFGDIR": home, "SHIBSP_RUNDIR": self._sockets, "SHIBSP_LOGDIR": home, "SHIBSP_CACHEDIR": home}
        super().__init__(home, "/etc/shibboleth", {name: str(folder) for name, folder in names.items()})
        for name in ("protocols.xml", "security-policy.xml"):
            shutil.copy(DEFAULTS / name, self.folder)
        for name in ("console.logger", "shibd.logger", "native.logger"):
            shutil.copy(DEFAULTS / "console.logger", self.folder / name)
        self._daemon: subprocess.Popen[bytes] | None = None

    def configure(self, running: Service) -> None:
        text = self.here(files(GUIDE)["shibboleth2.xml"]).replace("https://id.example.com", running.address)
        assert 'handlerSSL="true"' in text
        (self.folder / "shibboleth2.xml").write_text(text.replace('handlerSSL="true"', 'handlerSSL="false"'))
        (self.folder / "attribute-map.xml").write_text(files(GUIDE)["attribute-map.xml"])
        (self.home / "pages" / "private" / "index.html").write_text(
            'Private: <!--#echo var="REMOTE_USER" --> <!--#echo var="email" --> <!--#echo var="id" -->'
        )

    def start_with_daemon(self) -> None:
        with (self.home / "shibd.log").open("wb") as log:
            self._daemon = subprocess.Popen(["shibd", "-f", "-F"], stdout=log, stderr=log, env=self._variables)
        until(lambda: self._socket.exists() or self._daemon is None or self._daemon.poll() is not None, "shibd listens")
        assert self._socket.exists(), self.log
        self.start(MODULE.format(modules=MODULES, documented=self.here(files(GUIDE)["shibboleth.conf"])))

    def stop(self) -> None:
        super().stop()
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(30)
        shutil.rmtree(self._sockets)

    def certificate(self) -> SamlCertificate:
        """Return its own key and certificate."""
        key, now = (self.folder / "sp-key.pem").read_bytes(), datetime.now(UTC)
        pem = (self.folder / "sp-cert.pem").read_text()
        return SamlCertificate(id=new_id(), certificate=pem, private_key=lambda: key, valid_from=now, valid_until=now, created_at=now)


@pytest.fixture
def application(home: Path) -> Iterator[Shibboleth]:
    require_programs(["shibd", "shib-keygen"], "mod_shib.so", "apache2-bin libapache2-mod-shib")
    application = Shibboleth(home / "application")
    yield application
    application.stop()


def test_shibboleth_signs_users_on_and_out_as_the_guide_says(
    service: Start, own_database: dict[str, str], application: Shibboleth, home: Path
) -> None:
    running = start_gatehouse(service, own_database)
    private, slo = f"{application.address}/private/", f"{running.address}/saml/acme/shop/slo"
    with reader(running, application, home) as shell, FormBrowser(application.address, running.address) as browser:
        for name in ("settings.sh", "shibboleth.sh"):
            shell.run(application.here(files(GUIDE)[name]), where=name)
        application.configure(running)
        application.start_with_daemon()

        def sign_on(by: FormBrowser, *, with_password: bool = True) -> None:
            by.open(private)
            if with_password:
                by.sign_in(EMAIL, PASSWORD)
            by.submit_saml()
            assert by.address == private, application.log

        # Sign-in, with attributes.
        sign_on(browser)
        remote_user, email, user_id = browser.text.removeprefix("Private: ").split()
        assert (remote_user, email) == (EMAIL, EMAIL)
        assert user_id == own_id(running)

        # With another key's certificate, Gatehouse refuses the application's signed LogoutRequest.
        register = application.here(files(GUIDE)["certificate.sh"])
        shell.run(f'curl -s $saml/certificate -H "$(bearer ada)" | get public_key >certificate.pem\n{register}', where="certificate.sh")
        browser.open(f"{application.address}/Shibboleth.sso/Logout")
        assert (browser.response.status_code, browser.address.startswith(slo)) == (400, True), application.log
        assert is_signed_in(browser, running)

        # With its own certificate, a logout at the application ends the session at Gatehouse.
        shell.run(f"cp sp-cert.pem certificate.pem\n{register}", where="certificate.sh")
        sign_on(browser, with_password=False)
        browser.open(f"{application.address}/Shibboleth.sso/Logout?return={application.address}/")
        assert (browser.address, browser.text) == (f"{application.address}/", "Welcome"), application.log
        assert not is_signed_in(browser, running)

        # The user signs out at Gatehouse: the session at the application ends too.
        sign_on(browser)
        browser.open(f"{running.address}/app/account")
        browser.submit(next(form for form in browser.forms if form.action == "/app/sign-out"))
        assert (browser.address, "didn't confirm" in browser.text) == (slo, False), browser.text + application.log
        browser.open(private)
        assert is_step(browser.address.removeprefix(running.address), "sign-in")

        # A LogoutRequest without SessionIndex, signed with the application's key, ends the sessions in all browsers.
        with FormBrowser(application.address, running.address) as other:
            sign_on(other)
            shop = describe(running, application)
            request = logout_request(shop, datetime.now(UTC), EMAIL)
            httpx.get(running.address + signed_url(f"{shop.path}/slo", request, application.certificate()), verify=NO_TLS, trust_env=False)
            assert not is_signed_in(other, running)


def is_signed_in(browser: FormBrowser, running: Service) -> bool:
    browser.open(f"{running.address}/app/account")
    return "/app/sign-in" not in browser.address


def own_id(running: Service) -> str:
    token = running.login(EMAIL, PASSWORD)["access_token"]
    return str(running.get("/api/user", token=token).json()["id"])


def describe(running: Service, application: Shibboleth) -> SamlApplication:
    configuration = SamlConfiguration(enabled=True, entity_id=f"{application.address}/shibboleth")
    return SamlApplication(new_id(), "acme", new_id(), "shop", configuration, None, running.address)

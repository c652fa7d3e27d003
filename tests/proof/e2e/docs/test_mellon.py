"""Debian's Apache with mod_auth_mellon, set up with the files and commands of docs/guides/saml.md."""

import grp
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, files, parts
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.docs.walk import Shell
from tests.proof.e2e.process import NO_TLS, Port, Service, environment
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GUIDE: Final = DOCS / "guides" / "saml.md"
EMAIL: Final = "owner@example.com"
PASSWORD: Final = "all the keys of the house"
MODULES: Final = Path("/usr/lib/apache2/modules")
DOCUMENTED_ADDRESS: Final = "https://shop.example.com"
DOCUMENTED_FOLDER: Final = "/etc/apache2/mellon"

# What Debian's own apache2.conf and a2enmod bring, on another port and with other folders.
SERVER: Final = """
ServerRoot {home}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {home}/httpd.pid
ErrorLog {home}/error.log
LogLevel info
{account}
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule authn_core_module {modules}/mod_authn_core.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule authz_user_module {modules}/mod_authz_user.so
LoadModule mime_module {modules}/mod_mime.so
LoadModule filter_module {modules}/mod_filter.so
LoadModule dir_module {modules}/mod_dir.so
LoadModule include_module {modules}/mod_include.so
LoadModule auth_mellon_module {modules}/mod_auth_mellon.so
StartServers 1
TypesConfig /dev/null
AddType text/html .html
AddOutputFilter INCLUDES .html
DirectoryIndex index.html
DocumentRoot {home}/pages
<Directory {home}/pages>
    Options +Includes
    Require all granted
</Directory>
MellonLockFile {home}/mellon.lock
MellonPostDirectory {home}/posts
Include {home}/mellon.conf
"""


def missing() -> list[str]:
    """Return what this test needs and the machine does not have."""
    programs = [name for name in ("apache2", "mellon_create_metadata") if shutil.which(name) is None]
    return programs + ([] if (MODULES / "mod_auth_mellon.so").exists() else ["mod_auth_mellon"])


class Application:
    """An Apache with a page for everyone and a page for signed-in users."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._port = Port()
        # `localhost` and 127.0.0.1 are two sites to a browser, as an application and Gatehouse are in production.
        self.address = f"http://localhost:{self._port.number}"
        self.folder = home / "mellon"
        self.folder.mkdir()
        for name, text in {"index.html": "Welcome", "private/index.html": 'Private: <!--#echo var="REMOTE_USER" -->'}.items():
            (home / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "pages" / name).write_text(text)
        (home / "posts").mkdir()

    def here(self, documented: str) -> str:
        """Return commands or a configuration of the guide with the address, folder and group of this test."""
        group = "www-data" if os.geteuid() == 0 else grp.getgrgid(os.getegid()).gr_name
        text = documented.replace(DOCUMENTED_ADDRESS, self.address).replace(DOCUMENTED_FOLDER, str(self.folder))
        return text.replace("www-data", group)

    def start(self) -> None:
        is_root = os.geteuid() == 0
        account = "User www-data\nGroup www-data" if is_root else ""
        server = SERVER.format(home=self.home, port=self._port.number, modules=MODULES, account=account)
        (self.home / "httpd.conf").write_text(server)
        (self.home / "mellon.conf").write_text(self.here(files(GUIDE)["mellon.conf"]))
        if is_root:
            shutil.chown(self.home / "posts", "www-data")
        self._control("start")
        until(self._answers, f"Apache answers\n{self.log}")

    def stop(self) -> None:
        if (self.home / "httpd.pid").exists():
            self._control("stop")
            until(lambda: not (self.home / "httpd.pid").exists(), "Apache has stopped")
        self._port.close()

    @property
    def log(self) -> str:
        file = self.home / "error.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _control(self, signal: str) -> None:
        command = ["apache2", "-f", str(self.home / "httpd.conf"), "-k", signal]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr + self.log

    def _answers(self) -> bool:
        try:
            return httpx.get(self.address, verify=NO_TLS, trust_env=False).text == "Welcome"
        except httpx.TransportError:
            return False


@pytest.fixture
def application(home: Path) -> Iterator[Application]:
    if absent := missing():
        reason = f"{', '.join(absent)} is not installed. On Debian: apt-get install libapache2-mod-auth-mellon."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = home / "application"
    folder.mkdir()
    folder.chmod(0o755)
    application = Application(folder)
    yield application
    application.stop()


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Service:
    owner = {"SSO_PLATFORM_OWNER_EMAIL": EMAIL, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    running = service(SSO_AUTO_APPROVE_ORGANIZATIONS="true", **owner, **own_database).start()
    token = running.login(EMAIL, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token).status_code == 200
    shop = {"slug": "shop", "name": "Shop", "service_type": "web"}
    assert running.post("/api/organizations/acme/services", shop, token=token).status_code == 200
    return running


def set_up(running: Service, application: Application, home: Path) -> None:
    """Do what the guide says, on both sides."""
    with Shell(home, environment(home, api=running.address)) as shell:
        shell.run(f". docs/walk.sh\naccount ada {shlex.quote(EMAIL)} {shlex.quote(PASSWORD)}\ncd {shlex.quote(str(application.folder))}\n")
        for part in parts(GUIDE):
            if part.kind == "walk":
                shell.run(application.here(part.text), where=f"line {part.line}")
        (application.folder / "idp.xml").rename(home / "idp.xml")  # the next commands take *.xml
        shell.run(application.here(files(GUIDE)["mellon.sh"]), where="mellon.sh")
        shutil.move(home / "idp.xml", application.folder / "idp.xml")


def test_mellon_signs_users_on_and_out_as_the_guide_says(running: Service, application: Application, home: Path) -> None:
    set_up(running, application, home)
    application.start()
    private = f"{application.address}/private/"
    with FormBrowser(application.address, running.address) as browser:
        browser.open(private)
        assert browser.address.startswith(f"{running.address}/saml/acme/shop/authenticate"), application.log
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
        assert browser.address.startswith(f"{running.address}/saml/acme/shop/authenticate")


def test_without_the_name_id_format_of_the_guide_gatehouse_refuses_the_request(
    running: Service, application: Application, home: Path
) -> None:
    set_up(running, application, home)
    metadata = application.folder / "shop.xml"
    declared = "<NameIDFormat>urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress</NameIDFormat>"
    assert declared in metadata.read_text()
    metadata.write_text(metadata.read_text().replace(declared, ""))
    application.start()
    with FormBrowser(application.address, running.address) as browser:
        browser.open(f"{application.address}/private/")
        browser.submit_saml()
        assert browser.response.status_code == 401
    until(lambda: "InvalidNameIDPolicy" in application.log, "Apache logs the reason")

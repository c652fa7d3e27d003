"""Debian's Apache with a SAML module, set up with the files and commands in docs/guides/saml.md."""

import grp
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, parts
from tests.proof.e2e.docs.walk import Shell
from tests.proof.e2e.process import NO_TLS, Port, Service, environment
from tests.support.waiting import until

GUIDE: Final = DOCS / "guides" / "saml.md"
EMAIL: Final = "owner@example.com"
PASSWORD: Final = "all the keys of the house"
MODULES: Final = Path("/usr/lib/apache2/modules")
DOCUMENTED_ADDRESS: Final = "https://shop.example.com"

# What Debian's own apache2.conf and a2enmod bring, on another port and with different folders.
SERVER: Final = """
ServerRoot {home}
ServerName 127.0.0.1:{port}
UseCanonicalName On
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
Include {home}/module.conf
"""


def require_programs(programs: list[str], module: str, package: str) -> None:
    """Skip the test if a program or the Apache module is missing. In CI, fail."""
    absent = [name for name in ("apache2", *programs) if shutil.which(name) is None]
    absent += [] if (MODULES / module).exists() else [module]
    if absent:
        reason = f"{', '.join(absent)} is not installed. On Debian: apt-get install {package}."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class Apache:
    """An Apache with a page for everyone and a page for signed-in users."""

    def __init__(self, home: Path, documented_folder: str, variables: Mapping[str, str] | None = None) -> None:
        home.mkdir()
        home.chmod(0o755)
        self.home = home
        self.port = Port()
        self._variables = {**os.environ, **(variables or {})}
        # `localhost` and 127.0.0.1 are two sites to a browser, as an application and Gatehouse are in production.
        self.address = f"http://127.0.0.1:{self.port.number}"
        self.folder = home / Path(documented_folder).name
        self.folder.mkdir()
        self._documented_folder = documented_folder
        for name, text in {"index.html": "Welcome", "private/index.html": 'Private: <!--#echo var="REMOTE_USER" -->'}.items():
            (home / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "pages" / name).write_text(text)

    def here(self, documented: str) -> str:
        """Return the guide's commands or configuration with this test's address, folder and group."""
        group = "www-data" if os.geteuid() == 0 else grp.getgrgid(os.getegid()).gr_name
        text = documented.replace(DOCUMENTED_ADDRESS, self.address).replace(self._documented_folder, str(self.folder))
        return text.replace("www-data", group)

    def start(self, module: str) -> None:
        """Start with this configuration for the module."""
        account = "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
        server = SERVER.format(home=self.home, port=self.port.number, modules=MODULES, account=account)
        (self.home / "httpd.conf").write_text(server)
        (self.home / "module.conf").write_text(module)
        self._control("start")
        until(self._answers, f"Apache answers\n{self.log}")

    def stop(self) -> None:
        if (self.home / "httpd.pid").exists():
            self._control("stop")
            until(lambda: not (self.home / "httpd.pid").exists(), "Apache has stopped")
        self.port.close()

    @property
    def log(self) -> str:
        return "\n".join(file.read_text(errors="replace") for file in self.home.glob("*.log"))

    def _control(self, signal: str) -> None:
        command = ["apache2", "-f", str(self.home / "httpd.conf"), "-k", signal]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=self._variables)
        assert done.returncode == 0, done.stderr + self.log

    def _answers(self) -> bool:
        try:
            return httpx.get(self.address, verify=NO_TLS, trust_env=False).text == "Welcome"
        except httpx.TransportError:
            return False


def start_gatehouse(service: Start, own_database: Mapping[str, str]) -> Service:
    """Start Gatehouse with the application that the guide sets up."""
    owner = {"SSO_PLATFORM_OWNER_EMAIL": EMAIL, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    running = service(SSO_AUTO_APPROVE_ORGANIZATIONS="true", **owner, **own_database).start()
    token = running.login(EMAIL, PASSWORD)["access_token"]
    assert running.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token).status_code == 200
    shop = {"slug": "shop", "name": "Shop", "service_type": "web"}
    assert running.post("/api/organizations/acme/services", shop, token=token).status_code == 200
    return running


def reader(running: Service, apache: Apache, home: Path) -> Shell:
    """Return the shell of a reader who has done the guide's commands at Gatehouse, in the application's folder."""
    shell = Shell(home, environment(home, api=running.address))
    shell.run(f". docs/walk.sh\naccount ada {shlex.quote(EMAIL)} {shlex.quote(PASSWORD)}\ncd {shlex.quote(str(apache.folder))}\n")
    for part in parts(GUIDE):
        if part.kind == "walk":
            shell.run(apache.here(part.text), where=f"line {part.line}")
    return shell

"""nginx and Caddy in front of the service, with the configuration files from docs/operating/tls.md."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.fakes.certificates import client_context, make_certificate
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, files
from tests.proof.e2e.docs.walk import is_open
from tests.proof.e2e.process import Port, Service
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

PAGE: Final = DOCS / "operating" / "tls.md"
HOST: Final = "id.example.com"
CLIENT: Final = "127.0.0.9"  # an address that is not in SSO_TRUSTED_PROXIES

# What Debian's nginx.conf brings, with different folders.
NGINX: Final = """
daemon off;
worker_processes 1;
pid {home}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    {site}
}}
"""
CADDY: Final = """
{{
    admin off
    auto_https disable_redirects
    https_port {port}
    skip_install_trust
}}
{site}
"""


def nginx(home: Path, port: int, backend: str, certificate: Path) -> list[str]:
    """Write the documented file with this port, backend and certificate, and return the command."""
    site = files(PAGE)["nginx.conf"].replace("127.0.0.1:8080", backend)
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("listen 80;", f"listen unix:{home}/http.socket;")
    for name in ("fullchain.pem", "privkey.pem"):
        site = site.replace(f"/etc/letsencrypt/live/{HOST}/{name}", str(certificate))
    (home / "nginx.conf").write_text(NGINX.format(home=home, site=site))
    return ["nginx", "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf")]


def caddy(home: Path, port: int, backend: str, certificate: Path) -> list[str]:
    """Write the documented file with this port, backend and certificate, and return the command."""
    site = files(PAGE)["Caddyfile"].replace("127.0.0.1:8080", backend)
    site = site.replace(f"{HOST} {{\n", f"{HOST} {{\n\tbind 127.0.0.1\n\ttls {certificate} {certificate}\n", 1)
    (home / "Caddyfile").write_text(CADDY.format(port=port, site=site))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(home / "Caddyfile")]


PROXIES: Final[dict[str, Callable[[Path, int, str, Path], list[str]]]] = {"nginx": nginx, "caddy": caddy}


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Service:
    settings = {"SSO_BASE_URL": f"https://{HOST}", "SSO_TRUSTED_PROXIES": "127.0.0.1/32,::1/128", **own_database}
    return service(**settings).start()


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest, running: Service, home: Path) -> Iterator[httpx.Client]:
    """A client that reaches the service through a proxy, and trusts the proxy's certificate."""
    name: str = request.param
    if shutil.which(name) is None:
        reason = f"{name} is not installed. On Debian: apt-get install {name}."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = home / "proxy"
    folder.mkdir()
    certificate = make_certificate(folder / "certificate.pem", HOST)
    with Port() as port, (folder / "output").open("wb") as output:
        command = PROXIES[name](folder, port.number, running.address.removeprefix("http://"), certificate)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            until(lambda: is_open(port.number), f"{name} listens")
            transport = httpx.HTTPTransport(verify=client_context(certificate), local_address=CLIENT)
            with httpx.Client(transport=transport, base_url=f"https://127.0.0.1:{port.number}", timeout=PATIENCE) as client:
                yield client
        except AssertionError as failure:
            failure.add_note((folder / "output").read_text(errors="replace"))
            raise
        finally:
            process.terminate()
            process.wait(PATIENCE)


def get(proxy: httpx.Client, path: str, **headers: str) -> httpx.Response:
    return proxy.get(path, headers={"Host": HOST, **headers}, extensions={"sni_hostname": HOST})


def test_the_documented_proxies_pass_on_the_client_address_and_hide_the_metrics(proxy: httpx.Client, running: Service) -> None:
    ready = get(proxy, "/health/ready")
    assert ready.json()["status"] == "ready"
    assert "max-age" in ready.headers["Strict-Transport-Security"]
    assert get(proxy, "/metrics").status_code == 404
    assert get(proxy, f"/saml/acme/shop/sso?SAMLRequest={'a' * 7000}").status_code == 404, "not refused by the proxy"

    # A client cannot choose its address, also not by naming a trusted proxy behind it.
    for claimed in ("203.0.113.9", "203.0.113.9, 127.0.0.1"):
        answer = get(proxy, "/api/user", **{"X-Forwarded-For": claimed})
        request_id = answer.headers["X-Request-Id"]
        until(partial(lines_of, running, request_id), "the request is logged")
        [line] = lines_of(running, request_id)
        assert (line["address"], line["status"]) == (CLIENT, 401)


def lines_of(running: Service, request_id: str) -> list[dict[str, Any]]:
    return [line for line in running.logged("request") if line["request_id"] == request_id]

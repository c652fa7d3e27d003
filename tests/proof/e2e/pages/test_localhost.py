"""The service at `localhost`: on both loopback addresses, in a browser, and in an installation that was at 127.0.0.1."""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import NO_TLS, Service, gatehouse
from tests.proof.wire.loopback import IPV4, IPV6, has_ipv6
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

OWNER, PASSWORD = "owner@example.com", "all the keys of the house"
SETTINGS: Final = {"SSO_PLATFORM_OWNER_EMAIL": OWNER, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
CLIENT: Final = "203.0.113.5"
HTML: Final = {"Accept": "text/html"}


def numeric(running: Service) -> list[str]:
    """Return the service's addresses with numbers as host."""
    return [f"http://{host}:{running.port}" for host in (IPV4, f"[{IPV6}]")[: 1 + has_ipv6()]]


def get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Send a request on a new connection."""
    return httpx.get(url, headers=headers, verify=NO_TLS, trust_env=False, timeout=PATIENCE)


def issuer(running: Service) -> Any:
    return running.get("/.well-known/openid-configuration").json()["issuer"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_new_installation_is_at_localhost_on_both_loopback_addresses(workers: str, service: Start, own_database: dict[str, str]) -> None:
    running = service("--workers", workers, **own_database).start()
    assert issuer(running) == f"http://localhost:{running.port}"
    for address in numeric(running):
        for _ in range(8):  # every worker listens on the two addresses
            assert get(f"{address}/health/ready").status_code == 200
        assert get(f"{address}/api/user", HTML).status_code == 401
        for path in ("/app", "/docs/", "/auth/recover-owner?token=x"):
            answer = get(address + path, HTML)
            assert answer.status_code == 303
            assert answer.headers["Location"] == f"{running.address}{path.removesuffix('/')}"
    assert running.stop() == 0
    for address in [running.address, *numeric(running)]:
        with pytest.raises(httpx.ConnectError):
            get(f"{address}/health/ready")


def test_a_port_that_the_kernel_chooses_is_the_same_on_both_addresses(service: Start, own_database: dict[str, str]) -> None:
    running = service("--welcome", SSO_BIND="localhost:0", **own_database).launch()
    until(lambda: "serves on" in running.output, "the welcome is printed")
    [port] = re.findall(r"serves on\s+http://localhost:(\d+)\n", running.output)
    running.port = int(port)
    until(lambda: is_ready(numeric(running)[0]), "it answers")
    for address in numeric(running):
        assert get(f"{address}/app", HTML).headers["Location"] == f"http://localhost:{port}/app"
    assert running.logged("warning") == []


def is_ready(address: str) -> bool:
    try:
        return get(f"{address}/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_a_restarted_worker_listens_on_both_addresses(service: Start, own_database: dict[str, str]) -> None:
    running = service("--workers", "2", **own_database).start()
    until(lambda: len(running.workers) == 2, "there are two workers")
    first = running.workers
    for worker in first:
        os.kill(worker, signal.SIGKILL)
    until(lambda: len(running.workers) == 2 and not {*first} & {*running.workers}, "there are two new ones")
    until(lambda: all(map(is_ready, numeric(running))), "both addresses answer")


@pytest.mark.parametrize(("trusted", "clients"), [("", [IPV4, IPV6]), ("127.0.0.1/32", [CLIENT, CLIENT]), ("10.0.0.0/8", [IPV4, IPV6])])
def test_a_proxy_on_this_machine_is_trusted_at_both_addresses(
    trusted: str, clients: list[str], service: Start, own_database: dict[str, str]
) -> None:
    running = service(SSO_TRUSTED_PROXIES=trusted, **own_database).start()
    for address in numeric(running):
        get(f"{address}/api/user", {"X-Forwarded-For": CLIENT})
    until(lambda: len(seen_clients(running)) == len(numeric(running)), "the requests are logged")
    assert seen_clients(running) == clients[: len(numeric(running))]


def seen_clients(running: Service) -> list[str]:
    """Return the client addresses from the logged requests for `/api/user`."""
    return [line["address"] for line in running.log if line.get("path") == "/api/user"]


def test_an_existing_data_directory_keeps_its_address_and_listens_on_both(service: Start, home: Path) -> None:
    running = service(**SETTINGS)
    new, old = running.address, f"http://{IPV4}:{running.port}"
    running.settings["SSO_BIND"] = f"{IPV4}:{running.port}"
    running.start()
    assert issuer(running) == old
    tokens = running.login(OWNER, PASSWORD)
    assert running.stop() == 0

    running.settings["SSO_BIND"] = f"localhost:{running.port}"
    running.start()
    assert issuer(running) == old
    assert running.get("/api/user", token=tokens["access_token"]).status_code == 200, "the issuer of earlier tokens"
    for address in [new, *numeric(running)]:
        assert get(f"{address}/app/sign-in", HTML).status_code == 200, "no page redirects"
    commands = {"SSO_BIND": running.settings["SSO_BIND"]}
    examined = gatehouse(home, "doctor", **commands).stdout
    assert f"{old} has numbers. Set SSO_BASE_URL to {new}," in examined, examined
    assert gatehouse(home, "owner", "recover", OWNER, **commands).stdout.count(f"{old}/auth/recover-owner?token=") == 1
    assert running.stop() == 0

    running.settings["SSO_BASE_URL"] = new  # what the doctor says
    running.start()
    assert issuer(running) == new
    assert running.stop() == 0
    del running.settings["SSO_BASE_URL"]
    running.start()
    assert issuer(running) == new, "the last address stays"
    examined = gatehouse(home, "doctor", **commands).stdout
    assert re.search(r"^ok +passkeys +browsers allow them at localhost$", examined, re.MULTILINE), examined


def test_a_browser_that_opens_a_number_signs_in_at_localhost(service: Start, own_database: dict[str, str], browser: Browser) -> None:
    """The cookies are host-only at `localhost`, so the sign-in holds only there."""
    running = service(**SETTINGS, **own_database).start()
    for address in numeric(running):
        browser.forget()
        browser.open(f"{address}/app")
        assert browser.address.startswith(f"{running.address}/app/sign-in")
        browser.fill("Email address", OWNER)
        browser.fill("Password", PASSWORD)
        browser.press("Sign in")
        assert browser.address.startswith(f"{running.address}/app/")
        cookies = browser.cookies()
        assert {"gatehouse-session", "gatehouse-device"} <= cookies.keys(), "without the prefix, which needs https"
        assert {(cookie["domain"], cookie["secure"]) for cookie in cookies.values()} == {("localhost", False)}
        signed_in = browser.address
        browser.open(signed_in.replace(running.address, address))
        assert browser.address == signed_in, "without another sign-in"
        assert browser.complaints() == []

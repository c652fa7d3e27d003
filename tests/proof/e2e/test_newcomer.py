"""A new user, from outside, from the registration to the sign-out.

The user gets a real email, verifies the address in a browser, signs in, and stays signed in.
"""

import email
import json
import re
from collections import Counter
from email import policy
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService, Start
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink, ReceivedEmail
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EMAIL = "newcomer@example.com"
PASSWORD = "seven lions at the gate"
NEW_PASSWORD = "eight lions in the yard"
OPEN_ALL = "document.querySelectorAll('.opblock-tag[data-is-open=false]').forEach((toggle) => toggle.click())"
# How many operations the API page shows after an area's name.
OPERATIONS = """
const shown = {};
let area;
for (const element of document.querySelectorAll(".opblock-tag, .opblock")) {
    if (element.matches(".opblock-tag")) area = element.dataset.tag;
    else shown[area] = (shown[area] ?? 0) + 1;
}
return shown;
"""
SETTINGS = {"SSO_MAIL_FROM": "Gatehouse <signin@id.example.com>", "SSO_RATE_LIMITS": "on"}


@pytest.fixture
def sink(shared: SharedService) -> MailSink:
    return shared.sink


def check_email(received: ReceivedEmail, service: Service, path: str) -> None:
    """Check the email's sender, recipient and two parts, and that its only link starts with the configured address."""
    message = received.message
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert received.sender == "signin@id.example.com"
    assert message["To"].addresses[0].addr_spec == EMAIL
    assert message["From"].addresses[0].display_name == "Gatehouse"
    assert received.link.startswith(f"{service.address}{path}?token=")
    # The email loads nothing, and all its links lead to us.
    assert not re.search(r"""(src|background)=|url\(""", received.html)
    hrefs = re.findall(r'href="([^"]*)"', received.html)
    assert received.link in hrefs
    assert {urlsplit(href).netloc for href in hrefs} == {urlsplit(service.address).netloc}


def test_a_new_user_registers_in_a_browser_and_resets_a_forgotten_password(running: Service, sink: MailSink, browser: Browser) -> None:
    secrets = [PASSWORD, NEW_PASSWORD]
    running.register(EMAIL, PASSWORD)
    unverified = running.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD})
    assert unverified.status_code == 401

    received = sink.wait_for(EMAIL)
    check_email(received, running, "/auth/verify-email")
    secrets.append(received.token)
    browser.open(received.link)
    assert browser.heading == "Email address verified"
    assert EMAIL in browser.text
    assert browser.complaints() == []
    browser.photograph("verified")

    browser.open(received.link)
    assert browser.heading == "Email address verified"
    assert received.token not in browser.source
    # The console reports only the page's error status.
    assert [re.sub(r".*(status of \d+).*", r"\1", line) for line in browser.complaints()] == ["status of 400"]
    browser.photograph("used-link")

    tokens = running.login(EMAIL, PASSWORD)
    secrets += [tokens["access_token"], tokens["refresh_token"]]
    assert tokens["expires_in"] == 900
    profile = running.get("/api/user", token=tokens["access_token"])
    assert [profile.json()[field] for field in ("email", "pending_email", "org", "service")] == [EMAIL, None, "", ""]

    answer = running.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})
    assert answer.status_code == 200
    renewed = answer.json()
    secrets += [renewed["access_token"], renewed["refresh_token"]]
    assert running.get("/api/user", token=renewed["access_token"]).status_code == 200
    assert running.post("/api/auth/logout", token=renewed["access_token"]).status_code == 200
    for ended in (tokens, renewed):
        assert running.get("/api/user", token=ended["access_token"]).status_code == 401
    assert running.post("/api/auth/refresh", {"refresh_token": renewed["refresh_token"]}).status_code == 401

    session = running.login(EMAIL, PASSWORD)
    secrets += [session["access_token"], session["refresh_token"]]
    assert running.post("/api/auth/forgot-password", {"email": EMAIL}).status_code == 200
    received = sink.wait_for(EMAIL, 2)
    check_email(received, running, "/auth/reset-password")
    secrets.append(received.token)
    browser.open(received.link)
    assert browser.heading == "Set a new password"
    browser.photograph("reset-password")
    field = browser.find_labelled("New password")
    field.send_keys("short")
    assert browser.script("return document.querySelector('form').checkValidity()") is False
    field.clear()
    field.send_keys(NEW_PASSWORD)
    browser.press("Save password")
    assert browser.heading == "Password updated"
    assert urlsplit(browser.address).query == ""
    assert browser.complaints() == []
    browser.photograph("reset-done")

    assert running.get("/api/user", token=session["access_token"]).status_code == 401
    assert running.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD}).status_code == 401
    session = running.login(EMAIL, NEW_PASSWORD)
    secrets += [session["access_token"], session["refresh_token"]]

    assert running.stop() == 0
    check_log(running, secrets)


def check_log(service: Service, secrets: list[str]) -> None:
    """Check that every request is logged, and that no secret is."""
    logged_secrets = [secret for secret in secrets if secret in service.output or json.dumps(secret)[1:-1] in service.output]
    assert logged_secrets == []
    lines = service.logged("request")
    assert len({line["request_id"] for line in lines}) == len(lines)
    for line in lines:
        assert {"timestamp", "level", "request_id", "method", "route", "status", "duration_ms"} <= line.keys(), line
        assert line["duration_ms"] > 0
        assert "?" not in line["path"]
    requests = [(line["method"], line["route"], line["status"]) for line in lines]
    assert requests.count(("POST", "/api/auth/register", 200)) == 1
    assert requests.count(("GET", "/auth/verify-email", 200)) == 1
    assert requests.count(("GET", "/auth/verify-email", 400)) == 1
    assert requests.count(("POST", "/api/auth/refresh", 401)) == 1
    assert requests.count(("POST", "/auth/reset-password", 200)) == 1
    profile_requests = [line for line in lines if line["route"] == "/api/user" and line["status"] == 200]
    assert len({line["caller"] for line in profile_requests}) == 1


def test_a_request_id_of_the_client_is_in_the_response_and_in_the_log(running: Service) -> None:
    answer = running.get("/api/user", **{"X-Request-Id": "trace-0815-abc"})
    assert answer.headers["X-Request-Id"] == "trace-0815-abc"
    until(lambda: [line for line in running.logged("request") if line["request_id"] == "trace-0815-abc"], "the request is logged")


def test_the_documentation_leads_to_the_api_page_which_shows_every_operation_and_loads_only_our_files(
    running: Service, browser: Browser
) -> None:
    browser.open(f"{running.address}/docs/")
    assert "Gatehouse" in browser.title
    browser.photograph("documentation")
    [api, _] = browser.find("header .elsewhere a")
    with browser.leaving():
        api.click()
    assert browser.address.startswith(f"{running.address}/docs/api")
    description = running.get("/openapi.json").json()
    areas = Counter(operation["tags"][0] for methods in description["paths"].values() for operation in methods.values())
    browser.wait_until(lambda: len(browser.find(".opblock-tag")) > 0)
    assert browser.audit("docs") == {"light": [], "dark": [], "phone": []}
    for control in (".opblock-tag", ".opblock-summary-control"):  # belongs to the first area, and to its first operation
        browser.wait_until(partial(browser.find, control))
        browser.script(f"document.querySelector('{control}').click()")
    # An example error: the operation refers to a response, which refers to a model.
    browser.wait_until(lambda: '"error_code": "BAD_REQUEST"' in browser.text)
    # Swagger UI draws only the visible part in a long list. A line takes less than 100 pixels.
    with browser.at_height(100 * (len(areas) + areas.total())):
        browser.wait_until(lambda: len(browser.find(".opblock-tag")) == len(areas))
        browser.script(OPEN_ALL)
        browser.wait_until(lambda: len(browser.find(".opblock")) >= areas.total())
        assert browser.script(OPERATIONS) == areas
    loaded = browser.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert {urlsplit(address).netloc for address in loaded if not address.startswith("data:")} == {urlsplit(running.address).netloc}
    assert browser.complaints() == []


def test_without_a_mail_server_emails_are_files_for_a_mail_program(service: Start, own_database: dict[str, str], home: Path) -> None:
    running = service(**own_database).start()
    running.register(EMAIL, PASSWORD)
    folder = home / "var" / "mail"
    until(lambda: list(folder.glob("*.eml")), "the email is there")
    [file] = folder.glob("*.eml")
    message = email.message_from_bytes(file.read_bytes(), policy=policy.default)
    assert message["To"] == EMAIL
    text, html = (message.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    # As it stands in the file, so that it can be copied.
    [link] = re.findall(rf"^{re.escape(running.address)}/auth/verify-email\?token=\S+$", file.read_text(), re.MULTILINE)
    assert link in html.get_content()
    assert running.follow(link).status_code == 200
    running.login(EMAIL, PASSWORD)
    # It contains a one-time link, so only the operator can read it.
    assert file.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0

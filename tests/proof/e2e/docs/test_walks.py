"""The documentation's commands, run as a reader would run them, against a real service."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pyotp
import pytest

from tests import ROOT
from tests.fakes.payments import API_KEY, SECRET, FakePayments
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, Part, parts
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.docs.walk import PROGRAMS, Shell, Step, WalkFailed, is_open, walk
from tests.proof.e2e.launcher import launcher
from tests.proof.e2e.process import CHEAP_HASHES, Port, Service, environment, gatehouse
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

OWNER_PASSWORD: Final = "all the keys of the house"
OWNER: Final = {"SSO_PLATFORM_OWNER_EMAIL": "owner@gatehouse.example", "SSO_PLATFORM_OWNER_PASSWORD": OWNER_PASSWORD}
EMAIL, PASSWORD = "ada@example.com", "correct horse battery staple"

# In the order in which a reader follows the links; later pages use what earlier pages created.
PAGES: Final = [
    "getting-started.md",
    "guides/web-application.md",
    "guides/high-security.md",
    "guides/mobile-and-desktop.md",
    "guides/device-flow.md",
    "guides/saml.md",
    "guides/access.md",
    "guides/groups.md",
    "guides/roles-and-groups.md",
    "guides/permission-decisions.md",
    "guides/email-sign-in.md",
    "guides/passkeys.md",
    "guides/require-a-second-factor.md",
    "guides/roles.md",
    "guides/scim.md",
    "guides/webhooks.md",
    "guides/siem.md",
    "guides/connect-assistants.md",
    "guides/service-accounts.md",
    "guides/personal-access-tokens.md",
    "guides/billing.md",
    "guides/identity-providers.md",
    "guides/break-glass.md",
    "guides/branding-and-mail.md",
    "guides/set-up-links.md",
    "operating/stolen-accounts.md",
    "operating/lost-phone.md",
]


def authorize(service: Service, address: str, email: str, password: str) -> str:
    """Sign in at this address, continue to the application, and return the code from the address bar."""
    with FormBrowser(service.address) as browser:
        browser.open(address)
        browser.sign_in(email, password)
        if browser.address.startswith(service.address):  # the page at the first sign-in to an organization
            browser.answer("answer", "continue")
        query = parse_qs(urlsplit(browser.address).query)
    assert query["iss"] == [service.address], browser.address
    return query["code"][0]


class Reader:
    """A reader, who does the steps between the pages' commands by hand."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._authenticator = SoftAuthenticator(origin=service.address)
        self._programs: list[subprocess.Popen[bytes]] = []
        self._ports = {number: Port() for number in ("9100", "9200")}  # the guides name fixed ports, which may be taken here

    @property
    def steps(self) -> dict[str, Step]:
        return {
            "authorize": self.authorize,
            "approve": self.approve,
            "create_passkey": lambda shell: self.answer(shell, self._authenticator.create),
            "use_passkey": lambda shell: self.answer(shell, self._authenticator.get),
            "recover": self.recover,
            "receiver": self.start_receiver,
            "received": lambda _: self.wait_for("received.txt", "webhook.ping"),
            "collector": self.start_collector,
            "collected": lambda _: self.wait_for("collected.txt", "siem.test"),
        }

    def read(self, page: str) -> list[Part]:
        """Return a page's parts, with free ports for the programs that the reader starts."""
        page_parts = parts(DOCS / page)
        for documented, port in self._ports.items():
            page_parts = [
                replace(part, text=part.text.replace(f"127.0.0.1:{documented}", f"127.0.0.1:{port.number}")) for part in page_parts
            ]
        return page_parts

    def authorize(self, shell: Shell) -> dict[str, str]:
        return {"code": authorize(self._service, shell.variable("authorize"), EMAIL, PASSWORD)}

    def approve(self, shell: Shell) -> dict[str, str]:
        """Open the printed address, sign in, enter the code, and approve."""
        codes = shell.run('echo "$codes" | get user_code; echo "$codes" | get verification_uri').split()
        with FormBrowser(self._service.address) as browser:
            browser.open(codes[1])
            browser.sign_in(EMAIL, PASSWORD)
            [form] = [form for form in browser.forms if "user_code" in form.fields]
            browser.submit(form, user_code=codes[0])
            browser.answer("action", "approve")
            assert browser.response.status_code == 200
        return {}

    def recover(self, shell: Shell) -> dict[str, str]:
        """Open the recovery link, enter the code, and set up an app."""
        with FormBrowser(self._service.address) as browser:
            browser.open(shell.variable("recover"))
            [form] = [form for form in browser.forms if "code" in form.fields]
            browser.submit(form, code=shell.variable("code"))
            [secret] = re.findall(r'<code class="secret">([^<]+)</code>', browser.text)
            [form] = [form for form in browser.forms if form.action.endswith("/app")]
            browser.submit(form, code=pyotp.TOTP(secret.replace(" ", "")).now())
            assert "Save your backup codes" in browser.text
        return {}

    def answer(self, shell: Shell, ceremony: Callable[[Any], Any]) -> dict[str, str]:
        """Let the authenticator answer the options."""
        return {"credential": json.dumps(ceremony(json.loads(shell.variable("options"))))}

    def start_receiver(self, shell: Shell) -> dict[str, str]:
        self._start("receiver.py", "9100", "received.txt", WEBHOOK_SECRETS=shell.variable("WEBHOOK_SECRETS"))
        return {}

    def start_collector(self, shell: Shell) -> dict[str, str]:
        self._start("collector.py", "9200", "collected.txt")
        return {}

    def wait_for(self, file: str, text: str) -> dict[str, str]:
        until(lambda: text in (self._folder / file).read_text(), f"{text} is in {file}")
        return {}

    def stop(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        for port in self._ports.values():
            port.close()

    def _start(self, program: str, port: str, output: str, **variables: str) -> None:
        with (self._folder / output).open("wb") as file:
            command = [sys.executable, program, str(self._ports[port].number)]
            self._programs.append(subprocess.Popen(command, cwd=self._folder, stdout=file, env={**os.environ, **variables}))
        until(lambda: is_open(self._ports[port].number), f"{program} listens")


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Iterator[Service]:
    with FakePayments() as payments:
        billing = {"SSO_BILLING_API_URL": payments.address, "SSO_BILLING_API_KEY": API_KEY, "SSO_BILLING_WEBHOOK_SECRET": SECRET}
        yield service(SSO_OUTBOUND_ALLOW="127.0.0.1", **OWNER, **billing, **own_database).start()


@pytest.fixture
def shell(running: Service, home: Path) -> Iterator[Shell]:
    with Shell(home, environment(home, api=running.address, OWNER_PASSWORD=OWNER_PASSWORD)) as shell:
        yield shell


def test_every_page_with_commands_is_walked() -> None:
    """Except the quickstarts, which tests/foreign follows."""
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "quickstarts"]
    marked = {str(page.relative_to(DOCS)) for page in pages if any(part.kind == "walk" for part in parts(page))}
    elsewhere = {"operating/backup.md", "guides/api-resources.md", "guides/assistants.md"}  # in test_backup_drill, and in tests/foreign
    assert marked == {*PAGES, *elsewhere}


def test_the_commands_of_the_documentation_work(running: Service, shell: Shell, home: Path) -> None:
    reader = Reader(running, home)
    shell.run(f"cd {ROOT}")
    try:
        for page in PAGES:
            walk(shell, DOCS / page, reader.read(page), reader.steps, home)
            if page == PAGES[0]:
                shell.run(f"cd {home}")  # where the reader saves the guides' files
    finally:
        reader.stop()


def connect_a_client(running: Service, email: str, password: str, home: Path, **settings: str) -> str:
    """Run `gatehouse demo mcp`, and be the user in the browser. Return its output after the last step."""
    output, opened = home / "mcp.output", list[str]()
    with Port() as port, output.open("wb") as file, Path(os.devnull).open("rb") as nothing, FormBrowser(running.address) as browser:
        variables = environment(home, SSO_BASE_URL=running.address, **CHEAP_HASHES, **settings)
        streams = [nothing.fileno(), file.fileno(), file.fileno()]
        process = launcher().launch(["demo", "mcp", "--port", str(port.number)], home=home, environment=variables, streams=streams)

        def addresses() -> list[str]:
            assert process.poll() is None, output.read_text()
            return re.findall(rf"^ +({re.escape(running.address)}/auth/authorize\?\S+)\n", output.read_text(), re.MULTILINE)

        try:
            while len(opened) < 2:  # once per scope
                until(lambda: len(addresses()) > len(opened), "the client shows the address to open")
                opened.append(addresses()[-1])
                browser.open(opened[-1])
                if len(opened) == 1:
                    browser.sign_in(email, password)
                browser.answer("answer", "continue")
                assert httpx.get(browser.address, trust_env=False).status_code == 200, browser.address
            until(lambda: "Press Ctrl-C to stop." in output.read_text(), "the client has finished")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    return output.read_text()


def test_the_commands_of_the_demo_work(service: Start, own_database: dict[str, str], home: Path) -> None:
    running = service(SSO_CLIENT_REGISTRATION="true", **own_database).start()
    settings = {"SSO_BASE_URL": running.address, "SSO_AUTO_APPROVE_ORGANIZATIONS": "true", **own_database}
    with Port() as port:
        early = gatehouse(home, "demo", "mcp", "--port", str(port.number), **settings)
    assert (early.returncode, early.stdout) == (1, "")
    assert "Run gatehouse demo first." in early.stderr
    demo = gatehouse(home, "demo", **CHEAP_HASHES, **settings)
    assert demo.returncode == 0, demo.stderr
    [(email, password)] = re.findall(r"sign in as (\S+) with the password\n# (\S+?),", demo.stdout)
    *pieces, last = demo.stdout.split("code=...\n")  # where the reader copies a code from a browser
    assert len(pieces) == 2
    with Shell(home, environment(home)) as shell:
        for piece in pieces:
            addresses = [line for line in shell.run(piece).splitlines() if line.startswith(f"{running.address}/auth/authorize")]
            shell.set("code", authorize(running, addresses[-1], email, password))
        shell.run(last)
    steps = connect_a_client(running, email, password, home, **own_database)
    assert "a sealed copy of the metadata" in steps
    assert "access token for: notes:read, valid for" in steps
    assert 'WWW-Authenticate: Bearer error="insufficient_scope", scope="notes:write"' in steps
    assert steps.count("list_notes: You have no notes yet.") == 1
    assert "add_note: Added." in steps
    assert "list_notes: Written by the demo" in steps


def test_a_walk_that_takes_longer_than_an_access_token_signs_in_again(running: Service, shell: Shell) -> None:
    shell.run(f". docs/walk.sh\naccount owner {OWNER['SSO_PLATFORM_OWNER_EMAIL']} '{OWNER_PASSWORD}'\n")
    first, second = (shell.run("bearer owner").strip() for _ in range(2))
    assert first == second
    shell.run("date() { echo $(($(command date +%s) + 880)); }")  # the token has 20 seconds left
    later = shell.run("bearer owner").strip()
    assert later != first
    assert running.get("/api/user", Authorization=later.removeprefix("Authorization: ")).status_code == 200


GET: Final = [  # the answer, the arguments, and standard output
    ('{"a": {"b": "text"}}', "a b", "text"),
    ('[{"id": 7}]', "0 id", "7"),
    ('{"ok": true, "list": [1]}', "ok", "true"),
    ('{"ok": true, "list": [1]}', "list", "[1]"),
]
GET_FAILS: Final = [  # the answer, the arguments, and standard error
    ('{"error": "The token has expired.", "error_code": "TOKEN_EXPIRED"}', "id", "get: The token has expired. (TOKEN_EXPIRED)"),
    ('{"error": "invalid_grant", "error_description": "The code was used."}', "access_token", "get: The code was used."),
    ('{"detail": "This name is taken.", "scimType": "uniqueness"}', "id", "get: This name is taken. (uniqueness)"),
    ('{"id": 1}', "name", 'get: there is no field name in the answer: {"id": 1}'),
    ("[]", "0 id", "get: there is no field 0 id in the answer: []"),
    ("", "id", "get: the answer is empty. Is the service running?"),
    ("<html>", "id", "get: the answer is not JSON: <html>"),
]


def test_get_prints_a_field_or_the_error_of_the_answer(home: Path) -> None:
    failures = []
    for answer, arguments, stdout, stderr in [*((*each, "") for each in GET), *((a, b, "", error) for a, b, error in GET_FAILS)]:
        done = subprocess.run(
            ["sh", "-c", f'. docs/walk.sh; printf %s "$ANSWER" | get {arguments}'],
            cwd=ROOT,
            env={**environment(home), "PATH": PROGRAMS, "ANSWER": answer},
            capture_output=True,
            text=True,
            check=False,
        )
        if (done.stdout.strip(), done.stderr.strip(), done.returncode) != (stdout, stderr, 1 if stderr else 0):
            failures.append((answer, arguments, done))
    assert failures == []


def test_a_failing_command_stops_the_walk(shell: Shell) -> None:
    with pytest.raises(WalkFailed, match="JWT_ERROR"):
        shell.run('. docs/walk.sh; id=$(curl -s $api/api/user -H "Authorization: Bearer x" | get id); echo "not reached"')

"""The guide to assistants: other people's MCP clients, which no organization has registered, sign in at its MCP servers.

A client knows the MCP server's address and its own metadata's address. It finds Gatehouse by the server's refusal, and the user agrees.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.fakes.client_documents import ClientServer
from tests.foreign.gatehouse import Client, Gatehouse
from tests.foreign.programs import FOREIGN, NODE, NODE_22, PYTHON, Program, require
from tests.foreign.test_api_resources import Guide
from tests.proof.e2e.docs.documented import DOCS
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

GUIDE: Final = DOCS / "guides" / "assistants.md"
HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
PACKAGES: Final = NODE / "node_modules" / "@modelcontextprotocol"
SCRIPTS, PROGRAMS = (shlex.quote(str(folder)) for folder in (NODE, FOREIGN / "applications"))
INSPECTOR: Final = f"{shlex.quote(str(NODE_22))} {shlex.quote(str(PACKAGES / 'inspector' / 'clients' / 'launcher' / 'build' / 'index.js'))}"
IN_NODE, IN_PYTHON = f"exec node {SCRIPTS}/mcp_sign_in.mjs", f"exec python {PROGRAMS}/mcp_sign_in.py"
# The clients by the server's language, which differs from theirs. `{port}` is the callback's port. A client without a client id registers
# itself.
COMMANDS: Final = {
    "python": {
        "client": f"{IN_NODE} client {{address}} {{port}} {{client_id}}",
        "sdk": f"{IN_NODE} sdk {{address}} {{port}} {{client_id}}",
        "registered sdk": f"{IN_NODE} sdk {{address}} {{port}}",
    },
    "node": {
        "mcp": f"{IN_PYTHON} mcp {{address}} {{port}} {{client_id}}",
        "fastmcp": f"{IN_PYTHON} fastmcp {{address}} {{port}} {{client_id}}",
        "registered mcp": f"{IN_PYTHON} mcp {{address}} {{port}}",
        "inspector": f"exec {INSPECTOR} --cli {{address}} --transport http --client-metadata-url {{client_id}} "
        "--callback-url http://127.0.0.1:{port}/oauth/callback --method tools/call --tool-name list_notes",
    },
}
REDIRECT_URIS: Final = ["http://localhost/callback", "http://127.0.0.1/callback", "http://127.0.0.1/oauth/callback"]


class McpGuide(Guide):
    """A guide's reader, who starts a server from it."""

    @property
    def identifier(self) -> str:
        return f"{self.address}/mcp"

    def admit(self, gatehouse: Gatehouse, host: str) -> None:
        """Let external clients at this host ask for the API resource."""
        gatehouse.admit(self.value("notes"), host)


@pytest.fixture
def guide(gatehouse: Gatehouse, tmp_path: Path) -> Iterator[McpGuide]:
    require("node", PACKAGES / "express", PACKAGES / "inspector", NODE_22, PYTHON / "fastmcp")
    with ExitStack() as stack:
        guide = McpGuide(gatehouse, GUIDE, tmp_path, stack.enter_context(Port()))
        stack.callback(guide.close)
        guide.follow()
        yield guide


def token(gatehouse: Gatehouse, client: Client, identifier: str, scope: str) -> str:
    """Return an application's access token for itself."""
    body = {"grant_type": "client_credentials", "resource": identifier, "scope": scope}
    answer = httpx.post(f"{gatehouse.address}/auth/token", data=body, auth=(client.client_id, client.client_secret), trust_env=False)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def call_tools(guide: Guide, *tokens: str) -> list[str]:
    """Return what the fastmcp client gets from the two tools, with each of these tokens."""
    command = [str(PYTHON / "python"), str(FOREIGN / "applications" / "mcp_client.py"), guide.identifier, *tokens]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def challenge(answer: httpx.Response) -> dict[str, str]:
    """Return a challenge's parameters (RFC 6750 section 3)."""
    header = answer.headers["WWW-Authenticate"]
    assert (answer.status_code, header.startswith("Bearer ")) == (401, True), answer.text
    return dict(re.findall(r'(\w+)="([^"]*)"', header))


def check_tokens(gatehouse: Gatehouse, guide: McpGuide) -> None:
    """Check that the server refuses wrong tokens, and tools without their scope, and says where to ask."""
    client = gatehouse.register(f"mcp-caller-{guide.address[-5:].strip(':')}", "https://mcp-caller.example/callback")
    gatehouse.allow(client, guide.value("notes"), "notes:read", "notes:write")
    reader, writer = (token(gatehouse, client, guide.identifier, f"notes:{right}") for right in ("read", "write"))
    with httpx.Client(base_url=guide.address, trust_env=False, headers=HEADERS) as mcp:
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {reader[:-4]}AAAA"}):
            parameters = challenge(mcp.post("/mcp", json={}, headers=wrong))
            assert parameters["resource_metadata"] == f"{guide.address}/.well-known/oauth-protected-resource/mcp"
            assert parameters["scope"] == "notes:read"
        metadata: dict[str, Any] = mcp.get(parameters["resource_metadata"]).json()
    assert (metadata["resource"], metadata["authorization_servers"]) == (guide.identifier, [gatehouse.address])
    assert metadata["scopes_supported"] == ["notes:read", "notes:write"]
    notes = f"The notes of {client.client_id}"
    first, second, *of_writer = call_tools(guide, reader, writer)
    assert (first, second.startswith("refused: ")) == (notes, True)
    assert of_writer == [notes, "Added."], "writing implies reading"


class Caller:
    """A client's programs, and its user's browser."""

    def __init__(self, gatehouse: Gatehouse, command: str, folder: Path, port: int) -> None:
        self._gatehouse = gatehouse
        self._command = command
        self._folder = folder
        self._port = port
        # Two clients open a browser. This client prints the address.
        opens = {"BROWSER": "echo %s", "MCP_AUTO_OPEN_ENABLED": "true"}
        self._variables = {"HOME": str(folder), "MCP_INSPECTOR_SECRET_STORE": "file", **opens}
        folder.mkdir()

    def sign_in(self) -> str:
        """Run the program, sign the user in at the address that it shows, and agree. Return its output."""
        with self._run() as program, FormBrowser(self._gatehouse.address, *self._callbacks) as browser:
            address = program.wait_for(rf"{re.escape(self._gatehouse.address)}/auth/authorize\?\S+")
            program.wait_until_it_listens()  # some clients print the address first
            browser.open(address)
            self._gatehouse.sign_in(browser)
            assert browser.response.is_success, browser.text
            return program.finish()

    def call_again(self) -> str:
        """Run the program again, which asks the user nothing. Return the output of both runs."""
        with self._run() as program:
            return program.finish()

    @property
    def _callbacks(self) -> list[str]:
        return [f"http://{host}:{self._port}" for host in ("localhost", "127.0.0.1")]

    def _run(self) -> Program:
        return Program(self._command, self._port, self._folder, self._variables)

    def spoil_access_token(self) -> None:
        """Replace the access token, a JWT, in the file where the inspector keeps it."""
        file = self._folder / ".mcp-inspector" / "secrets.json"
        text, count = re.subn(r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "expired", file.read_text())
        assert count == 1, text
        file.write_text(text)


@pytest.mark.parametrize("language", COMMANDS)
def test_external_clients_sign_in(language: str, gatehouse: Gatehouse, guide: McpGuide, documents: ClientServer, tmp_path: Path) -> None:
    guide.admit(gatehouse, f"localhost:{documents.port}")
    [command] = [command for command in guide.commands if command.startswith(language)]
    with guide.run(command, gatehouse.address) as server:
        check_tokens(gatehouse, guide)
        for name, program in COMMANDS[language].items():
            client_id = documents.publish(
                f"/{language}/{name.replace(' ', '-')}", "localhost", client_name=name, redirect_uris=REDIRECT_URIS
            )
            with Port() as port:
                command = program.format(address=guide.identifier, client_id=client_id, port=port.number)
                caller, before = Caller(gatehouse, command, tmp_path / name, port.number), gatehouse.count_tokens()
                output = caller.sign_in()
                if name == "inspector":
                    caller.spoil_access_token()
                    output = caller.call_again()
            assert output.count(f"The notes of {gatehouse.user_id}") == 2, (name, output, server.output)
            assert gatehouse.count_tokens() - before == 2, (name, output)  # for the code, and for the refresh token
        grants = gatehouse.grants(guide.value("notes"))
        connected = sorted(grant["client_name"] for grant in grants if "notes:read" in grant["scopes"])
        assert connected == sorted(name.removeprefix("registered ") for name in COMMANDS[language])


def test_the_conformance_suite_of_the_protocol_passes(gatehouse: Gatehouse, tmp_path: Path) -> None:
    """All its scenarios for authorization servers, in a single run. It sends no `resource`, so its client is registered."""
    suite = PACKAGES / "conformance" / "dist" / "index.js"
    require(NODE_22, suite)
    with Port() as port:
        client = gatehouse.register("mcp-conformance", f"http://127.0.0.1:{port.number}/callback", service_type="spa")
        arguments = f"--url {gatehouse.address} --client-id {client.client_id} --port {port.number}"
        command = f"exec {shlex.quote(str(NODE_22))} {shlex.quote(str(suite))} authorization {arguments}"
        output = Caller(gatehouse, command, tmp_path / "suite", port.number).sign_in()
    assert "Total: 3 passed, 0 failed" in output, output  # metadata, metadata documents, and a grant

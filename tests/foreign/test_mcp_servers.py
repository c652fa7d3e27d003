"""The guide to assistants: its MCP servers, with FastMCP and with the TypeScript SDK, check access tokens and tell clients where to ask."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.foreign.gatehouse import Client, Gatehouse
from tests.foreign.programs import FOREIGN, NODE, PYTHON, require
from tests.foreign.test_api_resources import Guide
from tests.proof.e2e.docs.documented import DOCS
from tests.proof.e2e.process import Port

pytestmark = pytest.mark.slow

GUIDE: Final = DOCS / "guides" / "assistants.md"
HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class McpGuide(Guide):
    """A reader of the guide, who starts its servers one after the other."""

    @property
    def identifier(self) -> str:
        return f"{self.address}/mcp"


@pytest.fixture
def guide(gatehouse: Gatehouse, tmp_path: Path) -> Iterator[Guide]:
    require("node", NODE / "node_modules" / "@modelcontextprotocol" / "express", PYTHON / "fastmcp")
    with ExitStack() as stack:
        guide = McpGuide(gatehouse, GUIDE, tmp_path, stack.enter_context(Port()))
        stack.callback(guide.close)
        guide.follow()
        yield guide


def token(gatehouse: Gatehouse, client: Client, identifier: str, scope: str) -> str:
    """Return an access token of an application for itself."""
    body = {"grant_type": "client_credentials", "resource": identifier, "scope": scope}
    answer = httpx.post(f"{gatehouse.address}/auth/token", data=body, auth=(client.client_id, client.client_secret), trust_env=False)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def call_tools(guide: Guide, access_token: str) -> list[str]:
    """Return what the client of the package mcp gets from both tools."""
    program = str(FOREIGN / "applications" / "mcp_client.py")
    command = [str(PYTHON / "python"), program, guide.identifier, access_token, "list_notes", "add_note"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def challenge(answer: httpx.Response) -> dict[str, str]:
    """Return the parameters of a challenge (RFC 6750 section 3)."""
    header = answer.headers["WWW-Authenticate"]
    assert (answer.status_code, header.startswith("Bearer ")) == (401, True), answer.text
    return dict(re.findall(r'(\w+)="([^"]*)"', header))


def test_the_servers_of_the_guide_check_tokens(gatehouse: Gatehouse, guide: Guide) -> None:
    client = gatehouse.register("mcp-caller", "https://mcp-caller.example/callback")
    gatehouse.allow(client, guide.value("notes"), "notes:read", "notes:write")
    reader, writer = (token(gatehouse, client, guide.identifier, f"notes:{right}") for right in ("read", "write"))
    assert len(guide.commands) == 2
    for command in guide.commands:
        program = guide.run(command, gatehouse.address)
        try:
            with httpx.Client(base_url=guide.address, trust_env=False, headers=HEADERS) as mcp:
                for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {reader[:-4]}AAAA"}):
                    parameters = challenge(mcp.post("/mcp", json={}, headers=wrong))
                    assert parameters["resource_metadata"] == f"{guide.address}/.well-known/oauth-protected-resource/mcp", command
                    assert parameters["scope"] == "notes:read"
                metadata: dict[str, Any] = mcp.get(parameters["resource_metadata"]).json()
            assert (metadata["resource"], metadata["authorization_servers"]) == (guide.identifier, [gatehouse.address])
            assert metadata["scopes_supported"] == ["notes:read", "notes:write"]
            notes = f"The notes of {client.client_id}"
            first, second = call_tools(guide, reader)
            assert (first, second.startswith("refused: ")) == (notes, True), program.output
            assert call_tools(guide, writer) == [notes, "Added."], "writing implies reading"
        finally:
            program.stop()

"""A client for the demo's MCP server, which prints every step of its authorization in the terminal.

It knows the MCP server's address, and discovers the rest: the metadata of the protected resource (RFC 9728), then
Gatehouse's metadata (RFC 8414). No organization has registered it: it registers itself (RFC 7591). The user signs in in
their own browser, as with any client on this machine.
"""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from core.demo.notes import NotesDemo
from entrypoints.demo import calls
from entrypoints.version import VERSION

PROTOCOL: Final = "2025-11-25"
NOTE: Final = "Written by the demo"
CALLBACK: Final = "/callback"
REDIRECT_URI: Final = f"http://127.0.0.1{CALLBACK}"  # with any port
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class NotesClient:
    """The client and its tokens."""

    def __init__(self, notes: NotesDemo, say: Callable[[str], None]) -> None:
        self._notes = notes
        self._say = say
        self._step = 0
        self._tokens: dict[str, Any] = {}
        self._server: dict[str, Any] = {}  # Gatehouse's metadata
        self._client_id = ""

    def run(self) -> None:
        """Connect, call the two tools, and refresh the tokens. Raises: CallFailed."""
        self._describe(f"Ask {self._notes.identifier} for its tools, without a token.")
        challenge = self._show_challenge(self._send("tools/list"))
        self._discover(challenge)
        self._register()
        self._authorize(challenge["scope"])
        self._describe("Call the MCP server with the access token.")
        about = self._result(self._send("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=_ABOUT))["serverInfo"]
        self._detail(f"connected to: {about['name']} {about['version']}")
        self._detail(f"tools: {', '.join(tool['name'] for tool in self._result(self._send('tools/list'))['tools'])}")
        self._detail(f"list_notes: {self._text(self._use('list_notes'))}")
        self._refresh()
        self._describe("Call a tool that needs another scope.")
        reply = self._use("add_note", text=NOTE)
        if reply.status == 403:
            self._authorize(f"{self._tokens['scope']} {self._show_challenge(reply)['scope']}")
            self._describe("Call the tool again.")
            reply = self._use("add_note", text=NOTE)
        self._detail(f"add_note: {self._text(reply)}")
        self._detail(f"list_notes: {self._text(self._use('list_notes'))}")

    def _describe(self, text: str) -> None:
        self._step += 1
        self._say(f"\n{self._step}. {text}")

    def _detail(self, text: str) -> None:
        self._say(f"   {text}")

    def _send(self, method: str, **parameters: Any) -> calls.Reply:
        """Send a message to the MCP server, with the access token if the client has one."""
        message = {"jsonrpc": "2.0", "id": self._step, "method": method, "params": parameters}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": PROTOCOL}
        if self._tokens:
            headers["Authorization"] = f"Bearer {self._tokens['access_token']}"
        return calls.call("POST", self._notes.identifier, json.dumps(message).encode(), headers)

    def _use(self, tool: str, **arguments: str) -> calls.Reply:
        return self._send("tools/call", name=tool, arguments=arguments)

    def _result(self, reply: calls.Reply) -> dict[str, Any]:
        """Return the result in a JSON-RPC response."""
        if reply.status != 200 or "result" not in reply.json:
            raise calls.CallFailed(f"The MCP server answered {reply.status} instead of a result.")
        result: dict[str, Any] = reply.json["result"]
        return result

    def _text(self, reply: calls.Reply) -> str:
        return str(self._result(reply)["content"][0]["text"])

    def _show_challenge(self, reply: calls.Reply) -> dict[str, str]:
        """Show and return the challenge in a refusal (RFC 6750 section 3)."""
        header = reply.headers.get("www-authenticate", "")
        self._detail(f"{reply.status}, WWW-Authenticate: {header}")
        challenge = dict(_PARAMETER.findall(header))
        if not {"resource_metadata", "scope"} <= challenge.keys():
            raise calls.CallFailed(f"The MCP server answered {reply.status} without a challenge. Does another program listen there?")
        return challenge

    def _discover(self, challenge: Mapping[str, str]) -> None:
        """Find out which authorization server protects the MCP server, and where its endpoints are."""
        self._describe(f"Read what the MCP server says about itself, at {challenge['resource_metadata']}.")
        resource = calls.call("GET", challenge["resource_metadata"]).json
        issuer = str(resource["authorization_servers"][0])
        self._detail(f"authorization server: {issuer}")
        self._detail(f"scopes: {' '.join(resource['scopes_supported'])}")
        address = f"{issuer}/.well-known/oauth-authorization-server"
        self._describe(f"Read what the authorization server says about itself, at {address}.")
        self._server = calls.call("GET", address).json
        if self._server.get("issuer") != issuer:
            raise calls.CallFailed(f"The server at {issuer} has another issuer: {self._server.get('issuer')}. Check SSO_BASE_URL.")
        for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "client_id_metadata_document_supported"):
            self._detail(f"{name}: {json.dumps(self._server.get(name))}")

    def _register(self) -> None:
        """Get a client id, for which Gatehouse stores nothing until the user agrees."""
        if "registration_endpoint" not in self._server:
            raise calls.CallFailed(
                "This client publishes no description of itself, and Gatehouse lets no client register itself. "
                "Start Gatehouse with SSO_CLIENT_REGISTRATION=true, and try again."
            )
        self._describe("Register at the registration_endpoint.")
        metadata = {"client_name": _ABOUT["name"], "redirect_uris": [REDIRECT_URI], "application_type": "native"}
        body = json.dumps(metadata).encode()
        reply = calls.call("POST", self._server["registration_endpoint"], body, {"Content-Type": "application/json"})
        if reply.status != 201:
            raise calls.CallFailed(f"Gatehouse refused: {reply.json.get('error_description') or reply.json.get('error')}")
        self._client_id = reply.json["client_id"]
        self._detail(f"client_id: {self._client_id[:40]}... ({len(self._client_id)} characters: a sealed copy of the metadata)")

    def _authorize(self, scope: str) -> None:
        """Get tokens for these scopes from the user, with PKCE and `resource` (RFC 8707)."""
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        with _CallbackServer(state) as callback:
            client = {"client_id": self._client_id, "redirect_uri": callback.address, "resource": self._notes.identifier}
            question = {"response_type": "code", "scope": scope, "state": state, "code_challenge": challenge}
            query = urlencode({**client, **question, "code_challenge_method": "S256"})
            self._describe(f"Open this address in a browser, sign in as {self._notes.user}, and agree to {scope}:")
            self._detail(f"{self._server['authorization_endpoint']}?{query}")
            answer = callback.wait()
        if "code" not in answer:
            raise calls.CallFailed(f"Gatehouse refused: {answer.get('error_description') or answer.get('error')}")
        if answer.get("iss") != self._server["issuer"]:  # RFC 9207
            raise calls.CallFailed("The code is from another issuer.")
        self._describe("Exchange the code for tokens.")
        self._save_tokens({**client, "grant_type": "authorization_code", "code": answer["code"], "code_verifier": verifier})

    def _refresh(self) -> None:
        self._describe("Exchange the refresh token for new tokens.")
        fields = {"client_id": self._client_id, "resource": self._notes.identifier}
        self._save_tokens({**fields, "grant_type": "refresh_token", "refresh_token": self._tokens["refresh_token"]})

    def _save_tokens(self, fields: Mapping[str, str]) -> None:
        reply = calls.post_form(self._server["token_endpoint"], fields)
        if reply.status != 200:
            raise calls.CallFailed(f"Gatehouse refused: {reply.json.get('error_description') or reply.json.get('error')}")
        self._tokens = reply.json
        self._detail(f"access token for: {self._tokens['scope']}, valid for {self._tokens['expires_in']} seconds")


_ABOUT: Final = {"name": "Gatehouse demo", "version": VERSION}


class _CallbackServer(HTTPServer):
    """The address on this machine to which the browser returns. It waits for the response with this state."""

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _CallbackHandler)
        self.state = state
        self.answer: dict[str, str] | None = None
        self.address = f"http://127.0.0.1:{self.server_port}{CALLBACK}"

    def wait(self) -> dict[str, str]:
        """Return the response's parameters."""
        while self.answer is None:
            self.handle_request()
        return self.answer


class _CallbackHandler(BaseHTTPRequestHandler):
    server: _CallbackServer
    timeout = 10  # seconds, so that a silent connection does not block the browser

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        answer = dict(parse_qsl(parts.query))
        is_ours = parts.path == CALLBACK and secrets.compare_digest(answer.get("state", "").encode(), self.server.state.encode())
        text = b"You can close this page. The terminal goes on.\n" if is_ours else b"This is not the response to the last request.\n"
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        if is_ours:
            self.server.answer = answer

    def log_message(self, *_: object) -> None:
        """Log nothing: the address has a code."""

"""A small MCP server that Gatehouse protects, with the standard library only.

It speaks the streamable HTTP transport in the Model Context Protocol without streams: a POST has a JSON-RPC message,
and the response is JSON. It asks Gatehouse about every access token (RFC 7662), so access that a user has ended is
refused at once. Notes are in memory.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from core.demo.notes import READ, WRITE, NotesDemo
from core.kernel import uris
from entrypoints.demo import calls
from entrypoints.version import VERSION

PATH: Final = "/mcp"
METADATA: Final = f"/.well-known/oauth-protected-resource{PATH}"  # RFC 9728 section 3.1
PROTOCOLS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
MAX_BODY: Final = 64 * 1024
MAX_NOTES: Final = 20  # per user; the oldest notes are forgotten
MAX_NOTE: Final = 200  # characters
_TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: Final = (
    {"name": "list_notes", "description": "List your notes.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "add_note", "description": "Add a note.", "inputSchema": _TEXT},
)
SCOPE_OF: Final = {"list_notes": READ, "add_note": WRITE}


class _Refused(Exception):
    """A response with a challenge (RFC 6750 section 3)."""

    def __init__(self, status: int, **parameters: str) -> None:
        super().__init__(status)
        self.status = status
        self.parameters = parameters


class NotesServer:
    """The MCP server on a port on this machine, in threads. It listens at once, and answers after `start`."""

    def __init__(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", port), _handler_of(self))
        address = f"http://localhost:{self._server.server_port}"
        self.identifier = f"{address}{PATH}"
        self.metadata_url = f"{address}{METADATA}"
        self._issuer = ""
        self._credentials = ("", "")  # for introspection
        self._kept: dict[str, list[str]] = defaultdict(list)  # by user

    def start(self, notes: NotesDemo, issuer: str) -> None:
        """Serve, for the API resource with this server's identifier."""
        self._issuer, self._credentials = issuer, (str(notes.resource_id), notes.resource_secret)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.server_close()

    @property
    def metadata(self) -> dict[str, Any]:
        """The protected resource's metadata (RFC 9728)."""
        return {
            "resource": self.identifier,
            "authorization_servers": [self._issuer],
            "scopes_supported": [READ, WRITE],
            "bearer_methods_supported": ["header"],
            "resource_name": "Notes of the demo",
        }

    def answer(self, authorization: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for the response to a message."""
        try:
            claims = self._check_token(authorization)
            message = _parse(body)
            result = None if message is None else self._respond(message, claims)
        except _Refused as refused:
            parameters = {**refused.parameters, "resource_metadata": self.metadata_url}
            challenge = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
            return refused.status, {"WWW-Authenticate": f"Bearer {challenge}"}, b""
        except calls.CallFailed:
            return 503, {}, b""
        if result is None:
            return (400 if message is None else 202), {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(result).encode()

    def _check_token(self, authorization: str) -> Mapping[str, Any]:
        """Return what Gatehouse says about the access token. Raises: _Refused, CallFailed."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise _Refused(401, scope=READ)
        claims = calls.post_form(f"{self._issuer}/auth/introspect", {"token": token}, self._credentials).json
        if not claims.get("active") or claims.get("aud") != self.identifier or claims.get("token_type") != "Bearer":
            raise _Refused(401, error="invalid_token", scope=READ)
        return claims

    def _respond(self, message: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the response to a JSON-RPC message, or None for a notification. Raises: _Refused."""
        if "id" not in message:
            return None
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        parameters = message.get("params")
        parameters = parameters if isinstance(parameters, dict) else {}
        match message.get("method"):
            case "initialize":
                asked = parameters.get("protocolVersion")
                version = asked if asked in PROTOCOLS else PROTOCOLS[-1]
                about = {"name": "Notes of the Gatehouse demo", "version": VERSION}
                return {**answer, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
            case "ping":
                return {**answer, "result": {}}
            case "tools/list":
                return {**answer, "result": {"tools": TOOLS}}
            case "tools/call" if parameters.get("name") in SCOPE_OF:
                text = self._use(str(parameters["name"]), parameters.get("arguments"), claims)
                return {**answer, "result": {"content": [{"type": "text", "text": text}]}}
            case "tools/call":
                return {**answer, "error": {"code": -32602, "message": "There is no such tool."}}
            case _:
                return {**answer, "error": {"code": -32601, "message": "This server does not have this method."}}

    def _use(self, tool: str, arguments: object, claims: Mapping[str, Any]) -> str:
        """Return a tool's result for the token's user. Raises: _Refused if the token lacks its scope."""
        scope = SCOPE_OF[tool]
        if scope not in str(claims.get("scope", "")).split():
            raise _Refused(403, error="insufficient_scope", scope=scope)
        kept = self._kept[str(claims["sub"])]
        if tool == "add_note":
            text = arguments.get("text") if isinstance(arguments, dict) else None
            kept.append(str(text or "")[:MAX_NOTE])
            del kept[:-MAX_NOTES]
            return "Added."
        return "\n".join(kept) or "You have no notes yet."


def _parse(body: bytes) -> Mapping[str, Any] | None:
    """Return the JSON-RPC message, or None if it is none."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("method"), str) else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _handler_of(server: NotesServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30  # seconds

        def do_GET(self) -> None:
            if self.path == METADATA:
                headers = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"}
                self._send(200, headers, json.dumps(server.metadata).encode())
            else:
                self._send(405 if self.path == PATH else 404, {"Allow": "POST"}, b"")

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length") or ""
            if not length.isdecimal() or int(length) > MAX_BODY:
                self.close_connection = True
                self._send(413, {}, b"")
                return
            body, origin = self.rfile.read(int(length)), self.headers.get("Origin")
            if origin is not None and not uris.is_on_loopback(origin):
                self._send(403, {}, b"")  # a page on another site, which may have led its own name to this machine
            elif self.path != PATH:
                self._send(404, {}, b"")
            else:
                self._send(*server.answer(self.headers.get("Authorization") or "", body))

        def do_DELETE(self) -> None:
            self._send(405 if self.path == PATH else 404, {"Allow": "POST"}, b"")

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: the terminal shows the client's steps."""

    return Handler

"""`gatehouse demo mcp`: an MCP server that the running Gatehouse protects, and a client that connects to it."""

from collections.abc import Callable
from contextlib import closing
from threading import Event
from typing import Final

from core.demo.notes import NotesDemo
from entrypoints.demo.calls import CallFailed
from entrypoints.demo.notes_client import NotesClient
from entrypoints.demo.notes_server import NotesServer

START: Final = """\
An MCP server runs at {identifier}. It protects notes with Gatehouse at {issuer}.
This client knows only its address, and no organization has registered it. Claude, ChatGPT and code editors find the
way in the same steps, except that Gatehouse reads who they are at the address that is their client id. This client
publishes nothing, so it registers itself. When it asks you to sign in, use {user} with the
password that gatehouse demo printed."""
END: Final = """
The MCP server keeps running. Connect an assistant of this machine to {identifier}, for example:
   claude mcp add --transport http notes {identifier}
   code --add-mcp '{{"name": "notes", "type": "http", "url": "{identifier}"}}'
See and end access as the user at {issuer}/app/account/consents, and as the owner of the organization at
{issuer}/app/organizations/demo/api-resources/{resource_id}/external-clients.
Press Ctrl-C to stop."""


def run(port: int, seed: Callable[[str], tuple[NotesDemo, str]], say: Callable[[str], None]) -> None:
    """Run the server and the client. After the last step, serve until an interrupt.

    `seed` creates the API resource with this identifier, and returns it with Gatehouse's base URL.

    Raises: CallFailed; the errors of `seed`.
    """
    try:
        server = NotesServer(port)
    except OSError as error:
        raise CallFailed(f"The MCP server cannot use port {port}: {error.strerror}. Choose another one with --port.") from None
    with closing(server):
        notes, issuer = seed(server.identifier)
        server.start(notes, issuer)
        names = {"identifier": notes.identifier, "issuer": issuer, "resource_id": notes.resource_id, "user": notes.user}
        say(START.format(**names))
        NotesClient(notes, say).run()
        say(END.format(**names))
        Event().wait()

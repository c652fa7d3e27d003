"""One request through Quart, without the nursery that Quart-Trio opens for each request."""

from typing import Any

import trio
from quart import Request
from quart.wrappers.request import Body
from quart_trio.asgi import TrioASGIHTTPConnection

from core.kernel.errors import Outage, Refusal
from core.provisioning import tokens as scim_tokens
from entrypoints.http.edge.access import bearer_token
from entrypoints.http.edge.context import app_context
from entrypoints.http.edge.size_limits import MAX_BODY


class WholeBodyConnection(TrioASGIHTTPConnection):
    """A connection that reads the whole body, then handles the request.

    Quart-Trio runs two tasks per request: one waits for a disconnect and cancels the other. The
    middleware withholds the disconnect once the body is complete (security P-3), so the second task
    has no purpose. Its nursery and task switches cost about a tenth of a small request. The
    middleware limits the size of the body and the time it takes.

    Directories may send larger bodies than other clients (security N-3). Beyond MAX_BODY, a body is
    kept only after its SCIM token was checked. Otherwise clients without a token could fill the
    memory over many connections. The rest of their bodies is discarded, and their requests are
    refused because of the token.
    """

    async def __call__(self, receive: Any, send: Any) -> None:
        request = self._create_request_from_scope(send)
        size, kept = 0, True
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # the client left before the end of the body
            if (chunk := message.get("body")) and kept:
                before, size = size, size + len(chunk)
                if before <= MAX_BODY < size and not await self._has_scim_token(request):
                    kept, request.body = False, _unread()
                else:
                    request.body.append(chunk)
            if not message.get("more_body", False):
                break
        request.body.set_complete()
        await self._send_response(send, await self.app.handle_request(request))

    async def _has_scim_token(self, request: Request) -> bool:
        # Shielded, because a canceled statement costs the pool its connection.
        with trio.CancelScope(shield=True):
            try:
                await scim_tokens.authenticate(app_context(self.app).ports, bearer_token(request.headers), address=None, agent=None)
            except (Refusal, Outage):  # the access decorator raises it again and responds
                return False
        return True


def _unread() -> Body:
    """Return a body that raises 413 when it is read."""
    body = Body(None, 0)
    body.append(b" ")
    return body

"""One request through Quart, without the nursery that Quart-Trio opens for each."""

from typing import Any

import trio
from quart import Request
from quart.wrappers.request import Body
from quart_trio.asgi import TrioASGIHTTPConnection

from core.kernel.errors import Outage, Refusal
from core.provisioning import tokens as scim_tokens
from entrypoints.http.edge.access import bearer_token
from entrypoints.http.edge.bodies import MAX_BODY
from entrypoints.http.edge.context import app_context


class WholeBodyConnection(TrioASGIHTTPConnection):
    """Takes the whole body in, then handles the request.

    Quart-Trio runs two tasks for each request, one of which waits for the client to leave and then cancels the other. The outer layer
    withholds that news once the body is complete (security.md P-3), so nothing is left for the second task to do, and the nursery, its
    cancellation and the switches between the tasks cost about a tenth of a small request. The outer layer bounds the size of a body and
    the time that it takes.

    Directories may send much more than others (security.md N-3), which is kept for them alone: of anybody else, or they could fill the
    memory over many connections, no more than MAX_BODY is kept, and what comes is thrown away. Their request is refused as it would be,
    for its token; and if that has become good in between, because there is no body to read.
    """

    async def __call__(self, receive: Any, send: Any) -> None:
        request = self._create_request_from_scope(send)
        size, kept = 0, True
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # in mid-body: there is nobody to answer
            if (chunk := message.get("body")) and kept:
                before, size = size, size + len(chunk)
                if before <= MAX_BODY < size and not await self._comes_from_a_directory(request):
                    kept, request.body = False, _unread()
                else:
                    request.body.append(chunk)
            if not message.get("more_body", False):
                break
        request.body.set_complete()
        await self._send_response(send, await self.app.handle_request(request))

    async def _comes_from_a_directory(self, request: Request) -> bool:
        # To its end, whatever becomes of the request: a statement that is broken off costs the pool its connection.
        with trio.CancelScope(shield=True):
            try:
                await scim_tokens.authenticate(app_context(self.app).ports, bearer_token(request.headers), address=None, agent=None)
            except (Refusal, Outage):  # which the request meets again, and which is answered there
                return False
        return True


def _unread() -> Body:
    """The body of a request that is too large; whoever reads it is told so."""
    body = Body(None, 0)
    body.append(b" ")
    return body

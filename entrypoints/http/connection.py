"""One request through Quart, without the nursery that Quart-Trio opens for each."""

from typing import Any

from quart_trio.asgi import TrioASGIHTTPConnection


class WholeBodyConnection(TrioASGIHTTPConnection):
    """Takes the whole body in, then handles the request.

    Quart-Trio runs two tasks for each request, one of which waits for the client to leave and then cancels the other. The outer layer
    withholds that news once the body is complete (security.md P-3), so nothing is left for the second task to do, and the nursery, its
    cancellation and the switches between the tasks cost about a tenth of a small request. The outer layer bounds the size of a body and
    the time that it takes.
    """

    async def __call__(self, receive: Any, send: Any) -> None:
        request = self._create_request_from_scope(send)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # in mid-body: there is nobody to answer
            if chunk := message.get("body"):
                request.body.append(chunk)
            if not message.get("more_body", False):
                break
        request.body.set_complete()
        await self._send_response(send, await self.app.handle_request(request))

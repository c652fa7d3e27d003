"""The application that leads browsers from plain HTTP to the base URL. It serves nothing else (SSO_TLS_REDIRECT_BIND)."""

from entrypoints.http.edge import middleware
from entrypoints.http.edge.protocol.request_checks import Scope


def redirect_to(base_url: str) -> middleware.App:
    """Return an ASGI application that answers GET and HEAD with the same path at the base URL, and every other request with 400.

    A client that sends a secret without encryption gets an error, so that its author notices.
    """
    base = base_url.encode()

    async def answer(scope: Scope, receive: middleware.Receive, send: middleware.Send) -> None:
        if scope["type"] != "http":
            for _ in range(2):  # the startup and the shutdown
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        target: bytes = scope["raw_path"]
        headers: middleware.Headers = [(b"content-length", b"0"), (b"connection", b"close")]
        status = 400
        if scope["method"] in ("GET", "HEAD") and target.startswith(b"/"):
            status = 308
            query: bytes = scope["query_string"]
            headers.append((b"location", base + target + (b"?" + query if query else b"")))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body"})

    return answer

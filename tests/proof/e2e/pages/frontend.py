"""The operator's frontend: files on another origin than Gatehouse."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


class Quiet(SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    """Serve a folder's files, and return the origin. Its host is `localhost`, because passkeys need a host name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()

"""HTTP requests as test servers read them, on Trio."""

from dataclasses import dataclass, field
from typing import Self

import h11
import trio


@dataclass(frozen=True)
class Request:
    """A request. The path includes the query. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: bytes

    @classmethod
    async def read(cls, stream: trio.abc.Stream) -> Self:
        """Read the next request.

        Raises: trio.BrokenResourceError if the client disconnects before it is complete;
        h11.RemoteProtocolError.
        """
        reader, head, body = h11.Connection(h11.SERVER), None, bytearray()
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                reader.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {name.decode(): value.decode() for name, value in head.headers}
                return cls(head.method.decode(), head.target.decode(), headers, bytes(body))
            else:
                raise trio.BrokenResourceError

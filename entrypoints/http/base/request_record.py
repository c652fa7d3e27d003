"""A request's record, for the log and the metrics."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ports.observe import UNKNOWN_ROUTE


class RequestRecord:
    """A request's record, for the log and the metrics."""

    __slots__ = (
        "aborted",
        "address",
        "after_response",
        "caller",
        "duration",
        "error",
        "error_code",
        "evaluations",
        "impersonator",
        "method",
        "organization",
        "path",
        "request_id",
        "route",
        "status",
        "way_back",
    )

    def __init__(self, request_id: str, method: str, path: str, address: str) -> None:
        self.request_id = request_id
        self.method = method  # OTHER if it is not an HTTP method
        self.path = path  # decoded; may contain any character, so logs must escape it
        self.address = address  # the client address, which is not always the peer (security N-1)
        self.status = 0  # 499 if the client disconnected before the response
        self.duration = 0.0  # seconds until the last byte was sent
        self.route = UNKNOWN_ROUTE  # the route template; the application sets this and the next five
        self.caller: str | None = None
        self.impersonator: str | None = None  # the platform owner who acts as the caller
        self.organization: str | None = None
        self.error_code: str | None = None
        self.evaluations: Sequence[Mapping[str, object]] | None = None  # decisions about permissions, for the log
        self.way_back: tuple[str, str] | None = None  # label and path for a button on the error page
        self.aborted = False  # the client closed its side of the connection before the response was complete
        self.after_response: Callable[[RequestRecord], Awaitable[None]] | None = None  # runs once the record is complete
        self.error: Exception | None = None  # an exception that the application did not turn into a response

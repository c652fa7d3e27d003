"""Limits for HTTP/2 frames that cost the server work, and carry neither a request with a response nor a body.

Floods of such frames are known attacks: rapid reset (CVE-2023-44487), CONTINUATION (such as CVE-2024-24549), and
SETTINGS, PING, PRIORITY, tiny windows and empty frames (CVE-2019-9511 to CVE-2019-9518).
"""

from typing import Final

from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

MAX_FRAMES: Final = 1000  # on credit
FRAMES_PER_RESPONSE: Final = 20  # earned by a complete response
BYTES_PER_FRAME: Final = 1024  # sent bytes that earn a frame: a download needs updates for its window
RESET_COST: Final = 10  # frames
SMALL: Final = 256  # bytes in a DATA frame that counts
MAX_BLOCK: Final = 2 * MAX_HEADER_BLOCK  # encoded bytes in HEADERS and CONTINUATION; the middleware checks decoded headers

_PREFACE: Final = 24  # bytes before the first frame
_HEAD: Final = 9  # bytes in a frame before its payload
_DATA, _HEADERS, _RST_STREAM, _CONTINUATION = 0, 1, 3, 9
_PADDED: Final = 0x8  # a DATA flag


class FrameLimits:
    """A client's frames, counted before they are parsed."""

    def __init__(self) -> None:
        self._credit: float = MAX_FRAMES
        self._skip = _PREFACE
        self._head = b""
        self._block = 0  # bytes in the current header block

    def earn(self, frames: float) -> None:
        self._credit = min(MAX_FRAMES, self._credit + frames)

    def admit(self, data: bytes) -> bool:
        """Count the frames that begin in this data. Return whether the connection can continue."""
        position = 0
        while position < len(data):
            if self._skip:
                taken = min(self._skip, len(data) - position)
                self._skip -= taken
                position += taken
                continue
            taken = min(_HEAD - len(self._head), len(data) - position)
            self._head += data[position : position + taken]
            position += taken
            if len(self._head) == _HEAD:
                head, self._head = self._head, b""
                self._skip = int.from_bytes(head[:3], "big")
                self._count(head[3], head[4], self._skip)
                if self._credit < 0 or self._block > MAX_BLOCK:
                    return False
        return True

    def _count(self, kind: int, flags: int, size: int) -> None:
        if kind == _HEADERS:
            self._block = size
        elif kind == _CONTINUATION:
            self._block += size
        if kind != _DATA or size < SMALL or flags & _PADDED:  # a padded frame can have little data
            self._credit -= RESET_COST if kind == _RST_STREAM else 1

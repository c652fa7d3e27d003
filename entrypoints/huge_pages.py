"""Huge pages for a process's objects. Linux only: elsewhere, and on kernels before 6.1, nothing happens."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SIZE_FILE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MAPS: Final = Path("/proc/self/maps")
_MADV_COLLAPSE: Final = 25
_PAGE: Final = 4096
MIN_RESIDENT: Final = 0.95  # how much of a huge page must be in use already


def collapse() -> int:
    """Move the memory that this process uses into huge pages, and return their number.

    A worker's objects fill 20,000 pages of 4 KiB, and a request visits a thousand pages. The processor keeps fewer addresses, so it looks
    them up again and again. Memory that is hardly used stays as it is, so the process does not grow. A forked worker copies the memory that
    it shared with its parent.
    """
    try:
        size = int(_SIZE_FILE.read_text())
        areas = list(_writable_areas(_MAPS.read_text()))
        libc = ctypes.CDLL(None)
        madvise, mincore = libc.madvise, libc.mincore
    except (OSError, ValueError, AttributeError):
        return 0
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    resident = ctypes.create_string_buffer(size // _PAGE)
    collapsed = 0
    for start, end in areas:
        for at in range(-(-start // size) * size, end - size + 1, size):
            if mincore(at, size, resident) == 0 and sum(resident.raw) >= MIN_RESIDENT * len(resident):
                collapsed += madvise(at, size, _MADV_COLLAPSE) == 0
    return collapsed


def _writable_areas(maps: str) -> Iterator[tuple[int, int]]:
    """Return the private memory without a file: the heap, and that which Python maps for its objects."""
    for line in maps.splitlines():
        area, access, _, _, _, *name = line.split(maxsplit=5)
        if access == "rw-p" and (not name or name == ["[heap]"]):
            start, _, end = area.partition("-")
            yield int(start, 16), int(end, 16)

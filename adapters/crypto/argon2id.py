"""Argon2id in memory that the threads keep, with huge pages if possible.

A hash fills and reads 19 MiB in random order. With 4 KiB pages, the processor spends an eighth of the time on looking
up addresses. The C library's allocator would also return the memory to the system after every hash or never, depending
on its settings. Fresh pages double the time that a hash takes.
"""

import ctypes
import mmap
import threading
from dataclasses import dataclass
from typing import Any, Final

from _argon2_cffi_bindings import lib
from argon2.exceptions import HashingError
from argon2.low_level import ARGON2_VERSION, Type, core, error_to_str, ffi

HASH_LENGTH: Final = 32  # bytes
_HUGE_PAGE: Final = 2 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """The parameters for a hash."""

    memory_kib: int
    time_cost: int
    parallelism: int


def compute(secret: bytes, salt: bytes, cost: Cost, length: int = HASH_LENGTH) -> bytes:
    """Return a secret's hash. Raises: HashingError if a parameter is out of range; OSError if there is too little memory."""
    _memory.reserve(cost.memory_kib * 1024)
    result, secret_bytes, salt_bytes = ffi.new("uint8_t[]", length), ffi.from_buffer(secret), ffi.from_buffer(salt)
    context = ffi.new("argon2_context *")
    context.version = ARGON2_VERSION
    context.flags = lib.ARGON2_DEFAULT_FLAGS
    context.out, context.outlen = result, length
    context.pwd, context.pwdlen = secret_bytes, len(secret)
    context.salt, context.saltlen = salt_bytes, len(salt)
    context.m_cost, context.t_cost = cost.memory_kib, cost.time_cost
    context.lanes = context.threads = cost.parallelism
    context.allocate_cbk, context.free_cbk = _ALLOCATE, _FREE
    error = core(context, Type.ID.value)
    if error != lib.ARGON2_OK:
        raise HashingError(error_to_str(error))
    return bytes(ffi.buffer(result))


class _Memory(threading.local):
    """The memory for hashes in this thread. The memory goes back to the system when the thread ends."""

    size = 0
    start = 0  # an address in `pages`
    pages: Any = None

    def reserve(self, size: int) -> None:
        if size <= self.size:
            return
        mapped = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
            mapped.madvise(mmap.MADV_HUGEPAGE)
        pages = ffi.from_buffer("uint8_t[]", mapped)
        address = int(ffi.cast("uintptr_t", pages))
        # The kernel uses huge pages from the first address that is a multiple of their size.
        self.pages, self.start, self.size = pages, address + -address % _HUGE_PAGE, size


_memory: Final = _Memory()


# ctypes, because cffi's callbacks need memory that is writable and executable. The systemd unit forbids such memory.
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)  # type: ignore[untyped-decorator]
def _allocate(memory: Any, size: int) -> int:
    if size > _memory.size:
        return int(lib.ARGON2_MEMORY_ALLOCATION_ERROR)
    memory[0] = _memory.start
    return int(lib.ARGON2_OK)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)  # type: ignore[untyped-decorator]
def _free(memory: Any, size: int) -> None:
    """Keep the memory for the next hash. Argon2 has overwritten the memory with zeros."""


_ALLOCATE: Final = ffi.cast("allocate_fptr", ctypes.cast(_allocate, ctypes.c_void_p).value)
_FREE: Final = ffi.cast("deallocate_fptr", ctypes.cast(_free, ctypes.c_void_p).value)

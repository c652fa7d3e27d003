"""Huge pages for a process's objects."""

import sys

import pytest

from entrypoints import huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files and calls")


def test_memory_in_use_moves_into_huge_pages_and_keeps_its_content() -> None:
    memory = bytearray(b"content " * 2**21)  # 16 MiB

    moved = huge_pages.collapse()

    # Some kernels refuse the request, and fragmented memory has few huge pages.
    assert moved == 0 or _in_huge_pages() > 0
    assert memory == b"content " * 2**21


def test_reserved_memory_that_is_not_in_use_stays_as_it_is() -> None:
    reserved = bytearray(64 * 2**20)  # calloc touches none of its pages
    before = _resident()

    huge_pages.collapse()

    assert _resident() < before + 32 * 2**10
    assert not any(reserved[:: 2**20])


def _in_huge_pages() -> int:
    return _kilobytes("/proc/self/smaps_rollup", "AnonHugePages")


def _resident() -> int:
    return _kilobytes("/proc/self/status", "VmRSS")


def _kilobytes(path: str, name: str) -> int:
    with open(path) as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:"))

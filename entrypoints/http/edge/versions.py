"""Versions of resources in `ETag` and `If-Match` (RFC 9110 sections 8.8.3 and 13.1.1)."""

from collections.abc import Collection

from quart import request


def version_headers(version: int) -> dict[str, str]:
    """Return the header with the resource's version in the response."""
    return {"ETag": f'"{version}"'}


def expected_versions() -> Collection[int] | None:
    """Return the versions in the current request's `If-Match`, or None if the request takes any version.

    A tag that is not ours, an empty tag or a weak tag matches no version.
    """
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    tags = request.if_match.as_set()
    return frozenset(int(tag) for tag in tags if tag and tag.isascii() and tag.isdigit() and len(tag) <= 10)

"""The sentence about the ways to sign in that remain, for the question before a way to sign in ends."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from core.accounts import ways_in
from core.kernel.connections import ConnectionSlug
from core.kernel.proofs import Method
from entrypoints.http import kit

WORDS: Final[Mapping[str, str]] = {
    Method.PASSWORD.value: "your password",
    Method.PASSKEY.value: "another passkey",
    Method.EMAIL.value: "a code by email",
}


async def remaining_ways(without: Method | ConnectionSlug | UUID) -> str:
    """Return the sentence for removing PASSWORD, an identity provider, or the passkey with this id."""
    words: dict[str, str] = {**WORDS, **{str(slug): name for slug, name in kit.ports().policy.provider_names.items()}}
    if without is Method.PASSWORD:
        words[Method.PASSKEY.value] = "a passkey"
    ways = [words.get(way, way) for way in await ways_in.list_own(kit.ports(), kit.signed_in(), without=without)]
    if not ways:
        return "This is your only way to sign in, so it has to stay."
    return f"You can still sign in with {' or '.join(filter(None, (', '.join(ways[:-1]), ways[-1])))}."

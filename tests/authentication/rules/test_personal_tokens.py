"""The personal access token format: a secret scanner finds tokens, and wrong tokens are refused without a database query."""

import re
from collections.abc import Callable

from core.authentication.model.tokens import PATTERN, is_well_formed, new_personal_token
from tests.tables import table

# Written out, because scanners rely on the format and on the checksum.
KNOWN = "gatehouse_pat_live_k2v7qa_0000000000000000000000000000000000000000000"
KNOWN_CHECKSUM = "3bbdmp"


@table("environment", [None, "live", "test"])
def test_a_new_token_has_the_published_format(environment: str | None) -> None:
    secret, prefix = new_personal_token(environment)
    assert re.fullmatch(PATTERN, secret)
    assert secret.startswith(f"{prefix}_")
    assert prefix.startswith("gatehouse_pat_" + ("" if environment is None else f"{environment}_"))
    assert is_well_formed(secret)


def test_two_tokens_differ() -> None:
    assert len({new_personal_token(None) for _ in range(100)}) == 100


def test_the_checksum_never_changes() -> None:
    assert is_well_formed(KNOWN + KNOWN_CHECKSUM)


def test_each_changed_character_is_noticed() -> None:
    secret, _ = new_personal_token("live")
    for position, character in enumerate(secret):
        changed = secret[:position] + ("x" if character != "x" else "y") + secret[position + 1 :]
        assert not is_well_formed(changed), position


@table(
    "change",
    [
        lambda secret: secret[:-1],
        lambda secret: secret + "0",
        lambda secret: secret + "\n",
        lambda secret: f" {secret}",
        lambda secret: secret.upper(),
        lambda secret: secret.replace("_live_", "_prod_"),
        lambda secret: secret.replace("_live_", "_"),
        lambda secret: secret[:-1] + "é",
        lambda secret: secret * 200,
        lambda _: "",
        lambda _: "gatehouse_pat_",
    ],
)
def test_other_texts_are_no_tokens(change: Callable[[str], str]) -> None:
    assert not is_well_formed(change(new_personal_token("live")[0]))

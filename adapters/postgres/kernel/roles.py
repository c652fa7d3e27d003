"""Names of roles as SQL literals, from the roles in `core.kernel.roles`."""

from collections.abc import Iterable
from typing import LiteralString


def to_list(names: Iterable[str]) -> LiteralString:
    """Return names of roles as the values of an SQL list, such as `'owner', 'admin'`."""
    return ", ".join(f"'{name}'" for name in names)

"""Names of roles as SQL literals, from the roles in `core.kernel.roles`."""

from collections.abc import Iterable
from typing import Final, LiteralString

from core.kernel.roles import ROLES, needs_roles_manage


def to_list(names: Iterable[str]) -> LiteralString:
    """Return names of roles as the values of an SQL list, such as `'owner', 'admin'`."""
    return ", ".join(f"'{name}'" for name in names)


ADMINS: Final = to_list(role for role in ROLES if needs_roles_manage(role))  # owners and admins

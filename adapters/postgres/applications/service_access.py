"""The SQL of the rule in `core.authentication.service_access`, for statements that must check it atomically."""

from typing import LiteralString


def is_blocked(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if the directory of this organization blocks this user."""
    return f"exists (select 1 from directory_blocks d where d.org_id = {org_id} and d.user_id = {user_id})"

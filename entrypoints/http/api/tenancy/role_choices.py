"""The roles in the API description, and as options of forms."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import WithJsonSchema

from core.kernel import roles
from core.kernel.roles import ADMIN, MEMBER, ROLES, RoleName
from entrypoints.http.edge.bodies import Text

if TYPE_CHECKING:
    Role = RoleName
else:  # the API description names the type, with its values
    Role = StrEnum("Role", {name.upper(): name for name in ROLES}, module=__name__)
    Role.__doc__ = "Membership roles, from the most to the least powerful."

# The name of a role that can be given to a person.
AssignableRole = Annotated[Text, WithJsonSchema({"type": "string", "enum": [ADMIN, MEMBER]})]


def options(choices: Iterable[roles.Role]) -> list[tuple[str, str]]:
    """Return the roles as options of a form: pairs of value and label."""
    return [(role.name, role.label) for role in choices]


# All roles, and those that can be given to a person.
ALL_ROLES: Final = options(ROLES.values())
ASSIGNABLE: Final = options([ROLES[ADMIN], ROLES[MEMBER]])

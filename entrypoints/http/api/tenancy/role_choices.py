"""The roles in the API description, and as form options."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field, WithJsonSchema

from core.kernel import roles
from core.kernel.display import to_words
from core.kernel.roles import MEMBER, RoleName
from core.tenancy.model.organizations import Membership
from core.tenancy.roles import list_choices
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.bodies import Text

# A role's name: `owner`, `admin`, `member`, or the slug of a role that the organization has defined.
Role = Annotated[RoleName, WithJsonSchema({"type": "string"}), Field(examples=[MEMBER])]
# The name of a role that can be given to a person.
AssignableRole = Annotated[Text, Field(examples=[MEMBER])]


def options(choices: Iterable[roles.Role]) -> list[tuple[str, str]]:
    """Return the roles as form options: pairs of value and label."""
    return [(role.name, role.label) for role in choices]


def role_text(membership: Membership) -> str:
    """Return a member's role name inside a line of text."""
    return membership.role_label or to_words(membership.role).lower()


async def role_labels(names: Collection[RoleName]) -> list[str]:
    """Return these organization roles' names on pages. Without names, nothing is read."""
    return [role.label for role in await role_choices() if role.name in names] if names else []


async def role_choices() -> Sequence[roles.Role]:
    """Return all the organization's roles."""
    return await list_choices(ports(), acting_member())


def role_filter(choices: Iterable[roles.Role]) -> list[tuple[str, str]]:
    """Return the options for a role filter."""
    return [("", "All roles"), *options(choices)]


def giveable_options(choices: Iterable[roles.Role], *, to_program: bool = False) -> list[tuple[str, str]]:
    """Return the roles in `choices` that the acting member may give, the least powerful built-in role first."""
    giveable = roles.giveable(acting_member().acts_in.rights, choices, to_program=to_program)
    built_in, own = [role for role in giveable if role.is_built_in], [role for role in giveable if not role.is_built_in]
    return options([*built_in[::-1], *own])

"""The check for `Raises:` lists, and the refusals that it reads from the code."""

from pathlib import Path
from typing import Final

from ops.checks.refusals import Code

FILES: Final = {
    "core/tenancy/members.py": """
from core.kernel.errors import refuse
from core.tenancy import roles

async def remove(tx):
    '''Remove a member. Raises: MemberNotFound; RoleInUse.'''
    member = await tx.members.lock(1) or refuse(MemberNotFound)
    roles.check(member)
    await tx.members.change(member)

async def leave(tx):
    '''Leave. Raises: MemberNotFound; RoleInUse.'''
    try:
        await remove(tx)
    except Refusal:
        await count(tx)

def count(tx):
    '''Count members. Raises: MemberNotFound if there is none.'''
""",
    "core/tenancy/roles.py": """
class RoleInUse(Refusal): ...

def check(role):
    if role.is_used:
        raise RoleInUse
""",
    "adapters/postgres/repositories.py": """
class Repositories:
    members = Kept(Port.members, Members)
""",
    "adapters/postgres/tenancy/members.py": """
class Members(Repository):
    constraints: ClassVar = {"members_key": AlreadyMember}

    def lock(self, id): return self._one("select 1")
    def change(self, member): return self._run("update memberships set role = 1")
""",
}


def test_refusals_are_those_of_the_function_its_callees_and_the_constraints_of_its_writes(tmp_path: Path) -> None:
    code = written(tmp_path)
    assert code.refusals(code.modules["core.tenancy.members"], "remove", set()) == {"MemberNotFound", "RoleInUse", "AlreadyMember"}


def test_a_list_is_needed_if_a_caller_catches_one_of_its_errors_or_their_base(tmp_path: Path) -> None:
    assert [line.split(": ")[1] for line in written(tmp_path).unneeded()] == ["no caller of leave catches MemberNotFound; RoleInUse"]


def written(folder: Path) -> Code:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Code(folder)

"""An organization's users, groups, roles and access policies against a small reference, in any order of changes by any caller.

After every change, the members' rights and roles, the decisions about permissions, and the access to the application match the reference.
So does the answer to every change: the reference knows who may make it (security R-1, R-10, R-11, C-6).
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from core.applications import access, authorization, end_users, role_assignments
from core.applications.model.authorization import AuthorizationDocument, DeclaredPermission, RoleDefinition
from core.applications.model.evaluation import AccessDecision, parse_batch
from core.applications.model.users import AccessPolicy, AccessSettings, EndUserNotFound
from core.authentication import callers
from core.authentication.model.dpop import PresentedToken
from core.kernel.access import Requirement
from core.kernel.callers import Member, ScimClient
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.errors import Refusal
from core.kernel.roles import CUSTOMIZABLE, MEMBER, ROLES, Capability, Permission
from core.kernel.values import Page
from core.provisioning import directory_groups
from core.provisioning import tokens as scim_tokens
from core.provisioning import users as scim_users
from core.provisioning.model.groups import GroupChanges, MemberChanges
from core.provisioning.model.patches import PatchOp, PatchOperation, UserPatch
from core.tenancy import groups, members, roles
from core.tenancy.model.roles import NewRole
from core.tenancy.roles import RoleChanges
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.proof.models.rights_reference import Organization
from tests.support.background import Background
from tests.support.builders import add_account, add_member, add_organization, make_ports, run_sql, sign_in
from tests.support.services import add_api_key, add_service, enroll_user

T = TypeVar("T")

ANONYMOUS = Anonymous(address="203.0.113.9", agent="tests")
ANY_MEMBER = Requirement(capability=Capability.ORGANIZATION_VIEW)
NAMES = ("owner", "ann", "bob", "cleo", "dave")
USERS = st.sampled_from(NAMES)
CALLERS = st.sampled_from(["owner", "owner", "ann", "ann", "ann", "bob", "bob", "cleo"])
# Callers, and the directory
CHANGERS = st.sampled_from(["owner", "ann", "ann", "bob", "bob", None, None])
ROLE_NAMES = st.sampled_from(["keeper", "auditor", "admin", "member", "helper", "owner"])
CUSTOM = st.sampled_from(["keeper", "auditor", "helper"])
OF_MEMBERS = {str(right) for right in ROLES[MEMBER].rights & CUSTOMIZABLE}
MANAGES = ["members.manage", "roles.manage", "groups.manage", "services.manage", "service_roles.assign", "end_users.manage"]
EVERYTHING = {*OF_MEMBERS, *MANAGES, "audit.view"}
RIGHTS = st.one_of(
    st.sampled_from([EVERYTHING - {"audit.view"}, EVERYTHING - {"roles.manage"}, OF_MEMBERS, {"audit.view"}, EVERYTHING]),
    st.sets(st.sampled_from([*MANAGES, "audit.view"])).map(lambda rights: {*OF_MEMBERS, *rights}),
)
# Two of them differ in their case only, another belongs to the application, and another to the organization.
GROUP_NAMES = st.sampled_from(["Alpha", "ALPHA", "Beta", "Gamma", "Shop", "Acme"])
LAST = 8
NUMBERS = st.integers(0, LAST)  # in a group
PERMISSIONS = ("read", "write")
APP_ROLES = st.sampled_from(["editor", "viewer", "helper"])
DOCUMENTS = st.tuples(
    st.sets(st.sampled_from(PERMISSIONS), min_size=1), st.dictionaries(APP_ROLES, st.sets(st.sampled_from(PERMISSIONS)), max_size=3)
)
MOSTLY = st.sampled_from([True, True, False])


class RightsMachine(RuleBasedStateMachine):
    """An organization with an application, its directory, and five users."""

    background: ClassVar[Background]
    ports: ClassVar[Ports]
    pool: ClassVar[Pool]
    number: ClassVar[int] = 0

    def run(self, act: Callable[..., Awaitable[T]], *args: object) -> T:
        return self.background.run(act, *args)

    @initialize()
    def begin(self) -> None:
        RightsMachine.number += 1
        self.slug, self.steps, self.accepted = f"acme-{self.number}", 0, True
        self.model = Organization("Acme", "Shop", "owner")
        self.run(self._begin)
        self.create_role("owner", "keeper", EVERYTHING)
        self.create_role("owner", "auditor", {"audit.view"})
        self.create_group("owner", "Alpha")
        self.create_group(None, "Beta")
        self.create_group("owner", "Gamma")
        self.declare("owner", ({"read", "write"}, {"editor": {"read", "write"}, "viewer": {"read"}}), confirmed=False)
        self.sign_in("cleo")
        self.join_or_confirm("dave", confirmed=False)
        # Ann has a keeper's rights by a group, and lets the directory's group give a role. Bob is an admin by a group.
        for by, number, user in (("owner", 0, "ann"), (None, 1, "bob"), (None, 1, "cleo"), (None, 1, "dave"), ("owner", 2, "bob")):
            self.add_to_group(by, number, user)
        for by, number, role in (("owner", 0, "keeper"), ("ann", 1, "auditor"), ("owner", 2, "admin")):
            self.map_group(by, number, role)
        self.set_app_role("owner", "viewer", "ann", given=True)
        for number, role in enumerate(["editor", "viewer"]):
            self.set_app_role_of_group("ann", role, number, given=True)
        self.set_role("ann", "bob", "auditor")  # refused: Bob has rights by a group that Ann lacks

    async def _begin(self) -> None:
        self.org = await add_organization(self.pool, self.slug)
        await run_sql(self.pool, "update organizations set name = 'Acme', max_users = 100 where id = %s", self.org)
        self.service = await add_service(self.pool, self.org)
        self.key = await add_api_key(self.pool, self.service, [Permission.EVALUATE_ACCESS])
        self.ids: dict[str, UUID] = {}
        self.tokens: dict[str, str] = {}
        for name in NAMES:
            account = await add_account(self.ports, f"{name}-{self.number}@example.com", None)
            self.ids[name] = account.id
            self.tokens[name] = (await sign_in(self.ports, account)).access_token
        await add_member(self.pool, self.org, self.ids["owner"], "owner", confirmed=True)
        token, _ = await scim_tokens.create(self.ports, await self._caller("owner"), "Directory", None, directory_groups=True)
        self.directory = ScimClient(token_id=token.id, org_id=self.org, org_slug=self.slug, directory_groups=True)
        self.group_ids: dict[str, UUID] = {}
        for name in ("ann", "bob"):
            await self._join(name, confirmed=True)

    async def _join(self, name: str, *, confirmed: bool) -> None:
        await add_member(self.pool, self.org, self.ids[name], confirmed=confirmed)
        self.model.own[name] = "member"
        if confirmed:
            self.model.confirmed.add(name)

    async def _caller(self, name: str) -> Member:
        """Return the user as a caller, as a request does. The first request confirms the membership."""
        caller = await callers.authenticate_member(self.ports, ANONYMOUS, PresentedToken(self.tokens[name]), self.slug, ANY_MEMBER)
        assert isinstance(caller, Member)
        return caller

    def change(self, expected: Callable[[], bool], act: Callable[..., Awaitable[Any]], *args: Any, by: str | None, **options: Any) -> None:
        """Make a change as a member, or as the directory if `by` is None, and check that it is accepted as the reference says."""
        if by in self.model.own:
            self.model.confirmed.add(str(by))
        self.accepted = expected()
        assert self.run(self._try, act, by, args, options) == self.accepted, (by, args, options)

    async def _try(self, act: Callable[..., Awaitable[Any]], by: str | None, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        try:
            await act(self.ports, self.directory if by is None else await self._caller(by), *args, **options)
        except Refusal:
            return False
        return True

    def group(self, number: int) -> tuple[str, UUID]:
        """Return a group's key and id. There is none with the last number."""
        keys = sorted(self.model.groups)
        if not keys or number == LAST:
            return "none", self.org
        return keys[number % len(keys)], self.group_ids[keys[number % len(keys)]]

    # Roles and members

    @rule(by=CALLERS, slug=CUSTOM, rights=RIGHTS)
    def create_role(self, by: str, slug: str, rights: set[str]) -> None:
        new = NewRole(name=slug.title(), slug=slug, capabilities=rights)
        self.change(lambda: self.model.create_role(by, slug, set(rights)), roles.create, new, by=by)

    @rule(by=CALLERS, slug=CUSTOM, rights=RIGHTS, confirmed=MOSTLY)
    def edit_role(self, by: str, slug: str, rights: set[str], confirmed: bool) -> None:
        changes = RoleChanges(capabilities=rights, confirmed=confirmed)
        self.change(lambda: self.model.edit_role(by, slug, set(rights), confirmed), roles.update, slug, changes, by=by)

    @rule(by=CALLERS, slug=CUSTOM, replacement=st.one_of(st.none(), ROLE_NAMES), confirmed=MOSTLY)
    def delete_role(self, by: str, slug: str, replacement: str | None, confirmed: bool) -> None:
        def expected() -> bool:
            return self.model.delete_role(by, slug, replacement, confirmed)

        self.change(expected, roles.delete, slug, replacement=replacement, confirmed=confirmed, by=by)

    @rule(by=CALLERS, user=USERS, role=ROLE_NAMES)
    def set_role(self, by: str, user: str, role: str) -> None:
        self.change(lambda: self.model.set_role(by, user, role), members.change_role, self.ids[user], role, by=by)

    @rule(by=CALLERS, user=USERS)
    def remove(self, by: str, user: str) -> None:
        self.change(lambda: self.model.remove(by, user), members.remove, self.ids[user], by=by)

    @rule(user=USERS)
    def leave(self, user: str) -> None:
        self.change(lambda: self.model.leave(user), members.leave, self.slug, by=user)

    @rule(user=USERS, confirmed=st.booleans())
    def join_or_confirm(self, user: str, confirmed: bool) -> None:
        if user in {*self.model.own, *self.model.blocked_by_directory}:
            self.change(lambda: user in self.model.own, members.confirm, self.slug, by=user)
        else:
            self.run(lambda: self._join(user, confirmed=confirmed))

    @rule(user=USERS, active=st.booleans())
    def set_active(self, user: str, active: bool) -> None:
        async def patch(ports: Ports, caller: ScimClient) -> None:
            found = await scim_users.find(ports, caller, self.ids[user])
            await scim_users.patch(ports, caller, found, UserPatch([PatchOperation(PatchOp.REPLACE, "active", active)]))

        self.change(lambda: self.model.set_active(user, active), patch, by=None)

    # Groups

    @rule(by=CHANGERS, name=GROUP_NAMES)
    def create_group(self, by: str | None, name: str) -> None:
        async def create(ports: Ports, caller: Any) -> None:
            if by is None:
                created: Any = await directory_groups.create(ports, caller, GroupChanges(name=name))
            else:
                created = await groups.create(ports, caller, name)
            self.group_ids[name.lower()] = created.id

        self.change(lambda: self.model.create_group(by, name), create, by=by)

    @rule(by=CHANGERS, number=NUMBERS)
    def delete_group(self, by: str | None, number: int) -> None:
        key, group = self.group(number)
        delete = directory_groups.delete if by is None else groups.delete
        self.change(lambda: self.model.delete_group(by, key), delete, group, by=by)

    @rule(by=CHANGERS, number=NUMBERS, user=USERS)
    def add_to_group(self, by: str | None, number: int, user: str) -> None:
        key, group = self.group(number)

        def expected() -> bool:
            return self.model.add_to_group(by, key, user)

        if by is None:
            changes = GroupChanges(MemberChanges(added=frozenset({self.ids[user]})))
            self.change(expected, directory_groups.change, group, changes, by=by)
        else:
            self.change(expected, groups.add_member, group, self.ids[user], by=by)

    @rule(by=CHANGERS, number=NUMBERS, user=USERS)
    def remove_from_group(self, by: str | None, number: int, user: str) -> None:
        key, group = self.group(number)

        def expected() -> bool:
            return self.model.remove_from_group(by, key, user)

        if by is None:
            changes = GroupChanges(MemberChanges(removed=frozenset({self.ids[user]})))
            self.change(expected, directory_groups.change, group, changes, by=by)
        else:
            self.change(expected, groups.remove_member, group, self.ids[user], by=by)

    @rule(by=CALLERS, number=NUMBERS, role=ROLE_NAMES)
    def map_group(self, by: str, number: int, role: str) -> None:
        key, group = self.group(number)
        self.change(lambda: self.model.map_group(by, key, role), groups.give_role, group, role, by=by)

    @rule(by=CALLERS, number=NUMBERS)
    def unmap_group(self, by: str, number: int) -> None:
        key, group = self.group(number)
        self.change(lambda: self.model.map_group(by, key, None), groups.take_role, group, by=by)

    # The application

    @rule(by=CALLERS, document=DOCUMENTS, confirmed=MOSTLY)
    def declare(self, by: str, document: tuple[set[str], dict[str, set[str]]], confirmed: bool) -> None:
        names, definitions = document[0], {slug: given & document[0] for slug, given in document[1].items()}
        parsed = AuthorizationDocument.parse(
            [DeclaredPermission(name) for name in names],
            [RoleDefinition(slug, slug.title(), None, tuple(given)) for slug, given in definitions.items()],
        )

        def expected() -> bool:
            return self.model.declare(by, set(names), definitions, confirmed)

        self.change(expected, authorization.replace_document, "shop", parsed, confirmed=confirmed, by=by)

    @rule(by=CALLERS, role=APP_ROLES, user=USERS, given=MOSTLY)
    def set_app_role(self, by: str, role: str, user: str, given: bool) -> None:
        act = role_assignments.assign if given else role_assignments.unassign
        self.change(lambda: self.model.set_app_role(by, role, user, given), act, "shop", role, self.ids[user], by=by)

    @rule(by=CALLERS, role=APP_ROLES, number=NUMBERS, given=MOSTLY)
    def set_app_role_of_group(self, by: str, role: str, number: int, given: bool) -> None:
        key, group = self.group(number)
        act = role_assignments.assign_to_group if given else role_assignments.unassign_from_group
        self.change(lambda: self.model.set_app_role_of_group(by, role, key, given), act, "shop", role, group, by=by)

    @rule(by=CALLERS, policy=st.sampled_from(["anyone", "members", "assigned", "assigned"]))
    def set_policy(self, by: str, policy: str) -> None:
        access_settings = AccessSettings(AccessPolicy(policy))
        self.change(lambda: self.model.set_policy(by, policy), access.save_settings, "shop", access_settings, by=by)

    @rule(by=CALLERS, user=USERS, assigned=MOSTLY)
    def assign(self, by: str, user: str, assigned: bool) -> None:
        expected = self.model.assign if assigned else self.model.unassign
        self.change(lambda: expected(by, user), access.assign if assigned else access.unassign, "shop", self.ids[user], by=by)

    @rule(by=CALLERS, number=NUMBERS, assigned=MOSTLY)
    def assign_group(self, by: str, number: int, assigned: bool) -> None:
        key, group = self.group(number)
        act = access.assign_group if assigned else access.unassign_group
        self.change(lambda: self.model.assign_group(by, key, assigned), act, "shop", group, by=by)

    @rule(user=USERS)
    def sign_in(self, user: str) -> None:
        assert self.run(self._sign_in, self.ids[user]) == self.model.sign_in(user)

    async def _sign_in(self, user: UUID) -> bool:
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            return await enroll_user(tx, self.service, user, self.ports.clock.now())

    @rule(by=CALLERS, user=USERS, blocked=MOSTLY)
    def block(self, by: str, user: str, blocked: bool) -> None:
        act = end_users.block if blocked else end_users.unblock
        self.change(lambda: self.model.block(by, user, blocked), act, self.ids[user], by=by)

    @invariant()
    def the_reference_agrees(self) -> None:
        self.run(self._compare)
        self.steps += 1
        self.run(self._compare_explanation, NAMES[self.steps % len(NAMES)])

    async def _compare_explanation(self, name: str) -> None:
        """Compare the answers to the question what a user may do, and why."""
        model, caller = self.model, await self._caller("owner")
        try:
            found = await access.load_user_access(self.ports, caller, self.ids[name], Page(1, 1))
        except EndUserNotFound:
            assert name not in {*model.own, *model.end_users}
            return
        assert (found.organization is None) == (name not in model.own), name
        if found.organization is not None:
            rights = {right for source in found.organization.sources for right in source.rights}
            assert rights == (model.rights(name) if name in model.confirmed else set()), name
        [shop] = found.applications
        assert shop.reason.admits == model.may_use(name), (name, shop.reason)
        assert [role.slug for role in shop.application.roles] == sorted({role for _, role, _ in model.sources(name)}), name
        assert {group.name for group in found.groups} == {group.name for group in model.groups.values() if name in group.members}, name

    async def _compare(self) -> None:
        model, owner = self.model, await self._caller("owner")
        names = {user: name for name, user in self.ids.items()}
        listed = (await members.list_page(self.ports, owner, None, Page(1, 50))).members
        assert {names[each.user_id]: list(each.membership.roles) for each in listed} == {name: model.roles(name) for name in model.own}
        rights = {name: (await self._caller(name)).acts_in.rights for name in model.confirmed}
        assert rights == {name: model.rights(name) for name in model.confirmed}
        asked = [(name, permission) for name in NAMES for permission in PERMISSIONS]
        questions = [
            {"subject": {"type": "user", "id": str(self.ids[name])}, "action": {"name": permission}, "resource": {"type": "a", "id": "b"}}
            for name, permission in asked
        ]
        _, decisions = await authorization.answer_key(self.ports, ANONYMOUS, self.key, parse_batch({"evaluations": questions}))
        expected = {each: model.decision(*each) for each in asked}
        assert {each: reason_of(decision) for each, decision in zip(asked, decisions, strict=True)} == expected
        now = self.ports.clock.now()
        async with self.ports.storage.reading() as read:
            for name, user in self.ids.items():
                assert await read.end_users.may_use(self.org, self.service, user, now) == model.may_use(name), name
                given = await read.role_assignments.of_user(self.org, user)
                alone = {("", role.slug, "") for role in given if role.assigned_at is not None}
                by_group = {(group.name.lower(), role.slug, group.name) for role in given for group in role.groups}
                assert sorted(alone | by_group) == model.sources(name), name
            stored = {
                group.name: (
                    {names[user] for user in await read.groups.present(self.org, group.id, None)},
                    group.member_count,
                    group.role,
                    group.mapping_stopped_at is not None,
                )
                for group in await read.groups.of_org(self.org)
            }
        of_model = model.groups.values()
        assert stored == {group.name: (group.members, len(group.members), group.role, group.stopped) for group in of_model}


def walk(machine: RightsMachine) -> None:
    """Take every rule about rights in turn, refused and accepted. Random walks reach some rules rarely."""

    def accepted(step: Callable[..., None], *args: object, is_accepted: bool = True, **options: object) -> None:
        step(machine, *args, **options)
        assert machine.accepted is is_accepted, (args, options)
        machine.the_reference_agrees()

    refused = partial(accepted, is_accepted=False)
    machine.begin()
    machine.the_reference_agrees()
    of = RightsMachine
    refused(of.map_group, "ann", 0, "admin")  # Ann manages roles, but lacks some rights of an admin
    refused(of.map_group, "bob", 1, "member")  # admins do not manage roles
    refused(of.map_group, "owner", 1, "owner")  # the ownership is transferred
    accepted(of.edit_role, "owner", "keeper", EVERYTHING - {"audit.view"}, confirmed=True)  # Ann's mapping stops
    accepted(of.edit_role, "owner", "keeper", EVERYTHING, confirmed=True)  # it does not begin again by itself
    refused(of.map_group, "ann", 1, "auditor")  # Bob is in the group, and an admin by another group
    accepted(of.remove_from_group, None, 1, "bob")
    accepted(of.map_group, "ann", 1, "auditor")
    accepted(of.edit_role, "owner", "keeper", EVERYTHING - {"roles.manage"}, confirmed=True)  # the mapping stops likewise
    accepted(of.edit_role, "owner", "keeper", EVERYTHING, confirmed=True)
    accepted(of.map_group, "ann", 1, "auditor")
    refused(of.edit_role, "ann", "keeper", {*EVERYTHING, "webhooks.manage"}, confirmed=True)  # she lacks the new right
    refused(of.create_role, "ann", "helper", {"groups.manage", "members.view", "webhooks.manage"})  # likewise
    accepted(of.create_role, "ann", "helper", {*OF_MEMBERS, "groups.manage"})
    refused(of.add_to_group, "owner", 0, "dave")  # Dave has not confirmed the membership
    accepted(of.join_or_confirm, "dave", confirmed=True)
    accepted(of.set_role, "owner", "dave", "helper")
    refused(of.set_role, "ann", "bob", "member")  # Bob is an admin by a group
    refused(of.remove, "ann", "bob")  # likewise
    accepted(of.set_role, "owner", "bob", "auditor")
    refused(of.delete_role, "ann", "auditor", "member", confirmed=True)  # likewise
    refused(of.edit_role, "ann", "auditor", set(), confirmed=True)  # likewise
    accepted(of.add_to_group, None, 1, "bob")
    refused(of.map_group, "ann", 1, "helper")  # Bob is in the directory's group
    refused(of.unmap_group, "ann", 1)  # likewise
    accepted(of.set_role, "owner", "bob", "admin")
    refused(of.remove, "bob", "ann")  # by a group, Ann has a right that admins lack
    refused(of.add_to_group, "dave", 0, "dave")  # the group gives a role with rights that Dave lacks
    accepted(of.create_group, "owner", "Gamma2")
    accepted(of.set_app_role_of_group, "owner", "editor", 3, given=True)
    refused(of.add_to_group, "dave", 3, "cleo")  # the group gives an application role
    accepted(of.set_app_role_of_group, "owner", "editor", 3, given=False)
    accepted(of.add_to_group, "dave", 3, "cleo")
    accepted(of.set_policy, "owner", "assigned")
    accepted(of.assign_group, "owner", 3, assigned=True)
    refused(of.add_to_group, "dave", 3, "cleo")  # the group opens the application
    accepted(of.block, "owner", "cleo", blocked=True)
    accepted(of.block, "owner", "cleo", blocked=False)
    accepted(of.map_group, "owner", 3, "keeper")
    accepted(of.add_to_group, "owner", 3, "dave")
    accepted(of.map_group, "dave", 0, "keeper")  # Dave's rights come by the second group, so he may
    refused(of.map_group, "ann", 3, "keeper")  # the two groups would block each other
    accepted(of.remove_from_group, "owner", 0, "ann")  # her mapping of the directory's group stops
    accepted(of.set_active, "dave", active=False)  # his mapping stops, and his groups give nothing
    accepted(of.set_active, "dave", active=True)  # he has to confirm the membership again
    accepted(of.join_or_confirm, "dave", confirmed=True)
    refused(of.delete_role, "owner", "keeper", None, confirmed=True)  # it is held
    accepted(of.delete_role, "owner", "keeper", "helper", confirmed=True)
    accepted(of.leave, "bob")
    accepted(of.set_role, "owner", "ann", "helper")
    accepted(of.edit_role, "owner", "helper", {*OF_MEMBERS, "groups.manage", "roles.manage"}, confirmed=True)
    refused(of.edit_role, "ann", "auditor", {"members.view"}, confirmed=True)  # the role has a right that Ann lacks
    refused(of.delete_role, "ann", "auditor", "member", confirmed=True)  # likewise
    accepted(of.delete_group, "owner", 0)


def reason_of(decision: AccessDecision) -> str:
    """Return the reason as the reference has it."""
    return f"{decision.role} of {decision.group or ''}" if decision.reason is None else decision.reason.value


@pytest.mark.slow
def test_rights_are_those_of_the_reference(conninfo: str) -> None:
    with Background() as background:
        RightsMachine.background, RightsMachine.pool = background, Pool(conninfo, size=2)
        RightsMachine.ports = background.run(make_ports, RightsMachine.pool, FakeClock(), FakeMailTransport(), FakeMetrics())
        try:
            steady = settings(max_examples=8, stateful_step_count=40)
            walk(RightsMachine())
            run_state_machine_as_test(RightsMachine, settings=steady)
        finally:
            background.run(RightsMachine.pool.aclose)

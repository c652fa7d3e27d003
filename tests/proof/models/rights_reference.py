"""Callers' rights in an organization, in plain Python: the reference for users, groups, roles and access policies.

A method for a change returns whether the organization accepts it. Names stand for users, groups and roles.
"""

from dataclasses import dataclass, field

from core.kernel.roles import ROLES

VIEW = "organization.view"
BUILT_IN = {str(name): {str(right) for right in role.rights} for name, role in ROLES.items()}
OF_MEMBERS = BUILT_IN["member"]


@dataclass
class Group:
    name: str
    of_directory: bool
    members: set[str] = field(default_factory=set)
    role: str | None = None
    mapper: str = ""
    stopped: bool = False


@dataclass
class EndUser:
    by_membership: bool
    assigned: bool = False
    signed_in: bool = False


class Organization:
    """An organization with a single application. `groups` have the names in lower case as keys."""

    def __init__(self, name: str, application: str, owner: str) -> None:
        self.name, self.application = name, application
        self.custom: dict[str, set[str]] = {}
        self.own = {owner: "owner"}
        self.confirmed = {owner}
        self.groups: dict[str, Group] = {}
        self.end_users: dict[str, EndUser] = {}
        self.blocked: set[str] = set()
        self.blocked_by_directory: set[str] = set()
        self.policy = "anyone"
        self.assigned_groups: set[str] = set()
        self.permissions: set[str] = set()
        self.app_roles: dict[str, set[str]] = {}
        self.app_users: set[tuple[str, str]] = set()  # role and user
        self.app_groups: set[tuple[str, str]] = set()  # role and group

    # Questions

    def rights_of(self, role: str) -> set[str]:
        return BUILT_IN[role] if role in BUILT_IN else self.custom[role] | {VIEW}

    def giving(self, user: str) -> list[Group]:
        """Return the groups that give the user a role."""
        return [group for group in self.groups.values() if group.role and not group.stopped and user in group.members & self.confirmed]

    def rights(self, user: str) -> set[str]:
        roles = [self.own[user], *(group.role or "" for group in self.giving(user))] if user in self.own else []
        return {right for role in roles for right in self.rights_of(role)}

    def roles(self, user: str) -> list[str]:
        further = {group.role or "" for group in self.giving(user)} - {self.own[user]}
        return [self.own[user], *sorted(further)]

    def is_user(self, user: str) -> bool:
        return user in self.confirmed or user in self.end_users

    def may_use(self, user: str) -> bool:
        if user in self.blocked | self.blocked_by_directory:
            return False
        by_group = self.is_user(user) and any(user in self.groups[name].members for name in self.assigned_groups)
        is_assigned = by_group or (user in self.end_users and self.end_users[user].assigned)
        return {"anyone": True, "members": user in self.own, "assigned": is_assigned}[self.policy]

    def sources(self, user: str) -> list[tuple[str, str, str]]:
        """Return the application roles that the user has: group or empty text, role, and the group's name."""
        by_group = [(key, role, self.groups[key].name) for role, key in self.app_groups if user in self.groups[key].members]
        return sorted([("", role, "") for role, each in self.app_users if each == user] + (by_group if self.is_user(user) else []))

    def decision(self, user: str, permission: str) -> str:
        """Return the decision's reason: the role with the group that gives it, or why there is none."""
        sources = self.sources(user)
        by_group = any(user in self.groups[key].members for _, key in self.app_groups)
        if not sources and user not in self.end_users and not (by_group and user in self.blocked_by_directory):
            return "subject_unknown"
        if not self.is_user(user) or not self.may_use(user):
            return "subject_inactive"
        if permission not in self.permissions:
            return "permission_unknown"
        giving = sorted((bool(key), role, key, name) for key, role, name in sources if permission in self.app_roles[role])
        return f"{giving[0][1]} of {giving[0][3]}" if giving else "role_missing"

    def may(self, by: str, right: str) -> bool:
        return right in self.rights(by)

    def may_give(self, by: str, role: str) -> bool:
        return self.rights_of(role) <= self.rights(by) and role != "owner" and (role == "member" or self.may(by, "roles.manage"))

    def has_power(self, by: str, user: str) -> bool:
        """Return whether `by` may act on the user. Owners and admins keep their power over other owners and admins."""
        theirs = self.rights(user)
        return theirs <= self.rights(by) or (self.own[by] in ("owner", "admin") and theirs <= BUILT_IN.get(self.own[user], set()))

    def has_power_over_group(self, by: str, group: Group) -> bool:
        return all(self.has_power(by, user) for user in group.members & set(self.own))

    def has_power_over_holders(self, by: str, role: str) -> bool:
        giving = [group for group in self.groups.values() if group.role == role and not group.stopped]
        own = all(self.has_power(by, user) for user, each in self.own.items() if each == role)
        return own and all(self.has_power_over_group(by, group) for group in giving)

    def may_map(self, rights: set[str], role: str) -> bool:
        return role != "owner" and "roles.manage" in rights and self.rights_of(role) <= rights

    def founded(self) -> set[str]:
        """Return the groups with a role, which their mapper may give. No group founds itself."""
        founded: set[str] = set()
        while True:
            more = {key for key, group in self.groups.items() if group.role and not group.stopped and self.is_founded(group, founded)}
            if more <= founded:
                return founded
            founded |= more

    def is_founded(self, group: Group, founded: set[str]) -> bool:
        if group.mapper not in self.confirmed or group.role is None:
            return False
        roles = [self.own[group.mapper], *(self.groups[key].role or "" for key in founded if group.mapper in self.groups[key].members)]
        return self.may_map({right for role in roles for right in self.rights_of(role)}, group.role)

    def settle(self) -> bool:
        """Stop the mappings that are no longer founded, after a change."""
        founded = self.founded()
        for key, group in self.groups.items():
            group.stopped = group.stopped or (group.role is not None and key not in founded)
        return True

    # Roles and members

    def create_role(self, by: str, slug: str, rights: set[str]) -> bool:
        if not self.may(by, "roles.manage") or not rights <= self.rights(by) or slug in {*self.custom, *self.app_roles}:
            return False
        self.custom[slug] = rights
        return True

    def is_held(self, slug: str) -> bool:
        return slug in self.own.values() or slug in {group.role for group in self.groups.values()}

    def edit_role(self, by: str, slug: str, rights: set[str], confirmed: bool) -> bool:
        old = self.custom.get(slug)
        if not self.may(by, "roles.manage") or old is None or not old | rights <= self.rights(by):
            return False
        if not old <= rights and not self.has_power_over_holders(by, slug):
            return False
        if self.is_held(slug) and not confirmed and not old <= rights:
            return False
        self.custom[slug] = rights
        return self.settle()

    def delete_role(self, by: str, slug: str, replacement: str | None, confirmed: bool) -> bool:
        if not self.may(by, "roles.manage") or slug not in self.custom or not self.custom[slug] <= self.rights(by) or self.own[by] == slug:
            return False
        if self.is_held(slug) and (not confirmed or replacement is None):
            return False
        if not self.has_power_over_holders(by, slug):
            return False
        new = replacement or "member"
        if new == slug or new not in {**self.custom, **BUILT_IN} or not self.may_give(by, new):
            return False
        self.own = {user: new if role == slug else role for user, role in self.own.items()}
        for group in self.groups.values():
            group.role = new if group.role == slug else group.role
        del self.custom[slug]
        return self.settle()

    def set_role(self, by: str, user: str, role: str) -> bool:
        if not self.may(by, "roles.manage") or user not in self.own or user == by or self.own[user] == "owner":
            return False
        if role not in {**self.custom, **BUILT_IN} or not (self.may_give(by, role) and self.may_give(by, self.own[user])):
            return False
        if not self.has_power(by, user):
            return False
        self.own[user] = role
        return self.settle()

    def end_membership(self, user: str, *, keeps_groups_of_directory: bool = False) -> bool:
        del self.own[user]
        self.confirmed.discard(user)
        self.app_users = {(role, each) for role, each in self.app_users if each != user}
        if user in self.end_users:
            self.end_users[user].assigned = False
            if self.end_users[user].by_membership:
                del self.end_users[user]
        for group in self.groups.values():
            if not (keeps_groups_of_directory and group.of_directory):
                group.members.discard(user)
        return self.settle()

    def remove(self, by: str, user: str) -> bool:
        if not self.may(by, "members.manage") or user not in self.own or user == by or self.own[user] == "owner":
            return False
        return self.has_power(by, user) and self.end_membership(user)

    def leave(self, user: str) -> bool:
        return self.own.get(user, "owner") != "owner" and self.end_membership(user)

    def set_active(self, user: str, active: bool) -> bool:
        """Let the directory deactivate a member, or bring a blocked user back as a member who has to confirm it."""
        if user not in {*self.own, *self.blocked_by_directory} or (self.own.get(user) == "owner" and not active):
            return False
        if active and user in self.blocked_by_directory:
            self.blocked_by_directory.remove(user)
            self.own[user] = "member"
        elif not active and user in self.own:
            self.blocked_by_directory.add(user)
            return self.end_membership(user, keeps_groups_of_directory=True)
        return True

    # Groups

    def create_group(self, by: str | None, name: str) -> bool:
        """Create a group, by a member, or by the directory if `by` is None."""
        taken = {self.name.lower(), *self.groups, *([self.application.lower()] if self.policy == "assigned" else [])}
        if (by is not None and not self.may(by, "groups.manage")) or name.lower() in taken:
            return False
        self.groups[name.lower()] = Group(name, of_directory=by is None)
        return True

    def may_change(self, by: str | None, key: str, user: str | None = None) -> bool:
        """Return whether a member may delete this group, or let the user join or leave it. The directory may change its own groups."""
        group = self.groups.get(key)
        if group is None or group.of_directory != (by is None):
            return False
        if by is None:
            return True
        if not self.may(by, "groups.manage") or (group.role and not self.may_map(self.rights(by), group.role)):
            return False
        return user not in self.own or self.has_power(by, str(user))

    def delete_group(self, by: str | None, key: str) -> bool:
        if not self.may_change(by, key):
            return False
        if by is not None and not (self.rights_given(key) <= self.rights(by) and self.has_power_over_group(by, self.groups[key])):
            return False
        del self.groups[key]
        self.assigned_groups.discard(key)
        self.app_groups = {(role, each) for role, each in self.app_groups if each != key}
        return self.settle()

    def add_to_group(self, by: str | None, key: str, user: str) -> bool:
        is_known = by is None and user in {*self.own, *self.blocked_by_directory}
        if not self.may_change(by, key, user) or not (self.is_user(user) or is_known):
            return False
        if by is not None and not self.rights_given(key) <= self.rights(by):
            return False
        self.groups[key].members.add(user)
        return True

    def rights_given(self, key: str) -> set[str]:
        """Return the rights that changing the group's users asks for: the group gives application roles, or opens the application."""
        gives_roles = any(each == key for _, each in self.app_groups)
        return ({"service_roles.assign"} if gives_roles else set()) | ({"end_users.manage"} if key in self.assigned_groups else set())

    def remove_from_group(self, by: str | None, key: str, user: str) -> bool:
        """Remove a user. Directories can also remove users who are not in the group."""
        if not self.may_change(by, key, user) or (by is not None and user not in self.groups[key].members):
            return False
        if by is not None and not self.rights_given(key) <= self.rights(by):
            return False
        self.groups[key].members.discard(user)
        return self.settle()

    def map_group(self, by: str, key: str, role: str | None) -> bool:
        """Let a group give a role, or none."""
        group, rights = self.groups.get(key), self.rights(by)
        if "roles.manage" not in rights or group is None or (group.role and not self.may_map(rights, group.role)):
            return False
        if role is not None and (role not in {**self.custom, **BUILT_IN} or not self.may_map(rights, role)):
            return False
        if not self.has_power_over_group(by, group):
            return False
        if role is None:
            was_mapped, group.role, group.stopped = group.role is not None, None, False
            return self.settle() and was_mapped
        old = group.role, group.mapper, group.stopped
        group.role, group.mapper, group.stopped = role, by, False
        if key not in self.founded():
            group.role, group.mapper, group.stopped = old
            return False
        return self.settle()

    # The application

    def declare(self, by: str, permissions: set[str], roles: dict[str, set[str]], confirmed: bool) -> bool:
        removed = set(self.app_roles) - set(roles)
        if not self.may(by, "services.manage") or set(roles) & set(self.custom):
            return False
        if not confirmed and removed & {role for role, _ in self.app_users | self.app_groups}:
            return False
        self.permissions, self.app_roles = permissions, roles
        self.app_users = {(role, user) for role, user in self.app_users if role in roles}
        self.app_groups = {(role, key) for role, key in self.app_groups if role in roles}
        return True

    def set_app_role(self, by: str, role: str, user: str, given: bool) -> bool:
        is_possible = self.is_user(user) if given else (role, user) in self.app_users
        if not self.may(by, "service_roles.assign") or role not in self.app_roles or not is_possible:
            return False
        self.app_users = self.app_users | {(role, user)} if given else self.app_users - {(role, user)}
        return True

    def set_app_role_of_group(self, by: str, role: str, key: str, given: bool) -> bool:
        is_possible = key in self.groups and (given or (role, key) in self.app_groups)
        if not self.may(by, "service_roles.assign") or role not in self.app_roles or not is_possible:
            return False
        self.app_groups = self.app_groups | {(role, key)} if given else self.app_groups - {(role, key)}
        return True

    def set_policy(self, by: str, policy: str) -> bool:
        if not self.may(by, "services.manage") or (policy == "assigned" != self.policy and self.application.lower() in self.groups):
            return False
        self.policy = policy
        return True

    def assign(self, by: str, user: str) -> bool:
        if not self.may(by, "end_users.manage") or not self.is_user(user):
            return False
        end_user = self.end_users.setdefault(user, EndUser(by_membership=user in self.own))
        if not end_user.assigned:
            end_user.by_membership, end_user.assigned = end_user.by_membership and user in self.own, True
        return True

    def unassign(self, by: str, user: str) -> bool:
        """End an assignment. A user who never signed in is the application's user no longer."""
        if not self.may(by, "end_users.manage") or user not in self.end_users or not self.end_users[user].assigned:
            return False
        self.end_users[user].assigned = False
        if not self.end_users[user].signed_in:
            del self.end_users[user]
            if user not in self.confirmed:
                self.app_users = {(role, each) for role, each in self.app_users if each != user}
            if user not in {*self.own, *self.blocked_by_directory}:
                for group in self.groups.values():
                    group.members.discard(user)
        return True

    def assign_group(self, by: str, key: str, assigned: bool) -> bool:
        is_possible = key in self.groups if assigned else key in self.assigned_groups
        if not self.may(by, "end_users.manage") or not is_possible:
            return False
        self.assigned_groups = self.assigned_groups | {key} if assigned else self.assigned_groups - {key}
        return True

    def sign_in(self, user: str) -> bool:
        if not self.may_use(user):
            return False
        end_user = self.end_users.setdefault(user, EndUser(by_membership=False))
        end_user.by_membership, end_user.signed_in = False, True
        return True

    def block(self, by: str, user: str, blocked: bool) -> bool:
        if not self.may(by, "end_users.manage"):
            return False
        if not blocked:
            was_blocked = user in self.blocked
            self.blocked.discard(user)
            return was_blocked or user in self.end_users
        if user not in self.end_users or (user in self.own and not (self.has_power(by, user) and self.rights(user) <= OF_MEMBERS)):
            return False
        self.blocked.add(user)
        return True

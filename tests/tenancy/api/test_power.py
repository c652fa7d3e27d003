"""What an organization may do with accounts: a single table for all pairs of account and action (security C-5, K-4, R-5, Y-1, Y-2).

All accounts are confirmed members and use the organization's service.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from core.kernel.api_scopes import ApiScope
from core.kernel.roles import ADMIN, MEMBER, ROLES, Capability, RoleName
from core.provisioning.model.users import MemberAboveDirectory
from core.tenancy.model.members import MemberHasMoreRights
from tests.support.builders import Answer, add_account, add_member, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import add_service_account
from tests.support.scim import Directory, directory_of
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant

# Who created the account, who else uses it, and the effect of every action by the organization:
#   account     the whole account is anonymized, deactivated or deleted
#   membership  only the membership, or only the use of the service, ends
#   part        the export has the part that belongs to the organization
#   -           the action is refused, and changes nothing
# "elsewhere" stands for every kind of use by other organizations, "unused" for none.
POWER: Final = """
created by    used by          forget      export  deactivate  delete      key
user          unused           account     part    membership  membership  membership
scim          unused           account     part    account     account     account
api_key       unused           account     part    account     account     account
sign_up       unused           account     part    account     account     account
user          elsewhere        -           part    membership  membership  membership
scim          elsewhere        -           part    membership  membership  membership
api_key       elsewhere        -           part    membership  membership  membership
sign_up       elsewhere        -           part    membership  membership  membership
user          platform         -           part    -           -           membership
scim          platform         -           part    -           -           membership
"""
ELSEWHERE: Final = ("member", "end user", "subscriber")
ACTIONS: Final = ("forget", "export", "deactivate", "delete", "key")


def rows() -> list[tuple[str, str, dict[str, str]]]:
    """Return the table's rows, with a row per kind of use elsewhere."""
    parsed = []
    for line in POWER.strip().splitlines()[1:]:
        creator, use, *effects = line.split()
        uses = {"elsewhere": ELSEWHERE, "unused": ("unused", "blocked"), "platform": ("platform",)}[use]
        parsed += [(creator, kind, dict(zip(ACTIONS, effects, strict=True))) for kind in uses]
    return parsed


class Accounts:
    """Adds an organization's accounts that are also used elsewhere."""

    def __init__(self, acme: Tenant, other: Tenant, service: UUID, other_service: UUID, plan: UUID) -> None:
        self.acme, self.other = acme, other
        self.service, self.other_service, self.plan = service, other_service, plan

    async def add(self, email: str, creator: str, use: str) -> UUID:
        pool, ports = self.acme.pool, self.acme.ports
        created = await add_account(ports, email, None)
        if creator != "user":
            await run_sql(pool, "update users set origin = %s, origin_org_id = %s where id = %s", creator, self.acme.org, created.id)
        if use == "platform":
            await run_sql(pool, "update users set is_platform_owner = true where id = %s", created.id)
        await add_member(pool, self.acme.org, created.id, confirmed=True)
        await add_service_user(ports, self.service, created.id)
        match use:
            case "member":
                await add_member(pool, self.other.org, created.id)
            case "end user":
                await add_service_user(ports, self.other_service, created.id)
            case "subscriber":
                ends = ports.clock.now() + timedelta(days=1)
                await add_subscription(ports, pool, self.other_service, created.id, self.plan, ends=ends)
            case "blocked":
                await run_sql(pool, "insert into directory_blocks values (%s, %s, now())", self.other.org, created.id)
        return created.id


async def act(acme: Tenant, directory: Directory, key: str, action: str, user_id: UUID) -> int:
    match action:
        case "forget":
            return (await acme.api.delete(f"/api/privacy/forget/{user_id}", token=acme.token("owner"))).status
        case "export":
            return (await acme.api.get(f"/api/privacy/export/{user_id}", token=acme.token("owner"))).status
        case "deactivate":
            return (await directory.deactivate(user_id)).status
        case "delete":
            return (await directory.delete(user_id)).status
        case _:
            return (await acme.api.delete(f"/api/service/users/{user_id}", headers={"X-API-Key": key})).status


async def effect(acme: Tenant, user_id: UUID, service: UUID) -> str:
    [(is_open, is_member, is_user)] = await run_sql(
        acme.pool,
        """
        select exists (select 1 from users where id = p.user_id and deactivated_at is null and anonymized_at is null),
               exists (select 1 from memberships where org_id = p.org_id and user_id = p.user_id),
               exists (select 1 from service_users where service_id = p.service_id and user_id = p.user_id)
        from (values (%s::uuid, %s::uuid, %s::uuid)) p (user_id, org_id, service_id)""",
        user_id,
        acme.org,
        service,
    )
    if not is_open:
        return "account"
    return "-" if is_member and is_user else "membership"


async def test_an_organization_has_power_only_over_accounts_that_it_created_and_others_do_not_use(
    acme: Tenant, other_tenant: Tenant
) -> None:
    directory = await directory_of(acme)
    service, other_service = await add_service(acme.pool, acme.org), await add_service(acme.pool, other_tenant.org)
    accounts = Accounts(acme, other_tenant, service, other_service, await add_plan(acme.pool, other_service))
    key = await add_api_key(acme.pool, service)
    await acme.set_member_limit(1000)
    differences = []
    for number, (creator, use, effects) in enumerate(rows()):
        for action, expected in effects.items():
            user_id = await accounts.add(f"{action}-{number}@example.com", creator, use)
            status = await act(acme, directory, key, action, user_id)
            actual = await effect(acme, user_id, service)
            if action == "export":
                actual = "part" if (status, actual) == (200, "-") else actual
            if actual != expected or (status == 403) is not (expected == "-"):
                differences.append((creator, use, action, expected, actual, status))
    assert differences == []


# Who created an API key, and what happens if the key deletes an account that the organization created, by the member's role. With "!", the
# key may not change the member: it is refused with 403.
POWER_OF_KEYS: Final = """
created by     member       admin        lead
owner          account      account      account
admin          account      account      membership!
manager        account      membership!  membership!
keeper         membership   membership!  membership!
robot          account      account      membership!
bare-robot     membership   membership   membership!
former-member  membership   membership!  membership!
"""


async def add_people(acme: Tenant) -> dict[str, UUID]:
    """Add the roles and the keys' creators, and return the creators' ids. A lead has a right that admins lack."""
    keeper = [*ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW}, "api_keys.manage", "end_users.manage"]
    for slug, rights in (("keeper", keeper), ("manager", [*keeper, "members.manage"]), ("lead", ["members.view", "roles.manage"])):
        body = {"slug": slug, "name": slug.title(), "capabilities": rights}
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    owner = acme.people["owner"].id
    creators = {name: acme.people[name].id for name in ("owner", "admin")}
    for name in ("keeper", "manager"):
        account = await add_account(acme.ports, f"{name}@acme.example", None)
        await acme.join(name, account, RoleName(name))
        creators[name] = account.id
    creators["robot"] = await add_service_account(acme.pool, acme.org, owner, granted=["members.manage", "end_users.manage"])
    creators["bare-robot"] = await add_service_account(acme.pool, acme.org, owner, granted=["end_users.manage"])
    creators["former-member"] = (await add_account(acme.ports, "former@acme.example", None)).id
    return creators


async def add_target(acme: Tenant, service: UUID, role: str, email: str) -> UUID:
    """Add a member with an account that the organization created, who uses the service."""
    account = await add_account(acme.ports, email, None)
    await run_sql(acme.pool, "update users set origin = 'scim', origin_org_id = %s where id = %s", acme.org, account.id)
    await acme.join(email, account, RoleName(role))
    await add_service_user(acme.ports, service, account.id)
    return account.id


def refused(answer: Answer, text: str | None) -> bool:
    """Return whether the answer refuses with this text. Any answer but a refusal is a success."""
    assert answer.status < 300 or (answer.status == 403 and text is not None and text in answer.text), answer.text
    return answer.status == 403


async def test_a_key_ends_and_changes_a_member_only_with_the_power_of_its_creator(acme: Tenant) -> None:
    creators, service = await add_people(acme), await add_service(acme.pool, acme.org)
    await acme.set_member_limit(1000)
    attribute = {"name": "team", "label": "Team", "kind": "text", "writers": ["application"]}
    assert (await acme.api.post(f"{acme.path}/attributes", attribute, token=acme.token("owner"))).status == 201
    differences = []
    _, *lines = POWER_OF_KEYS.strip().splitlines()
    for creator, *effects in map(str.split, lines):
        headers = {"X-API-Key": await add_api_key(acme.pool, service, by=creators[creator])}
        for role, expected in zip(("member", "admin", "lead"), effects, strict=True):
            user_id = await add_target(acme, service, role, f"{creator}-{role}@example.com")
            path = f"/api/service/users/{user_id}"
            changed = await acme.api.patch(f"{path}/attributes", {"values": {"team": "Core"}}, headers=headers)
            mark = "!" if refused(changed, MemberHasMoreRights.__doc__) else ""
            moved = await acme.api.patch(path, {"email": f"new-{creator}-{role}@example.com"}, headers=headers)
            assert moved.status == (200 if role == "member" else 403), moved.text
            assert (await acme.api.delete(path, headers=headers)).status == 204
            actual = await effect(acme, user_id, service) + mark
            if actual != expected:
                differences.append((creator, role, expected, actual))
    assert differences == []


async def test_a_token_creates_a_key_that_deletes_members_only_with_the_scope_for_members(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org, "shop")
    keys, body = f"{acme.path}/services/shop/api-keys", {"name": "CI", "permissions": ["delete:users"]}
    statuses = []
    of_users = (ApiScope.API_KEYS_WRITE, ApiScope.END_USERS_WRITE)
    for scopes in (of_users, (*of_users, ApiScope.MEMBERS_WRITE)):
        token = await add_personal_token(acme.ports, acme.people["admin"], acme.org, scopes)
        statuses.append((await acme.api.post(keys, body, token=token.text)).status)
    assert statuses == [403, 201]


async def test_a_directory_changes_no_member_with_rights_that_an_admin_and_its_creator_lack(acme: Tenant) -> None:
    await add_people(acme)
    await acme.set_member_limit(1000)
    service = await add_service(acme.pool, acme.org)
    text = MemberAboveDirectory.__doc__
    for by, protected in (("admin", {"lead"}), ("owner", set[str]())):
        directory = await directory_of(acme, by)
        for role in ("member", ADMIN, "lead"):
            user_id, other_id = [await add_target(acme, service, role, f"{by}-{role}-{number}@example.com") for number in range(2)]
            answers = [
                await directory.patch(user_id, {"op": "replace", "path": "displayName", "value": "Renamed"}),
                await directory.deactivate(user_id),
                await directory.delete(user_id),
                await directory.remove_member(other_id),
            ]
            assert [refused(answer, text if role in protected else None) for answer in answers] == [role in protected] * 4
            if role in protected:
                kept = {UUID(each) for each in await directory.group_member_ids()} - {other_id}
                assert (await directory.put_group(*kept)).status == 200
                assert str(other_id) in await directory.group_member_ids(), "leaving a member out does not remove them"

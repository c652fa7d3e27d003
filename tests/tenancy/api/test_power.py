"""What an organization may do with accounts: one table for all pairs of account and action (security C-5, K-4, R-5, Y-1, Y-2).

Each account is a confirmed member of the organization and a user of its service.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from tests.support.builders import add_account, add_member, run_sql
from tests.support.scim import Directory, directory_of
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant

# Who created the account, who else uses it, and the effect of each action of the organization:
#   account     the whole account is anonymized, deactivated or deleted
#   membership  only the membership, or only the use of the service, ends
#   part        the export has the part that belongs to the organization
#   -           the action is refused, and changes nothing
# "elsewhere" stands for each kind of use by other organizations, "unused" for none.
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
    """Return the rows of the table, with one row for each kind of use elsewhere."""
    parsed = []
    for line in POWER.strip().splitlines()[1:]:
        creator, use, *effects = line.split()
        uses = {"elsewhere": ELSEWHERE, "unused": ("unused", "blocked"), "platform": ("platform",)}[use]
        parsed += [(creator, kind, dict(zip(ACTIONS, effects, strict=True))) for kind in uses]
    return parsed


class Accounts:
    """Adds accounts of an organization that are used by others."""

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

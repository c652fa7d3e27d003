"""Service accounts of organizations and of the platform."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.accounts.accounts_rules import AccountSummary
from core.kernel.api_scopes import ApiScope
from core.kernel.principals import Capability, MembershipState, OrganizationStatus, Role
from core.programs.service_accounts_rules import ServiceAccountContext

# The owner could create the account `a` now (`service_accounts_rules.may_manage`).
OWNER_MAY_OWN: Final = """
    exists (
        select 1 from users u left join memberships m on m.org_id = a.org_id and m.user_id = u.id
        where u.id = a.owner_id and u.deactivated_at is null and u.anonymized_at is null
          and case when a.org_id is null then u.is_platform_owner
              else m.role = 'owner' or m.role = 'admin' and a.role in ('admin', 'member') end)"""
# In the order of the fields of `AccountSummary`.
SUMMARY: Final = "a.id, 'service-account@internal', false, a.created_at"  # the text is SERVICE_ACCOUNT_EMAIL
CREDENTIAL_IS_LIVE: Final = "c.client_id = a.id and (c.expires_at is null or c.expires_at > %(now)s)"


def _scopes(names: list[str] | None) -> frozenset[ApiScope] | None:
    return None if names is None else frozenset(ApiScope(name) for name in names)


def to_context(row: Row) -> ServiceAccountContext:
    name, org_id, role, scopes, granted, id_, slug, status = row
    own_role = None if role is None else Role(role)
    acts_in = None if id_ is None else MembershipState(id_, slug, OrganizationStatus(status), own_role if id_ == org_id else None)
    return ServiceAccountContext(name, org_id, own_role, _scopes(scopes), frozenset(Capability(right) for right in granted), acts_in)


class ServiceAccounts(Repository):
    """Implements `ports.storage.programs.ServiceAccounts`."""

    async def load_context(self, account_id: UUID, credential_id: UUID, slug: str | None, now: datetime) -> ServiceAccountContext | None:
        return await self._one(
            to_context,
            f"""
            select a.name, a.org_id, a.role, a.scopes, a.granted, o.id, o.slug, o.status
            from service_accounts a
            join credentials c on c.id = %(credential_id)s and {CREDENTIAL_IS_LIVE}
            left join organizations o on o.slug = %(slug)s
            where a.id = %(account_id)s and {OWNER_MAY_OWN}""",
            account_id=account_id,
            credential_id=credential_id,
            slug=slug,
            now=now,
        )

    async def summary(self, org_id: UUID, account_id: UUID) -> AccountSummary | None:
        return await self._one(
            lambda row: AccountSummary(str(row[0]), *row[1:]),
            f"select {SUMMARY} from service_accounts a where a.org_id = %(org_id)s and a.id = %(account_id)s",
            org_id=org_id,
            account_id=account_id,
        )

    async def lock_live(self, org_id: UUID | None, account_id: UUID, credential_id: UUID) -> Role | None:
        return await self._one(
            lambda row: Role(row[0] or Role.OWNER),
            f"""
            select a.role from service_accounts a
            join credentials c on c.id = %(credential_id)s and c.client_id = a.id
            where a.id = %(account_id)s and a.org_id is not distinct from %(org_id)s and {OWNER_MAY_OWN}
            for share of a, c""",
            org_id=org_id,
            account_id=account_id,
            credential_id=credential_id,
        )

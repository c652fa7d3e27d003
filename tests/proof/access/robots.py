"""Service accounts among the callers: their rights, and the tokens with which they call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.access import allowed_scopes
from core.kernel.api_scopes import ApiScope
from core.kernel.claims import ProgramClaims
from core.kernel.roles import Capability, RoleName, find_role, rights_of
from core.kernel.values import digest, new_id
from core.programs.model.service_accounts import grantable_capabilities, rights_of_account
from core.tenancy.model.organizations import Organization
from ports import Ports
from tests.support.builders import run_sql
from tests.support.programs import add_service_account

NARROW: Final = frozenset({ApiScope.MEMBERS_READ})
NARROW_ON_PLATFORM: Final = frozenset({ApiScope.PLATFORM_USERS_READ})
PLATFORM_SCOPES: Final = frozenset(scope for scope in ApiScope if scope.area.is_of_platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class Robot:
    """A service account that calls. `org_id` and `role` are None on the platform."""

    id: UUID
    token: str = field(repr=False)
    org_id: UUID | None
    role: RoleName | None
    scopes: frozenset[ApiScope]
    granted: frozenset[Capability]
    is_live: bool = True


async def add_robot(
    ports: Ports,
    pool: Pool,
    organization: Organization | None,
    owner: Account,
    role: RoleName | None,
    *,
    scopes: frozenset[ApiScope] | None = None,
    granted: bool = False,
    is_live: bool = True,
    revoked: bool = False,
) -> Robot:
    """Add a service account with a secret, which has all grants or none. `revoked`: its credential is gone."""
    org_id, slug = (None, "platform") if organization is None else (organization.id, organization.slug)
    rights = frozenset(grantable_capabilities(rights_of_account(find_role(role)))) if granted else frozenset()
    name = f"{slug.title()} {role or 'platform'} Robot {'with grants' if granted else ''}{len(scopes or ())}{is_live}{revoked}"
    account = await add_service_account(pool, org_id, owner.id, role, scopes=scopes, granted=sorted(rights), name=name)
    credential = UUID(await add_secret(pool, org_id, slug, account, name))
    if revoked:
        await run_sql(pool, "delete from credentials where id = %s", credential)
    of_token = scopes if scopes is not None else PLATFORM_SCOPES if role is None else frozenset(allowed_scopes(rights_of(role), None))
    now = ports.clock.now()
    claims = ProgramClaims(
        client_id=account,
        credential_id=credential,
        token_id=new_id(),
        issued_at=now,
        expires_at=now + timedelta(minutes=15),
        audience=ports.tokens.api_audience,
        scope=tuple(of_token),
        org="" if organization is None else slug,
        org_id=org_id,
    )
    token = ports.tokens.sign_program(claims)
    return Robot(id=account, token=token, org_id=org_id, role=role, scopes=of_token, granted=rights, is_live=is_live and not revoked)


async def add_secret(pool: Pool, org_id: UUID | None, slug: str, client_id: UUID, name: str) -> str:
    """Add a secret to a service account or an API resource. Return the credential's id."""
    credential = new_id()
    await run_sql(
        pool,
        """
        insert into credentials (id, client_id, org_id, kind, name, hint, secret_hash, created_by, created_at)
        values (%s, %s, %s, 'secret', %s, %s, %s, %s, now())""",
        credential,
        client_id,
        org_id,
        f"Secret of {name} of {slug.title()}",
        f"gthc_{slug}{name}",
        digest(f"secret of {name} of {slug}"),
        client_id,
    )
    return str(credential)


async def add_organization_account(pool: Pool, organization: Organization, owner: Account) -> Mapping[str, str]:
    """Add a service account that users manage. Return its things."""
    account = await add_service_account(pool, organization.id, owner.id, name=f"{organization.slug.title()} Robot")
    return {
        "account_id": str(account),
        "account_name": f"{organization.slug.title()} Robot",
        "credential_id": await add_secret(pool, organization.id, organization.slug, account, "Robot"),
    }


async def add_platform_account(pool: Pool, owner: Account) -> Mapping[str, str]:
    """Add a platform service account that platform owners manage. Return its things."""
    account = await add_service_account(pool, None, owner.id, name="Platform Robot")
    return {"platform_account_id": str(account), "platform_credential_id": await add_secret(pool, None, "platform", account, "Robot")}

"""The grants of applications with OpenID Connect, and the facts for their claims."""

from typing import Final, LiteralString

from adapters.postgres.accounts.accounts import to_profile
from adapters.postgres.billing.subscriptions import entitlement, to_entitlement
from adapters.postgres.engine.statements import Row
from core.authentication.openid_rules import OpenIdGrant, RequestedClaims, Scope, UserFacts
from core.authentication.sessions_rules import NO_ENTITLEMENT
from core.kernel.principals import Role
from core.kernel.values import Email

# The columns of a grant, in the order of `to_grant`. Sessions and authorization codes have them.
GRANT: Final = "scope, id_token_claims, userinfo_claims, resource"
GRANT_WIDTH: Final = 4


def grant_columns(alias: LiteralString) -> LiteralString:
    """Return the columns of GRANT of this table."""
    return f"{alias}.scope, {alias}.id_token_claims, {alias}.userinfo_claims, {alias}.resource"


def grant_parameters(grant: OpenIdGrant | None) -> dict[str, object]:
    """Return the parameters with the names of GRANT."""
    if grant is None:
        return {"scope": None, "id_token_claims": None, "userinfo_claims": None, "resource": None}
    return {
        "scope": list(grant.scope),
        "id_token_claims": list(grant.claims.id_token) or None,
        "userinfo_claims": list(grant.claims.userinfo) or None,
        "resource": grant.resource,
    }


def to_scope(names: list[str] | None) -> tuple[Scope, ...]:
    """Return the scopes in a column, which is null without OpenID Connect."""
    return tuple(Scope(name) for name in names or ())


def to_grant(row: Row) -> OpenIdGrant | None:
    """Return the grant in the columns of GRANT, or None if the application did not ask for OpenID Connect."""
    if row[0] is None:
        return None
    return OpenIdGrant(to_scope(row[0]), RequestedClaims(tuple(row[1] or ()), tuple(row[2] or ())), row[3])


# The facts about a user at a service, in the order of `to_user_facts`: of the user `u`, the
# organization `vo` of the service, the membership `m` and the entitlement `n`.
USER_FACTS: Final = (
    "u.email, u.email_verified_at is not null, u.name, u.picture, u.locale, u.zoneinfo, u.profile_details, "
    "coalesce(u.profile_changed_at, u.created_at), vo.slug, vo.id, vo.name, m.role, coalesce(v.id_token_claims, true) as in_id_token, "
    "n.name as plan, n.status, n.features"
)


def user_facts_sql(user_id: LiteralString, service_id: LiteralString) -> LiteralString:
    """Return a query for the facts about this user at this service, which may be null."""
    return f"""
        select {USER_FACTS}
        from users u left join (services v join organizations vo on vo.id = v.org_id) on v.id = {service_id}
        left join memberships m on m.org_id = v.org_id and m.user_id = u.id
        left join lateral ({entitlement("v.id", "u.id")}) n on true
        where u.id = {user_id}"""


def to_user_facts(row: Row) -> UserFacts:
    return UserFacts(
        email=Email(row[0]),
        email_verified=row[1],
        profile=to_profile(row[2:7]),
        updated_at=row[7],
        org=row[8] or "",
        org_id=row[9],
        org_name=row[10] or "",
        role=None if row[11] is None else Role(row[11]),
        scopes_in_id_token=row[12],
        entitlement=NO_ENTITLEMENT if row[13] is None else to_entitlement(row[13:]),
    )

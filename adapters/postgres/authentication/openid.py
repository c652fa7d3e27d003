"""The grants that OpenID Connect applications have, and the facts for their claims."""

from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import PROFILE
from adapters.postgres.applications.plans import ENTITLEMENT, entitlement
from adapters.postgres.applications.service_access import may_use_resource
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.roles import to_array
from adapters.postgres.programs.api_resources import is_active
from core.applications.model.services import DOCUMENT_USABLE_FOR
from core.authentication.model import openid
from core.kernel.proofs import Acr
from core.kernel.values import Email
from core.programs.model.client_policy import USER_SCOPES
from core.tenancy.model import attributes

STORED_WIDTH: Final = 8  # columns in `stored_grant`
GRANT_WIDTH: Final = STORED_WIDTH + 1  # the columns that `to_grant` reads


def stored_grant(alias: LiteralString) -> LiteralString:
    """Return a grant's stored columns. Sessions and authorization codes have these columns."""
    return (
        f"{alias}.scope, {alias}.id_token_claims, {alias}.userinfo_claims, {alias}.resource, {alias}.api_resource_id, {alias}.api_scope, "
        f"{alias}.asked_scope, {alias}.asked_acr"
    )


def grant_columns(alias: LiteralString) -> LiteralString:
    """Return a grant's columns, in the order of `to_grant`. The row has a user, a service, its organization and a time."""
    return f"{stored_grant(alias)}, {resource_facts(alias, f'{alias}.user_id')}"


# The OpenID Connect scopes that an API resource `ar` no longer gives external clients by its policy, as a single text.
_DROPPED_SCOPES: Final = f"""
    (select string_agg(d.name, ' ') from unnest({to_array(USER_SCOPES)}) d (name)
     where d.name <> all(ar.external_scopes) and exists (select from services x where x.id = ac.service_id and x.client_uri is not null))"""
# Whether external clients get the scope `u.name` at an API resource `ar`, also if another scope implies it. For
# registered applications `ac`, the condition is true.
IS_ADMITTED_SCOPE: Final = """
    (ar.external_scopes is null
     or not exists (select from services x where x.id = ac.service_id and x.client_uri is not null)
     or u.name in (
         with recursive admitted (name) as (
             select unnest(ar.external_scopes)
             union select jsonb_array_elements_text(ar.scope_implications -> a.name) from admitted a)
         select name from admitted))"""


def resource_facts(alias: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return SQL for an array: the granted API resource's token lifetime, dropped OpenID Connect scopes, and own scopes.

    The own scopes are granted, and the API resource still has them. An external client keeps only scopes that the
    policy gives.

    The array is null without an API resource, and if the API resource is not usable now, as in `resource_is_usable`.
    """
    scope: LiteralString = f"""
        select u.name from unnest(ar.scope_names) with ordinality u (name, position)
        where u.name = any({alias}.api_scope) and {IS_ADMITTED_SCOPE} order by u.position"""
    return f"""
        case when {alias}.api_resource_id is not null then (
            select array[ar.token_seconds::text, coalesce({_DROPPED_SCOPES}, '')] || array({scope})
            {_usable_resource(alias, user_id)}) end"""


# Whether the external client `ac` may act for the user `{user_id}` by a grant that began at `{began_at}`. True for registered applications.
# A grant from before the policy admitted the client again stays ended: otherwise a single user's first sign-in would bring all users'
# tokens back. The user has agreed to how the client authenticates now: otherwise a user who agrees to a client without keys would take the
# keys from all users' tokens. The client's document is not gone, as in `external_clients.check_document`.
IS_AGREED_CLIENT: Final = f"""
    not exists (
        select from services x where x.id = ac.service_id and x.client_uri is not null and (
            {{began_at}} < ac.created_at
            or x.document_failing_since + make_interval(secs => {DOCUMENT_USABLE_FOR.total_seconds():.0f}) <= x.document_failed_at
            or not exists (
                select from consents k where k.user_id = {{user_id}} and k.service_id = x.id
                  and k.client_authentication = x.client_authentication)))"""


def resource_is_usable(alias: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this row's grant has no API resource, or an API resource that is usable now.

    The application must be its client, the user must have access to it, and the organization must have its identifier's
    host.
    """
    return f"({alias}.api_resource_id is null or exists (select 1 {_usable_resource(alias, f'{alias}.user_id')}))"


def _usable_resource(alias: LiteralString, user_id: LiteralString) -> LiteralString:
    agreed = IS_AGREED_CLIENT.format(user_id=user_id, began_at=f"{alias}.created_at")
    return f"""
        from api_resources ar join api_resource_clients ac on ac.resource_id = ar.id and ac.service_id = {alias}.service_id
        where ar.id = {alias}.api_resource_id and ar.org_id = {alias}.org_id
          and {is_active("ar")} and {may_use_resource("ar", user_id)} and {agreed}"""


def grant_parameters(grant: openid.OpenIdGrant | None) -> dict[str, object]:
    """Return the parameters named like the columns in `stored_grant`."""
    if grant is None:
        grant = openid.NO_GRANT
    return {
        "scope": list(grant.scope) or None,
        "id_token_claims": list(grant.claims.id_token) or None,
        "userinfo_claims": list(grant.claims.userinfo) or None,
        "resource": grant.resource,
        "api_resource_id": None if grant.api is None else grant.api.id,
        "api_scope": None if grant.api is None else list(grant.api.scope),
        "asked_scope": None if grant.asked is None else list(grant.asked),
        "asked_acr": list(grant.acr) or None,
    }


def to_scope(names: list[str] | None, facts: list[str] | None = None) -> tuple[openid.Scope, ...]:
    """Return the scopes in the column `scope`, which is null without OpenID Connect.

    `facts` are about the API resource. Scopes that the API resource's policy has dropped are left out.
    """
    dropped = () if facts is None else facts[1].split()
    return tuple(openid.Scope(name) for name in names or () if name not in dropped)


def to_grant(row: statements.Row) -> openid.OpenIdGrant | None:
    """Return the grant in the columns from `grant_columns`, or None if the application sent no authorization request."""
    scope, id_token_claims, userinfo_claims, resource, api_id, api_scope, asked, acr, facts = row[:GRANT_WIDTH]
    if scope is None and api_id is None and asked is None:
        return None
    api = None
    if api_id is not None:
        api = (
            openid.ResourceGrant(api_id, tuple(api_scope), None)
            if facts is None
            else openid.ResourceGrant(api_id, tuple(facts[2:]), int(facts[0]))
        )
    claims = openid.RequestedClaims(tuple(id_token_claims or ()), tuple(userinfo_claims or ()))
    known_acr = tuple(name for name in Acr if name in (acr or ()))  # a later release may have further values
    return openid.OpenIdGrant(to_scope(scope, facts), claims, resource, api, None if asked is None else tuple(asked), acr=known_acr)


def asks_for_groups(alias: LiteralString) -> LiteralString:
    """Return an SQL condition: a grant has the scope for groups, or a claims parameter that names them."""
    return f"'groups' = any({alias}.scope || {alias}.id_token_claims || {alias}.userinfo_claims)"


def further_sql(with_groups: LiteralString) -> LiteralString:
    """Return SQL for the further facts that the application needs, as JSON, or null if it needs none.

    If the application needs no further facts, nothing is read.

    The further facts are for the claims document, roles and permissions, and for the roles that the organization's groups give. Groups are
    among them if the condition `with_groups` is true.
    """
    return f"""
        case when v.claims_version is not null or v.authorization_version > 0 or vo.maps_groups or {with_groups}
             then application_facts(v.id, u.id, coalesce({with_groups}, false), false) end"""


ALL_FURTHER: Final = "application_facts(v.id, u.id, true, true)"


def _to_further(row: statements.Row) -> openid.FurtherFacts:
    facts = row[0]
    if facts is None:
        return openid.NO_FURTHER_FACTS
    return openid.FurtherFacts(
        document=facts["document"],
        attributes=_to_attributes(*facts["attributes"] or (None, None, None)),
        directory=facts["directory"] or {},
        further_roles=tuple(facts["further_roles"] or ()),
        app_roles=tuple(facts["app_roles"] or ()),
        permissions=tuple(facts["permissions"] or ()),
        groups=tuple(openid.GroupFact(UUID(id_), *others) for id_, *others in facts["groups"] or ()),
    )


def _to_attributes(own: dict[str, Any] | None, of_groups: list[dict[str, Any]] | None, merges: dict[str, str] | None) -> dict[str, Any]:
    rules = {name: attributes.AttributeMerge(merge) for name, merge in (merges or {}).items()}
    return attributes.effective_values(own or {}, rules, of_groups or ())


def user_facts(further: LiteralString) -> records.Record[openid.UserFacts]:
    """Return the record with the facts about the user `u` at a service: from its organization `vo`, membership `m` and entitlement `n`.

    `further` is ALL_FURTHER, or the SQL from `further_sql`.
    """
    return records.Record(
        openid.UserFacts,
        "u",
        email=Email,
        email_verified="u.email_verified_at is not null",
        profile=PROFILE,
        updated_at="coalesce(u.profile_changed_at, u.created_at)",
        org="coalesce(vo.slug, '')",
        org_id="vo.id",
        org_name="coalesce(vo.name, '')",
        role="m.role",
        user_id="u.id",
        scopes_in_id_token="coalesce(v.id_token_claims, true)",  # noqa: S106  (a column)
        entitlement=ENTITLEMENT.as_field(),
        further=records.Columns(further, 1, _to_further),
    )


# For a session `s`. Every record from `user_facts` has the same width and reader.
USER_FACTS: Final = user_facts(further_sql(asks_for_groups("s")))
ALL_USER_FACTS: Final = user_facts(ALL_FURTHER)


def user_facts_sql(
    user_id: LiteralString,
    service_id: LiteralString,
    record: records.Record[openid.UserFacts] = USER_FACTS,
    condition: LiteralString = "true",
) -> LiteralString:
    """Return a query for the facts about this user at this service, which may be null.

    The query has no row unless the condition is true.
    """
    return f"""
        select {record.columns}
        from users u left join (services v join organizations vo on vo.id = v.org_id) on v.id = {service_id}
        left join memberships m on m.org_id = v.org_id and m.user_id = u.id
        left join lateral ({entitlement("v.id", "u.id")}) n on true
        where u.id = {user_id} and {condition}"""


# Facts for an ID token, if the session uses OpenID Connect and the application wants them there.
FACTS: Final = user_facts(further_sql("%(with_groups)s"))
FACTS_OF_USER: Final = user_facts_sql("%(user_id)s", "%(service_id)s", FACTS)
ALL_FACTS_OF_USER: Final = user_facts_sql("%(user_id)s", "%(service_id)s", ALL_USER_FACTS)


class OpenIdFacts(statements.Repository):
    """Implements `ports.storage.authentication.sessions.OpenIdFacts`."""

    async def load_all(self, user_id: UUID, service_id: UUID, now: datetime) -> openid.UserFacts | None:
        return await self._one(ALL_USER_FACTS.read, ALL_FACTS_OF_USER, user_id=user_id, service_id=service_id, now=now)

    def load(
        self, user_id: UUID, service_id: UUID | None, now: datetime, *, with_groups: bool
    ) -> statements.Answer[openid.UserFacts | None]:
        return self._one(FACTS.read, FACTS_OF_USER, user_id=user_id, service_id=service_id, with_groups=with_groups, now=now)

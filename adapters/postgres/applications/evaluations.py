"""The facts that decide whether a subject has a permission at an application."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.api_keys import API_KEY_RECORD, KEY_IS_LIVE
from adapters.postgres.applications.role_assignments import role_sources
from adapters.postgres.applications.service_access import is_blocked, is_of_organization, may_use
from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.engine import statements
from core.applications.model import evaluation
from core.applications.model.api_keys import ApiKeyRecord
from core.kernel.callers import ServiceContext

# The user with a userName in the organization's directory, as SCIM has it: the stored userName, or else the address. An
# address counts only if its user has proved it, or a user could take another user's place.
BY_USER_NAME: Final = """
    select s.user_id from scim_users s where s.org_id = v.org_id and lower(s.user_name) = lower(q.user_name)
    union all
    select a.id from users a join scim_users s on s.org_id = v.org_id and s.user_id = a.id
    where a.email = lower(q.user_name) and s.user_name is null and a.email_verified_at is not null"""
# The user's first role at the service `v` with the permission. Own roles come before group roles. Without such a role,
# `has_role` says whether the user has any role.
ROLES: Final = f"""
    select true as has_role, case when q.permission = any(r.permissions) then r.slug end as slug,
        case when q.permission = any(r.permissions) then o.name end as group_name
    from ({role_sources("v.org_id", "u.id", "v.id")}) s join service_roles r on r.id = s.role_id and r.service_id = v.id
    left join groups o on o.id = s.group_id
    order by q.permission = any(r.permissions) desc, s.group_id is not null, r.slug, o.name_key limit 1"""
# The application knows users who came to it, and users with a role there (security K-3). A role by a group counts here even while the
# directory blocks the user, who is inactive then, and not unknown.
IS_KNOWN: Final = f"""
    (g.has_role is not null or exists (select 1 from service_users x where x.service_id = v.id and x.user_id = u.id)
     or {is_blocked("v.org_id", "u.id")} and exists (
        select 1 from group_members x join service_role_groups y on y.group_id = x.group_id and y.org_id = x.org_id
        where x.org_id = v.org_id and x.user_id = u.id and y.service_id = v.id))"""
STATE: Final = f"""
    case when not {IS_KNOWN} then 'unknown'
         when u.deactivated_at is null and u.anonymized_at is null and {is_of_organization("v.org_id", "u.id")}
              and {may_use("v", "u.id")} then 'active'
         else 'inactive' end"""
# In the order that `to_facts` reads. Keep the subqueries: with joins, the planner may read all a large service's roles.
FACTS: Final = f"""
    q.number, {STATE},
    exists (select 1 from service_permissions p where p.org_id = v.org_id and p.service_id = v.id and p.name = q.permission),
    g.slug, g.group_name"""
# The planner knows how long an array parameter is, so it would plan a statement with arrays every time. Planning such a
# statement takes longer than executing it. Most requests have a single question, and its statement has no arrays.
ONE_QUESTION: Final = """
    cross join (select %(user_id)s::uuid as user_id, %(user_name)s::text as user_name, %(permission)s::text as permission, 1 as number) q"""
SEVERAL_QUESTIONS: Final = """
    left join unnest(%(user_ids)s::uuid[], %(user_names)s::text[], %(permissions)s::text[]) with ordinality
        as q (user_id, user_name, permission, number) on true"""
BY_ID: Final = "left join users u on u.id = q.user_id"
BY_ID_OR_NAME: Final = f"left join users u on u.id = coalesce(q.user_id, ({BY_USER_NAME} limit 1))"
IN_ORDER: Final = "order by q.number"


def to_facts(row: statements.Row) -> evaluation.SubjectFacts:
    _, state, is_declared, role, group = row
    return evaluation.SubjectFacts(evaluation.SubjectState(state), is_declared, role, group)


def facts_of(rows: Sequence[statements.Row], start: int = 0) -> list[evaluation.SubjectFacts]:
    """Return the facts in these rows. The rows' columns begin at `start`. Without questions, there is a single row without a number."""
    return [to_facts(row[start:]) for row in rows if row[start] is not None]


def questions_sql(questions: Sequence[evaluation.Question]) -> LiteralString:
    """Return the joins from a service `v` to the questions, their subjects and the subjects' roles."""
    has_names = any(question.user_name is not None for question in questions)
    return f"""
        {ONE_QUESTION if len(questions) == 1 else SEVERAL_QUESTIONS}
        {BY_ID_OR_NAME if has_names else BY_ID} left join lateral ({ROLES}) g on true"""


def parameters_of(questions: Sequence[evaluation.Question]) -> dict[str, object]:
    if len(questions) == 1:
        [question] = questions
        return {"user_id": question.user_id, "user_name": question.user_name, "permission": question.permission}
    return {
        "user_ids": [question.user_id for question in questions],
        "user_names": [question.user_name for question in questions],
        "permissions": [question.permission for question in questions],
    }


class Evaluations(statements.Repository):
    """Implements `ports.storage.applications.authorization.EvaluationsRead`."""

    async def by_key(
        self, key_hash: bytes, questions: Sequence[evaluation.Question], now: datetime
    ) -> tuple[ApiKeyRecord, list[evaluation.SubjectFacts]] | None:
        sql = f"""
            select {API_KEY_RECORD.columns}, {FACTS}
            from api_keys k join services v on v.id = k.service_id join organizations vo on vo.id = v.org_id {questions_sql(questions)}
            where k.key_hash = %(key_hash)s and {KEY_IS_LIVE} {IN_ORDER}"""
        rows = await self._facts(sql, questions, now, key_hash=key_hash)
        return (API_KEY_RECORD.read(rows[0]), facts_of(rows, API_KEY_RECORD.width)) if rows else None

    async def by_service(
        self, org_id: UUID, service_id: UUID, questions: Sequence[evaluation.Question], now: datetime
    ) -> list[evaluation.SubjectFacts]:
        sql = f"select {FACTS} from services v {questions_sql(questions)} where v.org_id = %(org_id)s and v.id = %(service_id)s {IN_ORDER}"
        return facts_of(await self._facts(sql, questions, now, org_id=org_id, service_id=service_id))

    async def by_credential(
        self, client_id: UUID, credential_id: UUID, questions: Sequence[evaluation.Question], now: datetime
    ) -> tuple[ServiceContext, list[evaluation.SubjectFacts]] | None:
        sql = f"""
            select {CONTEXT.columns}, {FACTS}
            from services v join organizations vo on vo.id = v.org_id {questions_sql(questions)}
            where v.client_id = %(client_id)s and v.credential_id = %(credential_id)s and v.client_secret_hash is not null {IN_ORDER}"""
        rows = await self._facts(sql, questions, now, client_id=client_id, credential_id=credential_id)
        return (CONTEXT.read(rows[0]), facts_of(rows, CONTEXT.width)) if rows else None

    async def _facts(
        self, sql: LiteralString, questions: Sequence[evaluation.Question], now: datetime, **of: object
    ) -> list[statements.Row]:
        return await self._rows(sql, **parameters_of(questions), now=now, **of)

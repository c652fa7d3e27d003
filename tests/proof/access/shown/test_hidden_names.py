"""Members who have a role with a single capability, at this capability's pages and changes.

No page and no answer to a change names people, groups, programs or credentials, or has attribute values, that the API
hides from the caller.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from html import unescape
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import CUSTOMIZABLE, custom_rights
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.openapi import docs_of
from tests.proof.access.calls import Request, call, filled, prepare, routes
from tests.proof.access.state import mark, undo
from tests.proof.access.table import OF_THE_SESSION, REQUESTS
from tests.proof.access.test_custom_roles import OWN_ROLE, give_role, operations
from tests.proof.access.world import Caller, Tenant, World
from tests.support.builders import Answer, run_sql

pytestmark = pytest.mark.slow

VALUE: Final = "value-of"  # belongs to an attribute that no request in the table changes


async def test_no_page_and_no_change_names_what_the_api_hides(app: QuartTrio, pool: Pool, world: World) -> None:
    """What a page names, the API names, too: in the caller's lists, or in an operation that does the same.

    The answer to a change may also name the object with the id in its address.
    """
    home, wrong = world.home, list[str]()
    for sql in (
        "update memberships set role = %s where org_id = %s and user_id = %s",
        "update invitations set role = %s where org_id = %s and status = 'pending' and invited_by <> %s",
        "update service_accounts set role = %s where org_id = %s and owner_id <> %s",
        "update groups set role = %s where org_id = %s and role is not null and id <> %s",
    ):
        await run_sql(pool, sql, home.things["role_name"], home.organization.id, home.people["further"].id)
    await add_values(pool, home)
    names, views = await names_of(pool, home), dict(routes(app))
    base = await mark(pool)
    for capability in sorted(CUSTOMIZABLE):
        await give_role(pool, home, "guarded", OWN_ROLE, [capability])
        start, visible = await mark(pool), set[str]()
        called = [(route, access) for route, access in operations(app) if access.capability in custom_rights([capability])]
        for route, _ in called:
            if route.startswith("GET"):
                visible |= names_in(await answer_of(route, world.callers["with-mfa"], app, pool, start), names)
        for route, access in called:
            if route.startswith("GET") or access.capability is not capability:
                continue
            shown = names_in(await answer_of(route, world.callers["with-mfa"], app, pool, start), names) - visible
            things = {**world.callers["with-mfa"].things, **REQUESTS.get(route, Request()).things}
            shown -= {name for name in shown for part in things if f"<{part}>" in route and names[name] == filled(things[part], things)}
            wrong += [f"{route} with {capability} names {sorted(shown)}"] if shown else []
        for page, view in views.items():
            if access_of(view).name != "member_page" or access_of(view).capability is not capability:
                continue
            shown = names_in(await answer_of(page, world.callers["browser-with-mfa"], app, pool, start), names) - visible
            for operation in docs_of(view).api if shown else ():
                shown -= names_in(await answer_of(operation, world.callers["with-mfa"], app, pool, start), names)
            wrong += [f"{page} with {capability} names {sorted(shown)}"] if shown else []
        await undo(pool, base)
    await undo(pool)
    assert not wrong, "\n".join(wrong)


async def add_values(pool: Pool, tenant: Tenant) -> None:
    """Add an attribute, with a value for every user and group that has a value."""
    org = tenant.organization.id
    await run_sql(pool, "insert into organization_attributes values (%s, 'site', 'Site', 'text', '{admin}', 'first', 2, now())", org)
    for table, column, owner in (("attribute_values", "attributes", "user_id"), ("group_attribute_values", "attributes", "group_id")):
        await run_sql(
            pool,
            f"update {table} set {column} = {column} || jsonb_build_object('site', '{VALUE}-' || {owner}) where org_id = %s",  # noqa: S608
            org,
        )


async def names_of(pool: Pool, tenant: Tenant) -> Mapping[str, str]:
    """Return names with ids: addresses except the caller's, the names of groups, programs and credentials, and values."""
    org = tenant.organization.id
    rows = await run_sql(
        pool,
        f"""
        select email, id::text from invitations where org_id = %s union all select email, id::text from users where id <> %s
        union all select name, id::text from groups where org_id = '{org}'
        union all select name, id::text from service_accounts where org_id = '{org}'
        union all select name, id::text from api_resources where org_id = '{org}'
        union all select name, id::text from scim_tokens where org_id = '{org}'
        union all select name, id::text from api_keys where org_id = '{org}' and name like '%%-key'
        union all select '{VALUE}-' || user_id, '' from attribute_values where org_id = '{org}'
        union all select '{VALUE}-' || group_id, '' from group_attribute_values where org_id = '{org}'""",  # noqa: S608
        *(org, tenant.people["guarded"].id),
    )
    return dict(rows)


def names_in(answer: Answer, names: Collection[str]) -> set[str]:
    return {name for name in names if name in unescape(answer.text)}


async def answer_of(route: str, caller: Caller, app: QuartTrio, pool: Pool, start: int) -> Answer:
    """Send the table's request without a confirmation, or a form without its fields, and undo the changes. Return the answer."""
    request = REQUESTS.get(route, Request())
    request = replace(request, query={}, form=None if request.form is None else OF_THE_SESSION)
    await run_sql(pool, "delete from rates")
    await prepare(pool, request, caller)
    answer = await call(app, route, request, caller)
    await undo(pool, start)
    return answer

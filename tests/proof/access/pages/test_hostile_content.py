"""Texts of tenants, directories and users never become markup: every text of the database contains some, and every page is opened.

This is more than an attacker can do, because the API refuses most of these texts.
"""

import json
from typing import Final

import psycopg
import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.proof.access.pages.opening import Opened, open_all
from tests.proof.access.state import undo
from tests.proof.access.world import World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

MARKUP: Final = (
    "\"'></title></textarea></script><img src=probe onerror=alert(1)><script>probe()</script><a href=javascript:probe()>{{ 7 * 7 }}"
)
SCRIPT_URL: Final = "javascript:probe()//"
# Texts that the pages' addresses and the database's own rules need as they are.
KEPT: Final = frozenset({"organizations.slug", "services.slug", "tiers.id", "domains.domain"})
# Columns that must be among the changed ones.
NAMES: Final = frozenset(
    {f"{table}.name" for table in ("organizations", "services", "users", "plans", "webhooks", "devices", "api_keys", "scim_tokens")}
)


async def columns_with_texts(pool: Pool) -> list[tuple[str, str, str]]:
    """Return the columns that can hold a text: table, column and type."""
    rows = await run_sql(
        pool,
        """
        select table_name, column_name, data_type from information_schema.columns join journal.tables on name = table_name
        where table_schema = 'public' and is_generated = 'NEVER' and data_type in ('text', 'jsonb', 'ARRAY') order by 1, 2""",
    )
    return [(table, column, kind) for table, column, kind in rows if f"{table}.{column}" not in KEPT]


async def spoil(pool: Pool, slug: str, text: str) -> list[str]:
    """Append `text` to every text with the organization's slug, and return the changed columns. The database refuses some."""
    changed = []
    inside_json = json.dumps(text)[1:-1]
    for table, column, kind in await columns_with_texts(pool):
        new, values = {
            "text": (f"{column} || %s", (text,)),
            "jsonb": (f"replace({column}::text, %s, %s)::jsonb", (slug, slug + inside_json)),
            "ARRAY": (f"array(select each || %s from unnest({column}) each)", (text,)),  # noqa: S608
        }[kind]
        update = f"update {table} set {column} = {new} where {column}::text ilike %s returning 1"  # noqa: S608
        try:
            rows = await run_sql(pool, update, *values, f"%{slug}%")
        except psycopg.Error:  # a rule of the database
            continue
        if rows:
            changed.append(f"{table}.{column}")
    return changed


def findings(page: Opened) -> list[str]:
    document = html.document_fromstring(page.answer.text)
    found = [f"has {html.tostring(each)[:80]!r}" for each in document.xpath("//img[@src='probe']|//@onerror/..|//script[not(@src)]")]
    for element, attribute, link, _ in document.iterlinks():
        if element.tag != "img" and link.strip().lower().startswith(("javascript:", "data:text")):
            found.append(f"{element.tag} has the {attribute} {link[:60]}")
    if page.answer.status >= 500 and page.route.startswith("GET"):  # a form can fail, because no stored URL is like this one
        found.append(f"its status is {page.answer.status}")
    return [f"{page.route} {each}" for each in found]


@pytest.mark.parametrize("text", [MARKUP, SCRIPT_URL], ids=["markup", "script-url"])
async def test_no_text_of_the_database_becomes_markup(app: QuartTrio, pool: Pool, world: World, text: str) -> None:
    if text == MARKUP:
        await run_sql(pool, "update users set name = %s", f"A Name of {world.home.organization.slug}")
        changed = await spoil(pool, world.home.organization.slug, text)
        assert NAMES - set(changed) == set()
    else:
        for table, column, kind in await columns_with_texts(pool):
            if kind == "text" and column.endswith(("url", "uri", "picture")):
                await run_sql(pool, f"update {table} set {column} = %s where {column} is not null", text)  # noqa: S608
    try:
        wrong = [finding async for page in open_all(app, pool, world) for finding in findings(page)]
        assert not wrong, "\n".join(wrong)
    finally:
        await undo(pool)

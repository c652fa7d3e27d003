"""What the attacks need: requests with OpenID Connect, consents, and a proof that nothing has changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from psycopg import sql

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.authentication.openid_rules import Scope
from core.kernel.principals import SYSTEM
from tests.federation.api.relying import RelyingParty
from tests.support.browser import form_token, leads_to
from tests.support.builders import Answer, run_sql

# Side effects of any request, refused ones included: rate limits, and counters of wrong secrets.
UNWATCHED: Final = frozenset({"schema_migrations", "signing_keys", "rates", "guesses", "leases"})

Rows = frozenset[tuple[str, str]]


async def rows(pool: Pool) -> Rows:
    """Return all watched rows, each with its table."""
    tables = [name for (name,) in await run_sql(pool, "select tablename from pg_tables where schemaname = 'public'")]
    select = "select {name}::text, t::text from {table} t"
    selects = [
        sql.SQL(select).format(name=sql.Literal(table), table=sql.Identifier(table)) for table in sorted(tables) if table not in UNWATCHED
    ]
    async with pool.connection() as connection:
        cursor = await connection.execute(sql.SQL(" union all ").join(selects))
        return frozenset((str(table), str(row)) for table, row in await cursor.fetchall())


@asynccontextmanager
async def unchanged(pool: Pool) -> AsyncIterator[None]:
    """Check that no row changes within this block."""
    before = await rows(pool)
    yield
    after = await rows(pool)
    assert not after ^ before, sorted(after ^ before)


def path_of(application: RelyingParty, **changes: str | None) -> str:
    """Return the path and query of an authorization request with the scope `openid`."""
    return application.request(**{"response_type": "code", "scope": "openid", **changes})


async def give_consent(application: RelyingParty, account: Account, *scope: Scope) -> None:
    """Let the user have agreed to these scopes of the application, by default to all."""
    tenant = application.tenant
    async with tenant.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.consents.add(tenant.org, application.service, account.id, scope or tuple(Scope), tenant.ports.clock.now())


def answer_fields(answer: Answer) -> dict[str, str]:
    """Return the fields of a redirect to the application."""
    return dict(parse_qsl(urlsplit(leads_to(answer)).query, strict_parsing=True))


async def authorize(application: RelyingParty, **changes: str | None) -> dict[str, str]:
    """Send a request with `openid`, agree if a page asks, and return what the application gets."""
    path = path_of(application, **changes)
    answer = await application.browser.open(path)
    if answer.status == 200:
        answer = await application.browser.send(path, form_token=form_token(answer), answer="continue")
    return answer_fields(answer)


async def openid_tokens(application: RelyingParty, **changes: str | None) -> dict[str, Any]:
    answer = await application.exchange((await authorize(application, **changes))["code"])
    assert answer.status == 200, answer.text
    tokens: dict[str, Any] = answer.json
    return tokens


def is_code(answer: Answer) -> bool:
    """Return whether an answer brings a code to an application."""
    return "code=" in answer.headers.get("Location", "") or 'name="code"' in answer.text

"""The sign-in log: two organizations, an unconfirmed member and a stranger's account (decision 220, security B-2).

An attempt at an account that an organization does not know looks like an attempt at no account, in every answer. The
attempts are sent over HTTP, all in the same world.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.proof.access.calls import Request, call
from tests.proof.access.state import mark, undo
from tests.proof.access.world import Caller, World

pytestmark = pytest.mark.slow

LIST: Final = "GET /api/organizations/<org_slug>/sign-ins"
PAGE: Final = "GET /app/organizations/<org_slug>/sign-ins"
FILTERS: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"success": "true"},
    {"success": "false"},
    *({"reason": reason} for reason in ("unknown_account", "credentials", "locked", "many")),
    {"service_id": "{service_id}"},
    {"period": "1h"},
    {"limit": "1", "page": "2"},
)
FEW: Final[Sequence[Mapping[str, str]]] = ({}, {"success": "false"})
LOGIN: Final = "POST /api/auth/login"


# A page's marks, and request ids, which are random: 24 hexadecimal digits
_MARKS: Final = re.compile(r'nonce="[^"]+"|name="form_[a-z]+" value="[^"]+"|\b[0-9a-f]{24}\b')


async def everything(
    app: QuartTrio, api: Caller, browser: Caller, accounts: Sequence[str] = (), filters: Sequence[Mapping[str, str]] = FILTERS
) -> dict[str, str]:
    """Return all that this organization's callers can see in its log: list, count, filters, export and page.

    `accounts` are ids and email addresses.
    """
    seen: dict[str, str] = {}
    for query in (*filters, *({"email" if "@" in account else "user_id": account} for account in accounts)):
        answers = {
            "list": await call(app, LIST, Request(query=query), api),
            "page": await call(app, PAGE, Request(query=query), browser),
        }
        if "page" not in query:
            for format_ in ("csv", "jsonl"):
                exported = {**query, "format": format_}
                answers[format_] = await call(app, f"{LIST}/export", Request(query=exported), api)
                answers[f"{format_} of the page"] = await call(app, f"{PAGE}/export", Request(query=exported), browser)
        for name, answer in answers.items():
            assert answer.status == 200, answer.text
            seen[f"{name} {query}"] = _MARKS.sub("", answer.text)
    return seen


async def test_unknown_accounts_look_alike_and_no_other_organization_sees_them(app: QuartTrio, pool: Pool, world: World) -> None:
    rival, start = world.rival, await mark(pool)
    people = {
        "a stranger": world.callers["stranger"].account,
        "an unconfirmed member": world.unsure,
        "a member of the other organization": world.home.people["owner"],
        "a user of the other's application": world.home.people["end-user"],
    }
    addresses = {name: str(person and person.email) for name, person in people.items()} | {"no account": "nobody@nowhere.example"}
    accounts = [*(str(person and person.id) for person in people.values()), *addresses.values()]
    shop = {"org_slug": rival.things["org_slug"], "service_slug": rival.things["service_slug"]}
    of_rival = (world.callers["foreign-owner"], world.callers["foreign-browser"])
    of_home = (world.callers["owner"], world.callers["browser"])
    before, home_before = await everything(app, *of_rival, accounts), await everything(app, *of_home, filters=FEW)
    at_application: dict[str, dict[str, str]] = {}
    for name, email in addresses.items():
        body = {"email": email, "password": "wrong"}
        for sent in ({**body, **shop}, {**body, **shop}, body):
            assert (await call(app, LOGIN, Request(sent), Caller(name="client", at=rival))).status == 401
        at_application[name] = await everything(app, *of_rival, accounts)
        if name != "a member of the other organization":
            assert await everything(app, *of_home, filters=FEW) == home_before, f"{name}: the other organization sees an attempt"
        await undo(pool, start)
    expected = at_application["no account"]
    assert expected != before, "the attempts are counted"
    for name, seen in at_application.items():
        assert {key for key in seen if seen[key] != expected[key]} == set(), name


async def test_attempts_at_the_platform_itself_are_seen_by_the_organizations_of_confirmed_members(
    app: QuartTrio, pool: Pool, world: World
) -> None:
    """Four users attempt it: a member of two organizations, an unconfirmed member, a member of a single organization, and a stranger."""
    start, client = await mark(pool), Caller(name="client", at=world.rival)
    callers = {"rival": ("foreign-owner", "foreign-browser"), "home": ("owner", "browser")}
    sees = {
        str(world.both.email): {"rival", "home"},
        str(world.rival.people["further"].email): {"rival"},
        str(world.home.people["further"].email): {"home"},
        str(world.unsure.email): set(),
        "stranger@nowhere.example": set(),
        "nobody@nowhere.example": set(),
    }
    before = {
        name: await everything(app, world.callers[api], world.callers[browser], filters=FEW) for name, (api, browser) in callers.items()
    }
    for email, organizations in sees.items():
        assert (await call(app, LOGIN, Request({"email": email, "password": "wrong"}), client)).status == 401
        for name, (api, browser) in callers.items():
            rows = await everything(app, world.callers[api], world.callers[browser], filters=FEW)
            assert (rows != before[name]) == (name in organizations), f"{email} in the log of {name}"
        await undo(pool, start)

"""Reading subscriptions in the service API, and in a user's tokens (decision 113; security K-3, T-2)."""

from typing import Any
from uuid import UUID, uuid4

import jwt

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.billing.api.subscriptions.shop import DAY, SECOND, Shop
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, add_account, run_sql
from tests.support.refusals import BAD, MISSING, refused
from tests.support.services import add_service_user, add_subscription


async def test_without_a_subscription_every_route_answers_404(shop: Shop, other: Shop, foreign: Shop) -> None:
    for other_shop in (other, foreign):
        await other_shop.create(other_shop.user, other_shop.gold)
    for user in (shop.user, other.user, foreign.user, uuid4(), "x", str(shop.user).upper(), shop.user.hex):
        assert refused(await shop.get(user)) == MISSING
        assert refused(await shop.update(user, status="active")) == MISSING
        assert refused(await shop.update(user, status="trial")) == MISSING  # before the body is checked
        assert refused(await shop.update(user)) == MISSING
        assert refused(await shop.end(user)) == MISSING
    for other_shop in (other, foreign):
        assert await other_shop.stored_rows() == [("active", other_shop.gold)]


async def test_a_user_of_two_services_has_a_subscription_to_each(shop: Shop, foreign: Shop, ports: Ports) -> None:
    await add_service_user(ports, foreign.service, shop.user)
    subscription, foreign_subscription = await shop.create(shop.user, shop.gold), await foreign.create(shop.user, foreign.silver)
    assert (await shop.get(shop.user)).json == subscription
    assert (await foreign.get(shop.user)).json == foreign_subscription
    assert (await foreign.end(shop.user)).status == 204
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_the_live_subscription_is_returned_or_else_the_newest(shop: Shop, clock: FakeClock) -> None:
    subscriptions = []
    for status in ("past_due", "cancelled", "expired"):
        subscriptions.append(await shop.create(shop.user, shop.gold, status=status))
        clock.advance(SECOND)
    assert (await shop.get(shop.user)).json == subscriptions[0]
    assert (await shop.end(shop.user)).status == 204
    assert (await shop.get(shop.user)).json == subscriptions[2]


async def test_the_list_contains_only_subscriptions_of_the_service(shop: Shop, other: Shop, foreign: Shop, clock: FakeClock) -> None:
    subscriptions = [await shop.create(shop.user, shop.gold)]
    for other_shop in (other, foreign):
        await other_shop.create(other_shop.user, other_shop.gold)
    clock.advance(SECOND)
    subscriptions.append(await shop.create(shop.other_user, shop.silver, status="past_due"))
    assert (await shop.list_subscriptions()).json == {"subscriptions": subscriptions, "total": 2}


async def test_members_list_the_same_subscriptions_with_addresses(
    shop: Shop, other: Shop, foreign: Shop, clock: FakeClock, pool: Pool
) -> None:
    subscriptions = [await shop.create(shop.user, shop.gold)]
    for other_shop in (other, foreign):
        await other_shop.create(other_shop.user, other_shop.gold)
    clock.advance(SECOND)
    subscriptions.append(await shop.create(shop.other_user, shop.silver, status="past_due"))
    emails = {str(row[0]): row[1] for row in await run_sql(pool, "select id, email from users")}
    subscriptions = [{**subscription, "email": emails[subscription["user_id"]]} for subscription in subscriptions]
    for query, listed, total in [("", subscriptions, 2), ("?status=past_due", subscriptions[1:], 1), ("?limit=1", subscriptions[:1], 2)]:
        answer = await shop.list_as_member(query)
        assert (answer.status, answer.json) == (200, {"subscriptions": listed, "total": total, "customer": None}), query
    assert (await shop.list_as_member("?status=trial")).status == 400


async def test_the_list_is_paged(shop: Shop, clock: FakeClock) -> None:
    subscriptions = []
    for _ in range(5):
        subscriptions.append(await shop.create(shop.user, shop.gold, status="cancelled"))
        clock.advance(SECOND)
    for query, expected in {
        "?limit=2": subscriptions[:2],
        "?limit=2&offset=2": subscriptions[2:4],
        "?limit=2&offset=4": subscriptions[4:],
        "?offset=5": [],
        "?limit=0": subscriptions[:1],
        "?limit=-3&offset=-1": subscriptions[:1],
        f"?limit={10**30}&offset=3": subscriptions[3:],
        f"?offset={10**30}": [],
        "?status=cancelled&limit=2&offset=3": subscriptions[3:],
        "?status=cancelled&offset=9": [],
    }.items():
        assert (await shop.list_subscriptions(query)).json == {"subscriptions": expected, "total": 5}, query
    for query in ("?limit=x", "?limit=", "?offset=1.5", "?status="):
        assert refused(await shop.list_subscriptions(query)) == BAD, query


async def test_the_list_shows_and_filters_by_the_current_status(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    users = [(await add_account(ports, f"{number}@example.com", None)).id for number in range(6)]
    for user in users:
        await add_service_user(ports, shop.service, user)
    soon, later = clock.now() + DAY, clock.now() + 2 * DAY
    states = [("active", soon, None), ("active", later, None), ("active", soon, "sub_1"), ("past_due", soon, None)]
    states += [("expired", later, None), ("cancelled", soon, None)]
    for user, (status, ends, provider) in zip(users, states, strict=True):
        await add_subscription(ports, pool, shop.service, user, shop.gold, status, ends=ends, provider=provider)
        clock.advance(SECOND)
    clock.advance(DAY)

    async def users_with(status: str) -> list[int]:
        answer = (await shop.list_subscriptions(f"?status={status}")).json
        assert answer["total"] == len(answer["subscriptions"])
        assert {subscription["status"] for subscription in answer["subscriptions"]} == {status}
        return [users.index(UUID(subscription["user_id"])) for subscription in answer["subscriptions"]]

    assert {status: await users_with(status) for status in ("active", "expired", "past_due", "cancelled")} == {
        "active": [1, 2],
        "expired": [0, 4],
        "past_due": [3],
        "cancelled": [5],
    }
    listing = (await shop.list_subscriptions()).json
    assert listing["total"] == 6
    assert [subscription["status"] for subscription in listing["subscriptions"]] == [
        "expired",
        "active",
        "active",
        "past_due",
        "expired",
        "cancelled",
    ]


# Tokens


async def test_changes_appear_in_the_next_tokens_of_the_user(shop: Shop, ports: Ports) -> None:
    account = await add_account(ports)
    body = {"email": account.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    pair = (await shop.api.post("/api/auth/login", body)).json

    async def claims() -> tuple[Any, ...]:
        nonlocal pair
        pair = (await shop.api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})).json
        payload = jwt.decode(pair["access_token"], options={"verify_signature": False})
        return payload.get("plan"), payload.get("subscription_status"), payload.get("features")

    assert await claims() == (None, None, None)
    await shop.create(account.id, shop.gold)
    assert await claims() == ("Gold", "active", ["exports"])
    await shop.update(account.id, status="past_due", plan_id=str(shop.silver))
    assert await claims() == ("Silver", "past_due", [])
    await shop.end(account.id)
    assert await claims() == (None, None, None)

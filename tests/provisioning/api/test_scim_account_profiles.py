"""An account's profile and a directory's attributes (decisions 128, 247)."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from core.accounts.model.profiles import NO_PROFILE, Profile
from tests.accounts.profiles import FULL_PROFILE, set_profile
from tests.provisioning.api.users import FULL, add_own_account
from tests.support.builders import add_member, run_sql
from tests.support.scim import GRACE, Directory
from tests.support.tenants import Tenant

PICTURE = "https://images.example.com/grace.png"
SENT: dict[str, Any] = {
    **FULL,
    "locale": "en-US",
    "timezone": "America/New_York",
    "photos": [
        {"value": "https://images.example.com/small.png", "type": "thumbnail"},
        {"value": PICTURE, "type": "photo", "primary": True},
    ],
}


async def stored(acme: Tenant, user_id: object) -> Profile:
    columns = "name, picture, locale, zoneinfo, profile_details"
    [row] = await run_sql(acme.pool, f"select {columns} from users where id = %s", UUID(str(user_id)))  # noqa: S608
    return Profile(*row[:4], **(row[4] or {}))


async def test_a_directory_sets_the_profile_of_an_account_that_its_organization_controls(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user(**SENT)
    assert await stored(acme, user["id"]) == Profile("Amazing Grace", PICTURE, "en-US", "America/New_York")
    await directory.patch(user["id"], {"op": "remove", "path": "displayName"}, {"op": "replace", "path": "locale", "value": "de"})
    assert await stored(acme, user["id"]) == Profile("Grace Brewster Hopper", PICTURE, "de", "America/New_York")
    # An unchanged attribute leaves what the user wrote since, and a value that is not valid for an account stays in the organization.
    await set_profile(acme.ports, user["id"])
    changed = (await directory.put(user["id"], userName=GRACE, locale="de", timezone="Eastern Standard Time")).json
    assert (changed["locale"], changed["timezone"]) == ("de", "Eastern Standard Time")
    assert await stored(acme, user["id"]) == replace(FULL_PROFILE, name=None, picture=None)


async def test_the_profile_of_another_account_stays(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    own = await add_own_account(acme)
    await set_profile(acme.ports, UUID(own))
    shared = (await directory.create_user(**SENT))["id"]
    await add_member(acme.pool, other_tenant.org, UUID(shared))
    for user_id, before in ((own, FULL_PROFILE), (shared, await stored(acme, shared))):
        answer = await directory.patch(user_id, {"op": "replace", "value": {"displayName": "Other", "locale": "fr"}})
        assert (answer.json["displayName"], answer.json["locale"]) == ("Other", "fr")
        assert await stored(acme, user_id) == before


async def test_responses_have_the_profile_of_a_confirmed_member_for_what_was_not_sent(acme: Tenant, directory: Directory) -> None:
    confirmed, unconfirmed = await add_own_account(acme), await add_own_account(acme, "eve@example.com", confirmed=False)
    for user_id in (confirmed, unconfirmed):
        await set_profile(acme.ports, UUID(user_id))
    user = await directory.get(f"/Users/{confirmed}")
    assert (user["displayName"], user["name"]["formatted"]) == (FULL_PROFILE.name, FULL_PROFILE.name)
    assert (user["locale"], user["timezone"]) == (FULL_PROFILE.locale, FULL_PROFILE.zoneinfo)
    assert user["photos"] == [{"value": FULL_PROFILE.picture, "type": "photo", "primary": True}]
    assert user["meta"]["lastModified"] == (await directory.get("/Users"))["Resources"][-2]["meta"]["lastModified"]
    assert (await directory.put(confirmed, **user)).json == user, "a directory can send back the response"
    assert await run_sql(acme.pool, "select locale from users where id = %s", UUID(confirmed)) == [(FULL_PROFILE.locale,)]
    hidden = await directory.get(f"/Users/{unconfirmed}")
    assert (hidden["displayName"], hidden["locale"], hidden["timezone"], hidden["photos"]) == ("eve", None, None, [])


async def test_a_provisioned_user_without_a_name_is_shown_with_their_own(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    assert (user["name"], user["displayName"], await stored(acme, user["id"])) == (None, None, NO_PROFILE)
    await set_profile(acme.ports, UUID(user["id"]))
    shown = await directory.get(f"/Users/{user['id']}")
    assert (shown["name"]["formatted"], shown["displayName"]) == (FULL_PROFILE.name, FULL_PROFILE.name)
    assert shown["meta"]["lastModified"] >= user["meta"]["lastModified"]

"""The names that an organization, its groups and its applications for assigned users share."""

import pytest

from tests.support.builders import Answer, run_concurrently, run_sql
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin


@pytest.fixture
def groups(acme: Tenant) -> GroupAdmin:
    return GroupAdmin(acme)


class Named:
    """An organization, two applications for assigned users, another application, and a group."""

    def __init__(self, groups: GroupAdmin) -> None:
        self.groups, self.acme, self.token = groups, groups.tenant, groups.tenant.token("admin")
        self.services = f"{self.acme.path}/services"

    async def create(self) -> None:
        self.key = await add_api_key(self.acme.pool, await add_service(self.acme.pool, self.acme.org, "desk"))
        for slug in ("store", "later"):
            await add_service(self.acme.pool, self.acme.org, slug)
        for slug in ("desk", "store"):
            assert (await self.open_to_assigned(slug)).status == 200
        self.group = await self.groups.create("Lab")

    async def open_to_assigned(self, slug: str) -> Answer:
        return await self.acme.api.call("PUT", f"{self.services}/{slug}/access", {"policy": "assigned"}, token=self.token)

    async def rename(self, thing: str, name: str) -> Answer:
        body, headers = {"name": name}, {"X-Api-Key": self.key}
        match thing:
            case "acme":
                return await self.acme.api.patch(self.acme.path, body, token=self.token)
            case "lab":
                return await self.groups.call("PATCH", f"/{self.group}", body)
            case "desk by its key":
                return await self.acme.api.call("PATCH", "/api/service/info", body, headers=headers)
            case _:
                return await self.acme.api.patch(f"{self.services}/{thing}", body, token=self.token)


THINGS = {
    "acme": "The organization itself",
    "desk": "An application that only assigned users may use",
    "store": "An application that only assigned users may use",
    "lab": "A group of the organization",
}


async def test_names_that_look_alike_are_equal(groups: GroupAdmin, acme: Tenant) -> None:
    """Unicode writes an accented letter in two ways, and has wide letters, ligatures and characters that show nothing."""
    roles, token = f"{acme.path}/roles", acme.token("owner")
    looks = {
        "École": ("E\u0301cole", "e\u0301COLE"),
        "Office": ("O\ufb03ce", "\uff2fffice", "Of\u200bfice", "Office\u3164", "Office\U000e0100", "Off\U0001d159ice"),
    }
    for name, others in looks.items():
        await groups.create(name)
        assert (await acme.api.post(roles, {"name": name, "capabilities": []}, token=token)).status == 201
        for other in others:
            taken = await groups.call("POST", "", {"name": other})
            assert (taken.status, taken.json["error_code"]) == (409, "CONFLICT"), other
            assert (await acme.api.post(roles, {"name": other, "capabilities": []}, token=token)).status == 409, other
    for nothing in ("\u200b", "\u3164", "\u2800\u115f", "\ufe0f", "\U0001d159", "\U0001da7f\U0001da80"):
        assert (await groups.call("POST", "", {"name": nothing})).status == 400


async def test_all_groups_that_a_directory_sees_have_different_names(groups: GroupAdmin) -> None:
    named = Named(groups)
    await named.create()
    for thing in (*THINGS, "desk by its key"):
        for other, owner in THINGS.items():
            answer = await named.rename(thing, other.upper())
            if other == thing.split()[0]:
                assert answer.status == 200, "the case of the own name"
            else:
                assert (answer.status, answer.json["error"].startswith(f"{owner} already has this name.")) == (409, True), (thing, other)
    for other, owner in THINGS.items():  # an application that all may use can have any name, but not when it becomes `assigned`
        assert (await named.rename("later", other)).status == 200
        answer = await named.open_to_assigned("later")
        assert (answer.status, answer.json["error"].startswith(owner)) == (409, True), other
    assert (await named.rename("later", "Later")).status == (await named.open_to_assigned("later")).status == 200
    # Names from before this rule stay, and can be changed.
    await run_sql(groups.tenant.pool, "update services set name = 'ACME' where slug = 'store'")
    assert [(await named.rename(*change)).status for change in (("store", "Acme"), ("store", "acMe"), ("store", "Store"))] == [200] * 3


@pytest.mark.slow
async def test_of_twenty_concurrent_renamings_to_one_name_one_succeeds(groups: GroupAdmin) -> None:
    named = Named(groups)
    await named.create()
    more = [f"more-{number}" for number in range(16)]
    for slug in more:
        await add_service(groups.tenant.pool, groups.tenant.org, slug)
    await run_sql(groups.tenant.pool, "update services set access_policy = 'assigned'")
    things = [*THINGS, *more]
    answers = await run_concurrently(20, lambda number: named.rename(things[number], "Same"))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 19

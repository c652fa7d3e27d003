"""SCIM users' userName and email address (security C-4, decision 130)."""

from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from tests.provisioning.api.users import account_of, add_own_account, load_accounts, set_password
from tests.support.builders import add_member, run_concurrently, run_sql
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.tenants import Tenant


async def test_a_directory_that_gives_both_names_them_apart(acme: Tenant, directory: Directory) -> None:
    """Entra ID maps the UPN to the userName and the mail to emails."""
    user = await directory.create_user("grace.upn", emails=[{"value": GRACE, "type": "work", "primary": True}])
    assert (user["userName"], user["emails"][0]["value"]) == ("grace.upn", GRACE)
    renamed = await directory.patch(user["id"], {"op": "Replace", "path": "userName", "value": "Hopper@upn.example"})
    assert (renamed.json["userName"], renamed.json["emails"][0]["value"]) == ("Hopper@upn.example", GRACE)
    moved = await directory.patch(user["id"], {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "hopper@acme.example"})
    assert (moved.json["userName"], moved.json["emails"][0]["value"]) == ("Hopper@upn.example", "hopper@acme.example")
    assert await directory.find_user_names('userName eq "HOPPER@upn.example"') == ["Hopper@upn.example"]
    assert await directory.find_user_names('userName eq "hopper@acme.example"') == []
    assert await directory.find_user_names('emails.value eq "hopper@acme.example"') == ["Hopper@upn.example"]
    assert len(await load_accounts(acme, "hopper@acme.example")) == 1
    answer = await directory.put(user["id"], userName="grace.upn")
    assert problem(answer) == (400, "invalidValue")
    assert "primary email address" in answer.json["detail"]


async def test_a_user_name_is_unique_in_the_organization(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    def named(user_name: str, email: str) -> dict[str, Any]:
        return {"userName": user_name, "emails": [{"value": email, "primary": True}]}

    grace = (await directory.call("POST", "/Users", named("Grace", GRACE))).json
    ada = (await directory.call("POST", "/Users", named("Ada", "ada@acme.example"))).json
    for taken in ("GRACE", "Owner@acme.example"):
        answers = [
            await directory.call("POST", "/Users", named(taken, "new@acme.example")),
            await directory.put(ada["id"], **named(taken, "ada@acme.example")),
            await directory.patch(ada["id"], {"op": "replace", "path": "userName", "value": taken}),
        ]
        assert [problem(answer) for answer in answers] == [(409, "uniqueness")] * 3, taken
    # An address becomes the userName if there is no userName, so it must not be a userName already.
    await directory.put(grace["id"], **named("next@acme.example", GRACE))
    assert problem(await directory.try_create_user("Next@acme.example")) == (409, "uniqueness")
    assert await load_accounts(acme, "next@acme.example") == []
    other = await directory_of(other_tenant)
    assert (await other.call("POST", "/Users", named("Ada", "ada@twin.example"))).status == 201
    answers = await run_concurrently(20, lambda n: directory.call("POST", "/Users", named("Hedy", f"hedy{n}@acme.example")))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    deactivated = await directory.put(ada["id"], **named("GRACE", "owner@acme.example"), title="Countess", active="False")
    assert {name: deactivated.json[name] for name in ("userName", "emails", "title", "active")} == {
        "userName": "Ada", "emails": ada["emails"], "title": "Countess", "active": False,
    }  # fmt: skip


async def test_a_rename_of_an_account_that_the_directory_does_not_manage_keeps_the_address(
    acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    own_account = await add_own_account(acme)
    with_password = (await directory.create_user("password@acme.example"))["id"]
    await set_password(acme, with_password)
    shared = (await directory.create_user("shared@acme.example"))["id"]
    await add_member(other_tenant.pool, other_tenant.org, UUID(shared))
    provisioned_admin = (await directory.create_user("powerful@acme.example"))["id"]
    await run_sql(acme.pool, "update memberships set role = 'admin' where user_id = %s", UUID(provisioned_admin))
    for user_id in (own_account, with_password, shared, provisioned_admin, acme.id("admin")):
        before = await directory.get(f"/Users/{user_id}")
        new_name = f"new-{before['userName']}"
        answer = await directory.patch(
            user_id,
            {"op": "replace", "path": "displayName", "value": "changed"},
            {"op": "replace", "path": "userName", "value": new_name},
        )
        assert answer.status == 200
        assert (answer.json["displayName"], answer.json["userName"], answer.json["emails"]) == ("changed", new_name, before["emails"])
        assert (await account_of(acme, user_id)).email == before["userName"]
        with capture_logs() as logs:
            answer = await directory.put(user_id, userName="other", emails=[{"value": "mallory@acme.example", "primary": True}])
        assert (answer.status, answer.json["userName"], answer.json["emails"]) == (200, "other", before["emails"])
        assert [(line["refused"], line["ignored"]) for line in logs if line["event"] == "scim_attributes_skipped"] == [(["emails"], [])]
        assert (await directory.put(user_id, userName=before["userName"])).json["userName"] == before["userName"]
    assert await run_sql(acme.pool, "select kind from mails where kind <> 'welcome'") == []


async def test_a_member_that_the_directory_did_not_create_can_have_any_user_name(acme: Tenant, directory: Directory) -> None:
    """They have a primary address, whether the request repeats it or not. An address as userName still means that address."""
    member = acme.id("member")
    before = await directory.get(f"/Users/{member}")
    rename = {"op": "replace", "path": "userName", "value": "m.upn"}
    for user_name in ("m.upn", "other.upn", before["userName"], "M"):
        change = {**rename, "value": user_name}
        answer = await (directory.patch(member, change) if user_name[0] in "mM" else directory.put(member, userName=user_name))
        assert (answer.status, answer.json["userName"], answer.json["emails"]) == (200, user_name, before["emails"])
        assert await directory.find_user_names(f'userName eq "{user_name}"') == [user_name]
    assert (await account_of(acme, member)).email == before["emails"][0]["value"]
    assert problem(await directory.patch(acme.id("admin"), {**rename, "value": "m"})) == (409, "uniqueness")
    created = await directory.create_user()
    for answer in (await directory.patch(created["id"], rename), await directory.put(created["id"], userName="m.upn")):
        assert problem(answer) == (400, "invalidValue")


async def test_a_user_name_is_not_the_id_of_another_user(acme: Tenant, directory: Directory) -> None:
    """A user has the id as userName if another user has the address as userName."""
    user, other_id = await directory.create_user(), acme.id("member")
    emails = [{"value": "ada@acme.example", "primary": True}]
    assert problem(await directory.try_create_user(other_id, emails=emails)) == (409, "uniqueness")
    assert problem(await directory.put(user["id"], userName=str(other_id).upper(), emails=emails)) == (409, "uniqueness")
    assert (await directory.put(user["id"], userName=user["id"], emails=emails)).status == 200


async def test_a_user_has_at_most_ten_addresses(directory: Directory) -> None:
    user = await directory.create_user()
    addresses = [{"value": f"a{number}@acme.example"} for number in range(11)]
    assert problem(await directory.try_create_user("ada@acme.example", emails=addresses)) == (400, "invalidValue")
    one_by_one = [{"op": "add", "path": "emails", "value": [address]} for address in addresses]
    assert problem(await directory.patch(user["id"], *one_by_one)) == (400, "invalidValue")
    assert await directory.get(f"/Users/{user['id']}") == user


async def test_an_email_without_a_value_changes_nothing(directory: Directory) -> None:
    user = await directory.create_user()
    for filter_ in ('value eq ""', "value eq null"):
        answer = await directory.patch(
            user["id"],
            {"op": "remove", "path": "emails"},
            {"op": "add", "path": f"emails[{filter_}].type", "value": "work"},
        )
        assert answer.status in (200, 400), answer.text
    assert (await directory.get(f"/Users/{user['id']}"))["userName"] == GRACE

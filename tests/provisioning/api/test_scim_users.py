"""Creating and reading SCIM users over HTTP."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.accounts.model.email_queue import EmailKind
from core.provisioning.model import users
from core.provisioning.model.schemas import ENTERPRISE_URN, USER_URN
from tests.fakes.outside import FakeClock
from tests.provisioning.api.users import FULL, load_accounts
from tests.support.builders import run_concurrently, run_sql
from tests.support.scim import GRACE, LIST_URN, PATCH_URN, SCIM_JSON, Directory, directory_of, problem
from tests.support.tenants import Tenant


async def test_a_created_user_is_a_verified_member_and_gets_a_welcome_email(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user(GRACE.upper(), **FULL)
    now = user["meta"]["created"]
    assert user == {
        "schemas": [USER_URN],
        "id": user["id"],
        "externalId": "00u1",
        "meta": {
            "resourceType": "User",
            "created": now,
            "lastModified": now,
            "location": f"http://gatehouse.test/scim/v2/Users/{user['id']}",
        },
        "userName": GRACE,
        "name": {"formatted": "Grace Brewster Hopper", "familyName": "Hopper", "givenName": "Grace"},
        "displayName": "Amazing Grace",
        "emails": [{"value": GRACE, "type": "work", "primary": True}],
        **{"title": None, "preferredLanguage": None, "locale": None, "timezone": None, "phoneNumbers": [], "photos": []},
        "active": True,
    }
    assert await directory.get(f"/Users/{user['id']}") == user
    assert await load_accounts(acme) == [(UUID(user["id"]), "scim", acme.org, True, False, "member", True)]
    assert await run_sql(acme.pool, "select kind, address, org_id from mails") == [(EmailKind.WELCOME, GRACE, acme.org)]
    entries = [(action, target, actor) for action, _, target, actor, _ in await acme.recorded()][1:]
    [token] = await run_sql(acme.pool, "select id from scim_tokens")
    assert entries == [("user.created", user["id"], token[0]), ("user.joined", user["id"], token[0])]
    assert [name for name, *_ in await acme.webhook_events()][1:] == ["user.signup.success", "user.created", "user.joined"]
    entry = (await acme.api.get(f"{acme.path}/audit-log", token=acme.token("owner"))).json["logs"][0]
    assert entry["actor"] == {
        "id": str(token[0]),
        "email": "scim-token@internal",
        "is_platform_owner": False,
        "kind": "scim_token",
        "name": None,
    }


FURTHER: dict[str, Any] = {
    "title": "Rear admiral",
    "preferredLanguage": "en-US",
    "locale": "en-US",
    "timezone": "America/New_York",
    "phoneNumbers": [{"value": "+1 555 0100", "type": "work", "primary": True}, {"value": "+1 555 0101", "type": "mobile"}],
    "photos": [{"value": "https://images.example.com/grace.png", "type": "photo"}],
    ENTERPRISE_URN: {"employeeNumber": "7", "department": "Navy", "manager": {"value": "26118915", "displayName": "Howard"}},
}


async def test_further_attributes_are_kept_and_can_be_filtered(acme: Tenant, directory: Directory) -> None:
    ignored = {"nickName": "G", "addresses": [{"type": "work", "formatted": "a\nb"}], "roles": [], "userType": "Employee"}
    enterprise = {**FURTHER[ENTERPRISE_URN], "costCenter": "x", "division": "y"}
    user = await directory.create_user(**{**FURTHER, **ignored, ENTERPRISE_URN: enterprise}, **FULL)
    assert {name: user[name] for name in FURTHER} == FURTHER
    assert not set(ignored) & set(user)
    assert user["schemas"] == [USER_URN, ENTERPRISE_URN]
    assert await directory.get(f"/Users/{user['id']}") == user
    assert (await directory.put(user["id"], **user)).json == user
    for filter_ in (
        *('title eq "REAR ADMIRAL"', 'preferredLanguage sw "en"', "locale pr", 'timezone co "york"'),
        *(f'{ENTERPRISE_URN}:department eq "navy"', f'not ({ENTERPRISE_URN}:employeeNumber ne "7")'),
    ):
        assert await directory.find_user_names(filter_) == [GRACE], filter_
    changed = await directory.put(user["id"], userName=GRACE, title="Admiral")
    assert {changed.json.get(name) or None for name in FURTHER} == {"Admiral", None}
    names = {"title", "preferredLanguage", "locale", "timezone", "phoneNumbers", "photos", "employeeNumber", "department", "manager"}
    assert [names < set(entry["details"]["changed"]) for entry in await acme.log() if entry["action"] == "user.updated"] == [True]
    bad: list[dict[str, Any]] = [
        *({name: value} for name in ("title", "preferredLanguage", "locale", "timezone") for value in (5, "x" * 257, "a\x1bb")),
        *({"phoneNumbers": value} for value in ([{"value": "1"}] * 11, ["1"], [{"value": 5}], [{"value": "x" * 257}])),
        *({"photos": value} for value in (["https://x.example"], [{"value": "https://x.example/" + "x" * 1024}])),
        *({ENTERPRISE_URN: {"department": value}} for value in (5, "x" * 257, "a\x1bb")),
        *({ENTERPRISE_URN: {"manager": value}} for value in (5, {"value": "x" * 257})),
        {ENTERPRISE_URN: {"department": "x"}, f"{ENTERPRISE_URN}:department": "y"},
    ]
    for fields in bad:
        assert problem(await directory.try_create_user("ada@acme.example", **fields)) == (400, "invalidValue"), fields


async def test_members_that_the_directory_did_not_create_have_a_name(acme: Tenant, directory: Directory) -> None:
    for person in ("owner", "member"):
        path = f"/Users/{acme.id(person)}"
        user = await directory.get(path)
        assert (user["name"], user["displayName"]) == ({"formatted": person, "familyName": person, "givenName": person}, person)
        assert (await directory.get("/Users"))["Resources"].count(user) == 1
    await directory.patch(acme.id("member"), {"op": "add", "path": "name.givenName", "value": "Ada"})
    assert (await directory.get(path))["name"] == {"formatted": "Ada", "familyName": None, "givenName": "Ada"}
    await directory.patch(acme.id("member"), {"op": "remove", "path": "name"})
    assert (await directory.get(path))["name"]["givenName"] == "member"


async def test_the_response_has_the_location_of_the_created_user(directory: Directory) -> None:
    answer = await directory.try_create_user()
    assert (answer.status, answer.headers["Location"]) == (201, answer.json["meta"]["location"])


@pytest.mark.parametrize("content_type", [SCIM_JSON, "application/json", "application/scim+json; charset=utf-8"])
async def test_both_json_content_types_are_accepted(directory: Directory, content_type: str) -> None:
    body = {"schemas": [USER_URN], "userName": GRACE}
    assert (await directory.call("POST", "/Users", body, content_type=content_type)).status == 201


async def test_attribute_names_ignore_case(directory: Directory) -> None:
    body = {
        "SCHEMAS": ["URN:ietf:params:scim:schemas:core:2.0:USER"],
        "USERNAME": GRACE,
        "Name": {"GIVENNAME": "Grace"},
        "urn:ietf:params:scim:schemas:core:2.0:User:DisplayName": "G",
    }
    user = (await directory.call("POST", "/Users", body)).json
    assert (user["userName"], user["name"]["givenName"], user["displayName"]) == (GRACE, "Grace", "G")


async def test_a_body_cannot_select_an_account_or_a_role(acme: Tenant, directory: Directory) -> None:
    owner = acme.id("owner")
    user = await directory.create_user(
        id=owner, externalId=owner, meta={"location": "x"}, password="s3cret s3cret", roles=[{"value": "owner"}], groups=[{"value": "x"}],
        role="owner", is_platform_owner=True, entitlements=["x"],
    )  # fmt: skip
    assert user["id"] != owner
    assert not {"password", "roles", "groups"} & set(user)
    [(_, origin, _, _, _, role, _)] = await load_accounts(acme)
    assert (origin, role) == ("scim", "member")
    [(password, powerful)] = await run_sql(acme.pool, "select password_hash, is_platform_owner from users where email = %s", GRACE)
    assert (password, powerful) == (None, False)


async def test_the_address_of_any_existing_account_is_refused(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    await directory.create_user()
    other = await directory.create_user("ada@acme.example")
    for email in (GRACE, GRACE.upper(), "owner@acme.example", "owner@twin.example"):
        for answer in (
            await directory.try_create_user(email, active=False),
            await directory.put(other["id"], userName=email),
            await directory.patch(other["id"], {"op": "replace", "path": "userName", "value": email}),
        ):
            assert problem(answer) == (409, "uniqueness")
            assert "invite them to the organization" in answer.json["detail"]
    assert await run_sql(acme.pool, "select count(*) from users where deactivated_at is not null") == [(0,)]


BAD_USER_NAMES: list[Any] = ["", "not an address", "a@b", None, 5, ["a@b.example", "c@d.example"], "a@b.example\x00", "x" * 257]


BAD_NAMES: list[Any] = ["Grace", 5, {"givenName": 5}, {"givenName": "x" * 101}]


BAD_EMAILS: list[Any] = [5, [5], "x", ["ada@acme.example"]]


BAD_USERS: list[dict[str, Any]] = [
    *({"userName": value} for value in BAD_USER_NAMES),
    *({"active": value} for value in ("yes", 1, ["x", "y"])),
    *({"name": value} for value in BAD_NAMES),
    *({"displayName": value} for value in (5, "x" * 101, "a\x1bb")),
    *({"externalId": value} for value in (5, "x" * 257)),
    *({"emails": value} for value in BAD_EMAILS),
]


async def test_values_that_are_not_valid_are_refused(acme: Tenant, directory: Directory) -> None:
    for fields in BAD_USERS:
        answer = await directory.call("POST", "/Users", {"schemas": [USER_URN], "userName": GRACE, **fields})
        assert (answer.status, *problem(answer)) == (400, 400, "invalidValue"), fields
    bodies: list[Any] = [
        {"schemas": "x", "userName": GRACE},
        {"schemas": ["x"], "userName": GRACE},
        [],
        "x",
        {"a": 1, "A": 2},
    ]
    for body in bodies:
        assert problem(await directory.call("POST", "/Users", body)) == (400, "invalidSyntax"), body
    assert await load_accounts(acme) == []
    required_fields: dict[str, Any] = {
        "externalId": "x" * 256,
        "displayName": "x" * 100,
        "name": dict.fromkeys(("formatted", "givenName", "familyName"), "x" * 100),
    }
    user = await directory.create_user(**required_fields)
    assert {name: user[name] for name in required_fields} == required_fields


async def test_the_member_limit_is_enforced(acme: Tenant, directory: Directory) -> None:
    await acme.set_member_limit(4)
    await directory.create_user()
    answer = await directory.try_create_user("next@acme.example")
    assert problem(answer) == (400, None)
    assert "4 members" in answer.json["detail"]
    assert await load_accounts(acme, "next@acme.example") == []
    for email in (GRACE, "owner@acme.example"):
        assert problem(await directory.try_create_user(email)) == (409, "uniqueness"), "a directory that gets this error looks the user up"


async def test_inactive_users_have_their_own_limit(acme: Tenant, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "INACTIVE_PER_MEMBER", 1)
    await acme.set_member_limit(5)
    inactive = [await directory.create_user(f"p{n}@acme.example", active=False) for n in range(4)]
    removed_user = await directory.create_user("left@acme.example")
    assert (await directory.remove_member(removed_user["id"])).status == 200
    for active in (True, False):
        answer = await directory.try_create_user(active=active)
        assert problem(answer) == (400, None)
        assert "5 or more users" in answer.json["detail"]
        assert await load_accounts(acme) == []
    assert (await directory.delete(inactive[0]["id"])).status == 204
    await directory.create_user()


async def test_concurrent_requests_create_as_many_users_as_the_limit_allows(acme: Tenant, directory: Directory) -> None:
    await acme.set_member_limit(5)
    answers = await run_concurrently(5, lambda n: directory.try_create_user(f"p{n}@acme.example"))
    assert sorted(answer.status for answer in answers) == [201, 201, 400, 400, 400]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(5,)]


async def test_one_of_several_concurrent_requests_gets_the_address(acme: Tenant, directory: Directory) -> None:
    answers = await run_concurrently(4, lambda _: directory.try_create_user())
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


async def test_a_directory_knows_only_the_members_of_its_organization(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    other = await directory_of(other_tenant)
    listing = await directory.list_users()
    assert {name: listing[name] for name in ("schemas", "totalResults", "startIndex", "itemsPerPage")} == {
        "schemas": [LIST_URN],
        "totalResults": 4,
        "startIndex": 1,
        "itemsPerPage": 4,
    }
    user_names = {user["userName"] for user in listing["Resources"]}
    assert user_names == {"owner@acme.example", "admin@acme.example", "member@acme.example", GRACE}
    for user_id in (user["id"], acme.id("owner"), str(uuid4()), "x", user["id"].upper()):
        assert problem(await other.call("GET", f"/Users/{user_id}")) == (404, None)
    for call in (other.put(user["id"], userName=GRACE), other.deactivate(user["id"]), other.delete(user["id"])):
        assert problem(await call) == (404, None)
    assert await directory.get(f"/Users/{user['id']}") == user


async def test_lists_have_pages(directory: Directory, clock: FakeClock) -> None:
    created = []
    for n in range(4):
        created.append((await directory.create_user(f"p{n}@acme.example"))["userName"])
        clock.advance(timedelta(seconds=1))
    addresses = [user["userName"] for user in (await directory.list_users())["Resources"]]
    assert [address for address in addresses if address in created] == created  # oldest first
    for start, count, expected in [
        (1, 3, addresses[:3]), (4, 2, addresses[3:5]), (7, 100, addresses[6:]), (8, 10, []), (0, 2, addresses[:2]), (-5, 2, addresses[:2]),
        (1, 0, []), (1, -1, []), (1, 10**30, addresses), (10**30, 5, []),
    ]:  # fmt: skip
        listing = await directory.list_users(startIndex=start, count=count)
        assert [user["userName"] for user in listing["Resources"]] == expected
        assert (listing["totalResults"], listing["itemsPerPage"], listing["startIndex"]) == (
            7,
            len(expected),
            min(max(start, 1), 2**31 - 1),
        )
    assert await directory.list_users(sortBy="userName", sortOrder="descending") == await directory.list_users()
    for query in ({"startIndex": "x"}, {"count": "1.5"}, {"count": ""}):
        assert problem(await directory.try_list(**query)) == (400, "invalidValue")


async def test_a_request_chooses_the_attributes_of_the_response(directory: Directory) -> None:
    enterprise: dict[str, Any] = {
        ENTERPRISE_URN: {"employeeNumber": "7", "department": "Navy", "manager": {"value": "26", "displayName": "Howard"}}
    }
    user = await directory.create_user(**FULL, **enterprise)
    path = f"/Users/{user['id']}"
    required = {"schemas": user["schemas"], "id": user["id"]}
    for query, expected in {
        "attributes=userName": {**required, "userName": GRACE},
        "attributes=USERNAME,name.givenName": {**required, "userName": GRACE, "name": {"givenName": "Grace"}},
        "attributes=emails.value": {**required, "emails": [{"value": GRACE}]},
        "attributes=nothing": required,
        "attributes=urn:ietf:params:scim:schemas:core:2.0:User:active": {**required, "active": True},
        f"excludedAttributes=meta,name,displayName,emails,externalId,id,{','.join(FURTHER)}": {
            **required,
            "userName": GRACE,
            "active": True,
        },
        f"attributes={ENTERPRISE_URN}:Manager.value,{ENTERPRISE_URN}:department": {
            **required,
            ENTERPRISE_URN: {"department": "Navy", "manager": {"value": "26"}},
        },
        f"attributes={ENTERPRISE_URN}": {**required, ENTERPRISE_URN: user[ENTERPRISE_URN]},
        f"excludedAttributes={ENTERPRISE_URN}:department,{ENTERPRISE_URN}:manager": {**user, ENTERPRISE_URN: {"employeeNumber": "7"}},
        "excludedAttributes=name.formatted": {**user, "name": {"familyName": "Hopper", "givenName": "Grace"}},
        "excludedAttributes=NAME.familyName,emails.value,emails.primary": {
            **user,
            "name": {"formatted": user["name"]["formatted"], "givenName": "Grace"},
            "emails": [{"type": "work"}],
        },
        "excludedAttributes=emails.value,emails,id,meta.location": {
            **{name: value for name, value in user.items() if name != "emails"},
            "meta": {name: value for name, value in user["meta"].items() if name != "location"},
        },
        f"excludedAttributes={ENTERPRISE_URN}:manager.value": {
            **user,
            ENTERPRISE_URN: {**user[ENTERPRISE_URN], "manager": {"displayName": "Howard"}},
        },
        "attributes=": user,
    }.items():
        assert await directory.get(f"{path}?{query}") == expected, query
    listing = await directory.list_users(filter=f'userName eq "{GRACE}"', attributes="userName")
    assert listing["Resources"] == [{**required, "userName": GRACE}]
    answer = await directory.call("PATCH", f"{path}?attributes=active", {
        "schemas": [PATCH_URN], "Operations": [{"op": "remove", "path": "displayName"}],
    })  # fmt: skip
    assert answer.json == {**required, "active": True}


async def test_a_filter_selects_users(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user(**FULL)
    await directory.create_user("b%d@acme.example", displayName="50% _off_")
    await directory.deactivate((await directory.create_user("gone@acme.example"))["id"])
    all_users = {"owner@acme.example", "admin@acme.example", "member@acme.example", GRACE, "b%d@acme.example", "gone@acme.example"}
    for filter_, expected in {
        f'userName eq "{GRACE}"': {GRACE},
        f'USERNAME EQ "{GRACE.upper()}"': {GRACE},
        'userName eq "owner@twin.example"': set(),
        'userName co "RAC"': {GRACE},
        'userName sw "gr"': {GRACE},
        'userName ew "ce@acme.example"': {GRACE},
        'userName co "%"': {"b%d@acme.example"},
        'userName co "_"': set(),
        f'emails.value eq "{GRACE}"': {GRACE},
        f'emails eq "{GRACE}"': {GRACE},
        f'emails[type eq "work" and value eq "{GRACE}"]': {GRACE},
        f'emails[type eq "home" and value eq "{GRACE}"]': set(),
        'externalId eq "00u1"': {GRACE},
        'externalId eq "00U1"': set(),
        f'id eq "{user["id"]}"': {GRACE},
        'id eq "x"': set(),
        'displayName eq "Amazing Grace"': {GRACE},
        'displayName eq "amazing grace"': {GRACE},
        'displayName sw "AMAZING"': {GRACE},
        'displayName co "% _"': {"b%d@acme.example"},
        'name.familyName eq "hopper"': {GRACE},
        "name.givenName pr": {GRACE},
        "name pr": {GRACE},
        "not (urn:ietf:params:scim:schemas:core:2.0:User:name pr)": all_users - {GRACE},
        "meta pr and emails pr": all_users,
        f'displayName eq "{"x" * 256}"': set(),
        "externalId eq null": all_users - {GRACE},
        "active eq false": {"gone@acme.example"},
        'active eq "True" and externalId pr': {GRACE},
        "not (active eq true)": {"gone@acme.example"},
        'not (externalId eq "00u1")': all_users - {GRACE},
        'externalId ne "00u1"': all_users - {GRACE},
        f'userName eq "{GRACE}" or userName sw "own" and active eq true': {GRACE, "owner@acme.example"},
        f'(userName eq "{GRACE}" or userName sw "own") and externalId pr': {GRACE},
        'meta.created gt "2001-01-01T00:00:00Z"': all_users,
        'meta.lastModified lt "2001-01-01T00:00:00Z"': set(),
        'urn:ietf:params:scim:schemas:core:2.0:User:userName sw "own"': {"owner@acme.example"},
        'userName eq "\'; drop table users; --"': set(),
    }.items():
        assert set(await directory.find_user_names(filter_)) == expected, filter_


async def test_a_repeated_parameter_is_refused(directory: Directory) -> None:
    assert problem(await directory.call("GET", "/Users?count=1&count=2")) == (400, "invalidValue")


async def test_filters_that_are_not_valid_are_refused(directory: Directory) -> None:
    for filter_ in (
        "", " ", "userName", "userName eq", 'userName is "x"', 'userName eq "x', "userName eq x", 'userName eq "x" and', '(userName eq "x"',
        'userName eq "x")', 'nickName eq "x"', "phoneNumbers pr", "photos pr",
        "active gt true", "active eq 5", 'active eq "yes"', "userName eq 5", 'password eq "x"',
        'meta.created gt "yesterday"', 'meta.created co "2"', f'userName eq "{"x" * 257}"', "(" * 40 + 'id eq "x"' + ")" * 40,
        'emails[type eq "work"', 'name[givenName eq "x"]', 'emails[value[type eq "x"]]', " or ".join(["id pr"] * 101), "not active pr",
        "names pr", 'userName eq "\ud800"'.encode("utf-8", "surrogatepass").decode("latin-1") + "\x00", "x" * 9000,
    ):  # fmt: skip
        assert problem(await directory.try_list(filter=filter_)) == (400, "invalidFilter"), filter_

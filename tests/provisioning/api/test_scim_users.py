"""Users of SCIM over HTTP (identity.md sections 2.7, 3 and 4.6; decisions, points 121 to 140; security.md section 10)."""

import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from core import email_preparation
from core.accounts import email_queue
from core.accounts.email_queue_rules import EmailKind
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.errors import OrganizationNotActive, Refusal
from core.kernel.principals import SYSTEM, BlockedByDirectory, Role
from core.kernel.values import Email, digest
from core.provisioning import groups as scim_groups
from core.provisioning import tokens as scim_tokens
from core.provisioning import users as scim_users
from core.provisioning.patches import MemberChanges, apply_operations
from core.provisioning.schemas import USER_URN
from core.provisioning.tokens_rules import ScimTokenInvalid
from core.provisioning.users_rules import ScimProfile, ScimUserData
from core.tenancy.invitations_rules import InviteeDeactivated
from entrypoints.http.api.provisioning import users as scim_users_routes
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import PASSWORD, Answer, add_account, add_member, add_provisioned, deliver, everyone, link, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import waiting
from tests.support.saml import add_application, posted_response
from tests.support.saml_browser import SamlBrowser
from tests.support.scim import GRACE, LIST_URN, PATCH_URN, SCIM_JSON, Directory, directory_of, problem
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.api.organizations import refresh

FULL: dict[str, Any] = {
    "externalId": "00u1",
    "name": {"formatted": "Grace Brewster Hopper", "givenName": "Grace", "familyName": "Hopper"},
    "displayName": "Amazing Grace",
}


async def people(acme: Tenant, email: str = GRACE) -> list[tuple[Any, ...]]:
    return await run_sql(
        acme.pool,
        """
        select u.id, u.origin, u.origin_org_id, u.email_verified_at is not null, u.deactivated_at is not null, m.role,
               m.confirmed_at is not null
        from users u left join memberships m on m.user_id = u.id where u.email = %s""",
        email,
    )


async def settle(acme: Tenant, user_id: object) -> None:
    """Let somebody have come to sign in, with a password."""
    hashed = await acme.ports.passwords.hash(PASSWORD)
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", hashed, UUID(str(user_id)))


async def member(acme: Tenant, email: str = "ada@example.com", *, confirmed: bool = True, password: str | None = PASSWORD) -> str:
    """Somebody with an account of their own, who is a member."""
    account = await add_account(acme.ports, email, password)
    await add_member(acme.pool, acme.org, account.id, confirmed=confirmed)
    return str(account.id)


# Creating


async def test_a_user_is_made_verified_and_a_member_and_is_welcomed(acme: Tenant, directory: Directory) -> None:
    made = await directory.make(GRACE.upper(), **FULL)
    now = made["meta"]["created"]
    assert made == {
        "schemas": [USER_URN],
        "id": made["id"],
        "externalId": "00u1",
        "meta": {
            "resourceType": "User",
            "created": now,
            "lastModified": now,
            "location": f"http://gatehouse.test/scim/v2/Users/{made['id']}",
        },
        "userName": GRACE,
        "name": {"formatted": "Grace Brewster Hopper", "familyName": "Hopper", "givenName": "Grace"},
        "displayName": "Amazing Grace",
        "emails": [{"value": GRACE, "type": "work", "primary": True}],
        "active": True,
    }
    assert await directory.get(f"/Users/{made['id']}") == made
    assert await people(acme) == [(UUID(made["id"]), "scim", acme.org, True, False, "member", True)]
    assert await run_sql(acme.pool, "select kind, address, org_id from mails") == [(EmailKind.WELCOME, GRACE, acme.org)]
    recorded = [(action, target, actor) for action, _, target, actor, _ in await acme.recorded()][1:]
    [token] = await run_sql(acme.pool, "select id from scim_tokens")
    assert recorded == [("user.created", made["id"], token[0]), ("user.joined", made["id"], token[0])]
    assert [name for name, *_ in await acme.told()][1:] == ["user.signup.success", "user.created", "user.joined"]
    shown = (await acme.api.get(f"{acme.path}/audit-log", token=acme.token("owner"))).json["logs"][0]
    assert shown["actor"] == {"id": str(token[0]), "email": "scim-token@internal", "is_platform_owner": False}


async def test_the_answer_says_where_the_user_is(directory: Directory) -> None:
    answer = await directory.try_make()
    assert (answer.status, answer.headers["Location"]) == (201, answer.json["meta"]["location"])


@pytest.mark.parametrize("content_type", [SCIM_JSON, "application/json", "application/scim+json; charset=utf-8"])
async def test_bodies_are_json_of_either_name(directory: Directory, content_type: str) -> None:
    body = {"schemas": [USER_URN], "userName": GRACE}
    assert (await directory.call("POST", "/Users", body, content_type=content_type)).status == 201


async def test_names_of_attributes_have_no_case(directory: Directory) -> None:
    body = {
        "SCHEMAS": ["URN:ietf:params:scim:schemas:core:2.0:USER"],
        "USERNAME": GRACE,
        "Name": {"GIVENNAME": "Grace"},
        "urn:ietf:params:scim:schemas:core:2.0:User:DisplayName": "G",
    }
    made = (await directory.call("POST", "/Users", body)).json
    assert (made["userName"], made["name"]["givenName"], made["displayName"]) == (GRACE, "Grace", "G")


async def test_nothing_in_a_body_selects_an_account_or_a_privilege(acme: Tenant, directory: Directory) -> None:
    owner = acme.id("owner")
    made = await directory.make(
        id=owner, externalId=owner, meta={"location": "x"}, password="s3cret s3cret", roles=[{"value": "owner"}], groups=[{"value": "x"}],
        role="owner", is_platform_owner=True, entitlements=["x"],
    )  # fmt: skip
    assert made["id"] != owner
    assert not {"password", "roles", "groups"} & set(made)
    [(_, origin, _, _, _, role, _)] = await people(acme)
    assert (origin, role) == ("scim", "member")
    [(password, powerful)] = await run_sql(acme.pool, "select password_hash, is_platform_owner from users where email = %s", GRACE)
    assert (password, powerful) == (None, False)


async def test_an_address_that_has_an_account_is_refused_whosesoever_it_is(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    await directory.make()
    other = await directory.make("ada@acme.example")
    for email in (GRACE, GRACE.upper(), "owner@acme.example", "owner@twin.example"):
        for answer in (
            await directory.try_make(email, active=False),
            await directory.put(other["id"], userName=email),
            await directory.patch(other["id"], {"op": "replace", "path": "userName", "value": email}),
        ):
            assert problem(answer) == (409, "uniqueness")
            assert "invited to the organization" in answer.json["detail"]
    assert await run_sql(acme.pool, "select count(*) from users where deactivated_at is not null") == [(0,)]


UNUSABLE: list[Any] = ["", "not an address", "a@b", None, 5, ["a@b.example", "c@d.example"], "a@b.example\x00"]
NAMELESS: list[Any] = ["Grace", 5, {"givenName": 5}, {"givenName": "x" * 101}]
NO_ADDRESSES: list[Any] = [5, [5], "x", ["ada@acme.example"]]
BAD_USERS: list[dict[str, Any]] = [
    *({"userName": value} for value in UNUSABLE),
    *({"active": value} for value in ("yes", 1, ["x", "y"])),
    *({"name": value} for value in NAMELESS),
    *({"displayName": value} for value in (5, "x" * 101, "a\x1bb")),
    *({"externalId": value} for value in (5, "x" * 257)),
    *({"emails": value} for value in NO_ADDRESSES),
]


async def test_what_cannot_be_used_is_refused(acme: Tenant, directory: Directory) -> None:
    for fields in BAD_USERS:
        answer = await directory.call("POST", "/Users", {"schemas": [USER_URN], "userName": GRACE, **fields})
        assert (answer.status, *problem(answer)) == (400, 400, "invalidValue"), fields
    bodies: list[Any] = [
        {},
        {"userName": GRACE},
        {"schemas": "x", "userName": GRACE},
        {"schemas": ["x"], "userName": GRACE},
        [],
        "x",
        {"a": 1, "A": 2},
    ]
    for body in bodies:
        assert problem(await directory.call("POST", "/Users", body)) == (400, "invalidSyntax"), body
    assert await people(acme) == []
    most: dict[str, Any] = {
        "externalId": "x" * 256,
        "displayName": "x" * 100,
        "name": dict.fromkeys(("formatted", "givenName", "familyName"), "x" * 100),
    }
    made = await directory.make(**most)
    assert {name: made[name] for name in most} == most


async def test_the_limit_of_members_holds(acme: Tenant, directory: Directory) -> None:
    await acme.allow(4)
    await directory.make()
    answer = await directory.try_make("next@acme.example")
    assert problem(answer) == (400, None)
    assert "4 members" in answer.json["detail"]
    assert await people(acme, "next@acme.example") == []
    for email in (GRACE, "owner@acme.example"):
        assert problem(await directory.try_make(email)) == (409, "uniqueness"), "what directories take for a reason to look for whose it is"


async def test_who_is_put_away_counts_apart_and_is_limited_too(acme: Tenant, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scim_users, "OUTSIDE_PER_MEMBER", 1)
    await acme.allow(5)
    made = [await directory.make(f"p{n}@acme.example", active=False) for n in range(4)]
    left = await directory.make("left@acme.example")
    assert (await directory.remove(left["id"])).status == 200
    for active in (True, False):
        answer = await directory.try_make(active=active)
        assert problem(answer) == (400, None)
        assert "5 people" in answer.json["detail"]
        assert await people(acme) == []
    assert (await directory.delete(made[0]["id"])).status == 204
    await directory.make()


async def test_of_many_at_once_as_many_are_made_as_there_is_room_for(acme: Tenant, directory: Directory) -> None:
    await acme.allow(5)
    answers = await everyone(5, lambda n: directory.try_make(f"p{n}@acme.example"))
    assert sorted(answer.status for answer in answers) == [201, 201, 400, 400, 400]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(5,)]


async def test_of_many_at_once_with_one_address_one_is_made(acme: Tenant, directory: Directory) -> None:
    answers = await everyone(4, lambda _: directory.try_make())
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


# Reading


async def test_the_directory_knows_the_members_of_its_organization_alone(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    made = await directory.make()
    other = await directory_of(twin)
    listed = await directory.list_users()
    assert {name: listed[name] for name in ("schemas", "totalResults", "startIndex", "itemsPerPage")} == {
        "schemas": [LIST_URN],
        "totalResults": 4,
        "startIndex": 1,
        "itemsPerPage": 4,
    }
    shown = {user["userName"] for user in listed["Resources"]}
    assert shown == {"owner@acme.example", "admin@acme.example", "member@acme.example", GRACE}
    for user_id in (made["id"], acme.id("owner"), str(uuid4()), "x", made["id"].upper()):
        assert problem(await other.call("GET", f"/Users/{user_id}")) == (404, None)
    for call in (other.put(made["id"], userName=GRACE), other.deactivate(made["id"]), other.delete(made["id"])):
        assert problem(await call) == (404, None)
    assert await directory.get(f"/Users/{made['id']}") == made


async def test_pages(directory: Directory, clock: FakeClock) -> None:
    made = []
    for n in range(4):
        made.append((await directory.make(f"p{n}@acme.example"))["userName"])
        clock.advance(timedelta(seconds=1))
    addresses = [user["userName"] for user in (await directory.list_users())["Resources"]]
    assert [address for address in addresses if address in made] == made  # as they came
    for start, count, expected in [
        (1, 3, addresses[:3]), (4, 2, addresses[3:5]), (7, 100, addresses[6:]), (8, 10, []), (0, 2, addresses[:2]), (-5, 2, addresses[:2]),
        (1, 0, []), (1, -1, []), (1, 10**30, addresses), (10**30, 5, []),
    ]:  # fmt: skip
        listed = await directory.list_users(startIndex=start, count=count)
        assert [user["userName"] for user in listed["Resources"]] == expected
        assert (listed["totalResults"], listed["itemsPerPage"], listed["startIndex"]) == (7, len(expected), min(max(start, 1), 2**31 - 1))
    assert await directory.list_users(sortBy="userName", sortOrder="descending") == await directory.list_users()
    for query in ({"startIndex": "x"}, {"count": "1.5"}, {"count": ""}):
        assert problem(await directory.try_list(**query)) == (400, "invalidValue")


async def test_attributes_that_are_wanted(directory: Directory) -> None:
    made = await directory.make(**FULL)
    path = f"/Users/{made['id']}"
    always = {"schemas": made["schemas"], "id": made["id"]}
    for query, expected in {
        "attributes=userName": {**always, "userName": GRACE},
        "attributes=USERNAME,name.givenName": {**always, "userName": GRACE, "name": {"givenName": "Grace"}},
        "attributes=emails.value": {**always, "emails": [{"value": GRACE}]},
        "attributes=nothing": always,
        "attributes=urn:ietf:params:scim:schemas:core:2.0:User:active": {**always, "active": True},
        "excludedAttributes=meta,name,displayName,emails,externalId,id": {**always, "userName": GRACE, "active": True},
        "excludedAttributes=name.formatted": {**made, "name": {"familyName": "Hopper", "givenName": "Grace"}},
        "attributes=": made,
    }.items():
        assert await directory.get(f"{path}?{query}") == expected, query
    listed = await directory.list_users(filter=f'userName eq "{GRACE}"', attributes="userName")
    assert listed["Resources"] == [{**always, "userName": GRACE}]
    answer = await directory.call("PATCH", f"{path}?attributes=active", {
        "schemas": [PATCH_URN], "Operations": [{"op": "remove", "path": "displayName"}],
    })  # fmt: skip
    assert answer.json == {**always, "active": True}


async def test_filters(acme: Tenant, directory: Directory) -> None:
    made = await directory.make(**FULL)
    await directory.make("b%d@acme.example", displayName="50% _off_")
    await directory.deactivate((await directory.make("gone@acme.example"))["id"])
    everybody = {"owner@acme.example", "admin@acme.example", "member@acme.example", GRACE, "b%d@acme.example", "gone@acme.example"}
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
        f'id eq "{made["id"]}"': {GRACE},
        'id eq "x"': set(),
        'displayName eq "Amazing Grace"': {GRACE},
        'displayName eq "amazing grace"': set(),
        'displayName co "% _"': {"b%d@acme.example"},
        'name.familyName eq "hopper"': {GRACE},
        "name.givenName pr": {GRACE},
        "name pr": {GRACE},
        "not (urn:ietf:params:scim:schemas:core:2.0:User:name pr)": everybody - {GRACE},
        "meta pr and emails pr": everybody,
        f'displayName eq "{"x" * 256}"': set(),
        "externalId eq null": everybody - {GRACE},
        "active eq false": {"gone@acme.example"},
        'active eq "True" and externalId pr': {GRACE},
        "not (active eq true)": {"gone@acme.example"},
        'not (externalId eq "00u1")': everybody - {GRACE},
        'externalId ne "00u1"': everybody - {GRACE},
        f'userName eq "{GRACE}" or userName sw "own" and active eq true': {GRACE, "owner@acme.example"},
        f'(userName eq "{GRACE}" or userName sw "own") and externalId pr': {GRACE},
        'meta.created gt "2001-01-01T00:00:00Z"': everybody,
        'meta.lastModified lt "2001-01-01T00:00:00Z"': set(),
        'urn:ietf:params:scim:schemas:core:2.0:User:userName sw "own"': {"owner@acme.example"},
        'userName eq "\'; drop table users; --"': set(),
    }.items():
        assert set(await directory.found(filter_)) == expected, filter_


async def test_filters_that_are_none_are_refused(directory: Directory) -> None:
    for filter_ in (
        "", " ", "userName", "userName eq", 'userName is "x"', 'userName eq "x', "userName eq x", 'userName eq "x" and', '(userName eq "x"',
        'userName eq "x")', 'title eq "x"', "active gt true", "active eq 5", 'active eq "yes"', "userName eq 5", 'password eq "x"',
        'meta.created gt "yesterday"', 'meta.created co "2"', f'userName eq "{"x" * 257}"', "(" * 40 + 'id eq "x"' + ")" * 40,
        'emails[type eq "work"', 'name[givenName eq "x"]', 'emails[value[type eq "x"]]', " or ".join(["id pr"] * 101), "not active pr",
        "names pr", 'userName eq "\ud800"'.encode("utf-8", "surrogatepass").decode("latin-1") + "\x00", "x" * 9000,
    ):  # fmt: skip
        assert problem(await directory.try_list(filter=filter_)) == (400, "invalidFilter"), filter_


# Changing


async def test_a_user_is_replaced_with_what_the_body_says(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    made = await directory.make(**FULL)
    clock.advance(timedelta(seconds=1))
    answer = await directory.put(made["id"], userName=GRACE, externalId="00u2", name={"givenName": "G"}, id="x", meta={"created": "x"})
    assert answer.status == 200
    changed = answer.json
    assert (changed["id"], changed["externalId"], changed["active"], changed["displayName"]) == (made["id"], "00u2", True, None)
    assert changed["name"] == {"formatted": None, "familyName": None, "givenName": "G"}
    assert changed["meta"]["lastModified"] > made["meta"]["lastModified"]
    assert changed["meta"]["created"] == made["meta"]["created"]
    fields = ["externalId", "name.formatted", "name.givenName", "name.familyName", "displayName"]
    assert (await acme.entry("user.updated"))["details"] == {"changed": fields}
    clock.advance(timedelta(seconds=1))
    assert (await directory.put(made["id"], userName=GRACE, externalId="00u2", name={"givenName": "G"})).json == changed
    assert "userName" in problem_of(await directory.put(made["id"]))


def problem_of(answer: Any) -> str:
    assert problem(answer)[0] == 400
    return str(answer.json["detail"])


PATCHES: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([{"op": "replace", "path": "displayName", "value": "G"}], {"displayName": "G"}),
    ([{"op": "Replace", "value": {"displayName": "G", "name": {"givenName": "Gr"}}}], {"displayName": "G", "name.givenName": "Gr"}),
    ([{"op": "Add", "path": "name.familyName", "value": "H"}], {"name.familyName": "H"}),
    ([{"op": "replace", "value": {"name.familyName": "H", "unknown": 5}}], {"name.familyName": "H"}),
    ([{"op": "remove", "path": "name.familyName"}], {"name.familyName": None}),
    ([{"op": "remove", "path": "name"}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "Replace", "path": "active", "value": "False"}], {"active": False}),
    ([{"op": "replace", "value": {"active": False}}], {"active": False}),
    ([{"op": "add", "path": "externalId", "value": "x"}], {"externalId": "x"}),
    ([{"op": "replace", "path": "userName", "value": "G@new.example"}], {"userName": "g@new.example"}),
    ([{"op": "replace", "path": 'emails[type eq "work"].value', "value": "g@new.example"}], {"userName": "g@new.example"}),
    ([{"op": "replace", "path": "emails", "value": [{"value": "g@new.example", "primary": True}]}], {"userName": "g@new.example"}),
    ([{"op": "replace", "path": "emails.value", "value": "g@new.example"}], {"userName": "g@new.example"}),
    ([{"op": "replace", "value": {"emails": [{"value": "h@x.example"}], "userName": "g@new.example"}}], {"userName": "g@new.example"}),
    ([{"op": "add", "path": "emails", "value": [{"value": "h@x.example", "type": "home"}]}], {"userName": GRACE}),
    ([{"op": "replace", "path": "emails", "value": [{"value": "h@x.example", "type": "home"}]}], {"userName": GRACE}),
    ([{"op": "replace", "path": "emails", "value": [{"value": "g@new.example", "primary": False}]}], {"userName": GRACE}),
    (
        [
            {
                "op": "replace",
                "path": "emails",
                "value": [{"value": "h@x.example", "type": "home"}, {"value": "g@new.example", "type": "Work"}],
            }
        ],
        {"userName": "g@new.example"},
    ),
    ([{"op": "remove", "path": "emails"}], {"userName": GRACE}),
    ([{"op": "replace", "path": "displayName", "value": [{"$ref": None, "value": "G"}]}], {"displayName": "G"}),
    ([{"op": "replace", "path": "displayName", "value": ""}], {"displayName": None}),
    ([{"op": "replace", "path": "displayName", "value": None}], {"displayName": None}),
    ([{"op": "add", "path": "displayName", "value": None}], {"displayName": None}),
    ([{"op": "replace", "value": {"displayName": None, "externalId": None}}], {"displayName": None, "externalId": None}),
    ([{"op": "replace", "path": "name", "value": None}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "add", "value": {"name": None}}], {"name.familyName": None, "name.givenName": None, "name.formatted": None}),
    ([{"op": "replace", "path": "name.givenName", "value": None}], {"name.givenName": None, "name.familyName": "Hopper"}),
    (
        [{"op": "replace", "path": "active", "value": None}, {"op": "replace", "value": {"emails": None}}],
        {"active": True, "userName": GRACE},
    ),
    ([{"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:displayName", "value": "G"}], {"displayName": "G"}),
    (
        [{"op": "replace", "value": {USER_URN: {"displayName": "G", "active": False}, "externalId": "1"}}],
        {"displayName": "G", "active": False, "externalId": "1"},
    ),
    ([{"op": "replace", "path": USER_URN.lower(), "value": {"displayName": "G", "active": False}}], {"displayName": "G", "active": False}),
    ([{"op": "add", "path": "displayName", "value": "A"}, {"op": "remove", "path": "DISPLAYNAME"}], {"displayName": None}),
]


async def test_patches(directory: Directory) -> None:
    for number, (operations, expected) in enumerate(PATCHES):
        email = f"p{number}@acme.example"
        made = await directory.make(email, **FULL)
        answer = await directory.patch(made["id"], *operations)
        assert answer.status == 200, answer.text
        parts = answer.json["name"] or dict.fromkeys(("formatted", "familyName", "givenName"))
        flat = {**answer.json, **{f"name.{part}": value for part, value in parts.items()}}
        wanted = {name: email if value == GRACE else value for name, value in expected.items()}
        assert {name: flat[name] for name in wanted} == wanted, operations
        assert answer.json == await directory.get(f"/Users/{made['id']}")
        await directory.delete(made["id"])


async def test_patches_that_are_none_change_nothing(directory: Directory) -> None:
    made = await directory.make(**FULL)
    first = {"op": "replace", "path": "displayName", "value": "changed"}
    for operation, kind in [
        ({"op": "move", "path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"op": "replace", "path": 5, "value": "x"}, "invalidSyntax"),
        ("x", "invalidSyntax"),
        ({"op": "replace", "path": "title", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "name.middleName", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": 'name[givenName eq "x"]', "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "a b", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "roles", "value": ["owner"]}, "invalidPath"),
        ({"op": "replace", "path": "password", "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": 'emails[type eq "work"', "value": "x"}, "invalidFilter"),
        ({"op": "replace", "path": 'emails[kind eq "work"]', "value": "x"}, "invalidFilter"),
        ({"op": "replace", "path": 'emails[type eq "home"].value', "value": "x@y.example"}, "noTarget"),
        ({"op": "remove"}, "noTarget"),
        ({"op": "replace", "path": "id", "value": str(uuid4())}, "mutability"),
        ({"op": "replace", "path": "meta.created", "value": "x"}, "mutability"),
        ({"op": "remove", "path": "userName"}, "mutability"),
        ({"op": "replace", "path": "displayName"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": None}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": ""}, "invalidValue"),
        ({"op": "replace", "value": {"userName": None}}, "invalidValue"),
        ({"op": "replace", "value": {"username": GRACE, "userName": GRACE}}, "invalidValue"),
        ({"op": "replace", "value": {"displayName": "x", f"{USER_URN}:displayname": "y"}}, "invalidValue"),
        ({"op": "replace", "path": "name", "value": {"givenName": "x", "givenname": "y"}}, "invalidValue"),
        ({"op": "add", "path": "emails", "value": [{"value": GRACE, "Value": GRACE}]}, "invalidValue"),
        ({"op": "add", "path": "emails", "value": [{"value": GRACE, "type": "x" * 257}]}, "invalidValue"),
        ({"op": "replace", "OP": "add", "path": "displayName", "value": "x"}, "invalidSyntax"),
        ({"op": "replace", "path": "active", "value": "maybe"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": "x"}, "invalidValue"),
        ({"op": "replace", "value": "x"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": "owner@acme.example"}, "uniqueness"),
    ]:  # fmt: skip
        answer = await directory.call(
            "PATCH",
            f"/Users/{made['id']}",
            {"schemas": [PATCH_URN], "Operations": [first, operation]},
        )
        assert problem(answer) == (409 if kind == "uniqueness" else 400, kind), operation
    bodies: list[Any] = [{"Operations": [first]}, {"schemas": [PATCH_URN]}, {"schemas": [], "Operations": []}]
    for body in bodies:
        assert problem(await directory.call("PATCH", f"/Users/{made['id']}", body)) == (400, "invalidSyntax")
    assert await directory.get(f"/Users/{made['id']}") == made


# The address (security.md C-4)


async def test_a_managed_account_gets_another_address(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    session = await sign_in(acme.ports, await account_of(acme, made["id"]))
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        now = acme.ports.clock.now()
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(
                digest(purpose), purpose, UUID(made["id"]), Email(GRACE), created_at=now, expires_at=now + timedelta(hours=1)
            )
    answer = await directory.patch(made["id"], {"op": "replace", "path": "userName", "value": "hopper@acme.example"})
    assert (answer.status, answer.json["userName"], answer.json["emails"][0]["value"]) == (
        200,
        "hopper@acme.example",
        "hopper@acme.example",
    )
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert await run_sql(acme.pool, "select count(*) from one_time_tokens where used_at is null") == [(0,)]
    assert await run_sql(acme.pool, "select kind, address from mails where kind = 'email_changed'") == [("email_changed", GRACE)]
    [(_, _, _, verified, *_)] = await people(acme, "hopper@acme.example")
    assert verified
    assert (await acme.entry("user.email_changed"))["target_id"] == made["id"]


async def account_of(acme: Tenant, user_id: object) -> Any:
    async with acme.ports.storage.reading() as read:
        return await read.accounts.by_id(UUID(str(user_id)))


async def test_whoever_can_sign_in_has_to_prove_an_address_that_is_not_of_the_organizations_own_domain(
    acme: Tenant, directory: Directory
) -> None:
    made = await directory.make()
    await settle(acme, made["id"])
    await run_sql(
        acme.pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
        acme.org,
    )
    await directory.patch(made["id"], {"op": "replace", "path": "userName", "value": "hopper@acme.example"})
    assert (await people(acme, "hopper@acme.example"))[0][3]
    await directory.patch(made["id"], {"op": "replace", "path": "userName", "value": "victim@elsewhere.example"})
    assert not (await people(acme, "victim@elsewhere.example"))[0][3]
    assert await run_sql(acme.pool, "select address from mails where kind = 'verify_email'") == [("victim@elsewhere.example",)]


async def test_the_address_of_an_account_that_is_not_managed_stays(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    own = await member(acme)
    settled = (await directory.make("settled@acme.example"))["id"]
    await settle(acme, settled)
    shared = (await directory.make("shared@acme.example"))["id"]
    await add_member(twin.pool, twin.org, UUID(shared))
    powerful = (await directory.make("powerful@acme.example"))["id"]
    await run_sql(acme.pool, "update memberships set role = 'admin' where user_id = %s", UUID(powerful))
    for user_id in (own, settled, shared, powerful, acme.id("admin")):
        before = await directory.get(f"/Users/{user_id}")
        answer = await directory.patch(
            user_id,
            {"op": "replace", "path": "displayName", "value": "changed"},
            {"op": "replace", "path": "userName", "value": "mallory@acme.example"},
        )
        assert problem(answer) == (403, None)
        assert await directory.get(f"/Users/{user_id}") == before
        assert (await directory.patch(user_id, {"op": "replace", "path": "displayName", "value": "changed"})).status == 200


@pytest.mark.parametrize("way", ["put", "patch"])
@pytest.mark.parametrize("why", ["not managed", "taken", "kept"])
async def test_a_name_that_cannot_be_given_keeps_nobody_active(acme: Tenant, directory: Directory, why: str, way: str) -> None:
    """Directories that send all of a person name them by an old address for as long as they themselves gave another one."""
    made = await directory.make("old@acme.example")
    if why == "not managed":
        await settle(acme, made["id"])
    elif why == "taken":
        await add_account(acme.ports, "wanted@acme.example", None)
    else:
        await directory.make("wanted@acme.example", active=False)
        await run_sql(acme.pool, "update users set email = 'other@example.com' where email = 'wanted@acme.example'")
    if way == "put":
        answer = await directory.put(made["id"], userName="wanted@acme.example", displayName="Old", active=False)
    else:
        wanted = ("userName", "wanted@acme.example"), ("displayName", "Old"), ("active", "False")
        answer = await directory.patch(made["id"], *({"op": "replace", "path": path, "value": value} for path, value in wanted))
    assert answer.status == 200, answer.text
    shown = {name: answer.json[name] for name in ("userName", "displayName", "active")}
    assert shown == {"userName": "old@acme.example", "displayName": "Old", "active": False}
    assert (await people(acme, "old@acme.example"))[0][4]
    renamed = await directory.patch(made["id"], {"op": "replace", "path": "userName", "value": "wanted@acme.example"})
    assert renamed.status in (403, 409)
    again = await directory.put(made["id"], userName="wanted@acme.example", displayName="New", active=True)
    assert again.status in (403, 409)


async def test_names_are_the_organizations_alone(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    shared = await member(acme)
    await add_member(twin.pool, twin.org, UUID(shared))
    await directory.put(shared, userName="ada@example.com", **FULL)
    other = await directory_of(twin)
    assert (await other.get(f"/Users/{shared}"))["displayName"] is None
    assert await other.found('externalId eq "00u1"') == []
    assert await directory.found('externalId eq "00u1"') == ["ada@example.com"]


async def test_owners_cannot_be_touched(acme: Tenant, directory: Directory) -> None:
    promoted = (await directory.make())["id"]
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", UUID(promoted))
    for user_id in (acme.id("owner"), promoted):
        before = await directory.get(f"/Users/{user_id}")
        for answer in (
            await directory.deactivate(user_id),
            await directory.delete(user_id),
            await directory.put(user_id, userName=before["userName"], displayName="x"),
            await directory.patch(user_id, {"op": "replace", "path": "userName", "value": "x@acme.example"}),
        ):
            assert problem(answer) == (403, None)
        assert await directory.get(f"/Users/{user_id}") == before
        assert (await directory.put(user_id, userName=before["userName"])).status == 200  # which is what they are


# Deactivating and deleting (security.md C-5)


async def test_an_account_that_is_the_organizations_is_closed_and_opened_again(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    await settle(acme, made["id"])
    session = await sign_in(acme.ports, await account_of(acme, made["id"]))
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.pre_auths.add(waiting(UUID(made["id"]), acme.ports.clock.now()))
    answer = await directory.deactivate(made["id"])
    assert (answer.status, answer.json["active"]) == (200, False)
    assert await run_sql(acme.pool, "select 1 from pre_auths") == []
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.login(GRACE)).status == 401
    assert [(row[4], row[5]) for row in await people(acme)] == [(True, None)]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(3,)]
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": True}
    assert (await directory.list_users())["totalResults"] == 4
    assert await directory.found("active eq false") == [GRACE]
    assert made["id"] in await directory.group()
    await directory.deactivate(made["id"])
    answer = await directory.activate(made["id"], "True")
    assert (answer.status, answer.json["active"], answer.json["meta"]["created"]) == (200, True, made["meta"]["created"])
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401, "what was before is over for good"
    assert (await refresh(acme.api, session.refresh_token)).status == 401
    assert (await acme.api.login(GRACE)).status == 200
    assert [(row[4], row[5], row[6]) for row in await people(acme)] == [(False, "member", True)]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(4,)]
    assert (await acme.entry("user.reactivated"))["details"] == {"whole_account": True}
    assert [row[0] for row in await run_sql(acme.pool, "select kind from mails")] == ["welcome"]


async def test_with_the_organization_goes_what_its_directory_has_closed(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    ids = {}
    for tenant in (acme, twin):
        here = await directory_of(tenant)
        made = await here.make(f"{tenant.slug}@example.com")
        ids[tenant.slug] = made["id"]
        await settle(tenant, made["id"])
        await here.deactivate(made["id"])
        assert (await tenant.api.login(f"{tenant.slug}@example.com")).status == 401
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert (await acme.api.login(f"{acme.slug}@example.com")).status == 200
    assert (await twin.api.login(f"{twin.slug}@example.com")).status == 401
    assert await run_sql(acme.pool, "select user_id from scim_users where whole_account") == [(UUID(ids[twin.slug]),)]


async def test_a_member_who_took_part_and_is_nowhere_else_is_closed_out_as_a_whole(acme: Tenant, directory: Directory) -> None:
    ada = await member(acme)
    await directory.deactivate(ada)
    assert (await acme.api.login("ada@example.com")).status == 401


@pytest.mark.parametrize("why", ["not confirmed", "member elsewhere", "end user elsewhere", "known elsewhere"])
async def test_of_an_account_that_others_share_the_membership_alone_is_closed(
    acme: Tenant, twin: Tenant, directory: Directory, why: str
) -> None:
    if why == "not confirmed":
        user_id = await member(acme, confirmed=False)
    else:
        user_id = (await directory.make("ada@example.com"))["id"]
        await settle(acme, user_id)
    match why:
        case "member elsewhere":
            await add_member(twin.pool, twin.org, UUID(user_id))
        case "end user elsewhere":
            await run_sql(
                acme.pool,
                """insert into end_users (org_id, user_id, email, deactivated, created_at)
                   select %s, id, email, deactivated, now() from users where id = %s""",
                twin.org,
                UUID(user_id),
            )
        case "known elsewhere":
            await add_provisioned(acme.pool, twin.org, UUID(user_id))
    session = await sign_in(acme.ports, await account_of(acme, user_id), acme.org)
    outside = await sign_in(acme.ports, await account_of(acme, user_id))
    assert (await directory.deactivate(user_id)).json["active"] is False
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.get("/api/user", token=outside.access_token)).status == 200
    assert (await acme.api.get(acme.path, token=outside.access_token)).status == 403
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": False}
    answer = await acme.api.post(acme.invitations, {"email": "ada@example.com", "role": "member"}, token=acme.token("owner"))
    assert (answer.status, answer.json["error"]) == (400, InviteeDeactivated.__doc__)
    assert (await directory.activate(user_id)).json["active"] is True
    if why != "not confirmed":  # which it would be from now on
        assert (await acme.api.get(acme.path, token=outside.access_token)).status == 200
    await directory.deactivate(user_id)
    assert (await directory.delete(user_id)).status == 204
    assert problem(await directory.call("GET", f"/Users/{user_id}")) == (404, None)
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.removed"))["details"] == {"permanently": False, "role": "member"}
    assert problem(await directory.add(user_id)) == (400, "invalidValue")


async def test_whom_the_directory_has_deactivated_gets_into_no_service_of_the_organization(
    acme: Tenant, twin: Tenant, directory: Directory
) -> None:
    """Not even as an end user, which they are besides (security.md C-5, T-5); those of others are open."""
    user_id = (await directory.make("ada@example.com"))["id"]
    await settle(acme, user_id)
    await add_member(twin.pool, twin.org, UUID(user_id))
    await add_service(acme.pool, acme.org, "shop")
    await add_service(twin.pool, twin.org, "shop")

    async def sign_in_to(org: str) -> Answer:
        body = {"email": "ada@example.com", "password": PASSWORD, "org_slug": org, "service_slug": "shop"}
        return await acme.api.post("/api/auth/login", body)

    begun = (await sign_in_to("acme")).json
    assert (await acme.api.get("/api/user", token=begun["access_token"])).json["service"] == "shop"
    await directory.deactivate(user_id)
    assert (await acme.api.get("/api/user", token=begun["access_token"])).status == 401
    assert (await acme.api.post("/api/auth/refresh", {"refresh_token": begun["refresh_token"]})).status == 401
    refused = await sign_in_to("acme")
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert (await sign_in_to("twin")).status == 200
    await directory.activate(user_id)
    assert (await sign_in_to("acme")).status == 200


async def test_nothing_is_asserted_of_whom_the_directory_has_deactivated(
    app: QuartTrio, clock: FakeClock, acme: Tenant, twin: Tenant, directory: Directory
) -> None:
    user_id = (await directory.make("ada@example.com"))["id"]
    await settle(acme, user_id)
    await add_member(twin.pool, twin.org, UUID(user_id))
    application = await add_application(acme.ports, acme.pool, acme.org, "acme")
    browser = SamlBrowser(app, clock)
    onward = await browser.sign_in_at(await browser.start_sign_on(application), "ada@example.com", PASSWORD)
    assert b"ada@example.com" in posted_response(await browser.open(onward)).document
    await directory.deactivate(user_id)
    assert (await browser.open(await browser.start_sign_on(application))).status == 403
    await directory.activate(user_id)
    assert b"ada@example.com" in posted_response(await browser.open(await browser.start_sign_on(application))).document


@pytest.mark.parametrize("deactivated", [False, True])
async def test_deleting_keeps_out_of_services_as_deactivating_does_until_somebody_invites(
    app: QuartTrio, clock: FakeClock, acme: Tenant, twin: Tenant, directory: Directory, sent: FakeMailTransport, deactivated: bool
) -> None:
    user_id = (await directory.make("ada@example.com"))["id"]
    await settle(acme, user_id)
    await add_member(twin.pool, twin.org, UUID(user_id))
    application = await add_application(acme.ports, acme.pool, acme.org, "acme")
    at_service = {"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme", "service_slug": application.slug}
    browser = SamlBrowser(app, clock)
    onward = await browser.sign_in_at(await browser.start_sign_on(application), "ada@example.com", PASSWORD)
    assert b"ada@example.com" in posted_response(await browser.open(onward)).document
    if deactivated:
        await directory.deactivate(user_id)
    assert (await directory.delete(user_id)).status == 204
    assert (await browser.open(await browser.start_sign_on(application))).status == 403
    assert (await acme.api.post("/api/auth/login", at_service)).status == 403
    assert (await acme.api.get(f"{acme.path}/users", token=acme.token("owner"))).json["pagination"]["total"] == 0
    assert problem(await directory.try_make("ada@example.com")) == (409, "uniqueness")
    # Whom only this directory keeps out is not somebody who is known elsewhere, too.
    other = await directory_of(twin)
    assert (await other.delete(user_id)).status == 204
    assert (await acme.api.login("ada@example.com")).status == 200

    invited = {"email": "ada@example.com", "role": "member"}
    assert (await acme.api.post(acme.invitations, invited, token=acme.token("owner"))).status == 200
    await deliver(acme.ports)
    me = (await acme.api.login("ada@example.com")).json["access_token"]
    token = link(sent.letters[-1])
    accepted = await acme.api.post("/api/invitations/accept", {"token": token}, token=me)
    assert accepted.status == 200, accepted.text
    assert (await acme.api.post("/api/auth/login", at_service)).status == 200
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_an_invitation_does_not_undo_what_the_directory_has_done(
    acme: Tenant, twin: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    user_id = (await directory.make("ada@example.com"))["id"]
    await settle(acme, user_id)
    await add_member(twin.pool, twin.org, UUID(user_id))
    await directory.deactivate(user_id)
    await run_sql(acme.pool, "update users set email = 'lovelace@example.com' where id = %s", UUID(user_id))  # as they alone know
    invited = {"email": "lovelace@example.com", "role": "member"}
    assert (await acme.api.post(acme.invitations, invited, token=acme.token("owner"))).status == 200
    await deliver(acme.ports)
    token = link(sent.letters[-1])
    assert (await acme.api.post("/api/invitations/accept", {"token": token})).status == 400
    me = (await acme.api.login("lovelace@example.com")).json["access_token"]
    refused = await acme.api.post("/api/invitations/accept", {"token": token}, token=me)
    assert (refused.status, refused.json["error"]) == (403, BlockedByDirectory.__doc__)


async def test_the_welcome_leads_to_a_password(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    await directory.make()
    await deliver(acme.ports)
    [letter] = sent.letters
    assert (letter.to, letter.subject) == (GRACE, "Your new account - Acme")
    token = link(letter)
    answer = await acme.api.post("/api/auth/reset-password", {"token": token, "new_password": "another good password"})
    assert answer.status == 200, answer.text
    assert (await acme.api.login(GRACE, "another good password")).status == 200


@pytest.mark.parametrize("first", ["the mailer", "the directory"])
async def test_the_welcome_goes_to_the_address_that_somebody_has_by_now(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, first: str
) -> None:
    made = await directory.make("wrong@acme.example")
    if first == "the mailer":
        await deliver(acme.ports)
    for email in ("next@acme.example", "wrong@acme.example", GRACE):  # there and back again
        assert (await directory.put(made["id"], userName=email)).status == 200
    before = len(sent.letters)
    await deliver(acme.ports)
    [welcome] = [letter for letter in sent.letters[before:] if letter.subject == "Your new account - Acme"]
    assert welcome.to == GRACE
    answer = await acme.api.post("/api/auth/reset-password", {"token": link(welcome), "new_password": "another good password"})
    assert answer.status == 200, answer.text
    assert (await acme.api.login(GRACE, "another good password")).status == 200


async def test_a_link_that_waits_for_a_mail_server_dies_with_its_address(
    acme: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    made = await directory.make("wrong@acme.example")
    [mail] = await email_queue.claim_due(acme.ports, 10)
    assert isinstance(await email_preparation.prepare(acme.ports, mail), tuple)
    await email_queue.record_failure(acme.ports, mail, "it is away", 0)
    await directory.put(made["id"], userName=GRACE)
    await run_sql(acme.pool, "update mails set due_at = created_at")
    await deliver(acme.ports)
    assert {(letter.to, letter.subject) for letter in sent.letters} == {
        (GRACE, "Your new account - Acme"),
        ("wrong@acme.example", "Your email address was changed - Acme"),
    }


async def test_who_is_not_active_is_welcomed_once_they_are(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    made = await directory.make("wrong@acme.example", active=False)
    await directory.put(made["id"], userName=GRACE)
    assert await run_sql(acme.pool, "select kind from mails where kind = 'welcome'") == []
    await directory.activate(made["id"])
    await deliver(acme.ports)
    assert [letter.to for letter in sent.letters if letter.subject.startswith("Your new account")] == [GRACE]


async def test_who_has_a_password_is_not_welcomed_again(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    await settle(acme, made["id"])
    await run_sql(
        acme.pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
        acme.org,
    )
    assert (await directory.put(made["id"], userName="hopper@acme.example")).status == 200
    assert await run_sql(acme.pool, "select address from mails where kind = 'welcome'") == [(GRACE,)]


async def test_welcomes_are_limited_apart_from_what_people_need_to_get_in(
    acme: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    for _ in range(7):
        made = await directory.make()
        await deliver(acme.ports)
        await directory.delete(made["id"])
    assert len(sent.letters) == 5
    await directory.make()
    await acme.api.post("/api/auth/forgot-password", {"email": GRACE})
    await deliver(acme.ports)
    assert [letter.subject for letter in sent.letters[5:]] == ["Choose a new password - Gatehouse"]


async def test_whose_address_a_directory_gives_and_takes_is_told_five_times_an_hour(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, clock: FakeClock
) -> None:
    made = await directory.make()
    await deliver(acme.ports)
    for _ in range(7):
        for email in ("hopper@acme.example", GRACE):
            assert (await directory.put(made["id"], userName=email)).status == 200
            await deliver(acme.ports)
    told = Counter(letter.to for letter in sent.letters if letter.subject.startswith("Your email address"))
    assert told == {GRACE: 5, "hopper@acme.example": 5}
    before = len(sent.letters)
    clock.advance(timedelta(hours=1))
    await directory.put(made["id"], userName="hopper@acme.example")
    await deliver(acme.ports)
    assert sorted(letter.to for letter in sent.letters[before:]) == [GRACE, "hopper@acme.example"]


async def test_so_many_mails_of_a_directory_go_out_in_a_day_and_the_others_later(
    app: QuartTrio, acme: Tenant, twin: Tenant, directory: Directory, sent: FakeMailTransport, clock: FakeClock
) -> None:
    change_ports(app, policy=replace(acme.ports.policy, invitations_per_day=3))
    other = await directory_of(twin)
    made = [(await directory.make(f"p{number}@acme.example"))["id"] for number in range(5)]
    await directory.put(made[0], userName="p9@acme.example")
    await other.make("q@twin.example")

    async def delivered() -> list[str]:
        before = len(sent.letters)
        await deliver(acme.ports)
        return sorted(letter.to.partition("@")[0] for letter in sent.letters[before:])

    assert await delivered() == ["p1", "p2", "q"]  # the address of the first one is another by now
    clock.advance(timedelta(hours=23))
    assert await delivered() == []
    clock.advance(timedelta(hours=1, minutes=5))
    assert await delivered() == ["p3", "p4", "p9"]
    clock.advance(timedelta(hours=24, minutes=5))
    assert await delivered() == ["p0"]
    for user_id in made[:3]:
        await directory.delete(user_id)
    for number in range(3):
        await directory.make(f"r{number}@acme.example")
    assert await delivered() == ["r0", "r1"]


async def test_activating_counts_against_the_limit(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    await directory.deactivate(made["id"])
    await acme.allow(4)
    await directory.make("next@acme.example")
    assert problem(await directory.activate(made["id"])) == (400, None)
    assert (await directory.get(f"/Users/{made['id']}"))["active"] is False


async def test_whoever_is_made_inactive_is_welcomed_when_they_are_activated(acme: Tenant, directory: Directory) -> None:
    made = await directory.make(active=False)
    assert made["active"] is False
    assert [(row[4], row[5]) for row in await people(acme)] == [(True, None)]
    assert await run_sql(acme.pool, "select kind from mails") == []
    await directory.activate(made["id"])
    assert await run_sql(acme.pool, "select kind from mails") == [("welcome",)]


async def test_nobody_is_welcomed_once_more_while_their_welcome_waits(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    made = await directory.make()
    for _ in range(3):
        await directory.deactivate(made["id"])
        await directory.activate(made["id"])
    assert await run_sql(acme.pool, "select kind from mails") == [("welcome",)]
    await deliver(acme.ports)
    assert [letter.to for letter in sent.letters] == [GRACE]
    await directory.deactivate(made["id"])
    await directory.activate(made["id"])
    await deliver(acme.ports)
    assert [letter.to for letter in sent.letters] == [GRACE, GRACE], "the link of the first one may have died meanwhile"


async def test_an_account_that_is_the_organizations_is_deleted_for_good(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    session = await sign_in(acme.ports, await account_of(acme, made["id"]))
    assert (await directory.delete(made["id"])).status == 204
    assert problem(await directory.delete(made["id"])) == (404, None)
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await refresh(acme.api, session.refresh_token)).status == 401
    assert await people(acme) == []
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(3,)]
    assert (await acme.entry("user.removed"))["details"] == {"permanently": True, "role": "member"}
    assert (await directory.make())["id"] != made["id"]


async def test_of_many_at_once_one_deletes(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    answers = await everyone(5, lambda n: directory.delete(made["id"]) if n % 2 else directory.deactivate(made["id"]))
    assert [answer.status for answer in answers].count(204) == 1
    assert {answer.status for answer in answers} <= {200, 204, 404}
    await acme.check()


async def test_who_was_anonymized_can_only_be_removed(acme: Tenant, directory: Directory) -> None:
    made = await directory.make(**FULL)
    answer = await acme.api.delete(f"/api/privacy/forget/{made['id']}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    shown = await directory.get(f"/Users/{made['id']}")
    assert (shown["active"], shown["displayName"], shown["externalId"], shown["name"]) == (False, None, None, None)
    assert shown["userName"].startswith("anonymized-")
    assert problem(await directory.activate(made["id"])) == (403, None)
    assert problem(await directory.patch(made["id"], {"op": "replace", "path": "displayName", "value": "G"})) == (403, None)
    assert (await directory.delete(made["id"])).status == 204
    assert await run_sql(acme.pool, "select count(*) from users where id = %s", UUID(made["id"])) == [(1,)]


async def test_who_was_anonymized_does_not_come_back_to_the_group(acme: Tenant, directory: Directory) -> None:
    gone, other = (await directory.make())["id"], (await directory.make("other@acme.example"))["id"]
    answer = await acme.api.delete(f"/api/privacy/forget/{gone}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    for each in (gone, other):
        assert (await directory.remove(each)).status == 200
    assert problem(await directory.add(gone, other)) == (400, "invalidValue")
    assert problem(await directory.put_group(gone)) == (400, "invalidValue")
    assert (await directory.add(other)).status == 200
    assert await directory.group() == {*(acme.id(name) for name in acme.people), other}


async def test_the_privacy_of_whom_the_directory_deactivated_is_still_the_organizations_to_see_to(
    acme: Tenant, twin: Tenant, directory: Directory
) -> None:
    shared = (await directory.make())["id"]
    await add_member(twin.pool, twin.org, UUID(shared), confirmed=True)
    await directory.deactivate(shared)
    answer = await twin.api.delete(f"/api/privacy/forget/{shared}", token=twin.token("owner"))
    assert answer.status == 403


async def test_whom_the_directory_put_away_can_be_demoted(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    answer = await acme.set_role("owner", "admin", "member")
    assert (answer.status, answer.json["membership"]["role"]) == (200, "member")
    assert "admin" not in await acme.check()
    assert (await acme.entry("user.role_updated"))["details"] == {"old_role": "admin", "new_role": "member"}
    await directory.activate(admin)
    assert (await acme.check())["admin"] == Role.MEMBER


async def test_whom_the_directory_put_away_can_be_removed(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    assert (await acme.remove("owner", "admin")).status == 200
    assert (await acme.entry("user.removed"))["details"] == {"role": "admin"}
    assert admin not in await directory.group()
    assert (await acme.remove("owner", "admin")).status == 404
    assert (await acme.set_role("owner", "admin", "member")).status == 404
    assert (await directory.get(f"/Users/{admin}"))["active"] is False  # they still are kept out, until the directory says otherwise
    await directory.activate(admin)
    assert "admin" not in await acme.check()


async def test_an_export_has_the_membership_that_was_put_away(acme: Tenant, twin: Tenant, directory: Directory) -> None:
    admin = acme.people["admin"].id
    await add_member(twin.pool, twin.org, admin)
    async with acme.ports.storage.reading() as read:
        before = await read.privacy.memberships(admin, None, None, 10)
    await directory.deactivate(admin)
    async with acme.ports.storage.reading() as read:
        assert await read.privacy.memberships(admin, None, None, 10) == before
        assert [each.org_slug for each in await read.privacy.memberships(admin, {acme.org}, None, 10)] == ["acme"]
        assert await read.privacy.memberships(admin, None, before[0], 10) == before[1:]
    assert len(before) == 2


async def test_roles_stay_over_a_deactivation(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    await directory.activate(admin)
    assert (await acme.check())["admin"] == Role.ADMIN


# What is too much, or means nothing


async def test_a_user_has_a_few_addresses(directory: Directory) -> None:
    made = await directory.make()
    many = [{"value": f"a{number}@acme.example"} for number in range(11)]
    assert problem(await directory.try_make("ada@acme.example", emails=many)) == (400, "invalidValue")
    one_by_one = [{"op": "add", "path": "emails", "value": [each]} for each in many]
    assert problem(await directory.patch(made["id"], *one_by_one)) == (400, "invalidValue")
    assert await directory.get(f"/Users/{made['id']}") == made


async def test_a_patch_has_as_many_operations_as_a_body_holds_and_nobody_waits_for_them(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def noted(*of: Any) -> Any:
        threads.add(threading.get_ident())
        return apply_operations(*of)

    monkeypatch.setattr(scim_users_routes, "apply_operations", noted)
    made = await directory.make()
    operations = [{"op": "add", "path": "displayName", "value": f"n{number}"} for number in range(15_000)]
    answer = await directory.patch(made["id"], *operations)
    assert (answer.status, answer.json["displayName"]) == (200, "n14999")
    assert threading.get_ident() not in threads
    assert problem(await directory.patch(made["id"], *operations, {"op": "remove", "path": "userName"})) == (400, "mutability")
    assert problem(await directory.patch(made["id"], *operations * 2)) == (413, None)
    assert (await directory.get(f"/Users/{made['id']}"))["displayName"] == "n14999"


async def test_a_patch_is_of_what_somebody_is_when_it_is_done(acme: Tenant, directory: Directory) -> None:
    """Nobody is locked while the operations are gone through."""
    made = await directory.make()
    caller = await scim_tokens.authenticate(acme.ports, directory.token, address=None, agent=None)
    seen = list[Any]()

    async def changed(before: Any) -> Any:
        seen.append(before["displayName"])
        if len(seen) == 1:
            await directory.patch(made["id"], {"op": "add", "path": "displayName", "value": "Grace"})
        return {**before, "externalId": "g1"}

    found = await scim_users.patch(acme.ports, caller, UUID(made["id"]), changed)
    assert seen == [None, "Grace"]
    assert (found.description.display_name, found.description.external_id) == ("Grace", "g1")


@pytest.mark.parametrize(
    ("shut", "refusal"),
    [
        ("update organizations set status = 'suspended'", OrganizationNotActive),
        ("delete from scim_tokens", ScimTokenInvalid),
        ("delete from organizations", ScimTokenInvalid),
    ],
)
async def test_the_door_is_shut_behind_whoever_has_come_through_it(
    acme: Tenant, directory: Directory, shut: LiteralString, refusal: type[Refusal]
) -> None:
    caller = await scim_tokens.authenticate(acme.ports, directory.token, address=None, agent=None)
    await run_sql(acme.pool, shut)
    new = ScimUserData(Email.parse(GRACE), ScimProfile(), active=None)
    with pytest.raises(refusal):
        await scim_users.create(acme.ports, caller, new)
    with pytest.raises(refusal):
        await scim_users.replace(acme.ports, caller, acme.people["member"].id, new)
    with pytest.raises(refusal):
        await scim_users.delete(acme.ports, caller, acme.people["member"].id)
    with pytest.raises(refusal):
        await scim_groups.change_members(acme.ports, caller, acme.org, MemberChanges(removed=frozenset({acme.people["member"].id})))
    assert await run_sql(acme.pool, "select 1 from users where email = %s", GRACE) == []


async def test_a_user_name_that_is_named_wins_over_emails_also_where_it_is_what_it_was(acme: Tenant, directory: Directory) -> None:
    made = await directory.make()
    other = {"emails": [{"value": "hopper@acme.example", "type": "work", "primary": True}]}
    for operations in (
        [{"op": "replace", "value": {"userName": GRACE, **other}}],
        [{"op": "replace", "value": {**other, "username": GRACE.upper()}}],
        [{"op": "replace", "path": "userName", "value": GRACE}, {"op": "replace", "value": other}],
    ):
        answer = await directory.patch(made["id"], *operations)
        assert (answer.status, answer.json) == (200, made)
    assert await run_sql(acme.pool, "select kind from mails") == [("welcome",)]


async def test_an_address_without_a_value_changes_nothing(directory: Directory) -> None:
    made = await directory.make()
    for filter_ in ('value eq ""', "value eq null"):
        answer = await directory.patch(
            made["id"],
            {"op": "remove", "path": "emails"},
            {"op": "add", "path": f"emails[{filter_}].type", "value": "work"},
        )
        assert answer.status in (200, 400), answer.text
    assert (await directory.get(f"/Users/{made['id']}"))["userName"] == GRACE


async def test_what_nobody_keeps_may_have_lines(directory: Directory) -> None:
    """RFC 7643, section 8.2, has such an address."""
    made = await directory.make(addresses=[{"formatted": "100 Universal City Plaza\nHollywood, CA 91608 USA"}])
    assert made["userName"] == GRACE
    assert problem(await directory.try_make("ada@acme.example", displayName="A\nB")) == (400, "invalidValue")


async def test_names_are_found_by_their_own_spelling(directory: Directory) -> None:
    for number, name in enumerate(("\u0130PEK", "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3", "\u00c9MILE")):
        email = f"n{number}@acme.example"
        await directory.make(email, name={"givenName": name})
        assert await directory.found(f'name.givenName eq "{name}"') == [email]

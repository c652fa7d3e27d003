"""An application's claims: names, prefixes, sources, and token limits."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from core.accounts.model.profiles import Profile
from core.authentication.model.claim_document import (
    LIST_CLAIMS,
    MAX_CLAIMS,
    REPLACEABLE,
    RESERVED,
    ClaimDocument,
    ClaimDocumentInvalid,
)
from core.authentication.model.claim_rules import (
    MAX_BYTES,
    MAX_GROUPS,
    access_token_claims,
    id_token_claims,
    introspection_claims,
    userinfo_claims,
)
from core.authentication.model.openid import USER_CLAIMS, FurtherFacts, GroupFact, OpenIdGrant, RequestedClaims, Scope, UserFacts
from core.authentication.model.sessions import NO_ENTITLEMENT
from core.kernel.roles import ADMIN
from core.kernel.values import Email
from tests.tables import table

USERINFO: Final = "https://sso.example/auth/userinfo"
ALL: Final = OpenIdGrant(tuple(Scope))
STAFF: Final = GroupFact(UUID(int=1), "Staff", "ext-1")
OPS: Final = GroupFact(UUID(int=2), "Ops", is_assigned=False)
LISTS: Final = ["roles", "permissions", "groups"]


def facts(document: dict[str, Any] | None = None, *, verified: bool = True, **further: Any) -> UserFacts:
    stored = None if document is None else ClaimDocument.parse(document).document
    return UserFacts(
        email=Email("ada@example.com"),
        email_verified=verified,
        profile=Profile(name="Ada Lovelace", preferred_username="countess"),
        role=ADMIN,
        entitlement=NO_ENTITLEMENT,
        further=FurtherFacts(document=stored, **{"groups": (STAFF, OPS), "app_roles": ("editor",), **further}),
    )


def values(*sources: str, scope: str | None = None) -> dict[str, Any]:
    return {"sources": list(sources), "scope": scope}


def test_roles_have_the_role_of_the_organization_first() -> None:
    user = facts(further_roles=("auditor",), app_roles=("editor", "auditor"), permissions=("documents:write",))
    claims = userinfo_claims(user, ALL)
    assert {name: claims[name] for name in LISTS} == {
        "roles": ["admin", "auditor", "editor"],
        "permissions": ["documents:write"],
        "groups": ["Staff", "Ops"],
    }
    assert id_token_claims(user, ALL, USERINFO) == claims
    assert not {*LISTS} & userinfo_claims(user, OpenIdGrant((Scope.OPENID, Scope.PROFILE))).keys()


def test_claims_get_other_names_prefixes_and_fixed_values() -> None:
    document: dict[str, Any] = {
        "names": {"groups": "cognito:groups", "name": "full_name"},
        "prefix": {"groups": "oidc:", "roles": "acme/"},
        "fixed": {"tenant": "acme", "level": 3, "beta": True, "areas": ["eu", "us"]},
    }
    claims = id_token_claims(facts(document), ALL, USERINFO)
    assert claims["cognito:groups"] == ["oidc:Staff", "oidc:Ops"]
    assert claims["roles"] == ["acme/admin", "acme/editor"]
    assert {name: claims[name] for name in document["fixed"]} == document["fixed"]
    assert claims["full_name"] == "Ada Lovelace"
    assert not {"groups", "name"} & claims.keys()
    only_openid = id_token_claims(facts(document), OpenIdGrant((Scope.OPENID,)), USERINFO)
    assert only_openid == document["fixed"], "fixed values need no scope"


@table(
    ("rule", "expected"),
    [
        ({}, ["Staff", "Ops"]),
        ({"which": "assigned"}, ["Staff"]),
        ({"value": "id"}, [str(STAFF.id), str(OPS.id)]),
        ({"value": "external_id"}, ["ext-1"]),
    ],
)
def test_a_group_is_its_name_id_or_external_id(rule: dict[str, str], expected: list[str]) -> None:
    assert userinfo_claims(facts({"groups": rule}), ALL)["groups"] == expected


def test_the_first_source_with_a_value_counts() -> None:
    document: dict[str, Any] = {
        "values": {
            "preferred_username": values("attribute:login", "email_local_part"),
            "department": values("directory:department", "attribute:department", scope="org"),
            "boss": values("directory:managerName"),
        }
    }
    grant = OpenIdGrant((Scope.OPENID, Scope.PROFILE, Scope.EMAIL))
    directory = {"department": "", "manager": {"value": "7", "displayName": "Charles"}}
    user = facts(document, attributes={"department": "Research"}, directory=directory)
    claims = userinfo_claims(user, grant)
    assert claims["preferred_username"] == "ada"
    assert claims["boss"] == "Charles"
    assert "department" not in claims, "its scope was not granted"
    assert userinfo_claims(user, ALL)["department"] == "Research"
    assert userinfo_claims(facts(document, attributes={"login": "al"}), grant)["preferred_username"] == "al"
    unverified = userinfo_claims(facts(document, verified=False), grant)
    assert "preferred_username" not in unverified, "an address that is not verified may be another person's"


def test_a_source_gives_nothing_that_its_own_scope_would_not_give() -> None:
    document = {"values": {"preferred_username": values("email"), "nick": values("name", scope="org")}}
    claims = userinfo_claims(facts(document), OpenIdGrant((Scope.OPENID, Scope.PROFILE)))
    assert "preferred_username" not in claims, "without the scope email"
    assert "nick" not in userinfo_claims(facts(document), OpenIdGrant((Scope.OPENID, Scope.ORG))), "without the scope profile"
    assert userinfo_claims(facts(document), ALL)["nick"] == "Ada Lovelace"


def test_claims_requested_by_name_have_the_names_of_the_application() -> None:
    document = {"names": {"groups": "g"}, "values": {"preferred_username": values("attribute:login")}}
    grant = OpenIdGrant((Scope.OPENID,), RequestedClaims(id_token=("groups", "preferred_username")))
    claims = id_token_claims(facts(document, attributes={"login": "al"}), grant, USERINFO)
    assert claims == {"g": ["Staff", "Ops"], "preferred_username": "al"}
    assert userinfo_claims(facts(document), grant) == {}


def test_access_tokens_have_the_chosen_claims_of_granted_scopes() -> None:
    document: dict[str, Any] = {
        "names": {"groups": "teams"},
        "fixed": {"tenant": "acme"},
        "values": {"cost_center": values("attribute:cost_center")},
        "access_token": ["roles", "groups", "tenant", "cost_center"],
    }
    user = facts(document, attributes={"cost_center": "42"})
    expected = {"roles": ["admin", "editor"], "teams": ["Staff", "Ops"], "tenant": "acme", "cost_center": "42"}
    assert access_token_claims(user, ALL) == introspection_claims(user, ALL) == expected
    assert access_token_claims(user, OpenIdGrant((Scope.OPENID, Scope.ROLES))) == {"roles": ["admin", "editor"], "tenant": "acme"}
    assert access_token_claims(user, OpenIdGrant(())) == {}, "without openid"
    assert access_token_claims(facts(), ALL) == {}, "without a document"


def many(count: int, length: int = 10) -> tuple[GroupFact, ...]:
    return tuple(GroupFact(UUID(int=number), f"{number:0{length}}") for number in range(count))


@table("groups", [many(MAX_GROUPS + 1, 3), many(100, 60)])
def test_the_largest_claim_is_left_out_of_tokens_but_not_elsewhere(groups: tuple[GroupFact, ...]) -> None:
    document = {"names": {"groups": "g"}, "access_token": LISTS}
    user = facts(document, groups=groups)
    claims = id_token_claims(user, ALL, USERINFO)
    assert "g" not in claims
    assert claims["roles"] == ["admin", "editor"]
    assert (claims["_claim_names"], claims["_claim_sources"]) == ({"g": "userinfo"}, {"userinfo": {"endpoint": USERINFO}})
    access = access_token_claims(user, ALL)
    assert access == {"roles": ["admin", "editor"], "permissions": [], "groups_omitted": True}
    for complete in (userinfo_claims(user, ALL), introspection_claims(user, ALL)):
        assert len(complete["g"]) == len(groups)
        assert not {"_claim_names", "groups_omitted"} & complete.keys()


def test_claims_are_left_out_until_the_others_fit() -> None:
    user = facts({"access_token": LISTS}, groups=many(100, 30), permissions=tuple(f"documents:{n:040}" for n in range(100)))
    claims = id_token_claims(user, ALL, USERINFO)
    assert claims["_claim_names"] == {"permissions": "userinfo"}
    assert len(json.dumps(claims["groups"])) <= MAX_BYTES
    both = facts({"access_token": LISTS}, groups=many(100, 60), permissions=tuple(f"documents:{n:040}" for n in range(100)))
    assert access_token_claims(both, ALL) == {"roles": ["admin", "editor"], "groups_omitted": True, "permissions_omitted": True}


@table("fixed", [{}, {"tenant": "t" * 1000}])
@table("names", [[f"{number:040}" for number in range(49)], [str(number) + "\U00020000" * 99 for number in range(5)]])
@table("length", [1, 70, 500])
def test_names_and_marks_count_towards_the_limit(names: list[str], fixed: dict[str, Any], length: int) -> None:
    document = {"values": {name: values("attribute:x") for name in names}, "fixed": fixed, "access_token": [*LISTS, *names, *fixed]}
    user = facts(document, attributes={"x": "x" * length}, groups=many(100, 60))
    access, id_token = access_token_claims(user, ALL), id_token_claims(user, ALL, USERINFO)
    own = {name: value for name, value in id_token.items() if name in (*LISTS, *names, *fixed, "_claim_names")}
    for claims in (access, own):
        assert len(json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode()) <= MAX_BYTES + 20  # `_claim_names`


def test_the_limits_hold_without_a_document() -> None:
    claims = id_token_claims(facts(groups=many(MAX_GROUPS + 1)), ALL, USERINFO)
    assert claims["_claim_names"] == {"groups": "userinfo"}
    assert "groups" in id_token_claims(facts(groups=many(MAX_GROUPS)), ALL, USERINFO)


REFUSED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "a claim of the protocol": ("fixed", {"fixed": {"sub": "x"}}),
    "one in other letters": ("fixed", {"fixed": {"ISS": "x"}}),
    "one of access tokens": ("values", {"values": {"token_use": values("name")}}),
    "a verified address": ("fixed", {"fixed": {"email_verified": True}}),
    "another address": ("values", {"values": {"email": values("attribute:mail")}}),
    "an organization": ("names", {"names": {"roles": "org_id"}}),
    "a standard claim that is renamed to one of the protocol": ("names", {"names": {"roles": "aud"}}),
    "two claims with one name": ("names", {"names": {"roles": "x", "groups": "x"}}),
    "a name with a space": ("fixed", {"fixed": {"a b": "x"}}),
    "an empty name": ("names", {"names": {"roles": ""}}),
    "a long name": ("fixed", {"fixed": {"x" * 101: "x"}}),
    "an unknown claim": ("names", {"names": {"phone": "x"}}),
    "a prefix of a text": ("prefix", {"prefix": {"name": "x"}}),
    "an empty prefix": ("prefix.groups", {"prefix": {"groups": ""}}),
    "a control character": ("fixed", {"fixed": {"x": "a\n"}}),
    "long fixed values": ("fixed", {"fixed": {"x": "é" * 600}}),
    "a large number": ("fixed", {"fixed": {"x": 2**60}}),
    "no source": ("values", {"values": {"x": values()}}),
    "a source twice": ("values", {"values": {"x": values("name", "name")}}),
    "an unknown source": ("values", {"values": {"x": values("password")}}),
    "an unknown value of a directory": ("values", {"values": {"x": values("directory:password")}}),
    "an attribute with a wrong name": ("values", {"values": {"x": values("attribute:A b")}}),
    "an unknown scope": ("values", {"values": {"x": values("name", scope="openid")}}),
    "another scope of a claim of the profile": ("values", {"values": {"nickname": values("name", scope="org")}}),
    "an unknown claim in access tokens": ("access_token", {"access_token": ["email"]}),
    "a claim twice in access tokens": ("access_token", {"access_token": ["roles", "roles"]}),
    "a mark of access tokens": ("values", {"values": {"cost_Omitted": values("name")}}),
    "long names": ("names", {"values": {f"{number:042}": values("name") for number in range(49)}}),
    "too many claims": ("names", {"fixed": {f"x{number}": 1 for number in range(MAX_CLAIMS + 1)}}),
}


@table(("member", "document"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_document_is_refused_with_its_member(member: str, document: dict[str, Any]) -> None:
    with pytest.raises(ClaimDocumentInvalid) as refusal:
        ClaimDocument.parse(document)
    assert refusal.value.member == member


def ways_to_replace(fact: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the ways to rename another claim to this fact's name: the source, the member and the document."""
    renamed = {fact: "renamed"} if fact in USER_CLAIMS else {}
    for name in {fact, fact.upper()}:
        for claim in sorted(USER_CLAIMS - {fact}):
            yield claim, "names", {"names": {**renamed, claim: name}}
        yield name, "fixed", {"names": renamed, "fixed": {name: "x"}}
        yield name, "values", {"names": renamed, "values": {name: values("attribute:x")}}


def refused_member(document: dict[str, Any]) -> str | None:
    try:
        ClaimDocument.parse(document)
    except ClaimDocumentInvalid as refusal:
        return refusal.member
    return None


@table("fact", sorted(USER_CLAIMS | RESERVED))
def test_no_claim_takes_the_name_of_a_fact(fact: str) -> None:
    """List claims may swap names, and values may replace some profile claims."""
    for source, member, document in ways_to_replace(fact):
        is_swap = member == "names" and {source, fact} <= set(LIST_CLAIMS)
        is_allowed = is_swap or (member == "values" and source in REPLACEABLE)
        assert refused_member(document) == (None if is_allowed else member), document


def test_a_standard_claim_can_have_its_own_name_in_other_letters() -> None:
    assert userinfo_claims(facts({"names": {"email": "Email"}}), ALL)["Email"] == "ada@example.com"


def test_lists_can_swap_their_names() -> None:
    user = facts({"names": {"roles": "groups", "groups": "roles"}})
    claims = userinfo_claims(user, ALL)
    assert (claims["groups"], claims["roles"]) == (["admin", "editor"], ["Staff", "Ops"])


def test_a_document_is_read_as_it_was_written() -> None:
    document: dict[str, Any] = {
        "names": {"groups": "g"},
        "prefix": {"groups": "p:"},
        "fixed": {"tenant": "acme"},
        "values": {"x": values("name", scope="org")},
        "groups": {"which": "assigned", "value": "id"},
        "access_token": ["roles"],
        "unknown": True,
    }
    stored = ClaimDocument.parse(document).document
    assert stored == {name: value for name, value in document.items() if name != "unknown"}
    assert ClaimDocument.read(stored).document == stored
    assert ClaimDocument.read({}).document == ClaimDocument().document


# Stored document parts that `parse` refuses because another release had different rules, and the rest that counts.
STALE: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "a name of the protocol": ({"names": {"groups": "sub"}}, {}),
    "the name of another fact": ({"names": {"preferred_username": "email", "email": "mail"}}, {"names": {"email": "mail"}}),
    "a standard claim that is gone": ({"names": {"shoe_size": "size"}}, {}),
    "two claims of one name": ({"names": {"name": "same", "nickname": "Same"}}, {}),
    "no text": ({"names": {"name": 3}}, {}),
    "names of another form": ({"names": ["name"]}, {}),
    "a value with the name of a fact": ({"values": {"email_verified": values("name")}}, {}),
    "a value with a name of the protocol": ({"values": {"aud": values("name"), "x": values("name")}}, {"values": {"x": values("name")}}),
    "an unknown source": ({"values": {"x": values("password", "name")}}, {"values": {"x": values("name")}}),
    "unknown sources only": ({"values": {"preferred_username": values("shoe_size")}}, {"values": {"preferred_username": values()}}),
    "an unknown scope": ({"values": {"x": {"sources": ["name"], "scope": "shoes"}}}, {"values": {"x": values()}}),
    "a wider scope of a replaced claim": ({"values": {"nickname": values("name", scope="org")}}, {"values": {"nickname": values()}}),
    "no sources": ({"values": {"x": {}, "y": "name"}}, {"values": {"x": values(), "y": values()}}),
    "a fixed fact": ({"fixed": {"email": "owner@acme.example", "tenant": "acme"}}, {"fixed": {"tenant": "acme"}}),
    "a fixed value of another kind": ({"fixed": {"tenant": {"a": 1}}}, {}),
    "a fixed and an own claim of one name": (
        {"values": {"x": values("name")}, "fixed": {"X": "y"}},
        {"values": {"x": values("name")}},
    ),
    "a prefix of another claim": ({"prefix": {"email": "x", "groups": "g:"}}, {"prefix": {"groups": "g:"}}),
    "a prefix without text": ({"prefix": {"groups": ""}}, {}),
    "an unknown choice of groups": ({"groups": {"which": "newest"}}, {"groups": {"which": "assigned", "value": "name"}}),
    "an unknown value of groups": ({"groups": {"value": "color"}}, {"groups": {"which": "all", "value": "id"}}),
    "a claim of access tokens that is gone": ({"access_token": ["roles", "shoe_size"]}, {"access_token": ["roles"]}),
    "access tokens of another form": ({"access_token": 3}, {}),
}


@table(("stored", "left"), STALE.values(), ids=STALE)
def test_a_stale_part_of_a_stored_document_counts_no_longer(stored: dict[str, Any], left: dict[str, Any]) -> None:
    with pytest.raises((ClaimDocumentInvalid, KeyError, TypeError, ValueError, AttributeError)):
        ClaimDocument.parse(stored)
    read = ClaimDocument.read(stored)
    of_values = {name: {**mapped, "scope": "profile"} for name, mapped in left.get("values", {}).items()}
    expected = left | ({"values": of_values} if of_values else {})
    assert read.document == ClaimDocument().document | expected
    again = {**read.document, "values": {name: mapped for name, mapped in read.document["values"].items() if mapped["sources"]}}
    assert ClaimDocument.parse(again).document == again, "the rest is valid"

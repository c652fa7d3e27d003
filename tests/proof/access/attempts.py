"""Requests by another tenant, with the home organization's values in every place."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

from tests.proof.access.calls import Request, filled, without_variant
from tests.proof.access.decoys import DECOYS, ID
from tests.proof.access.private_data import Secrets
from tests.proof.access.table import CODES, REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.support.openapi import operations

# The callers that try to learn about the home organization: the rival organization's callers and
# some without a tenant. The value is the home organization's caller with the same rights.
SPIES = {
    "foreign-owner": "owner",
    "foreign-admin": "admin",
    "foreign-member": "member",
    "foreign-as-owner": "as-owner",
    "foreign-stranger": "stranger",
    "foreign-anonymous": "anonymous",
    "foreign-application": "application",
    "foreign-key": "key",
    "foreign-directory": "directory",
    "foreign-robot": "granted-robot",
    "foreign-token": "owner-token",
    "foreign-waiting": "waiting",
    "foreign-browser": "browser",
}

TABLE = read_matrix()
# The callers that get furthest with their kind of credentials. They try the most values.
THOROUGH = ("foreign-owner", "foreign-key", "foreign-browser", "foreign-directory")
# Credentials that are part of the request, so that every spy can send them.
IN_THE_REQUEST = {"client", "registration_token", "billing_signature"}
# Fields with free text are tried with these values.
FEW = (DECOYS["id"], DECOYS["email"], DECOYS["text"])

# Fields with references. All other fields hold free text and are tried with FEW values. Form
# tokens and device tokens refer only to their sender. Form tokens are checked before all fields.
_REFERENCE = re.compile(r"(^|[_.])(id|slug|email|(?<!form_)(?<!device_)token|domain|domains|value|userName)$")
_FORM_TOKEN = "form_token"
# Where an attempt changes the valid request: nowhere, or by fields that do not exist.
NO_FIELD = "no field"
EXTRA_FIELDS = "fields that do not exist"
# The access decorator finds the organization for these routes, and knows it by nothing but its
# slug.
_OF_ORGANIZATION = re.compile(r"^[A-Z]+ /(api|app)/organizations/<org_slug>")

_Field = TypeVar("_Field")
Schema = Mapping[str, Any]  # a JSON schema
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request, and the home organization's value in it."""

    request: Request
    sent: tuple[str, ...] = ()
    where: str = NO_FIELD

    def __str__(self) -> str:
        return f"with {' '.join(self.sent)} in {self.where}"


def attempts(route: str, spy: str, world: World, secrets: Secrets) -> Iterator[Attempt]:
    """Yield the valid request, and requests with a home organization's value in every text.

    Every field is tried with all decoy texts, and with the home organization's things of the same kind. The callers that get furthest also
    try ids of the same kind: an id per column, and all ids in the table that the field names. They also try texts from columns of the same
    kind in which the decoy has none. The other callers reach the same handlers. They take turns in trying the paths, query parameters
    and references. A caller that the access check refuses sends everything in a single request, except `foreign-owner`, which sends it in
    two. Secrets, such as an invitation token, are not sent alone.
    """
    plain, turned_away = REQUESTS.get(route, Request()), is_turned_away(route, spy)
    home_things = {name: text for name, text in world.home.things.items() if text in secrets.texts}
    variables = re.findall(r"<([a-z_]+)>", route)
    theirs = {name: filled(plain.things.get(name, f"{{{name}}}"), world.home.things) for name in variables}
    smuggled = smuggling(route, plain, home_things)
    if turned_away and variables and spy != "foreign-owner":
        sent = (*home_things.values(), *theirs.values())
        yield Attempt(replace(smuggled, things={**plain.things, **theirs}), sent, "all of the path")
        return
    # Also for a member of the two organizations: a change by an organization must not affect the
    # other organization.
    both, thorough = str(world.both.id), spy in THOROUGH
    others = [each for each in SPIES if each not in THOROUGH and not is_turned_away(route, each)]
    turns = count(len(route))  # so that another caller begins at most routes
    samples = {column: text for text, column in secrets.ids.items()}  # an id per column
    few = FEW if thorough or all(is_turned_away(route, each) for each in THOROUGH) else ()

    def is_turn() -> bool:
        return thorough or turned_away or others[next(turns) % len(others)] == spy

    def tried(fields: Iterable[_Field]) -> Iterator[_Field]:
        return (field for field in fields if is_turn())

    def texts_of(field: str) -> list[str]:
        kind = kind_of(field)
        texts = [text for name, text in home_things.items() if kind & kind_of(name)]
        if thorough:
            texts += [text for text, column in secrets.ids.items() if column.endswith(".id") and kind == kind_of(column)]
            texts += [text for column, text in samples.items() if kind & kind_of(column)]
            texts += [*samples.values(), *secrets.uncovered.values()] if not texts and _REFERENCE.search(field) else []
            texts += [text for column, text in secrets.uncovered.items() if kind & kind_of(column)]
        return texts

    def values(field: str) -> list[str]:
        return list(dict.fromkeys([both, *DECOYS.values(), *texts_of(field)]))

    if is_turn():
        yield Attempt(smuggled, tuple(home_things.values()), EXTRA_FIELDS)
    if not turned_away:
        yield Attempt(plain)
    if variables and is_turn():
        yield Attempt(replace(plain, things={**plain.things, **theirs}), tuple(theirs.values()), "all of the path")
    if turned_away:
        return
    slugs = {text for name, text in home_things.items() if name.endswith("_slug")} | {
        home_things["org_id"],
        home_things["service_id"],
        DECOYS["text"],
    }
    for name in tried(variables):
        for value in [theirs[name]] if name == "org_slug" and _OF_ORGANIZATION.match(route) else values(name):
            if value in slugs if name.endswith("_slug") else ID.fullmatch(value):
                where = f"<{name}> of both" if value == both else f"<{name}>"
                yield Attempt(replace(plain, things={**plain.things, name: value}), (value,), where)
    for name, schema in tried(fields_of_query(route).items()):
        for value in values(name) if _REFERENCE.search(name) else dict.fromkeys([*FEW, *texts_of(name)]):
            if allows(schema, value):
                yield Attempt(replace(plain, query={**plain.query, name: literal(value)}), (value,), f"?{name}=")
    for where, schema, put in tried(bodies(route, plain.body or {})):
        for value in values(where) if _REFERENCE.search(where) else few:
            if allows(schema, value):
                yield Attempt(replace(plain, body=put(literal(value))), (value,), f"body.{where}")
    for name in tried(each for each in plain.form or () if each != _FORM_TOKEN):
        for value in values(name) if _REFERENCE.search(name) else few:
            yield Attempt(replace(plain, form={**(plain.form or {}), name: literal(value)}), (value,), f"form.{name}")


def literal(text: str) -> str:
    """Return the request text that sends this value. Sign-on requests in the database have braces."""
    return text.replace("{", "{{").replace("}", "}}")


@cache
def kind_of(name: str) -> frozenset[str]:
    """Return the words in a field, thing or column name that tell the kind of its value."""
    return frozenset(word.removesuffix("s") for word in re.split("[_.]", name.lower())) - {"id", "slug", "own", "other", "hash", "used"}


def is_turned_away(route: str, spy: str) -> bool:
    """Return whether the spy is refused by the access check, or another spy is the same client to this route.

    A route that reads access tokens refuses a revoked service account's token, as the matrix shows. To a route that does not read access
    tokens, any spy is the rival organization's client that the request names.
    """
    schemes = {scheme for alternative in operation(route).get("security", ()) for scheme in alternative}
    is_open = schemes <= IN_THE_REQUEST and TABLE[route]["revoked-robot"] != "401"
    knocks = {"foreign-owner"} | ({"foreign-browser"} if " /app/sign-" in route else set())
    return TABLE[route][SPIES[spy]] in CODES or (is_open and spy not in knocks)


def smuggling(route: str, plain: Request, home_things: Mapping[str, str]) -> Request:
    """Return the request with extra fields.

    Only the path and the token count (security T-1, N-5).
    """
    fields = {
        "id": home_things["user_id"],
        "organization_id": home_things["org_id"],
        "organization": home_things["org_slug"],
        "email": home_things["own_email"],
        **home_things,
    }
    known = {field["name"] for field in operation(route).get("parameters", ())} | fields_of_body(route).keys()
    smuggled = {name: text for name, text in fields.items() if name not in known}
    body = plain.body if route.startswith("GET") or plain.form else {**smuggled, **(plain.body or {})}
    form = None if plain.form is None else {**smuggled, **plain.form}
    return replace(plain, query={**smuggled, **plain.query}, body=body, form=form)


def fields_of_query(route: str) -> Mapping[str, Schema]:
    return {field["name"]: field["schema"] for field in operation(route).get("parameters", ()) if field["in"] == "query"}


def fields_of_body(route: str) -> Mapping[str, Schema]:
    content = operation(route).get("requestBody", {}).get("content", {}).get("application/json", {})
    properties: Mapping[str, Schema] = content.get("schema", {}).get("properties", {})
    return properties


def bodies(route: str, plain: Body) -> Iterator[tuple[str, Schema, Callable[[str], Body]]]:
    """Yield every place in the body, including lists: its name, its schema, and a function that puts a value there."""
    for name, schema in fields_of_body(route).items():
        yield name, schema, partial(_put, plain, name)
        for items in (kind["items"] for kind in kinds(schema) if kind.get("type") == "array"):
            yield name, items, partial(_put_in_list, plain, name)
            for kind in kinds(items):
                for field, inner in kind.get("properties", {}).items():
                    yield f"{name}.{field}", inner, partial(_put_in_object, plain, name, field)


def _put(plain: Body, name: str, value: str) -> Body:
    return {**plain, name: value}


def _put_in_list(plain: Body, name: str, value: str) -> Body:
    return {**plain, name: [value]}


def _put_in_object(plain: Body, name: str, field: str, value: str) -> Body:
    return {**plain, name: [{**plain[name][0], field: value}]}


def allows(schema: Schema, value: str) -> bool:
    """Return whether the schema allows such a text."""
    unfit = {"date", "date-time"} if ID.fullmatch(value) else {"date", "date-time", "uuid"}
    return any(kind.get("type") == "string" and "enum" not in kind and kind.get("format") not in unfit for kind in kinds(schema))


def kinds(schema: Schema) -> list[Schema]:
    """Return a schema and its alternatives."""
    return [schema, *(kind for one in schema.get("anyOf", ()) for kind in kinds(one))]


@cache
def described() -> dict[str, dict[str, Any]]:
    return {f"{method} {path}": operation for method, path, operation in operations()}


@cache
def operation(route: str) -> dict[str, Any]:
    return described()[re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", without_variant(route))]

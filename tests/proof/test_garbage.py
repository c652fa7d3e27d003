"""Malformed requests to all routes.

No response is a 5xx, no request hangs, all responses are our own, and none has internal details.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from core.kernel.values import digest, new_secret
from entrypoints.http.app import Application, build_routes, configure
from entrypoints.http.edge.bodies import body_limit
from entrypoints.http.edge.middleware import BODY_WITHIN
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.background import Background
from tests.support.builders import Answer, add_account, log_in, make_edge, make_ports, run_sql, sign_in
from tests.support.direct import ask
from tests.support.openapi import operations
from tests.support.paths import API_KEY, REGISTRATION_TOKEN, SCIM_TOKEN, add_ruler, filled, pre_auth_token, restore
from tests.support.scim import SCIM_JSON, problem

pytestmark = pytest.mark.slow

JSON = (b"content-type", b"application/json")
FORM = (b"content-type", b"application/x-www-form-urlencoded")
HTML = (b"accept", b"text/html")

# Few, because the real application answers every example.
BOUNDED = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

INSIDES = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|/home/|/root/|/tmp/|/usr/|/work/"  # paths and stack traces
    r"|psycopg|postgres|quart|werkzeug|pydantic|hypercorn|jinja|argon2|trio\b"  # libraries
    r"|\bselect\b.*\bfrom\b|\binsert into\b|users_email_key|\bSQL\b"  # SQL statements
    r"|\b[A-Z][a-z]+[A-Za-z]*(?:Error|Exception)\b|<class |object at 0x|Errno",  # class names
    re.IGNORECASE,
)


def routes(app: QuartTrio) -> list[tuple[str, str]]:
    """Return all routes' methods and paths. Signing out comes last."""
    return sorted(
        ((method, filled(rule.rule)) for rule in app.url_map.iter_rules() for method in (rule.methods or set()) - {"OPTIONS"}),
        key=lambda route: (route[1] == "/api/auth/logout", route),
    )


def paths(app: QuartTrio) -> list[str]:
    return sorted({path for _, path in routes(app)})


CHANGING: Final = re.compile(r'"timestamp": ?"[0-9TZ:.+-]+"')  # differs in every error body

# Where all routes share the code for a part of a request, a route gets every SPREAD-th value in turn. Every value reaches many routes.
SPREAD: Final = 4
# Where only the middleware and the decorators handle the part, a route gets every WIDE_SPREAD-th value. So it does for bodies other than
# JSON objects, which a single function refuses.
WIDE_SPREAD: Final = 12


def in_turn(route: int, value: int, spread: int = SPREAD) -> bool:
    """Return whether this route gets this value."""
    return (route + value) % spread == 0


@cache
def leak(text: str) -> str | None:
    """Return the first internal detail in a text, or None. Most responses in a test repeat the same few texts."""
    match = INSIDES.search(text)
    return None if match is None else match[0]


def describe_defect(answer: Answer) -> str | None:
    """Return why we may not send this response, or None."""
    if answer.status >= 500 and answer.status != 501:  # unsupported SCIM operations
        return f"status {answer.status}"
    if "X-Request-Id" not in answer.headers:
        return "no request id"
    if answer.status < 400:
        return None
    if not answer.text:
        return None  # HEAD
    kind = answer.headers["Content-Type"]
    if kind.startswith(("application/json", SCIM_JSON)) and (detail := leak(CHANGING.sub("", answer.text))):
        return f"shows {detail!r}"
    if kind.startswith("text/html"):
        page = re.sub(r"<style.*?</style>", "", answer.text, flags=re.DOTALL)
        if detail := leak(page):
            return f"shows {detail!r}"
        return None if '<html lang="en">' in page and "<script" not in page else "a page that is not ours"
    try:
        if kind == SCIM_JSON:
            problem(answer)
            return None
        return None if answer.code else "no code"
    except (AssertionError, ValueError) as error:
        return f"not the standard body: {error}"


PRE_AUTH = b"/api/auth/mfa/verify"  # requires a pre-auth token


class Findings:
    """A test's wrong responses, so that a single run shows all of them."""

    def __init__(self) -> None:
        self._wrong: list[str] = []

    def check(self, sent: str, answer: Answer, expected: Iterable[int] | None = None, *, code: str | None = None) -> None:
        """Check a response. `code` is expected in the standard error body."""
        wrong = describe_defect(answer)
        if wrong is None and expected is not None and answer.status not in expected:
            wrong = f"status {answer.status}, not {sorted(expected)}"
        if wrong is None and code is not None and answer.headers["Content-Type"] == "application/json" and answer.code != code:
            wrong = f"code {answer.code}, not {code}"
        if wrong is not None:
            self._wrong.append(f"{sent}: {wrong}: {answer.text[:160]}")

    def check_none(self) -> None:
        assert not self._wrong, "\n".join(self._wrong)


# The programs' credentials, by the beginning of the path
OTHER_TOKENS: Final = {b"/scim/": SCIM_TOKEN, b"/auth/register": REGISTRATION_TOKEN}
Send = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def send(app: QuartTrio, ports: Ports, pool: Pool) -> Send:
    """A function that sends requests with all permissions, so that garbage also reaches the use cases."""
    ruler, token = await add_ruler(ports, pool)
    waiting = pre_auth_token(ports, ruler)
    changed = False

    async def send(method: str, target: bytes | str, **options: Any) -> Answer:
        nonlocal changed, token
        if changed:  # some requests succeed in deleting the organization, or in ending the session
            await restore(pool, ruler)
            token = (await sign_in(ports, ruler)).access_token
        headers = [(b"x-api-key", API_KEY.encode()), *options.pop("headers", ())]
        path = target if isinstance(target, bytes) else target.encode()
        credential = (
            waiting if path.startswith(PRE_AUTH) else next((own for start, own in OTHER_TOKENS.items() if path.startswith(start)), token)
        )
        answer = await ask(app, method, target, token=credential, headers=headers, **options)
        # A page without a session in a browser only redirects to the sign-in.
        changed = (
            method not in ("GET", "HEAD") and answer.status < 400 and not answer.headers.get("Location", "").startswith("/app/sign-in")
        )
        return answer

    return send


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + closing * depth


BODIES: dict[str, bytes] = {
    "nothing but a brace": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "a string": b'"x"',
    "words": b"not json",
    "a NUL": b"\x00",
    "NULs": b"\x00" * 1000,
    "random bytes": bytes(range(256)) * 4,
    "invalid UTF-8": b'{"email": "\xff\xfe"}',
    "overlong UTF-8": b'{"email": "\xc0\xaf"}',
    "a raw surrogate": b'{"email": "\xed\xa0\x80"}',
    "UTF-16": '{"email": "x"}'.encode("utf-16"),
    "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbf{}",
    "half a byte order mark": b"\xef\xbb{}",
    "deep lists": nested(b"[", b"]", 10**5),
    "deep objects": b'{"a":' * 10**4 + b"1" + b"}" * 10**4,
    "deep and never closed": b"[" * 10**5,
    "deep inside": b'{"email": ' + nested(b"[", b"]", 10**5) + b"}",
    "33 levels": b'{"a":' * 33 + b"1" + b"}" * 33,
    "a duplicate name": b'{"email": "a@example.com", "email": "b@example.com"}',
    "a duplicate name inside": b'{"x": {"a": 1, "a": 2}}',
    "NaN": b'{"email": NaN}',
    "Infinity": b'{"email": -Infinity}',
    "a huge integer": b'{"email": ' + b"9" * 100_000 + b"}",
    "a huge negative integer": b'{"email": -' + b"9" * 5_000 + b"}",
    "a comment": b'{"a": 1} // x',
    "two values": b"{}{}",
    "single quotes": b"{'a': 1}",
    "an unknown escape": rb'{"a": "\x41"}',
    "half a surrogate pair": rb'{"email": "\ud800"}',
    "half a surrogate pair as name": rb'{"\udfff": 1}',
}


@cache
def bodies() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schemas for the JSON bodies that the routes declare."""
    return {
        (method, filled(path)): operation["requestBody"]["content"]["application/json"]["schema"]
        for method, path, operation in operations()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }


def json_readers() -> list[tuple[str, str]]:
    """Return the routes with a JSON body, except the route that checks a signature first."""
    return sorted(bodies().keys() - {("POST", "/webhooks/billing")})


async def waiting_for_body(
    app: Application, send: Send, all_routes: list[tuple[str, str]], findings: Findings
) -> set[tuple[str, str, bytes]]:
    """Return the routes and content types that wait for a body that never arrives, and check the other responses.

    The other routes answer without reading a body, so they answer every body alike.
    """
    app.middleware.body_within = 0.0
    waiting = set()
    for method, path in (route for route in all_routes if route[0] != "HEAD"):  # the view for GET answers it
        for kind in (JSON, FORM):
            answer = await send(method, path, headers=[kind], body=b"{}", stalls=True)
            if answer.status == 408:
                waiting.add((method, path, kind[1]))
            else:
                findings.check(f"{method} {path} without the {kind[1]!r} that it announces", answer)
    app.middleware.body_within = BODY_WITHIN
    return waiting


async def test_an_unreadable_body_is_refused(app: Application, send: Send) -> None:
    """Every route that reads a body gets two or three such bodies, in turn. All routes read bodies by the same code."""
    findings = Findings()
    all_routes = routes(app)
    waiting = await waiting_for_body(app, send, all_routes, findings)
    assert waiting >= {(*route, JSON[1]) for route in bodies()}
    for value, (name, body) in enumerate(BODIES.items()):
        for method, path in (each for route, each in enumerate(all_routes) if in_turn(route, value, WIDE_SPREAD)):
            for kind in (JSON, FORM):
                if (method, path, kind[1]) in waiting:
                    answer = await send(method, path, headers=[kind], body=body)
                    expected = {400} if kind is JSON and (method, path) in bodies() else None
                    findings.check(f"{method} {path} with {name} as {kind[1]!r}", answer, expected)
    findings.check_none()


async def test_a_body_over_the_limit_is_refused(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    for method, path in routes(app):
        body = b'{"x": "' + b"x" * body_limit(path) + b'"}'
        for chunked in (False, True):
            if chunked and (method, path) not in bodies():
                continue  # this body is not read, so it is not counted
            answer = await send(method, path, headers=[JSON], body=body, chunked=chunked)
            findings.check(f"{method} {path}", answer, {413} if method != "HEAD" else {413, 200})
    findings.check_none()


READ: Final = {200, 400, 401, 404}  # after the body was read: 404 from a route that needs no field


async def test_a_body_just_within_the_limit_is_read(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    body = b'{"unknown": "'
    body += b"x" * (256 * 1024 - len(body) - 2) + b'"}'
    for method, path in json_readers():
        findings.check(f"{method} {path}", await send(method, path, headers=[JSON], body=body), READ)
    findings.check_none()


HOSTILE_TEXT = {
    "NUL": "a\x00b",
    "a control": "a\x1bb",
    "a C1 control": "a\x85b",
    "line breaks": "a\r\nBcc: b@example.com",
    "a bidi override": "a\u202egnp.exe",
    "a bidi isolate": "a\u2066b",
    "long": "x" * 2049,
    "very long": "x" * 200_000,
    "very long and wide": "😀" * 50_000,
    "a quote": "' or 1=1 --",
    "a percent sign": "%s%(id)s%%",
    "a template": "{{ 7 * 7 }}${7*7}",
    "markup": "<script>alert(1)</script>",
    "a path": "../../../../etc/passwd",
    "a long address": "a" * 2000 + "@" + "b." * 20 + "com",
    "an address of many labels": "a@" + "b." * 1000 + "com",
    "an address that punycode hates": "a@" + "ü" * 1000 + ".com",
    "an address with a control": "a\x00@example.com",
    "empty": "",
    "a space": " ",
}
# Every field gets these texts, and every SPREAD-th further text in turn.
FOR_EACH_FIELD: Final = {"NUL", "very long", "a quote", "empty"}
# Values by type. A field that takes the type gets all values. Every other field gets a single value
# in turn.
WRONG_TYPES: Final[Mapping[str, list[Any]]] = {
    "boolean": [True],
    "integer": [0, 5, -1, 10**18],
    "number": [1.5],
    "array": [[], ["x"], [[[]]]],
    "object": [{}, {"a": "b"}],
    "null": [None],
}
NOT_PLAIN = {"NUL", "a control", "a C1 control", "line breaks", "a bidi override", "a bidi isolate"}


def fields() -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    """Yield method, path, name and schema for every field in every JSON body, and a valid body."""
    values = {"email": "ada@example.com", "uuid": str(UUID(int=0))}

    def value(schema: dict[str, Any]) -> Any:
        match schema.get("type"):
            case "array":
                return [value(schema["items"])]
            case "integer":
                return schema.get("minimum", 5)
            case "boolean":
                return True
        return schema.get("enum", [values.get(schema.get("format", ""), "a good long text")])[0]

    for (method, path), body in sorted(bodies().items()):
        if path.startswith("/scim/"):
            continue  # SCIM has its own rules (test_scim_users.py, test_scim_groups.py)
        properties = body["properties"]
        good = {name: value(properties[name]) for name in body.get("required", ())}
        for name, schema in properties.items():
            yield method, path, name, schema, good


def types_of(schema: dict[str, Any]) -> set[str | None]:
    """Return the types that a field's schema allows."""
    return {option.get("type") for option in [schema, *schema.get("anyOf", ())]}


def may_be(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a field's schema allows a value in WRONG_TYPES, or null."""
    options = [schema, *schema.get("anyOf", ())]
    kinds = types_of(schema)
    assert kinds <= {"string", "integer", "boolean", "array", "object", "null", None}, (
        "a field of another kind, which this test must try too"
    )
    if value is None:
        return "null" in kinds
    if isinstance(value, list):
        return any(option.get("type") == "array" and _may_be_list(value, option) for option in options)
    if isinstance(value, dict):
        return "object" in kinds
    if type(value) is bool:
        return "boolean" in kinds
    return type(value) is int and any(
        option.get("type") == "integer" and option.get("minimum", value) <= value <= option.get("maximum", value) for option in options
    )


def may_be_text(schema: dict[str, Any]) -> bool:
    """Return whether a field's schema allows a text, or a list, which some fields also take as a single text."""
    return not types_of(schema) <= {"integer", "boolean", "object", "null", None}


def _may_be_list(value: list[Any], schema: dict[str, Any]) -> bool:
    return len(value) >= schema.get("minItems", 0) and all(
        isinstance(item, str) and item in schema["items"].get("enum", [item]) for item in value
    )


async def test_a_field_of_a_wrong_type_is_refused(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    for number, (method, path, name, schema, good) in enumerate(fields()):
        for kind, values in WRONG_TYPES.items():
            for value in values if kind in types_of(schema) else [values[number % len(values)]]:
                if may_be(value, schema):
                    continue
                body = json.dumps({**good, name: value}).encode()
                answer = await send(method, path, headers=[JSON], body=body)
                findings.check(f"{method} {path} {name}={value!r}", answer, {400}, code="BAD_REQUEST")
    findings.check_none()


def hostile_texts(number: int, name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the names for the texts that the field with this number gets."""
    for value, what in enumerate(HOSTILE_TEXT):
        is_address = "address" in what and "email" in name.lower()
        if not may_be_text(schema):  # another type is refused before the text is looked at
            if what in ("NUL", "a quote"):
                yield what
        elif what in FOR_EACH_FIELD or is_address or in_turn(number, value):
            yield what


async def test_hostile_text_in_a_field_is_handled(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    for number, (method, path, name, schema, good) in enumerate(fields()):
        for what in hostile_texts(number, name, schema):
            body = json.dumps({**good, name: HOSTILE_TEXT[what]}, ensure_ascii=False).encode()
            answer = await send(method, path, headers=[JSON], body=body)
            refused = what in NOT_PLAIN and "password" not in name  # passwords are not restricted (security N-5)
            # The organization did not create the account that a recovery would be for.
            handled = {200, 201, 204, 400, 401, 404, 409, 429} | ({403} if path.endswith("/recovery") else set())
            findings.check(f"{method} {path} {name}: {what}", answer, {400} if refused else handled)
    findings.check_none()


QUERIES = {
    "invalid UTF-8": b"token=%ff%fe",
    "an encoded surrogate": b"token=%ed%a0%80",
    "NUL": b"token=%00",
    "controls": b"token=%0d%0aSet-Cookie:%20a=b",
    "a bidi override": b"token=%e2%80%ae",
    "half a percent": b"token=%&%2=%zz",
    "many": b"&".join(b"f%d=1" % number for number in range(1000)),
    "many of one name": b"&".join([b"token=1"] * 1000),
    "a giant value": b"token=" + b"x" * 15_000,
    "only separators": b"&" * 99 + b"=" * 99,
    "semicolons": b";" * 500,
    "brackets": b"token[]=1&token[a][b]=2",
    "raw characters": b"token=<>\"'{}|\\^`",
    "nothing": b"",
}


@cache
def query_readers() -> dict[tuple[str, str], set[str]]:
    """Return the routes with query parameters, with their names, and all other routes that only read."""
    named = {
        (method, filled(path)): {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
        for method, path, operation in operations()
    }
    return {route: names for route, names in named.items() if names or route[0] == "GET"}


async def test_a_hostile_query_is_handled(app: Application, ports: Ports, send: Send) -> None:
    """Routes with the parameter `token` get all tokens. Programs and browsers take turns: they get the same refusal in different forms."""
    # Not observed, because most routes do not declare that they refuse a malformed query.
    configure(app, ports, make_edge(), observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain")
    findings = Findings()
    for value, (what, query) in enumerate(QUERIES.items()):
        for route, (method, path) in enumerate(routes(app)):
            names = query_readers().get((method, path))
            if "token" not in (names or ()) and not in_turn(route, value, WIDE_SPREAD if names is None else SPREAD):
                continue
            headers = [HTML] if (route + value) % 2 else []
            answer = await send(method, path.encode() + b"?" + query, headers=headers)
            findings.check(f"{method} {path}: {what}", answer)
    findings.check_none()


@cache
def page_parameters() -> tuple[tuple[str, str], ...]:
    """Return every page's path, with the names of its query parameters."""
    return tuple(
        (path, parameter["name"])
        for method, path, operation in operations()
        for parameter in operation.get("parameters", ())
        if method == "GET" and path.startswith(("/app", "/auth", "/saml")) and parameter["in"] == "query"
    )


async def test_a_hostile_value_in_the_query_of_a_page_is_handled(app: QuartTrio, ports: Ports, pool: Pool) -> None:
    """Every parameter gets a NUL, which the database cannot take, and a further hostile value."""
    ruler, _ = await add_ruler(ports, pool)
    began, cookie = await sign_in(ports, ruler), new_secret()
    await run_sql(pool, "update sessions set browser_hash = %s where id = %s", digest(cookie), began.session_id)
    headers = [HTML, (b"cookie", f"gatehouse-session={cookie}".encode())]
    findings, others = Findings(), sorted(NOT_PLAIN - {"NUL"})
    assert {("/app/enroll", "org"), ("/app/enroll", "service"), ("/app/reauthenticate", "policy")} <= set(page_parameters())
    for number, (path, name) in enumerate(page_parameters()):
        # A value is read only beside the values that it depends on.
        beside = {"org": "acme"} if name == "service" else {}
        for what in ("NUL", others[number % len(others)]):
            query = urlencode({**beside, name: HOSTILE_TEXT[what]})
            findings.check(f"GET {path} {name}: {what}", await ask(app, "GET", f"{filled(path)}?{query}", headers=headers))
    findings.check_none()


STRANGE_PATHS = [
    b"/%",
    b"/%zz",
    b"/%00",
    b"/api/user%00",
    b"/api/user%0a",
    b"/api/user%ff",
    b"/api/user%ed%a0%80",
    b"/api/user%e2%80%ae",
    b"/api/%75ser/../user/..",
    b"/api/../../etc/passwd",
    b"/assets/..%2f..%2fsettings.py",
    b"/assets/%2e%2e/%2e%2e/settings.py",
    b"/assets/icon.svg%00",
    b"/assets/" + b"x" * 15_000,
    b"//",
    b"//api/user",
    b"/api//user",
    b"/api/user//",
    b"/api/user;jsessionid=1",
    b"/api/user#fragment",
    b"/API/USER",
    b"/api/user%2f",
    b"/api%2fuser",
    b"/api\\user",
    b"/static/x",
    b"/.git/config",
    b"/.env",
    b"/<script>alert(1)</script>",
    b"/{{7*7}}",
    b"*",
    b"api/user",
    b"http://elsewhere.example/api/user",
    b"http://gatehouse.test",
    b"",
]


async def test_a_strange_path_is_handled(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    for path in STRANGE_PATHS:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            for headers in ([], [HTML]):
                answer = await send(method, path, headers=headers)
                findings.check(f"{method} {path[:60]!r}", answer)
                if b"<script" in path:
                    assert "<script>alert" not in answer.text
    findings.check_none()


STRANGE_METHODS = ["TRACE", "TRACK", "CONNECT", "PROPFIND", "BREW", "PUT", "DELETE", "X" * 1000, "A-B", "__CLASS__", "0"]


async def test_a_strange_method_is_refused(app: QuartTrio, send: Send) -> None:
    """Every path gets the methods that only other paths have.

    A single comparison refuses methods that no path has, so paths get them in turn.
    """
    findings = Findings()
    known_routes = set(routes(app))
    known_methods = {method for method, _ in known_routes}
    for number, method in enumerate(STRANGE_METHODS):
        for place, path in enumerate([*paths(app), "/nothing/here"]):
            if (method, path) in known_routes or (method not in known_methods and not in_turn(place, number)):
                continue
            if method == "DELETE" and path.endswith(("/webhooks/event-types", "/passkeys/options", "/passkeys/second-factor")):
                continue  # this path could belong to a webhook, or to a passkey
            answer = await send(method, path)
            exists = path != "/nothing/here"
            findings.check(f"{method} {path}", answer, {405} if exists else {404, 405})
            if answer.status == 405 and exists:
                assert answer.headers["Allow"], f"{method} {path}"
    findings.check_none()


STRANGE_TYPES = [
    b"",
    b"/",
    b"application",
    b"application/",
    b"text/plain",
    b"text/json",
    b"application/jsonp",
    b"application/xml",
    b"multipart/form-data",
    b"multipart/form-data; boundary=",
    b"multipart/form-data; boundary=" + b"x" * 5000,
    b"application/x-www-form-urlencoded",
    b"application/x-www-form-urlencoded; charset=utf-7",
    b"application/octet-stream",
    b"\xff\xfe",
    b'application/json"',
    b"a" * 8000,
    b"; charset=utf-8",
    b"application/json, text/plain",
]
# Every route gets these, because a form on another site can send them.
OF_FORMS: Final = {b"text/plain", b"multipart/form-data", b"application/x-www-form-urlencoded"}
# These routes read forms.
TAKE_FORMS = {
    "/auth/reset-password",
    "/auth/device/code",
    "/auth/device/verify",
    "/auth/token",
    "/auth/revoke",
    "/auth/introspect",
    "/auth/par",
    "/auth/connections/nothing-there/backchannel-logout",
}
STRANGE_CHARSETS = [b"utf-16", b"utf-7", b"rot13", b"zip", b"idna", b"\xff", b'"', b"x" * 5000, b"utf-8; charset=utf-16"]


async def test_a_strange_content_type_is_refused(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    readers = json_readers()
    for value, content_type in enumerate(STRANGE_TYPES):
        for route, (method, path) in enumerate([*readers, ("POST", "/auth/reset-password")]):
            if path not in TAKE_FORMS and content_type not in OF_FORMS and not in_turn(route, value):
                continue
            answer = await send(method, path, headers=[(b"content-type", content_type)], body=b"{}")
            form = path in TAKE_FORMS and b"form-urlencoded" in content_type
            sent = f"{method} {path} {content_type[:60]!r}"
            if form:
                findings.check(sent, answer, {400, 401})  # 401: no client is named
            else:
                findings.check(sent, answer, {415}, code="UNSUPPORTED_MEDIA_TYPE")
    findings.check_none()


async def test_a_strange_charset_is_ignored(app: QuartTrio, send: Send) -> None:
    findings = Findings()
    for value, charset in enumerate(STRANGE_CHARSETS):
        headers = [(b"content-type", b"application/json; charset=" + charset)]
        for method, path in (each for route, each in enumerate(json_readers()) if in_turn(route, value)):
            good = await send(method, path, headers=headers, body='{"unknown": "ü"}'.encode())
            findings.check(f"{method} {path} {charset[:20]!r}", good, READ)
            bad = await send(method, path, headers=headers, body='{"email": "ü"}'.encode("utf-16"))
            findings.check(f"{method} {path} {charset[:20]!r}", bad, {400})
    findings.check_none()


STRANGE_HEADERS: list[tuple[bytes, bytes]] = [
    (b"authorization", b""),
    (b"authorization", b"Bearer"),
    (b"authorization", b"Bearer " + b"x" * 15_000),
    (b"authorization", b"Bearer \xff\xfe.\x80.\xe9"),
    (b"authorization", b"Bearer a.b.c"),
    (b"authorization", b"Bearer " + b"." * 5000),
    (b"authorization", b"Bearer eyJhbGciOiJub25lIn0.e30."),
    (b"authorization", b"Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6WzFdfQ.e30.AA"),
    (b"authorization", b'Digest username="x"'),
    (b"authorization", b"Basic " + b"=" * 100),
    (b"accept", b"*/*;q=nan"),
    (b"accept", b"text/html;q=" + b"9" * 1000),
    (b"accept", b"," * 5000),
    (b"accept", b"\xff/\xff"),
    (b"accept-language", b"-" * 5000),
    (b"accept-charset", b"utf-16"),
    (b"accept-encoding", b"gzip;q=-1"),
    (b"cookie", b"=;=;" * 1000),
    (b"cookie", b"session=\xff\x80"),
    (b"host", b"\xff"),
    (b"x-forwarded-for", b"," * 5000),
    (b"x-forwarded-for", b"\xff\xfe"),
    (b"x-forwarded-host", b"evil.example"),
    (b"x-forwarded-proto", b"gopher"),
    (b"forwarded", b"for=_hidden;by=\xff"),
    (b"x-request-id", b"<script>alert(1)</script>"),
    (b"x-request-id", b"\xff" * 50),
    (b"user-agent", b"\xff" * 5000),
    (b"user-agent", b"\x80\x81"),
    (b"range", b"bytes=0-1,2-3,-1"),
    (b"if-none-match", b'"' * 999),
    (b"if-modified-since", b"yesterday"),
    (b"expect", b"the unexpected"),
    (b"origin", b"null\xff"),
    (b"referer", b"http://[::1"),
    (b"content-encoding", b"gzip"),
    (b"x-http-method-override", b"DELETE"),
    (b"upgrade", b"h2c"),
    (b"upgrade", b"websocket"),
    (b"te", b"trailers"),
    (b"\xc3\xa9", b"x"),
    (b"x-big", b"x" * 16_000),
]


# A route per kind of access and per kind of response. These get every header.
READ_HEADERS: Final = {
    "/",
    "/api/auth/login",
    "/api/auth/mfa/verify",
    "/api/auth/refresh",
    "/api/user",
    "/app/account",
    "/app/sign-in",
    "/auth/authorize",
    "/auth/token",
    "/auth/verify-email",
    "/health/ready",
    "/openapi.json",
    "/scim/v2/Users",
}


async def test_a_strange_header_is_handled(app: QuartTrio) -> None:
    findings = Findings()
    assert set(paths(app)) >= READ_HEADERS
    for number, (name, value) in enumerate(STRANGE_HEADERS):
        for route, (method, path) in enumerate(routes(app)):
            if path not in READ_HEADERS and not in_turn(route, number, WIDE_SPREAD):
                continue
            body = b"{}" if method in ("POST", "PATCH") else None
            sent = [(name, value), *([JSON] if body else [])]
            answer = await ask(app, method, path, headers=sent, body=body)
            findings.check(f"{method} {path} {name!r}: {value[:40]!r}", answer)
            assert "<script>alert" not in answer.text
            assert "<script>" not in answer.headers.get("X-Request-Id", "")
    findings.check_none()


async def test_a_hostile_agent_and_address_can_be_stored(app: QuartTrio, ports: Ports) -> None:
    await add_account(ports)
    body = b'{"email": "ada@example.com", "password": "correct horse battery staple"}'
    for agent in (b"\xff\x80" * 3000, b"", b"\x7f\x1f", "Agent ü \u202e".encode()):
        answer = await ask(app, "POST", "/api/auth/login", headers=[JSON, (b"user-agent", agent)], body=body)
        assert answer.status == 200, agent
    assert (await ask(app, "POST", "/api/auth/login", headers=[JSON], body=body, peer="not an address")).status == 200


# Generated requests. Hypothesis calls a test's body repeatedly, so the application runs in a loop
# beside it.


class Served:
    """The application, for synchronous tests."""

    def __init__(self, background: Background, app: QuartTrio, token: str) -> None:
        self._background = background
        self._app = app
        self._token = token
        self.readers = json_readers()

    def check(self, *requests: tuple[str, str, Iterable[tuple[bytes, bytes]], bytes | None]) -> None:
        """Send requests with method, target, headers and body, and check the responses.

        A request gets a token unless it has a token. All go to the loop at once, because changing threads takes as long
        as a request.
        """
        self._background.run(self._check, requests)

    async def _check(self, requests: Sequence[tuple[str, str, Iterable[tuple[bytes, bytes]], bytes | None]]) -> None:
        for method, target, headers, body in requests:
            sent = list(headers)
            token = None if any(name == b"authorization" for name, _ in sent) else self._token
            answer = await ask(self._app, method, target, headers=sent, body=body, token=token)
            wrong = describe_defect(answer)
            assert wrong is None, f"{method} {target!r} {sent} {body!r}: {wrong}: {answer.text[:300]}"


@pytest.fixture
def served(conninfo: str) -> Iterator[Served]:
    with Background() as background:
        pool = Pool(conninfo, size=2)

        async def start() -> tuple[QuartTrio, str]:
            ports = await make_ports(pool, FakeClock(), FakeMailTransport(), FakeMetrics(), Policy(account_guess_limit=10**6))
            app = build_routes()
            configure(app, ports, make_edge(), observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain")
            await add_account(ports)
            pair = await log_in(ports)
            return app, pair.access_token

        app, token = background.run(start)
        yield Served(background, app, token)
        background.run(pool.aclose)


PATHS = st.sampled_from(
    ["/", "/api/user", "/api/auth/login", "/api/auth/register", "/auth/verify-email", "/auth/reset-password", "/assets/x", "/health/ready"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12)
NAMES = st.sampled_from(["email", "password", "org_slug", "saml_state", "refresh_token", "token", "new_password", "current_password"])


@BOUNDED
@given(path=PATHS, body=st.binary(max_size=2000), content_type=st.sampled_from([JSON, FORM, HTML]), accept=st.booleans())
def test_any_bytes_are_handled(served: Served, path: str, body: bytes, content_type: tuple[bytes, bytes], accept: bool) -> None:
    headers = [content_type, *([HTML] if accept and content_type != HTML else [])]
    served.check(*((method, path, headers, body) for method in ("POST", "PATCH", "GET")))


@BOUNDED
@given(body=st.dictionaries(NAMES, VALUES, min_size=1), first=st.integers(0, WIDE_SPREAD - 1))
def test_any_json_is_handled(served: Served, body: dict[str, Any], first: int) -> None:
    """Every example goes to every WIDE_SPREAD-th route. The tables above send hostile values to every field in all routes."""
    raw = json.dumps(body).encode()
    served.check(*((method, path, [JSON], raw) for method, path in served.readers[first::WIDE_SPREAD]))


@BOUNDED
@given(target=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=200))
def test_any_target_is_handled(served: Served, target: str) -> None:
    served.check(*(("GET", prefix + target, (), None) for prefix in ("/", "/api/", "/auth/verify-email?", "/assets/", "")))


HEADER_NAMES = st.sampled_from(
    [b"authorization", b"accept", b"cookie", b"x-forwarded-for", b"user-agent", b"x-request-id", b"content-type", b"origin"]
)
# The characters that a server accepts in a field: visible characters, spaces, tabs and all above
# ASCII (RFC 9110 section 5.5).
HEADER_VALUES = st.lists(st.sampled_from([*range(0x20, 0x7F), *range(0x80, 0x100), 0x09]), max_size=80).map(bytes)


@BOUNDED
@given(headers=st.dictionaries(HEADER_NAMES, HEADER_VALUES, max_size=4))
def test_any_headers_are_handled(served: Served, headers: dict[bytes, bytes]) -> None:
    targets = (("GET", "/api/user"), ("POST", "/api/auth/login"), ("GET", "/auth/verify-email"), ("GET", "/nothing"))
    served.check(*((method, path, headers.items(), b"{}" if method == "POST" else None) for method, path in targets))

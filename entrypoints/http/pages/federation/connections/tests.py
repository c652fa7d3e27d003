"""Test sign-ins at an organization's identity provider, and the test provider, at which an admin answers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import checks, test_provider
from core.federation.connections.model import openid
from core.federation.connections.model.connections import ConnectionIncomplete
from core.federation.connections.model.settings import ClaimMapping
from core.federation.connections.provider_requests import ConnectionTestResult
from core.kernel.connections import ConnectionProtocol
from core.kernel.roles import Capability
from core.kernel.values import is_printable
from core.tenancy.model.settings import Design
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.connections import CONNECTION as API
from entrypoints.http.pages import console_forms, form_values
from entrypoints.http.pages.console import shows
from entrypoints.http.pages.federation.connections.provider_redirects import redirect_response
from entrypoints.http.pages.federation.connections.values import ONE, check_page, path_of

routes = Blueprint("connection_test_pages", __name__)

TEST: Final = f"{ONE}/test"


@routes.get(TEST)
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"POST {API}/check")
async def show_test(org_slug: str, connection_slug: str) -> Response:
    """Check an organization's connection, or begin a test sign-in."""
    return await check_page(connection_slug, None)


@routes.post(TEST)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@kit.refuses(404, 409, 429)
@console_forms.accepts(f"POST {API}/check", answers=console_forms.answers_with("The problems of the connection."))
async def check(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Check an organization's connection."""
    return await check_page(
        connection_slug, await checks.check(kit.ports(), kit.acting_member(), connection_slug, kit.app_context().base_url)
    )


@routes.get(f"{TEST}/start")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@kit.refuses(409, 429)
@kit.describes_page(
    {
        200: "The problem for which no test can begin, or the page that posts our request to the identity provider.",
        303: "Redirect to the identity provider.",
    },
    changes_state=True,
    api=(f"POST {API}/check",),
)
async def start(org_slug: str, connection_slug: str) -> Response:
    """Begin a test sign-in. It signs no user in. The result is shown to the user who began it, and is not stored."""
    path, base_url = f"{path_of(connection_slug)}/test", kit.app_context().base_url
    try:
        redirect = await checks.begin_test(kit.ports(), kit.acting_member(), connection_slug, path, kit.cookies.browser_id(), base_url)
    except (ConnectionIncomplete, openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable) as problem:
        return await check_page(connection_slug, [checks.describe(problem)])
    return redirect_response(redirect)


def result_page(result: ConnectionTestResult, name: str | None = None, design: Design | None = None) -> Response:
    """Return the page with a test sign-in's result. A set-up link's reader gets another `name`, and a `design`."""
    problem = None if result.problem is None else checks.describe(result.problem)
    received = {} if result.received is None else {**result.received.values, **dict.fromkeys(result.received.objects)}
    page = kit.render(
        "federation/connection_test_result.html",
        design=design,
        connection_name=name or result.connection.name,
        path=result.way_back,
        failure=problem,
        person=result.person,
        refused_email=result.refused_email,
        received=sorted(received.items()),
        missing=result.missing,
    )
    return kit.page_response(page)


PROVIDER: Final = f"{TEST}/provider"
PROPOSED: Final[Mapping[str, str]] = {
    "subject": "4711",
    "email": "ada@example.com",
    "name": "Ada Lovelace",
    "given_name": "Ada",
    "family_name": "Lovelace",
    "groups": "staff",
    "picture": "https://images.example.com/ada.png",
    "locale": "en-GB",
}
PROPOSED_CLAIMS: Final = {ConnectionProtocol.OIDC: "email_verified: true", ConnectionProtocol.SAML: "department: Research"}
FURTHER: Final = "further_claims"
MAX_LENGTH: Final = 2000  # characters in a field


class TestProviderQuery(kit.Query):
    """An open test sign-in."""

    test: str = Field(default="", description="The secret of the test sign-in.", max_length=100)


def _open_test(connection_slug: str, secret: str) -> test_provider.OpenConnectionTest:
    return test_provider.OpenConnectionTest(slug=connection_slug, secret=secret, browser=kit.cookies.DEVICE.read())


async def _values(form: console_forms.Form, connection_slug: str, query_args: TestProviderQuery | None = None) -> dict[str, Any]:
    secret = query_args.test if query_args else form.get("test", "")
    connection = await test_provider.find(kit.ports(), kit.acting_member(), _open_test(connection_slug, secret))
    return {
        "connection": connection,
        "path": f"{path_of(connection_slug)}/test",
        "secret": secret,
        "typed": form or {**PROPOSED, FURTHER: PROPOSED_CLAIMS[connection.protocol]},
    }


@console_forms.serves_form(routes, PROVIDER, query=TestProviderQuery)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@kit.refuses(404)
@console_forms.accepts(f"POST {API}/check", answers=console_forms.answers_with("The result of the test sign-in."))
@console_forms.on_refusal("federation/test_provider.html", _values, refusals=(form_values.FieldInvalid,))
async def answer(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Answer a test sign-in, as an identity provider would.

    The test sign-in ends with it. The answer is shown, and no user is signed in.
    """
    test, base_url = _open_test(connection_slug, form.get("test", "")), kit.app_context().base_url
    connection = await test_provider.find(kit.ports(), kit.acting_member(), test)
    person = None if form.get("answer") == "refuse" else _read_person(form, connection.mapping)
    return result_page(await test_provider.answer(kit.ports(), kit.acting_member(), connection, test, person, base_url))


def _read_person(form: console_forms.Form, mapping: ClaimMapping) -> test_provider.PlayedPerson:
    """Return the person that a form asserts. The fields have the same names as the mapping."""
    for field in (*PROPOSED, FURTHER):
        if len(form.get(field, "")) > MAX_LENGTH:
            raise form_values.FieldInvalid(f"Enter at most {MAX_LENGTH} characters.", field)
        if not all(is_printable(line) for line in form.get(field, "").splitlines()):
            raise form_values.FieldInvalid("Enter text without control characters.", field)
    claims: dict[str, list[str]] = {}
    for field, claim in mapping.document.items():
        values = form_values.to_lines(form.get(field, ""))
        if claim is not None and values:
            claims.setdefault(claim, []).extend(values)
    for name, value in _read_claims(form.get(FURTHER, "")):
        claims.setdefault(name, []).append(value)
    return test_provider.PlayedPerson(subject=" ".join(form_values.to_lines(form.get("subject", ""))), claims=claims)


def _read_claims(text: str) -> Iterator[tuple[str, str]]:
    """Return the name and the value in every line of a text."""
    for line in form_values.to_lines(text):
        name, separator, value = line.partition(": ")
        if not separator or not name.strip():
            raise form_values.FieldInvalid("Write each one as a line with its name and value, such as department: Research.", FURTHER)
        yield name.strip(), value.strip()

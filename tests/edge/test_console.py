"""The console pages and the API operations that they name."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from quart_schema.validation import QUART_SCHEMA_QUERYSTRING_ATTRIBUTE, QUART_SCHEMA_REQUEST_ATTRIBUTE

from core.kernel.errors import Invalid
from core.kernel.page_paths import ACCOUNT_PATH
from entrypoints.http.api.applications.services import ServiceUpdateRequest
from entrypoints.http.base.rendering.templates import icon
from entrypoints.http.edge.access.declaration import Access, access_of
from entrypoints.http.edge.access.effects import SHOWS
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.pages.applications.applications import GROUP_NAMES
from entrypoints.http.pages.applications.client_settings import GROUPS
from entrypoints.http.pages.curl import commands, operations_of
from entrypoints.http.pages.navigation import OF_ORGANIZATION, OF_PERSON, OF_PLATFORM, ORGANIZATION_PATH, PLATFORM_PATH, Group
from tests.proof.access.console import CONSOLE
from tests.support.builders import application
from tests.tables import table

APP = application()
OPERATIONS = dict(operations_of(APP))
PAGES = {
    operation: view for operation, view in OPERATIONS.items() if access_of(view).name in CONSOLE and operation.startswith(("GET", "POST"))
}


# Operations that no page names, and why.
ROLE = "/api/organizations/<org_slug>/services/<service_slug>/roles/<role_slug>"
WITHOUT_PAGE = {
    "GET /api/organizations/<org_slug>/audit-log/event-types": "the filter of the log has them",
    "GET /api/organizations/<org_slug>/webhooks/event-types": "the form of a webhook has them",
    "GET /api/organizations/<org_slug>/services/<service_slug>/saml/certificate": "the page of SAML has it",
    "GET /api/platform/tiers": "the page of an organization has them",
    "GET /api/platform/users/<user_id>/mfa/status": "the page of a person has it",
    "GET /api/provider-token/<provider>": "for the program of the user",
    "POST /api/organizations/<org_slug>/invitations": "the form invites one or many addresses",
    "POST /api/organizations/<org_slug>/invitations/<invitation_id>/accept": "the invited person accepts on the page of the link",
    "POST /api/organizations/<org_slug>/select": "the address of a page names its organization",
    "POST /api/organizations/<org_slug>/services/<service_slug>/checkout": "the application sends its users there",
    "PUT /api/organizations/<org_slug>/services/<service_slug>/assignments/<user_id>": "the form assigns by email address",
    "PUT /api/organizations/<org_slug>/hrd": "the form sets the provider of one domain",
    f"PUT {ROLE}/users/<user_id>": "the form gives a role by email address",
    f"GET {ROLE}/users/<user_id>": "the search of the list finds the user",
}
PAGES_OWN = {
    "GET /app/organizations/<org_slug>/search": {"search"},  # in the same parameter for several lists
    "GET /app/organizations/<org_slug>/applications/new": {"kind"},  # a question on the page
    "GET /app/organizations/<org_slug>/service-accounts/<account_id>/credentials/new": {"kind"},
    "GET /app/organizations/<org_slug>/api-resources/<resource_id>/credentials/new": {"kind"},
    "GET /app/platform/service-accounts/<account_id>/credentials/new": {"kind"},
    "GET /app/organizations/<org_slug>/applications/<service_slug>": {"redirect_uris", "post_logout_redirect_uris"},  # stand in the form
    "GET /app/account/personal-tokens/new": {"org_slug", "preset"},
    "GET /app/account/passkeys/new": {"kind"},
    "GET /app/organizations/<org_slug>/applications/<service_slug>/api-keys/new": {"preset"},  # fills the form
    "GET /app/organizations/<org_slug>/applications/<service_slug>/claims": {"preset"},
    "GET /app/organizations/<org_slug>/service-accounts/new": {"preset"},
    "GET /app/organizations/<org_slug>/connections/new": {"preset"},
    "GET /app/organizations/<org_slug>/connections/<connection_slug>/test/provider": {"test"},  # the open test sign-in
    "GET /app/organizations/<org_slug>/service-accounts/<account_id>": {"preset"},
    "GET /app/platform/service-accounts/new": {"preset"},
    "GET /app/platform/service-accounts/<account_id>": {"preset"},
    "GET /app/organizations/<org_slug>/applications/<service_slug>/setup": {"brief"},
    "GET /app/organizations/<org_slug>/webhooks/<webhook_id>/deliveries/<delivery_id>": {"tested"},  # waits for the outcome
}


# Pages that show their operation's result, and save nothing. The API has no such operation.
PREVIEWS = {"POST /app/organizations/<org_slug>/branding/preview"}


def parameters(view: Any) -> set[str]:
    """Return the names of the query parameters at a page or an operation."""
    model = getattr(view, QUART_SCHEMA_QUERYSTRING_ATTRIBUTE, None)
    return set() if model is None else set(model.model_fields)


def rights(access: Access) -> tuple[object, ...]:
    is_of_platform = access.name in ("platform_page", "platform_owner")
    return None if is_of_platform else access.capability, access.inactive, is_of_platform


@table("page", PAGES)
def test_a_page_has_the_rights_of_the_operation_that_it_names(page: str) -> None:
    named = docs_of(PAGES[page]).api
    assert named, "the page names the operation of the API that does the same"
    unknown = [operation for operation in named if operation not in OPERATIONS]
    assert not unknown
    same = access_of(OPERATIONS[named[0]])
    if "/privacy/" in named[0]:
        assert access_of(PAGES[page]).name == "platform_page"  # the API also serves the person, and owners of organizations
        return
    assert rights(access_of(PAGES[page])) == rights(same)
    if page.startswith("POST"):
        saved = same.row(named[0].partition(" ")[0])
        assert access_of(PAGES[page]).row("POST") == (SHOWS if page in PREVIEWS else saved)


@table("page", [page for page in PAGES if page.startswith("GET") and parameters(PAGES[page])])
def test_a_page_has_the_parameters_of_its_operation(page: str) -> None:
    operation = OPERATIONS[docs_of(PAGES[page]).api[0]]
    assert parameters(PAGES[page]) - PAGES_OWN.get(page, set()) <= parameters(operation)


def test_every_operation_for_people_has_a_page() -> None:
    """Nothing that a person does needs curl."""
    named = {operation for view in OPERATIONS.values() for operation in docs_of(view).api}
    callers = ("member", "platform_owner", "person")
    operations = {
        operation
        for operation, view in OPERATIONS.items()
        if access_of(view).name in callers and "/api/" in operation and not operation.startswith(("HEAD", "OPTIONS"))
    }
    assert operations - named == WITHOUT_PAGE.keys()


def test_every_field_of_an_application_is_on_its_page() -> None:
    assert {field for fields in GROUPS.values() for field in fields} == set(ServiceUpdateRequest.model_fields)
    assert GROUPS.keys() == {"general", "sign-in"} | GROUP_NAMES.keys()


MODES = {ORGANIZATION_PATH.format(slug="<org_slug>"): OF_ORGANIZATION, PLATFORM_PATH: OF_PLATFORM, ACCOUNT_PATH: OF_PERSON}


@table(("root", "groups"), MODES.items())
def test_every_entry_of_the_navigation_leads_to_a_page_with_its_capability(root: str, groups: Sequence[Group]) -> None:
    decorators = {PLATFORM_PATH: "platform_page", ACCOUNT_PATH: "page_session"}
    entries = [entry for _, entries in groups for entry in entries]
    for tab in (tab for entry in entries for tab in entry.tabs):
        access = access_of(OPERATIONS[f"GET {root}{tab.path}"])
        assert (access.name, access.capability) == (decorators.get(root, "member_page"), tab.capability)
    assert len(entries) <= 12
    assert len({entry.icon for entry in entries}) == len(entries)
    assert all("<svg" in icon(entry.icon) for entry in entries)


def test_commands_name_the_path_the_query_and_the_required_fields() -> None:
    operations = [
        "GET /api/organizations/<org_slug>/services",
        "GET /api/organizations/<org_slug>/members/export",
        "POST /api/organizations/<org_slug>/services",
        "DELETE /api/user",
    ]
    values = {"org_slug": "acme"}
    assert commands(APP, operations, "https://sso.example", values, {"search": "a & b", "kind": "spa"}) == [
        "curl -H \"Authorization: Bearer $TOKEN\" 'https://sso.example/api/organizations/acme/services?search=a+%26+b'",
        "curl -H \"Authorization: Bearer $TOKEN\" 'https://sso.example/api/organizations/acme/members/export?search=a+%26+b'",
        'curl -X POST -H "Authorization: Bearer $TOKEN" --json \'{"name": "Shop", "service_type": "web", "slug": "shop"}\' '
        "https://sso.example/api/organizations/acme/services",
        'curl -X DELETE -H "Authorization: Bearer $TOKEN" https://sso.example/api/user',
    ]


def test_the_bodies_of_all_commands_have_the_types_of_the_api() -> None:
    """A newcomer replaces the values, and the request is accepted."""
    operations = sorted({operation for view in PAGES.values() for operation in docs_of(view).api})
    models = {operation: getattr(OPERATIONS[operation], QUART_SCHEMA_REQUEST_ATTRIBUTE, (None,))[0] for operation in operations}
    refused, bodies = {}, {operation: model for operation, model in models.items() if model is not None}
    for operation, model in bodies.items():
        [command] = commands(APP, [operation], "https://sso.example", {}, {})
        words = shlex.split(command)
        body = json.loads(words[words.index("--json") + 1])
        if any(value is False or value == [] for value in body.values()):
            refused[operation] = "sent as it is, it clears or disables something"
        try:
            model.model_validate(body)
        except (ValidationError, Invalid) as error:
            refused[operation] = str(error)
    assert not refused
    assert len(bodies) > 30

"""The pages for a program's credentials, for service accounts and API resources."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from inspect import get_annotations
from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response, request

from core.applications.model.client_settings import PrivateKeySent
from core.kernel.errors import Invalid
from core.kernel.outbound import KeyPortNotAllowed
from core.kernel.values import rfc3339
from core.programs.model import credentials as model
from core.programs.model.credentials import CredentialKind
from entrypoints.http import kit
from entrypoints.http.api.programs import credentials
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.form_values import FieldInvalid, to_model

SENT: Final = "A secret was shown once. If you didn't copy it, revoke the credential in the list and create another one."
FIELDS: Final[console_forms.Fields] = {
    model.CredentialExpiryInvalid: "expires_at",
    model.IssuerInvalid: "issuer",
    KeyPortNotAllowed: "issuer",
    model.AudienceInvalid: "audience",
    model.SubjectPatternInvalid: "subject",
    model.CredentialKeyInvalid: "public_key",
    PrivateKeySent: "public_key",
}
LIFETIMES: Final = [("", "Never"), ("30", "After 30 days"), ("90", "After 90 days"), ("365", "After a year")]


class NewCredentialQuery(kit.Query):
    """The credential kind that a form creates."""

    kind: CredentialKind = Field(CredentialKind.SECRET, description="The kind of credential that the form creates.")


def _to_key(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        return kit.decode(text.encode())
    except Invalid:
        raise FieldInvalid('Paste a JWK, such as {"kty": "EC", ...}.', "public_key") from None


def _to_end(text: str) -> str | None:
    return rfc3339(kit.ports().clock.now() + timedelta(days=int(text))) if text in dict(LIFETIMES) and text else None


def declare(
    routes: Blueprint,
    page: str,
    api: str,
    opens: Callable[[kit.View], kit.View],
    changes: Callable[[kit.View], kit.View],
    *,
    template: str,
    values: Callable[[UUID], Awaitable[dict[str, Any]]],
    use_cases: tuple[Callable[..., Awaitable[Any]], ...],
) -> None:
    """Register the list of a program's credentials, the form for a new credential, and the button that revokes a credential.

    `page` and `api` are the list's routes, and their last parameter is the program's id. `template` shows the list, and `values` returns
    the values that all pages about the program share. `use_cases` list, create and revoke.
    """
    parameter = page.rpartition("<")[2].partition(">")[0]
    list_all, create_one, revoke_one = use_cases

    def of_program(view: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        """Let a view get the id in the path as `program_id`, and no `org_slug`."""

        @wraps(view)
        async def run(org_slug: str = "", **parameters: Any) -> Response:
            return await view(program_id=parameters.pop(parameter), **parameters)

        run.__annotations__ = {name.replace("program_id", parameter): type_ for name, type_ in get_annotations(view).items()}
        return run

    @routes.get(page)
    @opens
    @console.shows(f"GET {api}", f"DELETE {api}/<credential_id>")
    @of_program
    async def show_credentials(program_id: UUID) -> Response:
        """List a program's credentials."""
        shown = await values(program_id)
        return await console.console_page(
            template, credentials=await list_all(kit.ports(), kit.signed_in(), program_id), now=kit.ports().clock.now(), **shown
        )

    async def form_values(typed: console_forms.Form, query_args: NewCredentialQuery | None = None, **ids: UUID) -> dict[str, Any]:
        kind = CredentialKind.SECRET if query_args is None else query_args.kind
        if typed.get("kind") in CredentialKind.__members__.values():
            kind = CredentialKind(typed["kind"])
        fields = {"kind": kind, "label": kit.label(kind), "typed": typed, "lifetimes": LIFETIMES, "issuer": kit.app_context().base_url}
        return {**fields, **await values(ids[parameter])}

    @console_forms.serves_form(routes, f"{page}/new", query=NewCredentialQuery)
    @changes
    @console_forms.accepts(f"POST {api}", answers={200: "The secret.", **console_forms.ANSWERS_TO_FORM})
    @console_forms.once(page, "Open credentials", SENT)
    @console_forms.on_refusal("programs/new_credential.html", form_values, FIELDS)
    @of_program
    async def create_credential(program_id: UUID, form: console_forms.Form) -> Response:
        """Create a credential for a program."""
        data = to_model(credentials.CredentialRequest, form, {"public_key": _to_key, "expires_at": _to_end})
        credential, secret = await create_one(
            console_forms.ports_once(), kit.signed_in(), program_id, credentials.to_credential_request(data)
        )
        path = kit.fill_in(page, request.view_args or {})
        if secret is None:
            return console.redirect_with_notice("credential-created", path)
        return await console.secret_page(
            "Client secret created",
            {"Client id": str(credential.client_id), "Client secret": secret},
            advice="The program sends both to the token endpoint.",
            done=("I've copied the secret", path),
        )

    @routes.post(f"{page}/<credential_id>/revoke")
    @changes
    @console_forms.accepts(f"DELETE {api}/<credential_id>")
    @of_program
    async def revoke_credential(program_id: UUID, credential_id: UUID) -> Response:
        """Revoke a program's credential."""
        await revoke_one(kit.ports(), kit.signed_in(), program_id, credential_id)
        return console.redirect_with_notice("credential-revoked", kit.fill_in(page, request.view_args or {}))

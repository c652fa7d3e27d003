"""The list of a program's credentials, and the form that creates one. Service accounts and API resources share them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pydantic import Field
from quart import Response

from core.applications.model.client_settings import PrivateKeySent
from core.kernel.errors import Invalid
from core.kernel.outbound import KeyPortNotAllowed
from core.kernel.values import rfc3339
from core.programs.model import credentials as model
from core.programs.model.credentials import Credential, CredentialKind, NewCredential
from entrypoints.http.api.programs.credential_models import CredentialRequest, to_credential_request
from entrypoints.http.base.context import app_context, ports
from entrypoints.http.base.rendering.labels import label
from entrypoints.http.edge.bodies import decode
from entrypoints.http.edge.queries import Query
from entrypoints.http.pages.console import redirect_with_notice, secret_page
from entrypoints.http.pages.console_forms import ANSWERS_TO_FORM, Fields
from entrypoints.http.pages.form_values import FieldInvalid, to_model

ANSWERS: Final = {200: "The secret.", **ANSWERS_TO_FORM}
SENT: Final = "A secret was shown once. If you didn't copy it, revoke the credential in the list and create another one."
FIELDS: Final[Fields] = {
    model.CredentialExpiryInvalid: "expires_at",
    model.IssuerInvalid: "issuer",
    KeyPortNotAllowed: "issuer",
    model.AudienceInvalid: "audience",
    model.SubjectPatternInvalid: "subject",
    model.CredentialKeyInvalid: "public_key",
    PrivateKeySent: "public_key",
}
LIFETIMES: Final = [("", "Never"), ("30", "After 30 days"), ("90", "After 90 days"), ("365", "After a year")]


class NewCredentialQuery(Query):
    """The kind of the credential that a form creates."""

    kind: CredentialKind = Field(CredentialKind.SECRET, description="The kind of credential that the form creates.")


def list_values(credentials: Sequence[Credential]) -> dict[str, Any]:
    """Return the values of a list of credentials."""
    return {"credentials": credentials, "now": ports().clock.now()}


def form_values(kind: CredentialKind, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the form that creates a credential."""
    return {"kind": kind, "label": label(kind), "typed": typed, "lifetimes": LIFETIMES, "issuer": app_context().base_url}


def typed_values(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a form that was sent."""
    kind = form.get("kind", "")
    credential_kind = CredentialKind(kind) if kind in CredentialKind.__members__.values() else CredentialKind.SECRET
    return form_values(credential_kind, form)


def read_credential(form: Mapping[str, str]) -> NewCredential:
    """Return the credential that a form stands for. Raises: FieldInvalid."""
    return to_credential_request(to_model(CredentialRequest, form, {"public_key": _to_key, "expires_at": _to_end}))


def _to_key(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        return decode(text.encode())
    except Invalid:
        raise FieldInvalid('Paste a JWK, such as {"kty": "EC", ...}.', "public_key") from None


def _to_end(text: str) -> str | None:
    return rfc3339(ports().clock.now() + timedelta(days=int(text))) if text in dict(LIFETIMES) and text else None


async def created_page(credential: Credential, secret: str | None, path: str) -> Response:
    """Return the page after a credential was created: its secret, or else the list of credentials at `path`."""
    if secret is None:
        return redirect_with_notice("credential-created", path)
    return await secret_page(
        "Client secret created",
        {"Client id": str(credential.client_id), "Client secret": secret},
        advice="The program sends both to the token endpoint.",
        done=("I've copied the secret", path),
    )

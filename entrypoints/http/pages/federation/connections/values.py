"""The paths to a connection's pages, their values, its problems, and the fields that refusals are about."""

from collections.abc import Sequence
from typing import Any, Final

from quart import Response

from core.federation.connections import checks, connections, routing
from core.federation.connections.model import saml, settings
from core.federation.connections.model.connections import (
    ConnectionFieldFixed,
    ConnectionProblem,
    ConnectionSlugTaken,
    OrganizationConnection,
    ProviderCertificateExists,
    ProviderCertificateInvalid,
)
from core.federation.connections.model.presets import PRESETS
from core.federation.saml.model import metadata
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel import values
from core.kernel.errors import Refusal
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import has_rights_of_admin
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.connections import own_endpoints
from entrypoints.http.pages import console, console_forms

FIELDS: Final[console_forms.Fields] = {
    ConnectionSlugTaken: "slug",
    values.SlugInvalid: "slug",
    values.SlugReserved: "slug",
    ConnectionFieldFixed: "issuer",
    ProviderCertificateInvalid: "certificate",
    **dict.fromkeys((metadata.MetadataInvalid, saml.NoIdentityProvider, saml.SeveralIdentityProviders), "metadata"),
    **dict.fromkeys((metadata.MetadataNotFetched, TargetInvalid), "url"),
    ProviderCertificateExists: "certificate",
}
CLAIM: Final = "claim_"  # begins the names of the mapping's fields
CLAIM_LABELS: Final = {  # the fields' labels
    f"{CLAIM}email": "Email address",
    f"{CLAIM}name": "Full name",
    f"{CLAIM}given_name": "Given name",
    f"{CLAIM}family_name": "Family name",
    f"{CLAIM}groups": "Groups",
    f"{CLAIM}picture": "Picture",
    f"{CLAIM}locale": "Language",
}
NAME_ID_FORMATS: Final = [each for each in NameIdFormat if each is not NameIdFormat.TRANSIENT]


def choose_field(refusal: Refusal, form: console_forms.Form) -> str | None:
    """Return the field of a connection's form that a refusal is about, or None."""
    name = refusal.setting if isinstance(refusal, settings.ConnectionSettingInvalid) else console_forms.wrong_field(refusal, FIELDS)
    return f"{CLAIM}{name}" if f"{CLAIM}{name}" in form else name


def is_fixed(connection: OrganizationConnection) -> bool:
    """Return whether the caller may not change what an active connection trusts (security S-12)."""
    return connection.is_active and not has_rights_of_admin(kit.acting_member().acts_in.rights)


async def connection_values(form: console_forms.Form, connection_slug: str) -> dict[str, Any]:
    """Return the values for the page with a connection's settings."""
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    connection = details.connection
    preset = PRESETS.get(connection.preset or "")
    document = settings.to_document(connection.settings)
    stored = {**document, "name": connection.name, **{each: " ".join(document.get(each, ())) for each in ("scopes", "targets")}}
    return {
        "path": path_of(connection.slug),
        "list_path": path_of(),
        "details": details,
        "connection": connection,
        "chosen": preset,
        "preset": None if preset is None else preset.protocols[connection.protocol],
        "may_activate": has_rights_of_admin(kit.acting_member().acts_in.rights),
        "is_fixed": is_fixed(connection),
        "is_stored": not form,
        "endpoints": own_endpoints(connection.id, connection.protocol),
        "reach": await routing.find_reach(kit.ports(), connection),
        "claim_labels": CLAIM_LABELS,
        "mapped": [(CLAIM_LABELS[CLAIM + name], claim) for name, claim in connection.mapping.document.items() if claim],
        "name_id_formats": [(each.value, each.short_name) for each in NAME_ID_FORMATS],
        "typed": form or stored,
    }


LIST: Final = "/app/organizations/<org_slug>/connections"
ONE: Final = f"{LIST}/<connection_slug>"
ANSWERS_TO_IMPORTED: Final = {**console_forms.ANSWERS_TO_FORM, 200: "The metadata are imported. The page shows their problems."}
ANSWERS_TO_SAVED: Final = {**console_forms.ANSWERS_TO_FORM, 200: "The values are saved. The page shows the problems that the check found."}


def path_of(slug: str = "") -> str:
    """Return the path to a connection's page, or to the list."""
    return console.organization_path(f"/connections{slug and '/'}{slug}")


async def check_page(connection_slug: str, problems: Sequence[ConnectionProblem] | None, *, is_saved: bool = False) -> Response:
    """Return the page on which a connection is checked, with its problems. `is_saved`: values were saved in this request."""
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    return await console.console_page(
        "federation/connection_test.html",
        connection=details.connection,
        path=path_of(connection_slug),
        list_path=path_of(),
        problems=problems,
        is_saved=is_saved,
    )


async def check_saved(connection_slug: str, notice: str, below: str = "") -> Response:
    """Check a connection after a save. Return to its page, or show the problems."""
    if problems := await checks.check_saved(kit.ports(), kit.acting_member(), connection_slug, kit.app_context().base_url):
        return await check_page(connection_slug, problems, is_saved=True)
    return console.redirect_with_notice(notice, path_of(f"{connection_slug}{below}"))

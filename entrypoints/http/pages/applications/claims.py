"""The page for an application's claims: the form, its presets, and a test sign-in before and after the change."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.authentication.model import claim_document, openid
from core.federation import claims
from core.federation.claims import ClaimsPreview
from core.federation.model.sign_in import OpenIdPreview
from core.kernel.errors import Refusal
from core.kernel.roles import Capability
from core.tenancy import attributes
from entrypoints.http import kit
from entrypoints.http.api.applications.claims import CLAIMS, to_response
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, application_path, application_values
from entrypoints.http.pages.presets import PresetQuery

routes = Blueprint("claims_pages", __name__)

PAGE: Final = f"{APPLICATION}/claims"
TEMPLATE: Final = "applications/claims.html"


async def _values(
    form: console_forms.Form, service_slug: str, preview: ClaimsPreview | None = None, query_args: PresetQuery | None = None
) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    stored = await claims.get(kit.ports(), kit.acting_member(), service_slug)
    declared = await attributes.list_declared(kit.ports(), kit.acting_member())
    console.show_document(to_response(stored))
    chosen = find_preset(query_args.preset if query_args else None)
    typed = to_typed(claim_document.ClaimDocument.read(stored.document), stored.version)
    return {
        **application_values(service),
        "typed": {"version": str(stored.version), **form} if form else chosen.fill_in(typed) if chosen else typed,
        "version": str(stored.version),
        "facts": to_facts(typed),
        "is_stale": not claim_document.ClaimDocument.is_valid(stored.document),
        "changed_at": stored.changed_at,
        "labels": LABELS,
        "lists": claim_document.LIST_CLAIMS,
        "prefix": PREFIX,
        "access": ACCESS,
        "user_names": USER_NAMES,
        "which": WHICH,
        "group_values": VALUES,
        "sources": [
            *claim_document.SOURCES,
            *(f"attribute:{each.name}" for each in declared),
            *(f"directory:{name}" for name in claim_document.DIRECTORY_VALUES),
        ],
        "attributes_path": console.organization_path("/attributes"),
        "presets": PRESETS,
        "preset": chosen,
        "preview": preview,
        "changes": None if preview is None else changed_claims(preview.before, preview.after),
    }


@contextmanager
def _naming_fields() -> Iterator[None]:
    """Name the form field that a refused member stands in."""
    try:
        yield
    except claim_document.ClaimDocumentInvalid as invalid:
        raise form_values.FieldInvalid(invalid.problem, FIELDS.get(invalid.member, "values")) from None


def _wrong(refusal: Refusal, _: console_forms.Form) -> str | None:
    return refusal.field if isinstance(refusal, form_values.FieldInvalid) else None


@console_forms.serves_form(
    routes,
    PAGE,
    f"GET {CLAIMS}",
    f"PUT {CLAIMS}",
    f"DELETE {CLAIMS}",
    f"POST {CLAIMS}/preview",
    opens=kit.member_page(Capability.SERVICES_VIEW),
    query=PresetQuery,
)
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {CLAIMS}")
@kit.refuses(409)
@console_forms.on_refusal(TEMPLATE, _values, _wrong)
async def save_claims(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Save an application's claims."""
    with _naming_fields():
        await claims.save(kit.ports(), kit.acting_member(), service_slug, to_document(form), form_values.to_version(form) or 0)
    return console.redirect_with_notice("claims-saved", f"{application_path(service_slug)}/claims")


@routes.post(f"{PAGE}/preview")
@kit.member_page(Capability.SERVICES_MANAGE, kit.SHOWS_PEOPLE)
@console_forms.accepts(
    f"POST {CLAIMS}/preview", answers=console_forms.answers_with("The form, and the claims that the change adds or takes away.")
)
@console_forms.on_refusal(TEMPLATE, _values, _wrong)
async def preview_claims(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Preview the claims in a test sign-in before and after the change. Nothing is saved."""
    with _naming_fields():
        preview = await claims.preview(kit.ports(), kit.app_context().base_url, kit.acting_member(), service_slug, to_document(form))
    return await console.console_page(TEMPLATE, **await _values(form, service_slug, preview))


@routes.post(f"{PAGE}/remove")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {CLAIMS}")
async def remove_claims(org_slug: str, service_slug: str) -> Response:
    """Remove an application's claims. It gets the standard claims again."""
    await claims.remove(kit.ports(), kit.acting_member(), service_slug)
    return console.redirect_with_notice("claims-removed", f"{application_path(service_slug)}/claims")


USER_NAME: Final = "preferred_username"
ACCESS: Final = "access:"  # begins the checkbox names for claims in access tokens
PREFIX: Final = "prefix_"
STANDARD: Final = ""  # the user name choice that maps nothing
OTHER: Final = "other"  # the choice for sources that the list does not have
USER_NAMES: Final = [
    (STANDARD, "The name that the user chose, if any"),
    ("preferred_username, email_local_part", "The name that the user chose, or the part before the @"),
    ("email_local_part", "The part of the email address before the @"),
    ("email", "The email address"),
    ("directory:userName, email", "The user name of the directory, or the email address"),
    (OTHER, "As below, in the own values"),
]
WHICH: Final = [
    (claim_document.WhichGroups.ALL.value, "All groups of the user"),
    (claim_document.WhichGroups.ASSIGNED.value, "Only groups that it is assigned to"),
]
VALUES: Final = [
    (claim_document.GroupValue.NAME.value, "The name"),
    (claim_document.GroupValue.ID.value, "The id"),
    (claim_document.GroupValue.EXTERNAL_ID.value, "The id in the directory"),
]
# The fields for the members in a document.
FIELDS: Final = {
    "names": "names",
    **{f"prefix.{name}": PREFIX + name for name in claim_document.LIST_CLAIMS},
    "fixed": "fixed",
    "values": "values",
    "access_token": "access_claims",
}
LABELS: Final = {
    USER_NAME: "User name",
    "which": "Groups",
    "value": "A group is shown as",
    "access_token": "Access tokens contain",
    "names": "Other names",
    "prefix_roles": "Before each role",
    "prefix_permissions": "Before each permission",
    "prefix_groups": "Before each group",
    "fixed": "Fixed values",
    "values": "Own values",
    "access_claims": "Own claims in access tokens",
}


@dataclass(frozen=True, slots=True)
class ClaimPreset:
    """The claims that a product reads, with the settings to make there.

    Products identify users by `sub` or by the email address. A name that users choose, and the part before the @, can also belong to
    another user.
    """

    name: str
    label: str
    settings: str  # as the product writes them
    reads: tuple[str, ...] = ("email", "groups")

    def fill_in(self, typed: Mapping[str, str]) -> dict[str, str]:
        """Return the form fields for this product. The claims that it reads have their standard names, and no prefix."""
        fields = {**typed, **{PREFIX + name: "" for name in claim_document.LIST_CLAIMS if name in self.reads}}
        for field, parts in (("names", 2), ("values", 1)):  # another claim can also have got a name that the product reads
            lines = (line for line in typed.get(field, "").splitlines() if not {*_name_and_text(line)[:parts]} & {*self.reads})
            fields[field] = "\n".join(lines)
        return {**fields, **({USER_NAME: "email"} if USER_NAME in self.reads else {})}


# The settings' names come from the products' documentation (docs/guides/claims.md).
PRESETS: Final = (
    ClaimPreset(
        "grafana",
        "Grafana",
        "scopes = openid profile email groups\n"
        "login_attribute_path = email\n"
        "groups_attribute_path = groups\n"
        "role_attribute_path = contains(groups[*], 'grafana-admins') && 'Admin' || 'Viewer'",
        reads=(USER_NAME, "email", "groups"),
    ),
    ClaimPreset("kubernetes", "Kubernetes", "--oidc-username-claim=email\n--oidc-groups-claim=groups\n--oidc-groups-prefix=oidc:"),
    ClaimPreset(
        "argo-cd", "Argo CD", 'requestedScopes: ["openid", "profile", "email", "groups"]\npolicy.csv: g, argocd-admins, role:admin'
    ),
    ClaimPreset("vault", "Vault", 'user_claim="sub"\ngroups_claim="groups"\noidc_scopes="openid,profile,email,groups"'),
    ClaimPreset(
        "gitlab",
        "GitLab",
        'scope: ["openid", "profile", "email", "groups"]\nuid_field: "sub"\ngroups_attribute: "groups"',
        reads=(USER_NAME, "email", "groups"),
    ),
)


def find_preset(name: str | None) -> ClaimPreset | None:
    return next((preset for preset in PRESETS if preset.name == name), None)


def to_typed(claims: claim_document.ClaimDocument, version: int) -> dict[str, str]:
    """Return the form fields for an application's claims."""
    values, user_name = dict(claims.values), STANDARD
    if USER_NAME in values:
        sources = ", ".join(values[USER_NAME].sources)
        user_name = sources if sources in dict(USER_NAMES) else OTHER
        if user_name != OTHER:
            del values[USER_NAME]
    own = [name for name in claims.access_token if name not in claim_document.LIST_CLAIMS]
    return {
        USER_NAME: user_name,
        "which": claims.which_groups.value,
        "value": claims.group_value.value,
        **{PREFIX + name: claims.prefix.get(name, "") for name in claim_document.LIST_CLAIMS},
        "names": _to_text(claims.names.items()),
        "fixed": _to_text(
            (name, form_values.quoted(value, _to_value) if isinstance(value, str) else json.dumps(value))
            for name, value in claims.fixed.items()
        ),
        "values": _to_text(
            (name, ", ".join(mapped.sources) + ("" if mapped.scope is openid.Scope.PROFILE else f" ({mapped.scope})"))
            for name, mapped in values.items()
        ),
        **{ACCESS + name: "yes" for name in claims.access_token if name in claim_document.LIST_CLAIMS},
        "access_claims": "\n".join(own),
        "version": str(version),
    }


def to_facts(typed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return label and text for every part that differs from the standard claims, for readers who cannot change them."""
    tokens = ", ".join(name for name in claim_document.LIST_CLAIMS if ACCESS + name in typed)
    choices = [
        (LABELS[USER_NAME], dict(USER_NAMES)[typed[USER_NAME]] if typed[USER_NAME] not in (STANDARD, OTHER) else ""),
        (LABELS["which"], dict(WHICH)[typed["which"]] if typed["which"] != claim_document.WhichGroups.ALL else ""),
        (LABELS["value"], dict(VALUES)[typed["value"]] if typed["value"] != claim_document.GroupValue.NAME else ""),
        (LABELS["access_token"], tokens),
    ]
    texts = [
        (LABELS[name], typed[name])
        for name in ("names", *(PREFIX + name for name in claim_document.LIST_CLAIMS), "fixed", "values", "access_claims")
    ]
    return [(label, text) for label, text in (*choices, *texts) if text]


def to_document(form: console_forms.Form) -> dict[str, Any]:
    """Return the document that the form stands for. It is not checked yet. Raises: FieldInvalid for a line without an equals sign."""
    values: dict[str, Any] = {}
    for name, text in _pairs(form, "values"):
        sources, bracket, scope = text.partition("(")
        values[name] = {"sources": [each.strip() for each in sources.split(",") if each.strip()]}
        if bracket:
            values[name]["scope"] = scope.rstrip(") ").strip()
    user_name = form.get(USER_NAME, STANDARD)
    if user_name not in (STANDARD, OTHER):
        values[USER_NAME] = {"sources": user_name.split(", ")}
    return {
        "names": dict(_pairs(form, "names")),
        "prefix": {name: text for name in claim_document.LIST_CLAIMS if (text := form.get(PREFIX + name, ""))},
        "fixed": {name: _to_value(text) for name, text in _pairs(form, "fixed")},
        "values": values,
        "groups": {
            "which": form.get("which") or claim_document.WhichGroups.ALL.value,
            "value": form.get("value") or claim_document.GroupValue.NAME.value,
        },
        "access_token": [
            *(name for name in claim_document.LIST_CLAIMS if ACCESS + name in form),
            *form_values.to_lines(form.get("access_claims", "")),
        ],
    }


def changed_claims(before: OpenIdPreview | None, after: OpenIdPreview | None) -> dict[str, list[tuple[str, str, str]]]:
    """Return every claim that changes, with its name, old and new value, by the token or answer that has it. No value is ""."""
    if before is None or after is None:
        return {}
    parts = {
        "ID token": (before.id_token, after.id_token),
        "Userinfo endpoint": (before.userinfo, after.userinfo),
        "Access token": (before.access_token, after.access_token),
    }
    return {label: _changes(old or {}, new or {}) for label, (old, new) in parts.items()}


def _changes(old: Mapping[str, object], new: Mapping[str, object]) -> list[tuple[str, str, str]]:
    names = (name for name in dict.fromkeys((*old, *new)) if name not in openid.PROTOCOL_CLAIMS and old.get(name) != new.get(name))
    return [(name, _shown(old, name), _shown(new, name)) for name in names]


def _shown(claims: Mapping[str, object], name: str) -> str:
    return json.dumps(claims[name], ensure_ascii=False) if name in claims else ""


def _to_text(pairs: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in pairs)


def _pairs(form: console_forms.Form, field: str) -> list[tuple[str, str]]:
    """Return the name and the text in every line."""
    pairs = list[tuple[str, str]]()
    for line in form_values.to_lines(form.get(field, "")):
        name, text = _name_and_text(line)
        if not name or not text:
            raise form_values.FieldInvalid(
                f"Write each line as a name, an equals sign and a value. This line has another form: {line[:100]}", field
            )
        if any(name == other for other, _ in pairs):
            raise form_values.FieldInvalid(f"{name[:100]} has two lines. Write one.", field)
        pairs.append((name, text))
    return pairs


def _name_and_text(line: str) -> tuple[str, str]:
    # A name such as https://example.com/?a=b can have an equals sign, but no space.
    name, _, text = line.partition(" = " if " = " in line else "=")
    return name.strip(), text.strip()


def _to_value(text: str) -> Any:
    """Return the value if the text is a boolean, a whole number, a list or a text in JSON, or else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | list | str) else text

"""The claims of applications: their documents, and a preview of the claims before and after a change."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from core.applications import events, services
from core.applications.model.services import NO_STORED_CLAIMS, ClaimsChanged, Service, StoredClaims
from core.authentication.model import claim_document
from core.authentication.model.openid import Scope
from core.federation import sign_in_preview
from core.federation.model.sign_in import OpenIdPreview
from core.kernel import callers
from core.kernel.roles import Capability
from ports import Ports, storage

ALL_SCOPES = "openid profile email org roles permissions groups"


@dataclass(frozen=True, slots=True)
class ClaimsPreview:
    """What the application would receive for the caller, before and after a change. None without a redirect URI."""

    before: OpenIdPreview | None
    after: OpenIdPreview | None


async def get(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> StoredClaims:
    """Return the claims document of an application. It is empty if nothing was saved. Raises: ServiceNotFound."""
    service = await services.find(ports, caller, service_slug)
    async with ports.storage.reading() as read:
        return await read.service_claims.find(service.org_id, service.id) or NO_STORED_CLAIMS


async def save(
    ports: Ports, caller: callers.OrganizationCaller, service_slug: str, document: claim_document.Document, version: int
) -> StoredClaims:
    """Replace the claims document of an application, and return it. New tokens have the new claims.

    `version` is that of the document that the caller has seen.
    """
    claims, now = claim_document.ClaimDocument.parse(document), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        await _require_attributes(tx, service.org_id, claims)
        old = await tx.service_claims.find(service.org_id, service.id) or NO_STORED_CLAIMS
        if old.version != version:
            raise ClaimsChanged
        new = replace(old, document=claims.document)
        if old.version and new.document == old.document:
            return old
        kinds = [kind.rstrip(":") for kind in (claim_document.ATTRIBUTE, claim_document.DIRECTORY) if claims.reads(kind)]
        new_version = await tx.service_claims.put(service.org_id, service.id, new.document, kinds, now)
        tx.record(events.claims_updated(service, old.document, new.document))
    return replace(new, version=new_version, changed_at=now)


async def remove(ports: Ports, caller: callers.OrganizationCaller, service_slug: str) -> None:
    """Remove the claims document of an application. It gets the standard claims again."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, service_slug, Capability.SERVICES_MANAGE)
        old = await tx.service_claims.find(service.org_id, service.id)
        if old is not None and await tx.service_claims.remove(service.org_id, service.id):
            tx.record(events.claims_updated(service, old.document, {}))


async def shows_kept_facts(ports: Ports, service: Service, scopes: Collection[Scope]) -> bool:
    """Return whether one of these scopes gives the application an attribute of its organization, or a value of the directory."""
    async with ports.storage.reading() as read:
        stored = await read.service_claims.find(service.org_id, service.id)
    return stored is not None and claim_document.ClaimDocument.read(stored.document).shows_kept_facts(scopes)


async def preview(
    ports: Ports, base_url: str, caller: callers.Member, service_slug: str, document: claim_document.Document, scope: str = ALL_SCOPES
) -> ClaimsPreview:
    """Return the claims that the application gets for the caller now, and with this document. Nothing is stored or signed.

    Raises: ClaimDocumentInvalid; the errors of `sign_in_preview.preview`.
    """
    claims = claim_document.ClaimDocument.parse(document)
    async with ports.storage.reading() as read:
        await _require_attributes(read, caller.acts_in.id, claims)
    before = await sign_in_preview.preview(ports, base_url, caller, service_slug, scope)
    after = await sign_in_preview.preview(ports, base_url, caller, service_slug, scope, document=claims.document)
    return ClaimsPreview(before.openid, after.openid)


async def _require_attributes(read: storage.Reading | storage.Transaction, org_id: UUID, claims: claim_document.ClaimDocument) -> None:
    """Check that the organization has declared the attributes of the document."""
    if names := claims.attribute_names:
        unknown = names - {attribute.name for attribute in await read.attributes.list_declared(org_id)}
        if unknown:
            raise claim_document.ClaimDocumentInvalid("values", f"The organization has no attribute {min(unknown)!r}. Declare it first.")

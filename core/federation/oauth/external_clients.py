"""External clients: programs that no organization registered, named by the address of their metadata.

The order of the checks: resource, policy, session, access, document, redirect URI, consent. Before the sign-in, nothing
is fetched, and the pages show the host alone. The document is fetched for a signed-in user only, from a bounded cache.
The first consent stores it (`store`). From then on the client is an application like others (docs/adr/0043, security
#external-clients).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.applications import services
from core.applications.events import setting_changes
from core.applications.model import client_settings
from core.applications.model.services import Service
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import WaitingApplication
from core.authentication.model.login import LoginFailure
from core.authentication.model.openid import OpenIdGrant
from core.authentication.tokens import signing_keys
from core.federation.oauth import client_registration
from core.federation.oauth.model import client_documents, external_clients
from core.federation.oauth.model.authorization import Authorization, AuthorizationRequest
from core.federation.oauth.model.client_metadata import KEY_RULES
from core.federation.oauth.model.client_registration import SealedClientInvalid, has_sealed_form, is_sealed
from core.federation.oauth.model.clients import ClientCredentials
from core.federation.oauth.model.openid_requests import AccessDenied
from core.kernel import callers, errors, proofs, shares, uris
from core.kernel.claims import Accepts, Claims
from core.kernel.values import digest
from core.maintenance.housekeeping import process_in_batches
from core.programs import api_resources, events
from core.programs.model.api_resources import ApiResource, NoAccessToResource
from core.programs.model.client_policy import admits
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class ExternalClient:
    """An external client in a request, with the API resource that it asks for.

    `registered` is the client with its metadata, if it registered itself. As a document, they count only for a signed-in user.
    With a `failure`, its document is not available now, and the stored one is good only for users who agreed before.
    """

    service: Service
    context: callers.ServiceContext
    api: ApiResource
    failure: errors.Refusal | None = None
    registered: Service | None = None


async def find(ports: Ports, read: storage.Reading, address: str, resource: str | None) -> ExternalClient:
    """Return the client before its document is known, if the API resource admits its host, or clients that registered themselves.

    Raises: ClientAddressInvalid, SealedClientInvalid, ClientResourceUnknown, ClientNotAdmitted.
    """
    if not is_sealed(address):
        client_documents.check_address(address, ports.policy)
    elif not has_sealed_form(address):
        raise SealedClientInvalid
    target = None if resource is None else await api_resources.find_for_external(ports, read, resource)
    if target is None:
        raise external_clients.ClientResourceUnknown
    api = target.resource
    if not admits(api.external_clients, client_settings.client_host(address)):
        raise external_clients.ClientNotAdmitted(None if is_sealed(address) else client_documents.host_of(address))
    service = external_clients.draft_service(address, api, ports.clock.now())
    context = external_clients.context_of(service, target.org_slug, has_sign_in_policy=target.has_sign_in_policy)
    client = ExternalClient(service, context, external_clients.narrow(api))
    return replace(client, registered=await _find_registered(ports, read, client)) if is_sealed(address) else client


async def _find_registered(ports: Ports, read: storage.Reading, client: ExternalClient) -> Service:
    """Return the stored client, or else a client with the metadata in the client id."""
    stored = await read.services.client_by_id(client.api.org_id, client.service.id)
    if stored is not None:
        return stored[0]
    document = client_registration.open_new(ports, client.context.client_name)
    return external_clients.to_service(document, client.api, ports.clock.now())


def find_registered_uri(ports: Ports, request: AuthorizationRequest) -> str | None:
    """Return the redirect URI of a request if its client registered itself with this URI, or None."""
    address, requested = request.client_id, request.redirect_uri
    if address is None or requested is None or not is_sealed(address):
        return None
    try:
        document = client_registration.open_sealed(ports, address)
    except SealedClientInvalid:
        return None
    published = external_clients.find_published(document.redirect_uris, requested)
    return requested if published is not None and uris.equals_except_loopback_port(published, requested) else published


async def load(ports: Ports, visitor: callers.Visitor, client: ExternalClient, redirect_uri: str | None) -> ExternalClient:
    """Return the client with its document, or with the metadata that it registered, for a user who is signed in.

    The newest known document counts. A redirect URI that it lacks may be new, so then it is fetched again. If the document is
    not available, the stored one is used for a while. Then `failure` says why.

    Raises: NoAccessToResource, ClientDocumentUnavailable, ClientDocumentsLimited.
    """
    now, api, address = ports.clock.now(), client.api, client.context.client_name
    async with ports.storage.reading() as read:
        may_use, stored = await read.external_clients.standing(api.org_id, client.service.id, api.id, visitor.user_id)
    if not may_use:
        await _record_refusal(ports, visitor, client, stored)
        raise NoAccessToResource
    if client.registered is not None:
        if stored is None:
            await _charge(ports, visitor, client, is_new=True, fetches=False)
        return _with_service(client, stored or client.registered)
    try:
        known = _known(ports, client, stored, redirect_uri, now)
        if known is None:
            await _charge(ports, visitor, client, is_new=stored is None, fetches=True)
            with shares.working_for(shares.of_organization(api.org_id)):
                document = await ports.client_documents.fetch(address, now - client_documents.MIN_FRESH)
            # A server that does not answer uses up nothing of the platform's limit.
            async with ports.storage.transaction(by=visitor) as tx:
                await tx.rates.charge_window(external_clients.PLATFORM, external_clients.OF_PLATFORM, ports.clock.now())
            known = external_clients.to_service(document, api, now)
        _check_keys(ports, known)
    except (client_documents.ClientDocumentUnavailable, external_clients.ClientDocumentsLimited) as failure:
        if stored is None:
            raise
        is_limited = isinstance(failure, (external_clients.ClientDocumentsLimited, client_documents.ClientHostBusy))
        if not is_limited:
            stored = await _note_failure(ports, visitor, stored, now)
        if stored.has_old_document(now) if is_limited else stored.is_document_gone:
            raise
        return _with_service(client, stored, failure)
    if stored is not None:
        await _note_success(ports, visitor, stored, known.document_fetched_at or now)
    return _with_service(client, known)


def _known(ports: Ports, client: ExternalClient, stored: Service | None, redirect_uri: str | None, now: datetime) -> Service | None:
    """Return the client with its newest known document, or None if it must be fetched."""
    cached = ports.client_documents.cached(client.context.client_name)
    if cached is None:
        return None
    known = external_clients.to_service(cached, client.api, now)
    if stored is not None and stored.document_fetched_at is not None and stored.document_fetched_at > cached.fetched_at:
        known = stored  # another process fetched it
    is_fresh = now < cached.fetched_at + client_documents.MIN_FRESH
    return (
        known
        if is_fresh or redirect_uri is None or external_clients.find_published(known.redirect_uris, redirect_uri) is not None
        else None
    )


def _check_keys(ports: Ports, service: Service) -> None:
    """Check that the keys of the client can verify assertions. Raises: ClientDocumentUnavailable."""
    try:
        ports.client_assertions.check_keys(service.jwks or ())
    except client_settings.ClientKeysInvalid:
        raise client_documents.ClientDocumentUnavailable(service.known_name, f"has keys that are not allowed: {KEY_RULES}") from None


async def _record_refusal(ports: Ports, visitor: callers.Visitor, client: ExternalClient, stored: Service | None) -> None:
    application = WaitingApplication(client.api.org_id, None if stored is None else stored.id, client.service.known_name)
    method = proofs.first_method_of(proofs.seen_in(visitor.browser.proofs, client.api.org_id, ports.clock.now())) or ""
    await record_failure(ports, visitor, LoginFailure.ACCESS, method, visitor.user_id, application)


def _with_service(client: ExternalClient, service: Service, failure: errors.Refusal | None = None) -> ExternalClient:
    old = client.context
    context = external_clients.context_of(service, old.org_slug, has_sign_in_policy=old.has_sign_in_policy)
    return ExternalClient(service, context, client.api, failure)


async def _charge(ports: Ports, visitor: callers.Visitor, client: ExternalClient, *, is_new: bool, fetches: bool) -> None:
    """Count a new client, or a fetch of a known one's document: for the person, the organization and the platform, or for none.

    A client is new for a person once in an hour. Further fetches of its document, such as by other processes, which have caches
    of their own, count as those of a stored one.

    Raises: ClientDocumentsLimited.
    """
    now, person = ports.clock.now(), f"user {visitor.user_id}"
    async with ports.storage.transaction(by=visitor) as tx:
        same = f"{person} {digest(client.context.client_name).hex()}"
        if is_new and await tx.rates.take(same, (external_clients.OF_PERSON_AND_CLIENT,), now) > 0:
            if not fetches:
                return
            is_new = False
        own, organization = (
            external_clients.OF_PERSON if is_new else external_clients.FETCHES_OF_PERSON,
            f"organization {client.api.org_id}",
        )
        for key, window in ((person, own), (organization, external_clients.OF_ORGANIZATION)):
            if (wait := await tx.rates.charge_window(key, window, now)) > 0:
                raise external_clients.ClientDocumentsLimited(wait)
        # The platform's limit does not hold for an organization's first fetches: other organizations must not keep its clients away.
        is_further = fetches and await tx.rates.charge_window(organization, external_clients.FIRST_OF_ORGANIZATION, now) > 0
        if is_further and (wait := await tx.rates.window_wait(external_clients.PLATFORM, external_clients.OF_PLATFORM, now)) > 0:
            raise external_clients.ClientDocumentsLimited(wait)


async def _note_failure(ports: Ports, visitor: callers.Visitor, stored: Service, now: datetime) -> Service:
    """Remember that a fetch failed which began now, so that grants end if none succeeds (`check_document`). Return the client then."""
    if stored.document_failed_at is not None and now < stored.document_failed_at + external_clients.FAILURE_NOTED_FOR:
        return stored
    async with ports.storage.transaction(by=visitor) as tx:
        await tx.external_clients.note_failure(stored.org_id, stored.id, now)
    return replace(stored, document_failing_since=stored.document_failing_since or now, document_failed_at=now)


async def _note_success(ports: Ports, visitor: callers.Visitor, stored: Service, fetched_at: datetime) -> None:
    if stored.document_failing_since is not None and stored.document_failing_since <= fetched_at:
        async with ports.storage.transaction(by=visitor) as tx:
            await tx.external_clients.note_success(stored.org_id, stored.id, fetched_at)


async def find_stored(ports: Ports, read: storage.Reading, address: str, resource: str | None) -> ExternalClient:
    """Return the client that was stored in the organization of this API resource. The resource admits the client."""
    try:
        client = await find(ports, read, address, resource)
    except (
        client_documents.ClientAddressInvalid,
        SealedClientInvalid,
        external_clients.ClientResourceUnknown,
        external_clients.ClientNotAdmitted,
    ):
        raise errors.ClientInvalid from None
    service, context = await read.services.client_by_id(client.api.org_id, client.service.id) or errors.refuse(errors.ClientInvalid)
    return replace(client, service=service, context=context)


async def store(ports: Ports, tx: storage.Transaction, authorization: Authorization, grant: OpenIdGrant) -> None:
    """Store the external client of this request with the code that it gets. The policy of the API resource is read again under its lock.

    Raises: AccessDenied if it no longer admits the client with this grant.
    """
    service, api = authorization.service, grant.api
    if service is None or service.client_uri is None or api is None:
        return
    is_stored = tx.external_clients.is_stored(service, api.id)
    resource = await tx.api_resources.lock(service.org_id, api.id)
    if resource is None or not admits(resource.external_clients, client_settings.client_host(service.client_uri)):
        raise AccessDenied("The organization no longer admits this application.")
    if not set(api.scope) <= set(resource.external_scopes):
        raise AccessDenied("The organization no longer gives this application these scopes.")
    if await is_stored:
        return
    is_new, former = await tx.external_clients.save(service, api.id, ports.clock.now())
    if is_new:
        tx.record(events.external_client_added(resource, service.client_uri, service.id))
    if former is not None and (changes := setting_changes(former, service)):
        tx.record(events.external_client_updated(resource, service.client_uri, service.id, changes))


async def identify(ports: Ports, credentials: ClientCredentials) -> external_clients.IdentifiedClient:
    """Return the stored client with this address that got the code or token in the request.

    A request without a code or token names the API resource instead, and then the consent of any user counts.

    Raises: ExternalGrantUnknown; ClientInvalid if the client is not stored.
    """
    address, now = credentials.client_id or "", ports.clock.now()
    async with ports.storage.reading() as read:
        if credentials.grant is None:
            client = await find_stored(ports, read, address, credentials.resource)
            is_live = await read.external_clients.has_consents(client.api.org_id, client.service.id)
            accepts_token_endpoint = client.api.external_clients.accepts_token_endpoint_audience
            return external_clients.IdentifiedClient(client.service, client.context, is_live, accepts_token_endpoint)
        found = await read.external_clients.of_secret(address, digest(credentials.grant), now)
    found = found or await _identify_by_token(ports, address, credentials.grant)
    if found is None and is_sealed(address):
        await _require_known(ports, address)
    return found or errors.refuse(external_clients.ExternalGrantUnknown)


async def _identify_by_token(ports: Ports, address: str, token: str) -> external_clients.IdentifiedClient | None:
    """Return the client with this address that got this access token, or None."""
    try:
        claims = await signing_keys.read_token(ports, token, accepts=Accepts.RESOURCES)
    except errors.Unauthenticated:
        return None
    if not isinstance(claims, Claims) or claims.client_uri != address or claims.org_id is None or claims.client_id is None:
        return None
    async with ports.storage.reading() as read:
        client = await read.services.client_by_id(claims.org_id, claims.client_id)
        accepts_token_endpoint = await read.external_clients.accepts_token_endpoint(claims.org_id, claims.audience or "")
    return (
        None if client is None else external_clients.IdentifiedClient(*client, is_live=True, accepts_token_endpoint=accepts_token_endpoint)
    )


async def _require_known(ports: Ports, client_id: str) -> None:
    """Check that a client with this sealed client id can get tokens: it is stored, or could be.

    A client that is told so registers again. For one that is known, only its code or token is wrong.
    """
    try:
        document = client_registration.open_sealed(ports, client_id)
        async with ports.storage.reading() as read:
            if not await read.external_clients.is_known(client_id, document.fetched_at):
                client_registration.open_new(ports, client_id)
    except SealedClientInvalid:
        raise errors.ClientInvalid from None


UNUSED_FOR: Final = timedelta(days=90)  # since its document was last fetched
LEASE_NAME: Final = "external_client_sweeper"
LEASE: Final = timedelta(minutes=5)


async def sweep_unused(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Delete unused external clients, one in a transaction. Return their number, or None if another process holds the lease.

    A client is unused if it has no consent, no live session and no live code. A user who comes with it again stores it again.
    Its sign-ins stay in the logs.
    """

    last: external_clients.UnusedClient | None = None

    async def process(tx: storage.Transaction, now: datetime) -> int:
        nonlocal last
        client = await tx.external_clients.find_unused(last, now - UNUSED_FOR, now)
        if client is None:
            return 0
        last = client
        # Lock order: the organization, then the client. A code that is issued now waits for the lock on the client.
        await tx.organizations.lock(client.org_id)
        if await tx.external_clients.lock_unused(client, now - UNUSED_FOR, now):
            # A client that comes back has the same id. A deletion of its sign-ins later would take its new ones, too.
            await services.remove(tx, client.org_id, client.id, now, keeps_sign_ins=True)
            tx.record(events.external_client_removed(client.org_id, client.client_uri, client.id))
        return 1

    return await process_in_batches(ports, holder, LEASE_NAME, LEASE, 1, {"clients": process})

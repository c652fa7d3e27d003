"""External clients as applications: values that are made from a document, and that a first consent stores (docs/adr/0043)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid5

from core.applications.model import services
from core.applications.model.client_settings import known_name
from core.authentication.model.agreements import ClientFacts
from core.federation.oauth.model import authorization, client_documents
from core.federation.oauth.model.client_documents import host_of
from core.federation.oauth.model.client_metadata import ClientMethod
from core.federation.oauth.model.client_registration import is_sealed
from core.kernel import callers, errors, rate_limits, uris
from core.kernel.claims import external_client_id
from core.kernel.display import format_day
from core.kernel.values import Slug
from core.programs.model.api_resources import ApiResource

# New clients, which no user of the organization has agreed to, and further fetches of documents. Only fetches that succeed
# count for the platform. One person alone cannot use up the fetches of an organization.
OF_PERSON: Final = rate_limits.Window("new-clients", 3600.0, 10)
OF_PERSON_AND_CLIENT: Final = rate_limits.Bucket("new-client", 3600.0, 1)
FAILURE_NOTED_FOR: Final = timedelta(minutes=1)  # further ones of the same client change nothing until then
FETCHES_OF_PERSON: Final = rate_limits.Window("client-documents", 60.0, 10)
OF_ORGANIZATION: Final = rate_limits.Window("client-documents", 60.0, 20)
FIRST_OF_ORGANIZATION: Final = rate_limits.Window("first-client-documents", 60.0, 5)  # allowed even if the platform's fetches are used up
OF_PLATFORM: Final = rate_limits.Window("client-documents", 60.0, 60)
PLATFORM: Final = "platform"
_NOT_IN_SLUG: Final = re.compile(r"[^a-z0-9]+")


class ClientResourceUnknown(errors.Invalid):
    """The application asked for no API that Gatehouse knows (parameter resource). Check the address of the API in its settings."""

    oauth_error = "invalid_target"


class ClientNotAdmitted(errors.Forbidden):
    """The organization does not let this application use its API. Ask its administrators to allow the host of the application."""

    def __init__(self, host: str | None) -> None:
        """`host` is None for an application that registered itself."""
        super().__init__(
            "The organization does not let applications that registered themselves use its API. Ask its administrators to allow them."
            if host is None
            else f"The organization does not let applications of {host} use its API. Ask its administrators to allow this host."
        )


class ExternalRequestRefused(authorization.AuthorizationRefused):
    """The organization does not let this application use its API."""

    oauth_error = "unauthorized_client"  # RFC 6749 section 4.1.2.1

    def __init__(self, refusal: ClientResourceUnknown | ClientNotAdmitted) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class ExternalResourceRefused(ExternalRequestRefused):
    """The application asked for no API that Gatehouse knows."""

    oauth_error = "invalid_target"  # RFC 8707 section 2


class ClientDocumentsLimited(errors.Limited):
    """Too many new applications asked for access in a short time. Try again later."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after)
        self.message = f"Too many new applications asked for access in a short time. Try again in {self.wait}."


class ClientDocumentGone(errors.GrantInvalid):
    """The description that the application publishes of itself has not been available for too long. Sign in again when it is."""

    def __init__(self, host: str, since: datetime) -> None:
        super().__init__(
            f"The description that the application at {host} publishes of itself could not be fetched since {format_day(since)}. "
            "Sign in again when it is available."
        )


class ExternalGrantUnknown(errors.GrantInvalid):
    """This code or token was not issued to this client_id. Start a new sign-in."""


@dataclass(frozen=True, slots=True)
class IdentifiedClient:
    """A stored external client in a request without a page.

    Its code or token, or the consent of a user, is live if `is_live`. The API resource of the request decides about the audience of
    its assertions.
    """

    service: services.Service
    context: callers.ServiceContext
    is_live: bool
    accepts_token_endpoint: bool


@dataclass(frozen=True, slots=True)
class UnusedClient:
    """A stored external client that is no longer used."""

    org_id: UUID
    id: UUID
    client_uri: str
    document_fetched_at: datetime


def is_external(client_id: str | None) -> bool:
    """Return whether a client id is that of an external client: the address of its document, or a sealed copy of its metadata."""
    return client_documents.is_address(client_id) or is_sealed(client_id)


def check_document(service: services.Service | None) -> None:
    """Check that an external client may get tokens by its stored metadata. Raises: ClientDocumentGone."""
    if service is not None and service.document_failing_since is not None and service.is_document_gone:
        raise ClientDocumentGone(service.known_name, service.document_failing_since)


def draft_service(address: str, api: ApiResource, now: datetime) -> services.Service:
    """Return the external client before its metadata count. It has the name from `known_name`, and no redirect URI."""
    id_ = external_client_id(api.org_id, address)
    slug = _NOT_IN_SLUG.sub("-", "registered" if is_sealed(address) else host_of(address))[:50].strip("-")
    return services.Service(
        id=id_,
        org_id=api.org_id,
        slug=Slug(f"{slug}-{id_.hex[:12]}"),
        name=known_name(address),
        service_type=services.ServiceType.SPA,
        client_id=id_,
        credential_id=uuid5(id_, "credential"),
        client_secret_hash=None,
        redirect_uris=(),
        device_activation_uri=None,
        subscription_count=0,
        created_at=now,
        updated_at=now,
        client_uri=address,
    )


def to_service(document: client_documents.ClientDocument, api: ApiResource, now: datetime) -> services.Service:
    """Return the external client with this document as an application in the API resource's organization."""
    public = services.ServiceType.DESKTOP if document.is_native else services.ServiceType.SPA
    return replace(
        draft_service(document.address, api, now),
        name=document.name,
        service_type=services.ServiceType.WEB if document.method is ClientMethod.PRIVATE_KEY_JWT else public,
        redirect_uris=document.redirect_uris,
        jwks=document.jwks,
        jwks_uri=document.jwks_uri,
        document_fetched_at=document.fetched_at,
        client_authentication=document.authentication,
        uses_device_flow=document.uses_device_flow,
    )


def context_of(service: services.Service, org_slug: str, *, has_sign_in_policy: bool) -> callers.ServiceContext:
    """Return the context of an external client that may not be stored yet. Its organization is active."""
    return callers.ServiceContext(
        id=service.id,
        slug=service.slug,
        client_id=service.client_id,
        is_public=service.service_type.is_public,
        org_id=service.org_id,
        org_slug=org_slug,
        status=callers.OrganizationStatus.ACTIVE,
        has_sign_in_policy=has_sign_in_policy,
        client_uri=service.client_uri,
    )


def narrow(api: ApiResource) -> ApiResource:
    """Return the API resource with only the scopes that external clients may ask for."""
    names = api.external_scopes
    return replace(api, scopes=tuple(scope for scope in api.scopes if scope.name in names))


def facts_of(service: services.Service, redirect_uri: str | None) -> ClientFacts | None:
    """Return what a consent covers of an external client, or None for a registered application."""
    if not service.is_external:
        return None
    registered = None if redirect_uri is None else find_published(service.redirect_uris, redirect_uri)
    return ClientFacts(registered, service.client_authentication or ClientMethod.NONE.value)


def find_published(published: Sequence[str], redirect_uri: str) -> str | None:
    """Return the redirect URI of the document that the requested one equals, or equals except for its port on the loopback interface."""
    equal = uris.find_registered(published, redirect_uri)
    return equal or next((uri for uri in published if uris.equals_except_loopback_port(uri, redirect_uri)), None)


def choose_redirect_uri(service: services.Service, redirect_uri: str | None) -> str:
    """Return the redirect URI for the code."""
    if redirect_uri is None:
        raise authorization.RedirectUriMissing
    published = find_published(service.redirect_uris, redirect_uri)
    if published is None:
        raise ClientRedirectUnknown(service.client_uri or "")
    return redirect_uri if uris.equals_except_loopback_port(published, redirect_uri) else published


class ClientRedirectUnknown(authorization.RedirectUriNotRegistered):
    """The application does not list this redirect URI in its description, so nothing is sent to it. Tell its developer."""

    def __init__(self, client_uri: str) -> None:
        super().__init__()
        if is_sealed(client_uri):
            self.message = "The application did not register this redirect URI, so nothing is sent to it. Tell its developer."
        else:
            self.message = (
                f"The application at {host_of(client_uri)} does not list this redirect URI in its description, so nothing is sent to it. "
                "Tell its developer."
            )

"""Reading, writing and signing SAML documents (SAML 2.0; security X-2, X-6, X-7, X-9)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from core.federation.connections.model import saml, saml_responses
from core.federation.saml.model import configuration, messages
from core.federation.saml.model.metadata import ServiceProviderMetadata


class SamlDocuments(Protocol):
    """The parser and writer for SAML documents.

    Documents are signed with the identity provider's certificate: RSA-SHA256, SHA-256 digests, exclusive
    canonicalization. A signature takes 0.25 ms of CPU, and a long document waits for a thread, so do not call these
    methods inside a transaction. All methods raise Limited if too many documents are queued.
    """

    async def read(self, document: bytes) -> messages.IncomingSamlMessage:
        """Parse a document.

        Comments are removed, and signatures ignored.

        Raises: SamlMessageInvalid, also for a DOCTYPE, a processing instruction, and any encoding
        but UTF-8.
        """

    async def service_provider_metadata(self, document: bytes) -> ServiceProviderMetadata:
        """Parse a single service provider's metadata, in a thread. Signatures are ignored, and the validity is not checked.

        Raises: MetadataInvalid, for the documents that `read` refuses too; NoServiceProvider; SeveralServiceProviders.
        """

    async def is_signed(self, received: messages.ReceivedDocument, certificate: str) -> bool:
        """Return whether the service signed the message with this certificate's key (PEM).

        The signature is in the query (HTTP-Redirect) or in the document (HTTP-POST). The signature covers the whole
        message: RSA with SHA-256, SHA-384 or SHA-512. KeyInfo is ignored.

        Raises: LogoutSignatureInvalid if there is another signature; SamlMessageInvalid, as `read`.
        """

    async def metadata(self, provider: configuration.SamlIdentityProvider, certificates: Sequence[configuration.SamlCertificate]) -> bytes:
        """Return an EntityDescriptor with these certificates in this order, which is valid by the schema."""

    async def response(self, provider: configuration.SamlIdentityProvider, response: messages.SamlResponse) -> bytes:
        """Return a Response to the ACS URL.

        The Response is signed as configured, the assertion first. A Response without an assertion is always signed.
        """

    async def logout_request(
        self, provider: configuration.SamlIdentityProvider, request_id: str, name_id: messages.NameId, session_index: str
    ) -> str:
        """Return the service's SLO URL with a signed LogoutRequest. Source: SAML bindings section 3.4."""

    async def logout_response(
        self, provider: configuration.SamlIdentityProvider, in_response_to: str, status: messages.SamlStatus | None, relay_state: str | None
    ) -> str:
        """Return the service's SLO URL with a signed LogoutResponse to its request. The status None means success."""


class SamlProviders(Protocol):
    """The organizations' SAML identity providers: our requests to them, and their responses (SAML profiles section 4.1; security X-12).

    A response takes about 1 ms of CPU, and a long response waits for a thread, so do not call these methods inside a
    transaction. All methods raise Limited if too many documents are queued.
    """

    async def metadata(self, document: bytes) -> saml.IdentityProviderMetadata:
        """Parse a single identity provider's metadata, in a thread. Signatures are ignored, and the validity is not checked.

        Raises: MetadataInvalid, NoIdentityProvider, SeveralIdentityProviders.
        """

    async def own_metadata(self, own: saml.OwnServiceProvider) -> bytes:
        """Return our EntityDescriptor for an identity provider, which is valid by the schema."""

    async def sign_in_request(self, own: saml.OwnServiceProvider, request: saml.SamlSignInRequest) -> saml.ProviderRedirect:
        """Return the place at the identity provider to which a browser takes this request."""

    async def logout_request(self, own: saml.OwnServiceProvider, request: saml.SamlLogoutRequest) -> str:
        """Return the URL at the identity provider with a signed LogoutRequest, which needs a key."""

    async def logout_response(
        self,
        own: saml.OwnServiceProvider,
        url: str,
        in_response_to: str,
        status: messages.SamlStatus | None,
        relay_state: str | None,
        now: datetime,
    ) -> str:
        """Return the URL at the identity provider with a signed LogoutResponse to its request. The status None means success."""

    async def read_logout_request(
        self, document: bytes, signature: messages.QuerySignature | None, certificates: Sequence[str]
    ) -> messages.LogoutRequest:
        """Verify a LogoutRequest in a thread and return it.

        The LogoutRequest is signed in the query, or in the document, with the key from one of these certificates (PEM).

        Raises: SamlResponseRefused.
        """

    async def parse(self, document: bytes) -> saml.SamlAnswer:
        """Parse a response. The response is not verified: use the request id only to find the request, which `read` then gets.

        Raises: SamlResponseRefused.
        """

    async def read(
        self, answer: saml.SamlAnswer, partner: saml_responses.SamlPartner, now: datetime, *, expected: str | None
    ) -> saml_responses.AssertedIdentity:
        """Verify a response and return its statement, which has signed content only.

        `expected` is our request's id, or None for a response that we did not request. Call this only for a response
        that a browser with a live request brings: it decrypts.

        Raises: SamlResponseRefused; SamlStatusReturned if the identity provider reports a failure,
        signed or not.
        """

"""SAML documents: what they look like, and that they are signed (SAML 2.0; security.md X-2, X-6, X-7, X-9)."""

from typing import Protocol

from core.federation.saml.configuration_rules import SamlIdentityProvider
from core.federation.saml.messages import IncomingSamlMessage, NameId, SamlResponse, SamlStatus


class SamlDocuments(Protocol):
    """Reading and writing them. What is written is signed with the certificate of the identity provider: RSA-SHA256, with SHA-256 digests
    and exclusive canonicalization. It takes a millisecond or two of a processor, so none of this belongs into a transaction."""

    async def read(self, document: bytes) -> IncomingSamlMessage:
        """The message that this document is. Raises MessageInvalid; also for a DOCTYPE, a processing instruction, and anything but UTF-8.

        Signatures in it mean nothing, whoever made them: nobody has registered a key of a service. Of a text, comments are no part.
        """
        ...

    async def metadata(self, provider: SamlIdentityProvider) -> bytes:
        """An EntityDescriptor, valid by the schema (decisions, point 172)."""
        ...

    async def response(self, provider: SamlIdentityProvider, response: SamlResponse) -> bytes:
        """A Response to the ACS URL, signed as the configuration says, the assertion first; one without an assertion is always signed."""
        ...

    async def logout_request(self, provider: SamlIdentityProvider, request_id: str, name_id: NameId, session_index: str) -> str:
        """The address at which the service is asked to sign somebody out: its SLO URL with a signed query (SAML bindings, section 3.4)."""
        ...

    async def logout_response(
        self, provider: SamlIdentityProvider, in_response_to: str, status: SamlStatus | None, relay_state: str | None
    ) -> str:
        """The address at which the service is told what became of its request, which has this id: success where there is no status."""
        ...

"""Parsing, writing and signing SAML documents."""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import structlog

from adapters.threads import LowPriorityThreads
from core.federation.connections.model.saml import (
    IdentityProviderMetadata,
    OwnServiceProvider,
    ProviderRedirect,
    SamlAnswer,
    SamlLogoutRequest,
    SamlSignInRequest,
)
from core.federation.connections.model.saml_responses import AssertedIdentity, SamlFault, SamlPartner, SamlResponseRefused
from core.federation.saml.model import configuration, messages
from core.federation.saml.model.metadata import ServiceProviderMetadata
from ports import observe

log = structlog.get_logger("saml")

T = TypeVar("T")

MAX_QUEUED: Final = 1024  # long documents and service signatures, which take a few seconds together
SHORT: Final = 8 * 1024  # bytes; usual requests have one to five thousand
LONG_RESPONSE: Final = 16 * 1024  # bytes; usual responses have four to ten thousand, and are signed


class _Documents:
    """The work on documents, in the serving thread or in a separate thread."""

    def __init__(self, name: str, metrics: observe.Metrics) -> None:
        self._metrics = metrics
        self._threads = LowPriorityThreads(name, 1, MAX_QUEUED)
        self._modules: Any = None

    async def _run(self, work: Callable[[Any], T], *, in_thread: bool = False) -> T:
        """Return the result from `work` with the modules. Log and count a signature that xmlsec does not confirm."""
        try:
            # The libraries need megabytes, and few services use SAML. So the first document loads them, in the thread.
            if in_thread or self._modules is None:
                return await self._threads.run(lambda: work(self._load()))
            return work(self._modules)
        except (SamlResponseRefused, messages.LogoutSignatureInvalid) as refusal:
            dispute = refusal.__cause__ if isinstance(refusal, messages.LogoutSignatureInvalid) else refusal
            if isinstance(dispute, SamlResponseRefused) and dispute.fault is SamlFault.SIGNATURE_DISPUTED:
                log.warning("saml_signature_disputed", reason=str(dispute.__cause__))
                self._metrics.saml_signature_disputed()
            raise

    def _load(self) -> Any:
        from adapters.saml import metadata, requests, responses, xml
        from adapters.saml import responses as saml_responses

        self._modules = SimpleNamespace(metadata=metadata, provider_logout=saml_responses, requests=requests, responses=responses, xml=xml)
        return self._modules


class XmlDocuments(_Documents):
    """The parser and writer for SAML documents, with lxml and xmlsec.

    The thread that serves requests reads and writes usual documents, because passing them to another thread costs more
    than it saves: a response takes 0.5 ms, nearly all for its two RSA signatures. Long documents, which anyone can
    send, have their own thread.
    """

    def __init__(self, base_url: str, clock: observe.Clock, metrics: observe.Metrics) -> None:
        super().__init__("saml", metrics)
        self._base_url = base_url
        self._clock = clock

    async def read(self, document: bytes) -> messages.IncomingSamlMessage:
        return await self._run(lambda saml: saml.xml.read(document), in_thread=len(document) > SHORT)

    async def service_provider_metadata(self, document: bytes) -> ServiceProviderMetadata:
        return await self._run(lambda saml: saml.metadata.read(document), in_thread=True)

    async def is_signed(self, received: messages.ReceivedDocument, certificate: str) -> bool:
        return await self._run(lambda saml: saml.xml.is_signed(received, certificate), in_thread=True)

    async def metadata(self, provider: configuration.SamlIdentityProvider, certificates: Sequence[configuration.SamlCertificate]) -> bytes:
        return await self._run(lambda saml: saml.xml.metadata(self._base_url, provider, certificates))

    async def response(self, provider: configuration.SamlIdentityProvider, response: messages.SamlResponse) -> bytes:
        return await self._run(lambda saml: saml.xml.response(self._base_url, provider, response))

    async def logout_request(
        self, provider: configuration.SamlIdentityProvider, request_id: str, name_id: messages.NameId, session_index: str
    ) -> str:
        now = self._clock.now()
        return await self._run(lambda saml: saml.xml.logout_request(self._base_url, provider, request_id, name_id, session_index, now))

    async def logout_response(
        self, provider: configuration.SamlIdentityProvider, in_response_to: str, status: messages.SamlStatus | None, relay_state: str | None
    ) -> str:
        now = self._clock.now()
        return await self._run(lambda saml: saml.xml.logout_response(self._base_url, provider, in_response_to, status, relay_state, now))


class XmlProviders(_Documents):
    """The writer for requests to identity providers, and the verifier for their responses, with lxml and xmlsec.

    As in `XmlDocuments`, the serving thread takes usual documents. Long responses have their own
    thread, so that strangers cannot block them through `XmlDocuments`.
    """

    def __init__(self, metrics: observe.Metrics) -> None:
        super().__init__("saml-responses", metrics)

    async def metadata(self, document: bytes) -> IdentityProviderMetadata:
        return await self._run(lambda saml: saml.metadata.read_identity_provider(document), in_thread=True)

    async def own_metadata(self, own: OwnServiceProvider) -> bytes:
        return await self._run(lambda saml: saml.requests.own_metadata(own))

    async def sign_in_request(self, own: OwnServiceProvider, request: SamlSignInRequest) -> ProviderRedirect:
        return await self._run(lambda saml: saml.requests.sign_in_request(own, request))

    async def logout_request(self, own: OwnServiceProvider, request: SamlLogoutRequest) -> str:
        return await self._run(lambda saml: saml.requests.logout_request(own, request))

    async def logout_response(
        self,
        own: OwnServiceProvider,
        url: str,
        in_response_to: str,
        status: messages.SamlStatus | None,
        relay_state: str | None,
        now: datetime,
    ) -> str:
        return await self._run(lambda saml: saml.requests.logout_response(own, url, in_response_to, status, relay_state, now))

    async def read_logout_request(
        self, document: bytes, signature: messages.QuerySignature | None, certificates: Sequence[str]
    ) -> messages.LogoutRequest:
        return await self._run(lambda saml: saml.provider_logout.read_request(document, signature, certificates), in_thread=True)

    async def parse(self, document: bytes) -> SamlAnswer:
        is_long = len(document) > LONG_RESPONSE
        tree = await self._run(lambda saml: saml.responses.parse_response(document), in_thread=is_long)
        return SamlAnswer(in_response_to=tree.get("InResponseTo"), tree=tree, is_long=is_long)

    async def read(self, answer: SamlAnswer, partner: SamlPartner, now: datetime, *, expected: str | None) -> AssertedIdentity:
        return await self._run(lambda saml: saml.responses.read(answer.tree, partner, now, expected), in_thread=answer.is_long)

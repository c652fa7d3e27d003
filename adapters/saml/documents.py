"""Parsing, writing and signing of SAML documents in a thread."""

from collections.abc import Callable
from typing import Any, TypeVar

from adapters.low_priority_threads import LowPriorityThreads
from core.federation.saml.configuration_rules import SamlIdentityProvider
from core.federation.saml.messages import IncomingSamlMessage, NameId, ReceivedDocument, SamlResponse, SamlStatus
from ports.observe import Clock

T = TypeVar("T")

MAX_QUEUED = 1024  # documents, which take a few seconds together


class XmlDocuments:
    """The parser and writer of SAML documents, with lxml and xmlsec.

    One thread is enough: it signs documents faster than the thread that serves requests can pass
    them on. The libraries need megabytes of memory, and few services use SAML, so they are loaded
    with the first document.
    """

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._base_url = base_url
        self._clock = clock
        self._threads = LowPriorityThreads("saml", 1, MAX_QUEUED)

    async def read(self, document: bytes) -> IncomingSamlMessage:
        return await self._run(lambda xml: xml.read(document))

    async def is_signed(self, received: ReceivedDocument, certificate: str) -> bool:
        return await self._run(lambda xml: xml.is_signed(received, certificate))

    async def metadata(self, provider: SamlIdentityProvider) -> bytes:
        return await self._run(lambda xml: xml.metadata(self._base_url, provider))

    async def response(self, provider: SamlIdentityProvider, response: SamlResponse) -> bytes:
        return await self._run(lambda xml: xml.response(self._base_url, provider, response))

    async def logout_request(self, provider: SamlIdentityProvider, request_id: str, name_id: NameId, session_index: str) -> str:
        now = self._clock.now()
        return await self._run(lambda xml: xml.logout_request(self._base_url, provider, request_id, name_id, session_index, now))

    async def logout_response(
        self, provider: SamlIdentityProvider, in_response_to: str, status: SamlStatus | None, relay_state: str | None
    ) -> str:
        now = self._clock.now()
        return await self._run(lambda xml: xml.logout_response(self._base_url, provider, in_response_to, status, relay_state, now))

    async def _run(self, work: Callable[[Any], T]) -> T:
        def run() -> T:
            from adapters.saml import xml

            return work(xml)

        return await self._threads.run(run)

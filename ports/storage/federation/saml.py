"""Storage of SAML: configurations, sign-ons and logouts."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.authentication.flow.model import Flow
from core.federation.saml.model.configuration import CertificateState, SamlCertificate, SamlConfiguration, SamlSetup
from core.federation.saml.model.messages import NameId
from core.federation.saml.model.sign_on import EndedSessions, SamlLogout, SamlSession
from core.kernel.callers import ServiceContext


class SamlRead(Protocol):
    """Read access to SAML configurations and certificates.

    The key of a certificate stays encrypted until it is used, which can raise SealBroken.
    """

    async def configuration(self, org_id: UUID, service_id: UUID) -> SamlConfiguration | None: ...
    async def certificate(self, org_id: UUID, service_id: UUID) -> SamlCertificate | None: ...

    async def certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[CertificateState, SamlCertificate]:
        """Return the certificates that have a key, in the order of `CertificateState`.

        The next and the previous one are left out when they have expired, and the previous one when it is no longer kept.
        """

    async def services_with_entity_id(self, org_id: UUID, service_id: UUID, entity_id: str, limit: int) -> list[str]:
        """Return the slugs of the organization's other services with this entity id, at most `limit`, in alphabetical order."""

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        """Return the configuration and the certificate of a service, or None if there is no such service.

        The status of the organization does not matter.
        """

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        """Return the configuration and the certificate, as `setup_by_slug` does."""


class Saml(SamlRead, Protocol):
    """Changes to SAML configurations and certificates. The organization is locked before any of these."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: SamlConfiguration, now: datetime) -> None:
        """Replace the configuration. The service belongs to the organization."""

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Disable SAML. Return whether it was enabled."""

    async def deactivate_certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Deactivate all certificates of the service and delete their keys. Return whether there was one."""

    async def move_certificate(
        self, org_id: UUID, service_id: UUID, states: Sequence[CertificateState], to: CertificateState | None, now: datetime
    ) -> bool:
        """Give the certificates in these states another one, which must be free. Return whether there was one.

        None deactivates them and deletes their keys. A certificate becomes the previous one for `PREVIOUS_KEPT`.
        """

    async def add_certificate(
        self, org_id: UUID, service_id: UUID, certificate: SamlCertificate, state: CertificateState = CertificateState.ACTIVE
    ) -> None:
        """Add the active or the next certificate of a service that has none in this state. The service belongs to the organization."""


class SamlSignOnsRead(Protocol):
    """Read access to sign-ons. One is pending if it began after `begun_after`, and its flow is open."""

    async def find(
        self, org_slug: str, service_slug: str, state_hash: bytes, browser_hashes: Sequence[bytes], begun_after: datetime, now: datetime
    ) -> tuple[SamlSetup, Flow | None] | None:
        """Return the setup of the service, and its pending sign-on with this state, or None if there is no such service.

        The flow is None unless it was begun for this service, and belongs to a browser with one of these cookies.
        """

    async def pending_service(self, state_hash: bytes, begun_after: datetime, now: datetime) -> tuple[Service, ServiceContext] | None:
        """Return the service of the pending sign-on with this state, or None.

        The browser and the status of the organization do not matter.
        """

    async def known_persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> str | None:
        """Return the persistent name by which the service knows this user, or None before the first assertion with one."""


class SamlSignOnStarts(Protocol):
    """The start of sign-ons."""

    async def begin(self, flow: Flow, request_id_hash: bytes) -> bool:
        """Add the flow. Return False if the service has used this request id before, or was deleted."""


class SamlSignOns(SamlSignOnsRead, SamlSignOnStarts, Protocol):
    """Changes to sign-ons, and the names by which services know users."""

    async def complete_sign_in(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, begun_after: datetime, now: datetime
    ) -> tuple[UUID, str, UUID, str] | None:
        """Attach a sign-in through the API to the pending sign-on with this state. It replaces what was proved in the browser.

        Return the id and slug of the organization and of the service, or None if no sign-on is pending.
        """

    def lock_user(self, org_slug: str, user_id: UUID, now: datetime, *, confirm_membership: bool) -> Awaitable[Account | None]:
        """Lock the user's membership of this organization, and then the account, which is the result.

        With `confirm_membership`, the membership becomes a confirmed one. These are two statements in one round trip.
        """

    def lock_session(self, session_id: UUID, user_id: UUID, now: datetime) -> Awaitable[bool]:
        """Lock the user's session until the transaction ends.

        Return False if the session has ended, if it is an impersonation or a session of an
        application, or if the account is not usable.
        """

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """Return the persistent name of this user at the service. Store `new` if the user has none yet."""

    def add_session(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> Awaitable[str | None]:
        """Record that the browser session signs its user in to the service with this name.

        The result is the session index: `session_index`, or the one that was recorded the first
        time.
        """


class SamlLogouts(Protocol):
    """The SAML sessions of browser sessions, and logouts in progress.

    A logout lasts until it expires, even if its services or the account are deleted.
    """

    async def sessions(self, session_id: UUID, now: datetime) -> list[SamlSession]:
        """Return the SAML sessions of a browser session that has not ended, the oldest first."""

    async def find_users(self, org_id: UUID, service_id: UUID, name_id: NameId, now: datetime) -> list[UUID]:
        """Return the users with this name at the service, from their SAML sessions that have not ended.

        Names that the service got before its newest one do not count.
        """

    async def end_sessions_at(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> EndedSessions:
        """End all browser sessions that have signed this user in to the service."""

    async def add(self, logout: SamlLogout) -> bool:
        """Add the logout. Return False if the initiating service was deleted."""

    async def lock(self, browser_hash: bytes, now: datetime) -> SamlLogout | None:
        """Lock and return the logout in progress in the browser with this cookie."""

    async def mark_partial(self, logout_id: UUID) -> None:
        """Record that the user may still be signed in at a service."""

    async def add_request(self, logout_id: UUID, request_id: str, user_id: UUID, session: SamlSession, done_at: datetime | None) -> bool:
        """Add a LogoutRequest for this session. Return False if its service was deleted.

        With `done_at`, the service ended the session itself at this time, so the request counts as
        answered.
        """

    async def requested_sessions(self, logout_id: UUID) -> list[SamlSession]:
        """Return the sessions of all requests of this logout, sent or not."""

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, SamlSession] | None:
        """Return the next request to send, and count it as sent.

        A request without a response is sent a second time, before the remaining ones.
        """

    async def last_request(self, logout_id: UUID) -> tuple[str, SamlSession] | None:
        """Return the request that was sent last, or None if it has a response."""

    async def record_response(
        self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool | None:
        """Record the service's response to a request of this logout, which is locked. Only the first response counts.

        Return whether it is the first one, or None if no such request was sent.
        """

    async def delete(self, logout_id: UUID) -> bool:
        """Delete the logout. Return whether it was partial: a service could not be notified, or did not confirm the logout."""

"""Storage for SAML: configurations, sign-ons and logouts."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.authentication.flow.model import Flow
from core.federation.saml.model import sign_on
from core.federation.saml.model.configuration import CertificateState, SamlCertificate, SamlConfiguration, SamlSetup
from core.federation.saml.model.messages import NameId
from core.kernel.callers import ServiceContext


class SamlRead(Protocol):
    """Read access to SAML configurations and certificates.

    A certificate's key stays encrypted until it is used, which can raise SealBroken.
    """

    async def configuration(self, org_id: UUID, service_id: UUID) -> SamlConfiguration | None: ...
    async def certificate(self, org_id: UUID, service_id: UUID) -> SamlCertificate | None: ...

    async def certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[CertificateState, SamlCertificate]:
        """Return the certificates that have a key, in the order of `CertificateState`.

        The next and the previous certificate are left out when they have expired, and the previous certificate when it is no longer kept.
        """

    async def services_with_entity_id(self, org_id: UUID, service_id: UUID, entity_id: str, limit: int) -> list[str]:
        """Return the slugs of the organization's other services with this entity id, at most `limit`, in alphabetical order."""

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        """Return a service's configuration and certificate, or None if there is no such service.

        The organization's status does not matter.
        """

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        """Return the configuration and the certificate, as `setup_by_slug` does."""


class Saml(SamlRead, Protocol):
    """Changes to SAML configurations and certificates. The organization is locked before any call."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: SamlConfiguration, now: datetime) -> None:
        """Replace the configuration. The service belongs to the organization."""

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Disable SAML. Return whether SAML was enabled."""

    async def deactivate_certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Deactivate all the service's certificates and delete their keys. Return whether there was a certificate."""

    async def move_certificate(
        self, org_id: UUID, service_id: UUID, states: Sequence[CertificateState], to: CertificateState | None, now: datetime
    ) -> bool:
        """Give the certificates in these states another state, which must be free.

        Return whether there was a certificate.

        `to` of None deactivates the certificates and deletes their keys. A certificate becomes the previous certificate
        for `PREVIOUS_KEPT`.
        """

    async def add_certificate(
        self, org_id: UUID, service_id: UUID, certificate: SamlCertificate, state: CertificateState = CertificateState.ACTIVE
    ) -> None:
        """Add the active or the next certificate to a service that has none in this state. The service belongs to the organization."""


class SamlSignOnsRead(Protocol):
    """Read access to sign-ons. A sign-on is pending if it began after `begun_after`, and its flow is open."""

    async def find(
        self, org_slug: str, service_slug: str, state_hash: bytes, browser_hashes: Sequence[bytes], begun_after: datetime, now: datetime
    ) -> tuple[SamlSetup, Flow | None] | None:
        """Return the service's setup, and its pending sign-on with this state, or None if there is no such service.

        The flow is None unless it was begun for this service, and belongs to a browser with one of these cookies.
        """

    async def pending_service(self, state_hash: bytes, begun_after: datetime, now: datetime) -> tuple[Service, ServiceContext] | None:
        """Return the service that the pending sign-on with this state is for, or None.

        The browser and the organization's status do not matter.
        """

    async def known_persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> str | None:
        """Return the persistent name by which the service knows this user, or None before the first assertion with a persistent name."""


class SamlSignOnStarts(Protocol):
    """Starting sign-ons."""

    async def begin(self, flow: Flow, request_id_hash: bytes) -> bool:
        """Add the flow. Return False if the service has used this request id before, or was deleted."""


class SamlSignOns(SamlSignOnsRead, SamlSignOnStarts, Protocol):
    """Changes to sign-ons, and the names by which services know users."""

    async def complete_sign_in(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, begun_after: datetime, now: datetime
    ) -> tuple[UUID, str, UUID, str] | None:
        """Attach a sign-in through the API to the pending sign-on with this state. The sign-in replaces what was proved in the browser.

        Return the ids and slugs of the service and its organization, or None if no sign-on is pending.
        """

    def lock_user(self, org_slug: str, user_id: UUID, now: datetime, *, confirm_membership: bool) -> Awaitable[Account | None]:
        """Lock the user's membership in this organization, and then the account, which is the result.

        With `confirm_membership`, the membership becomes confirmed. The two statements take a single round trip.
        """

    def lock_session(self, session_id: UUID, user_id: UUID, now: datetime) -> Awaitable[bool]:
        """Lock the user's session until the transaction ends.

        Return False if the session has ended, if it is an impersonation or an application's session, or if the account
        is not usable.
        """

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """Return this user's persistent name at the service. Store `new` if the user has none yet."""

    def add_session(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> Awaitable[str | None]:
        """Record that the browser session signs its user in to the service with this name.

        The result is the session index: `session_index`, or the index that was recorded the first time.
        """


class SamlLogouts(Protocol):
    """The SAML sessions of browser sessions, and logouts in progress.

    A logout lasts until it expires, even if its services or the account are deleted.
    """

    async def sessions(self, session_id: UUID, now: datetime) -> list[sign_on.SamlSession]:
        """Return a browser session's SAML sessions that have not ended, the oldest first."""

    async def find_users(self, org_id: UUID, service_id: UUID, name_id: NameId, now: datetime) -> list[UUID]:
        """Return the users with this name at the service, from their SAML sessions that have not ended.

        Only the newest name that the service got for a user counts.
        """

    async def end_sessions_at(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> sign_on.EndedSessions:
        """End all browser sessions that have signed this user in to the service."""

    async def add(self, logout: sign_on.SamlLogout) -> bool:
        """Add the logout. Return False if the initiating service was deleted."""

    async def lock(self, browser_hash: bytes, now: datetime) -> sign_on.SamlLogout | None:
        """Lock and return the logout in progress in the browser with this cookie."""

    async def mark_partial(self, logout_id: UUID) -> None:
        """Record that the user may still be signed in at a service."""

    async def add_request(
        self, logout_id: UUID, request_id: str, user_id: UUID, session: sign_on.SamlSession, done_at: datetime | None
    ) -> bool:
        """Add a LogoutRequest for this session. Return False if its service was deleted.

        With `done_at`, the service ended the session itself at this time, so the request counts as
        answered.
        """

    async def requested_sessions(self, logout_id: UUID) -> list[sign_on.SamlSession]:
        """Return the sessions in all requests of this logout, sent or not."""

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, sign_on.SamlSession] | None:
        """Return the next request to send, and count it as sent.

        A request without a response is sent a second time, before the remaining requests.
        """

    async def last_request(self, logout_id: UUID) -> tuple[str, sign_on.SamlSession] | None:
        """Return the request that was sent last, or None if it has a response."""

    async def record_response(
        self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool | None:
        """Record the service's response to a request in this logout, which is locked. Only the first response counts.

        Return whether it is the first response, or None if no such request was sent.
        """

    async def delete(self, logout_id: UUID) -> bool:
        """Delete the logout. Return whether the logout was partial: a service could not be notified, or did not confirm the logout."""

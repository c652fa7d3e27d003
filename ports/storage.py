"""Every question asked of storage, on one page on purpose: who writes a use case sees all there is to ask, and all that is locked.

A transaction exposes repositories; leaving its block commits, and any exception, cancellation included, rolls it back. Every method
is one statement, named for the question it answers; the exceptions are `Sealed.renew`, `Housekeeping.sweep`, `Sessions.remove`,
`Privacy.blank_newest`, `AuditRead.page` and `DeliveriesRead.page`, which say so. "Now" is always a parameter. Times are UTC. Every method
may raise core.errors.StorageDown. Lock order everywhere: organization, membership, account, then the rest (security.md Z-6).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from core.access import BrowserSession, Caller, OrganizationStatus, Person, Role, ServiceContext, Standing
from core.accounts import Account
from core.analytics import Days, LoginsOfDay, LoginsOfProvider, LoginsOfService, RecentLogin, Use
from core.api_keys import ApiKey, KeyStanding
from core.audit import Entry, Filter
from core.blanking import Log
from core.branding import Branding as Chosen
from core.branding import Design
from core.cancellations import Cancellation
from core.checkout import Checkout, Customer
from core.deliveries import Claimed as ClaimedDelivery
from core.deliveries import Delivery, Room
from core.deliveries import Outcome as DeliveryOutcome
from core.device_flow import DeviceCode, Poll, RequestStatus, Waiting
from core.devices import Device, Look, Place, Recognised, Seen
from core.domains import Claim
from core.end_users import EndUser, LinkedIdentity, ListedEndUser, UsedService
from core.events import Event
from core.governance import ListedOrganization
from core.guesses import Allowance, Secret
from core.home_realm import Realm, Route
from core.housekeeping import Sealed as SealedKind
from core.housekeeping import Sweep
from core.identities import Identity, Known, LinkTicket, ProviderToken, Renewal
from core.invitations import Invitation, InvitationStatus, ListedInvitation, Offer
from core.limits import Bucket
from core.login import Guess, Pending, Try
from core.mails import NOTHING_HELD_BACK, HeldBack, Mail, MailKind, Outcome
from core.members import ListedMember
from core.mfa import Enrolment, MfaEvent, Redeemed
from core.mfa import Status as MfaStatus
from core.oauth import AuthorizationCode, IssuedCode
from core.oauth_credentials import Credentials
from core.one_time_tokens import Purpose
from core.organizations import Membership, Organization, Tier
from core.origins import Ties
from core.payments import Bought, Facts, Meant
from core.platform import Figures
from core.platform_users import Alert, FoundPerson, MfaFigures, MfaStanding
from core.privacy import Belonging, KeptIdentity, KeptLogin, KeptMembership, KeptMfaEvent, KeptPasskey
from core.providers import Provider, ProviderClient, ProviderTokens
from core.reconciliation import OpenCheckouts
from core.saml import Certificate, Configuration, Setup
from core.saml_logout import Logout, Participation
from core.saml_messages import NameId
from core.saml_sign_on import Locked, SignOn
from core.scim_filters import Filter as ScimFilter
from core.scim_groups import Standing as ScimGroupStanding
from core.scim_tokens import ScimStanding, ScimToken
from core.scim_users import Description, ScimUser
from core.service_users import ServiceUser
from core.services import ListedService, Plan, Service, ServiceType
from core.sessions import SOMEBODY, LiveSession, LiveSessions, Presented, Presenter, Refreshed, Session
from core.siem import Claimed, Queued, Result, Sink
from core.siem import Configuration as SiemConfiguration
from core.siem import Standing as SiemStanding
from core.signing_keys import SigningKey
from core.smtp import MailServer, SmtpSettings
from core.social import ProviderState
from core.subscriptions import Entitlement, SubscribedPlan, Subscription, SubscriptionStatus
from core.values import Domain, Email, Keep, Listed, Page
from core.webhooks import Webhook

T_co = TypeVar("T_co", covariant=True)


class Soon(Protocol[T_co]):
    """What one statement finds, sent along with the next one of its transaction to save a round trip."""

    @property
    def value(self) -> T_co | None:
        """Known when that one has been awaited."""
        ...


class AccountsRead(Protocol):
    """Accounts, looked at."""

    async def by_email(self, email: Email) -> Account | None:
        """The account with this address, usable or not."""
        ...

    async def by_id(self, user_id: UUID) -> Account | None: ...
    async def platform_owner_exists(self) -> bool: ...


class Accounts(AccountsRead, Protocol):
    """Accounts, changed."""

    async def add(self, account: Account) -> None:
        """Raises EmailTaken."""
        ...

    async def add_if_free(self, account: Account) -> bool:
        """Add the account unless another one has its address; whether it was added."""
        ...

    async def lock(self, user_id: UUID) -> Account | None:
        """The account, locked until the transaction ends."""
        ...

    async def lock_by_email(self, email: Email) -> Account | None: ...

    async def lock_by_token(self, token_hash: bytes, purpose: Purpose) -> Account | None:
        """The account that a one-time token was made for, locked; whether the token is still good is another question."""
        ...

    def lock_usable(self, user_id: UUID) -> Soon[Account]:
        """The account, locked before the next statement, if anybody may sign in to it."""
        ...

    def lock_for_login(self, user_id: UUID, password_hash: str) -> Soon[Account]:
        """The account, locked before the next statement, if it may still sign in with the password that was checked: same hash, usable,
        address verified."""
        ...

    async def lock_platform_owners(self) -> None:
        """Make others who would change who is a platform owner wait."""
        ...

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """The address is proved; one that was proved before keeps its time."""
        ...

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None: ...

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        """The account is locked before, and has no password then."""
        ...

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        """Ask for the second factor from now on, or no more."""
        ...

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """The new address is unverified, and the old one kept among the former ones. The account is locked before. Raises EmailTaken."""
        ...

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        """Nobody can sign in to the account from now on. Its sessions are the caller's to end."""
        ...

    async def reactivate(self, user_id: UUID, now: datetime) -> None: ...

    async def promote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner."""
        ...

    async def demote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner no more. `lock_platform_owners` comes before."""
        ...

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        """Whether there is a platform owner in good standing besides this one. `lock_platform_owners` comes before."""
        ...

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Whether the account is a platform owner in good standing, which it then stays until the transaction ends."""
        ...

    async def ties(self, user_id: UUID, org_id: UUID) -> Ties:
        """What ties a locked account to this organization, and what it is tied to besides."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Remove a locked account, with its one-time tokens, identities, sessions and logins; what is counted is removed before."""
        ...


class BrandingRead(Protocol):
    """What organizations have chosen for their mails and pages, looked at."""

    async def of(self, org_id: UUID) -> Chosen | None: ...

    async def design(self, org_id: UUID) -> Design | None:
        """Of this organization, if it is active."""
        ...

    async def design_of_link(self, token_hash: bytes, purpose: Purpose) -> Design | None:
        """Of the organization that the mail with this token speaks for, if it is active; whether the token is good is another question."""
        ...


class Branding(BrandingRead, Protocol):
    """The same, changed. The organization is locked before `put`."""

    async def active(self, slug: str) -> UUID | None:
        """The organization that a mail may name: the active one of this slug."""
        ...

    async def put(self, org_id: UUID, chosen: Chosen, now: datetime) -> None: ...


class DevicesRead(Protocol):
    """From where people sign in, looked at. `org_id` is the organization of the service that it is about, None without one: its trust
    period counts beside those of the organizations in which the person takes part (decisions, point 81)."""

    async def of_person(
        self, user_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime, after: Device | None, limit: int
    ) -> list[Seen]:
        """Those that are not revoked, as they are seen in this session, the one that was used last first, or those that follow `after`."""
        ...

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> Seen | None:
        """This one, whosever it is, revoked or not."""
        ...


class Devices(DevicesRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def recognise(self, user_id: UUID, look: Look, org_id: UUID | None, now: datetime) -> Recognised:
        """The device, not revoked, that has this trust token; else this id of the client's; else, if the client keeps none, one without an
        id that says the same of itself, of several the one that was used last. And what is known of earlier logins, as it concerns one
        from this place."""
        ...

    async def of_client(self, user_id: UUID, client_hash: bytes) -> Device | None:
        """The device, not revoked, whose client's id has this hash."""
        ...

    async def keep(self, device: Device) -> None:
        """Add it, or write all but its owner, the id of its client and when it was first seen; a revoked one stays as it is."""
        ...

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None: ...

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """Its trust ends as well."""
        ...

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        """All device trust of the person ends."""
        ...


class DomainsRead(Protocol):
    """The domains of organizations, looked at."""

    async def of(self, org_id: UUID) -> Claim | None: ...


class Domains(DomainsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, claim: Claim) -> None:
        """In the place of what the organization has claimed before."""
        ...

    async def prove(self, org_id: UUID, now: datetime) -> Claim:
        """The claim, proved. Raises DomainTaken where another organization has proved the same."""
        ...

    async def remove(self, org_id: UUID) -> None: ...


class HomeRealmRead(Protocol):
    """Where the people of domains sign in, looked at."""

    async def routes(self, org_id: UUID) -> list[Route]:
        """By domain. One is verified if it is the organization that `of` would ask for its domain."""
        ...

    async def of(self, domain: Domain) -> Realm | None:
        """By the route that an active organization has for it, if what it has proved is this domain, or the nearest one above it that
        anybody has proved."""
        ...


class HomeRealm(HomeRealmRead, Protocol):
    """The same, changed. The organization is locked before this."""

    async def replace(self, org_id: UUID, routes: Mapping[Domain, Provider]) -> None:
        """Have these and no others."""
        ...


class OAuthCredentialsRead(Protocol):
    """What services are known by at identity providers, looked at. The secrets are sealed."""

    async def of(self, org_id: UUID, service_id: UUID, provider: Provider) -> Credentials | None: ...

    async def client(self, org_id: UUID, service_id: UUID, provider: Provider) -> ProviderClient | None:
        """The same with the secret. Raises SealBroken."""
        ...

    async def providers(self, org_id: UUID, service_id: UUID) -> list[Provider]:
        """At which this service has any."""
        ...


class OAuthCredentials(OAuthCredentialsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, org_id: UUID, service_id: UUID, credentials: Credentials, client_secret: str) -> None:
        """In the place of those that the service has at this provider. The service is the organization's."""
        ...

    async def remove(self, org_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """Whether there were any."""
        ...


class SamlRead(Protocol):
    """The identity providers of services, looked at. The keys of certificates are sealed: whatever reads one may raise SealBroken."""

    async def configuration(self, org_id: UUID, service_id: UUID) -> Configuration | None: ...

    async def certificate(self, org_id: UUID, service_id: UUID) -> Certificate | None:
        """The active one."""
        ...

    async def setup(self, org_slug: str, service_slug: str) -> Setup | None:
        """All of it, whatever the status of the organization; None if there is no such service."""
        ...


class Saml(SamlRead, Protocol):
    """The same, changed. The organization is locked before a configuration or a certificate is."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: Configuration, now: datetime) -> None:
        """In the place of what the service has. The service is the organization's."""
        ...

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Whether it was enabled."""
        ...

    async def deactivate_certificate(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """End the active one, and forget its key; whether there was one."""
        ...

    async def add_certificate(self, org_id: UUID, service_id: UUID, certificate: Certificate) -> None:
        """As the active one, when there is no other. The service is the organization's."""
        ...

    async def setup_of(self, org_id: UUID, service_id: UUID) -> Setup | None:
        """All of how a service is set up that somebody is being signed out of."""
        ...


class SamlSignOnsRead(Protocol):
    """What services have asked browsers to sign in for, looked at."""

    async def find(self, org_id: UUID, service_id: UUID, state_hash: bytes, browser_hash: bytes, now: datetime) -> SignOn | None:
        """The sign-on that waits with this state, if it was begun for this service in the browser with this cookie."""
        ...

    async def waiting(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        """The service of the sign-on that waits with this state, wherever it was begun and whatever the status of the organization."""
        ...


class SamlSignOns(SamlSignOnsRead, Protocol):
    """The same, changed; and by what services know people."""

    async def begin(self, sign_on: SignOn) -> bool:
        """Keep it, unless the service has used the id of its request before, or is not there any more; whether it was kept."""
        ...

    async def complete(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[str, str] | None:
        """Somebody has signed in for the sign-on that waits with this state; the slugs of organization and service, if there is one."""
        ...

    async def answer(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        """Nobody gets another answer. Exactly one caller wins."""
        ...

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        """It waits again, since nobody got the answer."""
        ...

    def lock_person(self, org_id: UUID, service_slug: str, user_id: UUID, session_id: UUID, now: datetime) -> Locked:
        """Lock the person's membership and their account before the next statement, and see then whether the session lives and whether
        they are an end user of the service."""
        ...

    async def name_of(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """What the service knows this person by; `new` from now on, if it has known them by nothing."""
        ...

    async def take_part(self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime) -> str:
        """A browser's session signs somebody in to the service; under which index, which is the one of the first time."""
        ...


class SamlLogouts(Protocol):
    """Where sessions of browsers have signed people in to; and logouts under way, which last until they expire, whatever becomes of the
    services and of the account."""

    async def participations(self, session_id: UUID) -> list[Participation]:
        """Where a browser's session has signed somebody in to, the first service first."""
        ...

    async def end_participations(self, session_id: UUID) -> None: ...

    async def keep_participations(self, before: UUID, now_in: UUID) -> None:
        """What was the session's is this one's now, if both are the same person's."""
        ...

    async def begin(self, logout: Logout) -> bool:
        """Keep it, unless the service that asks is not there any more; whether it was kept."""
        ...

    async def lock(self, browser_hash: bytes, now: datetime) -> Logout | None:
        """The logout under way in the browser with this cookie, locked until the transaction ends."""
        ...

    async def mark(self, logout_id: UUID, user_id: UUID | None, now: datetime, *, matched: bool) -> None:
        """It has been looked at whom a service means: this person's session, if it matched."""
        ...

    async def mark_partial(self, logout_id: UUID) -> None: ...

    async def add_request(self, logout_id: UUID, request_id: str, to: Participation) -> bool:
        """Have that service told; False where it is not there any more."""
        ...

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, Participation] | None:
        """The next one to send, with its id; each comes once."""
        ...

    async def take_answer(
        self, browser_hash: bytes, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool:
        """What the service says to a request that was sent with this browser; False where there is none that waits."""
        ...

    async def end(self, logout_id: UUID) -> bool:
        """Forget it; whether not everybody said that it was done, or could be told."""
        ...


class OneTimeTokensRead(Protocol):
    async def is_live(self, token_hash: bytes, purpose: Purpose, now: datetime) -> bool: ...


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Tokens of mails: kept as SHA-256, looked up by purpose and hash, good once (security.md A-5)."""

    async def add(
        self,
        token_hash: bytes,
        purpose: Purpose,
        user_id: UUID,
        email: Email,
        *,
        created_at: datetime,
        expires_at: datetime,
        org_id: UUID | None = None,
    ) -> None:
        """`org_id` is the organization whose design the page has that the token leads to."""
        ...

    async def newer_exists(self, user_id: UUID, purpose: Purpose, created_at: datetime) -> bool:
        """Whether there is an unused token that was asked for later than that."""
        ...

    async def redeem(self, token_hash: bytes, purpose: Purpose, now: datetime) -> Email | None:
        """Use the token up: the address it was sent to, or None when it is unknown, expired or used. Exactly one caller wins."""
        ...

    async def void(self, user_id: UUID, purpose: Purpose) -> None:
        """Remove every token of this purpose."""
        ...


class SessionsRead(Protocol):
    async def standing(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """Everything an authenticated request is judged by, or None unless session and account are live.

        A session of an impersonator lives only while that person is a platform owner whose own session, in which it was begun, lives,
        and while the impersonated one is no platform owner (I-3).
        """
        ...

    async def standing_in(self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """The same, with the organization of that slug, and what the person is in it, as `acts_in`."""
        ...

    async def standing_with(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> Standing | None:
        """The same for a session of an application: its service, which has this client id and is there, and whether the person uses it."""
        ...

    async def standing_of_browser(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, Standing] | None:
        """The live session that a cookie with this hash stands for, and what `standing` would say of it without an organization."""
        ...

    async def beginning(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None] | None:
        """When this session of the person began, and on which device, if that is known."""
        ...

    async def live_of(self, user_id: UUID, limit: int, now: datetime) -> Listed[LiveSession]:
        """The person's live sessions, with those of applications and of impersonators, the newest first."""
        ...

    async def live_in(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """What `Sessions.end_in` would end."""
        ...


class Sessions(SessionsRead, Protocol):
    """Sessions and their refresh tokens, which are kept as SHA-256."""

    async def begin(self, session: Session, refresh_hash: bytes) -> None: ...

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        """A session without tokens, which the cookie with this hash stands for. Its context is no organization and no service."""
        ...

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """When this session of the person ends in any case; None if it is not live."""
        ...

    async def presented(self, token_hash: bytes, now: datetime, by: Presenter = SOMEBODY) -> Presented | None:
        """What is known of a refresh token that was not rotated."""
        ...

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, by: Presenter, now: datetime) -> bool | None:
        """End this session, or that of this refresh token, be it the current one or not, if it is the presenter's to use; whether it is,
        None where there was none that had not ended."""
        ...

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End the session; one that has ended stays as it is."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End this live session of the person; whether there was one."""
        ...

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None: ...

    async def end_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the person acts as somebody else, or somebody else as the person."""
        ...

    async def end_of_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """End the person's live sessions on this device."""
        ...

    async def end_in(self, org_id: UUID, user_id: UUID, now: datetime) -> int:
        """End the person's live sessions in this organization, those of its services too; how many they were (security.md S-4). Codes that
        its applications have not exchanged yet, and devices that wait to be let in, get none any more."""
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the sessions of a locked account, or those of this service, with all that is known of their refresh tokens, and the codes
        that could still be exchanged for one.

        A few statements, the first of them until there is nothing more for it to do.
        """
        ...

    async def select(self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime) -> datetime | None:
        """Give the live session this organization as its context and another refresh token, and rotate the current one out.

        It then lives until `expires_at`, but never past its absolute end, which is returned; None if it is not live any more, or if its
        refresh token was rotated at this very moment.
        """
        ...


class Logins(Protocol):
    """The lasting record of logins (identity.md section 2.8)."""

    async def succeeded(self, session: Session, provider: str, device: Device | None = None) -> None:
        """The login that began this session, how risky it was and where it came from, as the device says.

        One to a service also counts in the totals of its day.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the record of the person's logins, or of those to this service. Also counts them out."""
        ...


class PreAuths(Protocol):
    """Sign-ins that wait for the second factor; what ends them well is `Mfa.accept_step` or `accept_code`. The account is locked before any
    of these."""

    async def add(self, pending: Pending) -> None: ...

    async def remove_all(self, user_id: UUID) -> None:
        """None of the person's can be continued any more."""
        ...


class Tries(Protocol):
    """Tries at the second factor of one sign-in (security.md J-8)."""

    async def take_try(
        self, pre_auth_id: UUID, user_id: UUID, tries: int, subject: bytes, allowance: Allowance, now: datetime
    ) -> Try | None:
        """Count one more try at a sign-in of this person that waits, and one more guess at their second factor, as `Guesses.charge` does at
        `subject`; and find what the code is compared with. Atomic.

        None, and nothing counted, where there were so many tries, or the sign-in has ended; nor is a try that must wait. Raises SealBroken.
        """
        ...


class DeviceCodesRead(Protocol):
    """Requests of devices that wait for somebody to sign them in (core/device_flow.py), looked at."""

    async def waiting(self, user_code_hash: bytes) -> Waiting | None:
        """The request with this user code, whatever became of it."""
        ...


class DeviceCodes(DeviceCodesRead, Protocol):
    """The same, changed. The account of whoever does it, or whom it signs in, is locked before all but `add`."""

    async def add(self, code: DeviceCode) -> bool:
        """Add it, with nothing known of polls, unless there is another one with its user code, or its service is gone; whether it was
        added."""
        ...

    async def answer(self, user_code_hash: bytes, status: RequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Approve it in this session, or deny it in none, if it waits still; whether it did. Atomic."""
        ...

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Use up an approval for this service that has not expired; whether it was there to be used. Atomic."""
        ...


class Polls(Protocol):
    """Polls of devices (security.md V-4)."""

    async def poll(self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime) -> Poll | None:
        """Count a poll with this client id, None if none was sent, and the S256 challenge of the verifier, None if none was sent; and find
        the request as it was before. Atomic.

        One that comes before the interval is over makes it longer, and one that does not fit is an error of the code.
        """
        ...


class AuthorizationCodesRead(Protocol):
    """Codes that applications exchange for tokens, looked at; they are kept as SHA-256. `service` is whose the code has to be, None for the
    platform's frontend: one of another application is unknown."""

    async def find(self, code_hash: bytes, service: ServiceContext | None) -> IssuedCode | None:
        """Whose this code is, whatever became of it."""
        ...


class AuthorizationCodes(AuthorizationCodesRead, Protocol):
    """The same, changed. The account is locked before."""

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        """Add it, unless its service is gone; whether it was added."""
        ...

    async def redeem(
        self,
        code_hash: bytes,
        service: ServiceContext | None,
        redirect_uri: str | None,
        challenge: str | None,
        session_id: UUID,
        now: datetime,
        *,
        registered: bool,
    ) -> bool:
        """Use the code up for this session, if it has not expired or been used, if the session of the browser lives that it was given to,
        and if redirect URI and challenge are those that it was given for; whether it was. Atomic.

        Where it was given for a redirect URI that nobody named, one may be named still that is `registered`.
        """
        ...

    async def given(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """The session that this code was used for."""
        ...


class FailedLogins(Protocol):
    async def failed(
        self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None, place: Place | None = None
    ) -> None:
        """Recorded without waiting for the disk: a known account must not answer later than an unknown one (security.md B-2)."""
        ...


class AnalyticsRead(Protocol):
    """Successful logins to the services that an organization has, counted by day in UTC; of one of them, where `service_id` is given."""

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: Days) -> list[LoginsOfDay]:
        """Of each day that had any, the earliest first."""
        ...

    async def by_service(self, org_id: UUID, days: Days) -> list[LoginsOfService]:
        """To each service that had any, most first."""
        ...

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: Days) -> list[LoginsOfProvider]:
        """Through each external identity provider that had any, most first."""
        ...

    async def recent(self, org_id: UUID, before: RecentLogin | None, limit: int) -> list[RecentLogin]:
        """The latest, or those right before that one, the newest first."""
        ...

    async def use(self, org_id: UUID, service_id: UUID, since: datetime) -> Use:
        """Users and logins of a service; new and active are the users who began to use it, or signed in to it, since then."""
        ...


class TiersRead(Protocol):
    async def all(self) -> list[Tier]:
        """Every tier, the smallest first."""
        ...

    async def by_id(self, tier_id: UUID) -> Tier | None: ...
    async def by_name(self, name: str) -> Tier | None: ...


class Tiers(TiersRead, Protocol):
    async def put(self, tier: Tier) -> None:
        """Add the tier, or give the one of this name these limits and this price; its id stays."""
        ...


class OrganizationsRead(Protocol):
    """Organizations, looked at."""

    async def by_id(self, org_id: UUID) -> Organization | None: ...
    async def status(self, slug: str) -> OrganizationStatus | None: ...
    async def id_of(self, slug: str) -> UUID | None: ...

    async def of_person(self, user_id: UUID) -> list[tuple[Organization, Membership]]:
        """Those that the person is a member of, whatever their status, by slug."""
        ...

    async def governed(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int
    ) -> Listed[ListedOrganization]:
        """Those with this status and tier, the newest first, with their owners."""
        ...


class Organizations(OrganizationsRead, Protocol):
    """Organizations, changed."""

    async def lock(self, org_id: UUID) -> Organization | None:
        """The organization, locked until the transaction ends: the first lock of every transaction that changes something of it."""
        ...

    async def lock_of_invitation(self, token_hash: bytes) -> Organization | None:
        """The organization that a token invites to, locked; whether the invitation is still good is another question."""
        ...

    async def add(self, organization: Organization) -> None:
        """Raises SlugTaken."""
        ...

    async def save(self, organization: Organization) -> None:
        """Write all that can change of a locked organization; `member_count` is not among it."""
        ...

    async def delete(self, org_id: UUID, now: datetime) -> None:
        """Remove a locked organization and what hangs on it; a tombstone tells Sweep.DELETED_ORGANIZATIONS to remove the records of it."""
        ...

    async def purge(self, org_id: UUID, limit: int) -> None:
        """Remove at most `limit` records (who used its services, audit entries, events, logins, totals) of a deleted organization."""
        ...


class MembersRead(Protocol):
    """Memberships, looked at."""

    async def page(self, org_id: UUID, role: Role | None, page: Page) -> list[ListedMember]:
        """Those of the organization with this role, the oldest first."""
        ...

    async def count(self, org_id: UUID, role: Role) -> int:
        """How many have this role. How many there are altogether is Organization.member_count."""
        ...

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether this person is a member of the organization, or one whose membership its directory has put away."""
        ...


class Members(MembersRead, Protocol):
    """Memberships, changed. The organization is locked before any of these, but for `lock` where only sessions follow."""

    async def lock(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership, locked until the transaction ends."""
        ...

    async def put_away(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership that the organization's directory has put away, and would give back. Nobody changes it but who holds the
        organization."""
        ...

    async def add(self, membership: Membership) -> None:
        """Also counts it. Raises AlreadyAMember."""
        ...

    async def set_role(self, org_id: UUID, user_id: UUID, role: Role) -> None:
        """Of the membership, or of the one that is put away."""
        ...

    async def remove(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Also counts it out. Nothing gives one back that was put away, and the directory knows the person no more, unless it has
        deactivated them: then it can say that it has not, and nothing else."""
        ...


class Confirmations(Protocol):
    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """The member took part in the organization; the first time counts (the terms of security.md)."""
        ...


class InvitationsRead(Protocol):
    """Invitations, looked at. In the first three, one that is pending past its time is shown as expired."""

    async def page(self, org_id: UUID, status: InvitationStatus | None, page: Page, now: datetime) -> Listed[ListedInvitation]:
        """Those of the organization with this status, the newest first."""
        ...

    async def offers_to(self, email: Email, now: datetime) -> list[Offer]:
        """Pending, unexpired invitations for this address, the newest first."""
        ...

    async def offer(self, token_hash: bytes, now: datetime) -> Offer | None:
        """The invitation that this token belongs to, whatever its status."""
        ...

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> Invitation | None:
        """With the status that is stored, as in the next two."""
        ...

    async def by_token(self, org_id: UUID, token_hash: bytes) -> Invitation | None:
        """The one of the organization that has this token, whatever its status."""
        ...

    async def pending(self, org_id: UUID, email: Email) -> Invitation | None:
        """The pending one for this address, of which there is one at most; it may be past its time."""
        ...


class Invitations(InvitationsRead, Protocol):
    """Invitations, changed. The organization is locked before any of these but `expire`."""

    async def add(self, invitation: Invitation) -> None:
        """Raises InvitationAlreadySent."""
        ...

    async def end(self, org_id: UUID, invitation_id: UUID, status: InvitationStatus, now: datetime) -> bool:
        """Give a pending invitation a final status; false where it has one. Exactly one caller wins."""
        ...

    async def void(self, org_id: UUID, invited_by: UUID, roles: Collection[Role], now: datetime) -> list[Invitation]:
        """Cancel what this person has invited to these roles and could still be accepted (R-4); returns what it were."""
        ...

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        """When the n-th newest invitation was made, 1 being the newest; None if there are fewer."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        """Mark at most `limit` pending invitations, of whatever organization, that are past their time; those in use are left for later."""
        ...


class ServicesRead(Protocol):
    """Services, looked at."""

    async def by_slug(self, org_id: UUID, slug: str) -> Service | None: ...
    async def by_id(self, org_id: UUID, service_id: UUID) -> Service | None: ...

    async def context_of(self, service_id: UUID) -> ServiceContext | None: ...

    async def context(self, org_slug: str, slug: str) -> ServiceContext | None:
        """The service with its organization, whatever the status of that."""
        ...

    async def taken_in(self, service_id: UUID, user_id: UUID, now: datetime) -> tuple[ServiceContext, Entitlement] | None:
        """The service with its organization, whatever the status of that, and what the person has of it."""
        ...

    async def named(self, org_slug: str, slug: str) -> tuple[Service, ServiceContext] | None:
        """The same with all that the service is."""
        ...

    async def of_client(self, client_id: UUID) -> tuple[Service, ServiceContext] | None:
        """The same for the service that applications know by this client id."""
        ...

    async def listed(
        self, org_id: UUID, service_type: ServiceType | None, after: Service | None, limit: int, offset: int
    ) -> list[ListedService]:
        """Those of this type that come after this one, the oldest first."""
        ...

    async def count(self, org_id: UUID) -> int: ...


class Services(ServicesRead, Protocol):
    """Services, changed. The organization is locked before any of these."""

    async def add(self, service: Service) -> None:
        """Raises ServiceSlugTaken."""
        ...

    async def save(self, service: Service) -> None:
        """Write all that can change of it; the counters are not among it."""
        ...

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        """Remove the service and what hangs on it, when nobody is signing in to it any more; nobody can after that.

        A tombstone tells Sweep.DELETED_SERVICES to remove its logins.
        """
        ...

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        """Lock the next who used this service, which is gone, in the order of their ids; the last of them, or None if there are no more.

        And who of them used no other service of the organization as end users, so that they do not begin to.
        """
        ...

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        """Remove those that were locked last; how many of them are end users of the organization no more."""
        ...

    async def remove_totals(self, org_id: UUID, service_id: UUID, forgotten: int) -> None:
        """Remove the totals of its logins, and count out so many end users."""
        ...

    async def purge(self, service_id: UUID, limit: int) -> None:
        """Remove at most `limit` logins to a deleted service."""
        ...


class PlansRead(Protocol):
    """Plans, looked at; those that were removed are not there any more."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None: ...

    async def service_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        """Which service of the organization has this plan."""
        ...

    async def listed(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
        """Those of the service that come after this one, the oldest first."""
        ...


class Plans(PlansRead, Protocol):
    """Plans, changed. The organization is locked before any of these."""

    async def add(self, plan: Plan) -> None: ...

    async def save(self, plan: Plan) -> None:
        """Write all that can change of it."""
        ...

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        """The plan is gone for everybody but those whose subscription to it has ended."""
        ...


class SubscriptionsRead(Protocol):
    """Subscriptions, looked at. One that is active past its period and has no payment provider is shown as expired."""

    async def entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> Entitlement:
        """What this person has of this service."""
        ...

    async def uses_plan(self, org_id: UUID, plan_id: UUID, now: datetime) -> bool:
        """Whether somebody is subscribed to this plan, active or past due, now."""
        ...

    async def plan(self, plan_id: UUID) -> SubscribedPlan | None:
        """The plan with this id, whatever service it is of, removed or not."""
        ...

    async def page(
        self, org_id: UUID, service_id: UUID, status: SubscriptionStatus | None, limit: int, offset: int, now: datetime
    ) -> Listed[Subscription]:
        """Those to the service that have this status now, the oldest first."""
        ...

    async def counts(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[SubscriptionStatus, int]:
        """How many of those to the service have which status now."""
        ...

    async def of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """The person's live one, or else the newest."""
        ...


class Subscriptions(SubscriptionsRead, Protocol):
    """Subscriptions, changed. The organization is locked before any of these but `expire`."""

    async def lock_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """What `of_user` finds, locked until the transaction ends."""
        ...

    async def lock_of_provider(self, org_id: UUID, provider_subscription_id: str) -> Subscription | None:
        """The one that the payment provider has under this name, locked."""
        ...

    async def exists(self, org_id: UUID, subscription_id: UUID) -> bool: ...

    async def add(self, subscription: Subscription) -> None:
        """Also counts it. The account is locked before. Raises AlreadySubscribed."""
        ...

    async def save(self, subscription: Subscription, now: datetime) -> None:
        """Write plan, status and period of a locked one. Raises AlreadySubscribed."""
        ...

    async def remove(self, org_id: UUID, subscription_id: UUID) -> None:
        """Also counts it out."""
        ...

    async def expire_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> list[Subscription]:
        """Mark what has run out of this person's, of which there is one at most."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Subscription]:
        """Mark at most `limit` that have run out, of whatever organization; those in use are left for later."""
        ...


class Billing(Protocol):
    """What is known of the payment provider's customers, checkouts and subscriptions."""

    async def is_first(self, event_id: str, now: datetime) -> bool:
        """Whether this event was not processed before; it is, from now on. Waits for whoever is processing it at the moment."""
        ...

    async def lock_facts(self, id_: str, now: datetime) -> Facts:
        """What is known of the subscription of this name at the provider, locked, before anything else is. It need not be known yet."""
        ...

    async def keep_facts(self, facts: Facts, now: datetime, *, check_at: datetime | Keep | None) -> None:
        """Write what is locked; and when to ask the provider about it, None for not at all."""
        ...

    async def end(self, id_: str, now: datetime) -> None:
        """It is over. Locks it as `lock_facts` does."""
        ...

    async def claim_check(self, now: datetime, until: datetime) -> str | None:
        """The one that the provider has been to be asked about for the longest, which falls due again then; None where none is."""
        ...

    async def check_those_of(self, org_id: UUID | None, customer_id: str, now: datetime) -> None:
        """Have the provider asked about all that are of this customer and not over; of that organization only, if one is named."""
        ...

    async def check_waiting_of(self, customer_id: str, now: datetime) -> None:
        """Have the provider asked about those of this customer that wait for another one to end."""
        ...

    async def subscription(self, id_: str) -> Subscription | None:
        """The subscription of ours to that one of the provider's, in the organization that is known to have it."""
        ...

    async def plan_of_price(self, org_id: UUID, service_id: UUID, price_id: str | None, preferred: UUID) -> SubscribedPlan | None:
        """The plan of the service that has this price there: the preferred one if it does, one that was not removed, the oldest."""
        ...

    async def customer(self, org_id: UUID, key: UUID, now: datetime) -> Customer:
        """As whom the provider knows the organization; where nothing is known, `key` is from now on what it is made with."""
        ...

    async def renew_customer_key(self, org_id: UUID, key: UUID, new: UUID) -> None:
        """What the customer is made with from now on, if it was to be made with this key and is not known yet."""
        ...

    async def keep_customer(self, org_id: UUID, key: UUID, customer_id: str) -> str | None:
        """Keep the customer that was made with this key, if none is; which one it is. None where the key is another one by now."""
        ...

    async def is_customer(self, org_id: UUID, customer_id: str) -> bool:
        """Whether nothing that is stored says that this is another's customer, or that the organization has another one."""
        ...

    async def link_customer(self, org_id: UUID, customer_id: str, key: UUID, at: datetime, now: datetime) -> bool:
        """What an event of this time says about whose customer it is; whether that agrees with what is stored."""
        ...

    async def sync_customer(self, org_id: UUID | None, customer_id: str, user_id: UUID | None, at: datetime) -> bool:
        """Whom the customer is linked to, unless something newer is known; whether there is such a customer, of that organization if one is
        named."""
        ...

    async def forget_customer(self, org_id: UUID | None, customer_id: str, key: UUID, at: datetime, now: datetime) -> bool:
        """The organization has none any more, and the next one is made with `key`; nor does it get this one by what is older. Whether there
        was this one, of that organization if one is named."""
        ...

    async def attach_payment_method(self, customer_id: str, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """The customer can pay with this, unless something newer is known of it; whether that customer is an organization of ours.

        What an organization pays with is what was attached last of all that still is.
        """
        ...

    async def detach_payment_method(self, payment_method_id: str, at: datetime, now: datetime) -> bool:
        """Nobody can pay with this any more, unless something newer is known of it; whether an organization of ours could."""
        ...

    async def add_checkout(self, checkout: Checkout, check_at: datetime) -> None: ...
    async def checkout_begun(self, org_id: UUID, checkout_id: UUID, session_id: str, customer_id: str) -> None: ...

    async def complete_checkout(self, checkout_id: UUID, session_id: str, id_: str, meant: Meant | None, customer_id: str | None) -> bool:
        """What came of a checkout; false if there is no such checkout, or what is given does not agree with it."""
        ...

    async def checkout_of(self, id_: str, meant: Meant, price_id: str | None) -> Bought | None:
        """The checkout that this subscription came of, or might have, at that price if there is a choice; None where no checkout tells."""
        ...

    async def bought(self, id_: str) -> Meant | None:
        """What the checkout was for that this subscription came of, if one is known."""
        ...

    async def checkout_done(self, subscription: Subscription, id_: str) -> None:
        """Nothing more has to be asked about checkouts of the service by this person, but for those that something else came of."""
        ...

    async def claim_checkouts(self, now: datetime, until: datetime, since: datetime) -> OpenCheckouts | None:
        """Those of one customer to ask the provider about, which fall due again then, unless they are older than `since`; None where none
        is due."""
        ...


class Cancellations(Protocol):
    """What is to be cancelled at the payment provider. What is removed comes here by itself."""

    async def ask_for(self, cancellation: Cancellation) -> None:
        """One that stays here, or never came to be here."""
        ...

    async def claim(self, now: datetime, until: datetime) -> Cancellation | None:
        """The one that has been due for the longest, which falls due again then; none that has come to be live again here."""
        ...

    async def claim_of_service(self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int) -> list[Cancellation]: ...

    async def done(self, cancellation: Cancellation) -> bool:
        """Whether nobody else had said so before."""
        ...


class ApiKeysRead(Protocol):
    """API keys, looked at; they are kept as SHA-256."""

    async def standing(self, key_hash: bytes, now: datetime) -> KeyStanding | None:
        """Everything a request with this key is judged by, or None unless there is such a key and it has not expired."""
        ...

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        """Whether the service has this key and it has not expired."""
        ...

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> Listed[ApiKey]:
        """Those of the service, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> ApiKey | None: ...


class ApiKeys(ApiKeysRead, Protocol):
    """API keys, changed. The organization is locked before any of these."""

    async def add(self, key: ApiKey, key_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None: ...


class KeyUse(Protocol):
    async def used(self, key_id: UUID, now: datetime, before: datetime) -> None:
        """The key was used now, unless it is known to have been used since `before`."""
        ...


class ScimTokensRead(Protocol):
    """SCIM tokens, looked at; they are kept as SHA-256."""

    async def standing(self, token_hash: bytes, now: datetime) -> ScimStanding | None:
        """Everything a request with this token is judged by, or None unless there is such a token and it has not expired."""
        ...

    async def is_live(self, org_id: UUID, token_id: UUID, now: datetime) -> bool:
        """Whether the organization has this token and it has not expired."""
        ...

    def live_soon(self, org_id: UUID, token_id: UUID, now: datetime) -> Soon[bool]:
        """The same before the next statement; None where it is not so."""
        ...

    async def of_org(self, org_id: UUID) -> list[ScimToken]:
        """Those of the organization, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, token_id: UUID) -> ScimToken | None: ...


class ScimTokens(ScimTokensRead, Protocol):
    """SCIM tokens, changed. The organization is locked before any of these."""

    async def add(self, token: ScimToken, token_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, token_id: UUID) -> None: ...


class ScimUsersRead(Protocol):
    """Whom the directory of an organization knows, looked at: members, those whom it has deactivated, those whom it has made and taken out
    of the group. Whoever is no member has the address of when they left."""

    async def page(self, org_id: UUID, found: ScimFilter | None, offset: int, limit: int) -> Listed[ScimUser]:
        """Those of whom the filter holds, in the order in which they came."""
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> ScimUser | None: ...

    async def is_deactivated(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether the directory has deactivated this person, who then gets into nothing of the organization."""
        ...

    async def group(self, org_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Who is in the group, in the order of their ids, those after this one. That is the members, and whoever was one when the directory
        deactivated them."""
        ...

    async def standings(self, org_id: UUID, user_ids: Collection[UUID]) -> list[ScimGroupStanding]:
        """Of those of these people whom the directory knows what they are to the group; less those who are out of it and whom it cannot
        take back."""
        ...

    async def all_standings(self, org_id: UUID, after: UUID | None, limit: int) -> list[ScimGroupStanding]:
        """The same of everybody, in the order of their ids, those after this one."""
        ...


class ScimUsers(ScimUsersRead, Protocol):
    """The same, changed. The organization, and the accounts in question, are locked before any of these."""

    async def platform_owners(self, user_ids: Collection[UUID]) -> set[UUID]:
        """Who of these, who are locked, is a platform owner by now."""
        ...

    async def lock(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Lock the memberships and then the accounts of these people."""
        ...

    def outside_soon(self, org_id: UUID) -> Soon[int]:
        """How many the directory knows who are no members, known with the next statement."""
        ...

    async def provision(self, account: Account, membership: Membership, description: Description) -> None:
        """A new account, which the directory has made, is a member from now on; counted. Raises EmailTaken."""
        ...

    async def describe(self, org_id: UUID, user_id: UUID, description: Description, email: Email, now: datetime) -> None:
        """What the directory says of this person from now on. `email` is what it knows those by who are no members."""
        ...

    async def deactivate(self, org_id: UUID, user_id: UUID, now: datetime, *, whole_account: bool) -> None:
        """Put the person's membership away, if there is one, and count it out; where one is put away already, it stays so. `whole_account`
        is noted, and the caller's to see to."""
        ...

    async def reactivate(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Give the person the membership again that was put away, and count it."""
        ...

    async def release(self, org_id: UUID, now: datetime) -> None:
        """Open all accounts again that the directory has closed as a whole; they are locked for that."""
        ...

    async def forget(self, org_id: UUID, user_id: UUID) -> None:
        """The directory knows the person no more, unless they are a member."""
        ...

    async def admit(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """Make these people, who are known and not in the group, members of it, and count them; those who are deactivated, once they are
        not any more. The membership of an account that the directory has made counts as confirmed."""
        ...

    async def dismiss(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """End the memberships of these people, and count them out, and their sessions in the organization."""
        ...


class EndUsersRead(Protocol):
    """Who uses the services of an organization, looked at. Of a person, this is what belongs to that organization (security.md T-3)."""

    async def page(self, org_id: UUID, page: Page, *, search: str | None = None, service_id: UUID | None = None) -> Listed[ListedEndUser]:
        """Those whose account is not deactivated, nor they by the organization's directory; who use this service, if one is given; whose
        address has `search` in it, which is in lower case. The newest relation, to the service or else to the organization, comes first."""
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> EndUser | None: ...
    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]: ...
    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]: ...

    async def knows(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether the person uses a service of the organization, or is its member."""
        ...


class EndUsers(EndUsersRead, Protocol):
    """Who uses the services of an organization, changed. The account is locked before any of these."""

    async def add(self, service_id: UUID, user_id: UUID, now: datetime, *, signed_in: bool) -> bool:
        """The person uses the service from now on, if they did not before, and has signed in to it just now, if so.

        Whether the service is there; it then stays until the transaction ends. Also counts.
        """
        ...

    def enrol(self, service_id: UUID, user_id: UUID, now: datetime) -> Soon[bool]:
        """The same for a sign-in, before the next statement; None where the service is not there."""
        ...

    def enrol_at(self, org_id: UUID, service_slug: str, user_id: UUID, now: datetime) -> Soon[bool]:
        """The same for the service of this slug."""
        ...


class ServiceUsersRead(Protocol):
    """Who uses a service, as its API keys see them, looked at."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> Listed[ServiceUser]:
        """Those who use the service, for the longest time first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> ServiceUser | None: ...


class ServiceUsers(ServiceUsersRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        """The person does not use the service any more: also removes what they have of it, identities and subscriptions. Also counts."""
        ...

    async def remove_everywhere(self, user_id: UUID) -> None:
        """The same for every service, also those of organizations that are gone."""
        ...


class AuditRead(Protocol):
    async def page(self, org_id: UUID, wanted: Filter, page: Page) -> Listed[Entry]:
        """The organization's entries, the newest first. Two statements: how many there are, and those of the page."""
        ...


class Audit(Protocol):
    async def forget(self, user_id: UUID) -> None:
        """Remove the entries, in whatever log, that tell of nothing but this person's own account. Also counts them out."""
        ...


class IdentitiesRead(Protocol):
    """Accounts at external providers that people have linked, looked at: in the account itself, or in the service `service_id`."""

    async def of_person(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        """The longest linked first."""
        ...

    async def token(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> ProviderToken | None:
        """What the provider gave, expired or not. Raises SealBroken."""
        ...


class Identities(IdentitiesRead, Protocol):
    """The same, changed. The account is locked before any of these but those that say otherwise."""

    async def lock_subject(self, provider: Provider, issuer: str, subject: str) -> None:
        """Make others wait who come from the provider as the same person. It comes before every other lock."""
        ...

    async def known(self, provider: Provider, issuer: str, subject: str, service_id: UUID | None) -> Known | None:
        """Whom this is known as in this context, or else in any. `lock_subject` comes before; the account need not be locked."""
        ...

    async def add(self, identity: Identity) -> bool:
        """Its tokens are sealed. False, and nothing added, where there is one of this provider for the person in this context, or the
        service is gone."""
        ...

    async def renew(self, identity_id: UUID, email: Email | None, tokens: ProviderTokens) -> None:
        """Keep these tokens in the place of those that are there; an address or a refresh token that is not given stays."""
        ...

    async def claim(self, user_id: UUID, service_id: UUID | None, provider: Provider, now: datetime, until: datetime) -> Renewal | None:
        """Leave to renew what has expired, and has a refresh token; None where somebody else has that leave. The account need not be
        locked, nor for the next two. Raises SealBroken."""
        ...

    async def fulfil(self, claim: Renewal, tokens: ProviderTokens) -> bool:
        """Keep these, unless others have come in their place meanwhile; whether they were kept."""
        ...

    async def give_up(self, claim: Renewal) -> None:
        """Others may try."""
        ...

    async def take_ticket(self, token_hash: bytes, provider: Provider, now: datetime) -> LinkTicket | None:
        """Use the ticket up. Exactly one caller wins. The account need not be locked."""
        ...

    async def add_ticket(self, ticket: LinkTicket) -> bool:
        """Whether its session is live; else nothing is added."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """Those of the account itself, and those of services."""
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> bool:
        """Whether there was one."""
        ...


class MfaRead(Protocol):
    """Second factors, looked at. The secrets are sealed."""

    async def status(self, user_id: UUID) -> MfaStatus | None:
        """None if there is no such account."""
        ...

    async def enrolment(self, user_id: UUID) -> Enrolment | None:
        """What was set up, confirmed or not, expired or not. Raises SealBroken."""
        ...

    async def has_code(self, user_id: UUID, code_hash: bytes) -> bool:
        """Whether there is an unused backup code with this hash."""
        ...


class MfaLog(Protocol):
    """The log of the second factor, apart from those of organizations (organizations.md section 6.3)."""

    async def log(self, user_id: UUID, events: Sequence[MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        """Write these, of one and the same doing, in this order: all of them successful unless there is a failure among them."""
        ...


class Mfa(MfaRead, MfaLog, Protocol):
    """Second factors, changed. The account is locked before any of these."""

    async def begin(self, user_id: UUID, secret: str, now: datetime) -> None:
        """Have this secret wait for being confirmed, in place of whatever there was."""
        ...

    async def take_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        """Take the code of this step, of the secret that was set up then; whether no code of this or a later step was taken before."""
        ...

    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None:
        """Have these backup codes and no others."""
        ...

    def accept_step(self, pre_auth_id: UUID, user_id: UUID, setup_at: datetime, step: int, now: datetime) -> Soon[Redeemed]:
        """Before the next statement, lock an account and end a sign-in to it that waits, by `take_step`: the account, and whether the code
        was there; nothing where the sign-in does not wait any more.

        Exactly one caller has both, and whoever has not must roll back.
        """
        ...

    def accept_code(self, pre_auth_id: UUID, user_id: UUID, code_hash: bytes, now: datetime) -> Soon[Redeemed]:
        """The same by using up the backup code with this hash."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Forget secret and backup codes, if there are any. The log stays."""
        ...


class PrivacyRead(Protocol):
    """What is kept about a person, looked at (identity.md section 2.8). `within` are the organizations that it is limited to, None is no
    limit; what is listed comes after the given item, or from the beginning."""

    async def belongings(self, user_id: UUID, owner_id: UUID) -> list[Belonging]:
        """Every membership of the first person, and whether it is the second one who owns the organization; by the organizations' ids."""
        ...

    async def memberships(
        self, user_id: UUID, within: Collection[UUID] | None, after: KeptMembership | None, limit: int
    ) -> list[KeptMembership]:
        """The oldest first."""
        ...

    async def count_logins(self, user_id: UUID, within: Collection[UUID] | None) -> int: ...

    async def logins(self, user_id: UUID, within: Collection[UUID] | None, before: KeptLogin | None, limit: int) -> list[KeptLogin]:
        """The newest first, failed attempts too; within organizations, those to their services. Those of somebody who is unknown say no
        address, agent and place, whether or not they are blanked yet."""
        ...

    async def identities(
        self, user_id: UUID, within: Collection[UUID] | None, after: KeptIdentity | None, limit: int
    ) -> list[KeptIdentity]:
        """The oldest first; within organizations, those of their services."""
        ...

    async def mfa_events(self, user_id: UUID, before: KeptMfaEvent | None, limit: int) -> list[KeptMfaEvent]:
        """The newest first."""
        ...

    async def passkeys(self, user_id: UUID, after: KeptPasskey | None, limit: int) -> list[KeptPasskey]:
        """The oldest first."""
        ...

    async def unblanked_person(self) -> UUID | None:
        """Somebody unknown of whose logs there is more to blank, by id the first."""
        ...

    async def unblanked_log(self, user_id: UUID) -> Log | None:
        """Where more of this person is to be blanked."""
        ...


class Privacy(PrivacyRead, Protocol):
    """What is kept about a person, removed or made to say nothing (identity.md section 4.7). The account is locked before all but the first
    three, and `replace_address` comes first of those: nobody writes of the account after it until the transaction ends.

    Addresses of the person are the one given, which was the account's, and all that it had before, unless another account has them now."""

    async def concerned(self, user_id: UUID) -> list[UUID]:
        """Which organizations to lock before: those that the person belongs to or is invited to by any of the addresses that are theirs, in
        the order of their ids."""
        ...

    async def lock_organizations(self, org_ids: Collection[UUID]) -> None:
        """As `Organizations.lock` does, in the order of their ids."""
        ...

    async def lock_memberships(self, user_id: UUID) -> None: ...

    async def replace_address(self, user_id: UUID, placeholder: Email, now: datetime) -> None:
        """The account is anonymized, and has neither password nor second factor. Raises EmailTaken."""
        ...

    async def remove_ways_in(self, user_id: UUID) -> None:
        """Second factor, backup codes, identities, passkeys, devices, pre-auths, tickets and tokens, and the names by which services with
        SAML know the person; sessions are `Sessions.remove`."""
        ...

    async def blank_newest(self, user_id: UUID, limit: int) -> None:
        """`blank` for the first time, in every log: a statement each."""
        ...

    async def blank(self, user_id: UUID, log: Log, limit: int) -> int:
        """Have the next entries of the log, the newest first, say core.privacy.NO_ADDRESS, NO_AGENT and no place; how many it were. If it
        were as many as `limit`, there is something to go on with from then on, and else no more."""
        ...

    async def blank_impersonations(self, user_id: UUID, now: datetime) -> None:
        """The sessions in which they were somebody else end, and say neither where they were."""
        ...

    async def blank_arrivals(self, user_id: UUID, email: Email) -> None:
        """The same for how they came to organizations that they belong to or were ever invited to by any address, if without signing in.
        `end_invitations` comes after it."""
        ...

    async def end_invitations(
        self, user_id: UUID, email: Email, placeholder: Email, locked: Collection[UUID], now: datetime
    ) -> list[Invitation]:
        """Have invitations to addresses of the person, and what was recorded of them, say the new one, and where they were answered without
        signing in, not from where; those pending in locked organizations end as cancelled or, past their time, as expired, and are
        returned."""
        ...

    async def remove_mails(self, user_id: UUID, email: Email) -> None:
        """All to addresses of the person, queued or sent."""
        ...

    async def forget_deliveries(self, user_id: UUID) -> None:
        """Have what webhooks were told of the person's doing, or will be, not say the address. Those of invitations are for
        `end_invitations`."""
        ...

    async def forget_descriptions(self, user_id: UUID) -> None:
        """What the directories of organizations have said of the person, and the addresses that they know them by."""
        ...

    async def remove_former_addresses(self, user_id: UUID) -> None:
        """What addresses the account had. Nothing finds them after that."""
        ...

    async def log(self, user_id: UUID, caller: Person, now: datetime) -> None:
        """Write in the log of privacy that the caller has anonymized this person."""
        ...


class SmtpRead(Protocol):
    """The mail servers of organizations, looked at."""

    async def settings(self, org_id: UUID) -> SmtpSettings | None: ...

    async def server(self, org_id: UUID) -> MailServer | None:
        """With its password. Raises SealBroken."""
        ...


class Smtp(SmtpRead, Protocol):
    """The mail servers of organizations, changed; their passwords are sealed. The organization is locked before any of these."""

    async def put(self, server: MailServer, now: datetime) -> None:
        """In place of the one that was there, if one was."""
        ...

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        """What was there."""
        ...


class SiemRead(Protocol):
    """Where the audit logs of organizations are forwarded to, looked at."""

    async def standing(self, org_id: UUID) -> SiemStanding | None:
        """With what waits, of which core.siem.COUNTED are counted."""
        ...

    async def sink(self, org_id: UUID) -> Sink | None:
        """With its token. Raises SealBroken."""
        ...

    async def waiting(self, org_id: UUID, siem_id: UUID, limit: int, most_bytes: int) -> list[Queued]:
        """The beginning of the queue, with the entries as they are now: at most `limit`, and no more of them after that many bytes."""
        ...


class Siem(SiemRead, Protocol):
    """Where the audit logs of organizations are forwarded to, changed; tokens are sealed. Records look here, and wait for nobody.

    The organization is locked before `put` and `remove`.
    """

    async def put(self, siem_id: UUID, sink: Sink, now: datetime) -> None:
        """In place of what was there, if anything was, which then keeps its id and its queue."""
        ...

    async def remove(self, org_id: UUID, now: datetime) -> SiemConfiguration | None:
        """What was there. Nobody can reach the queue any more; the housekeeper removes it."""
        ...

    async def begin_test(self, org_id: UUID, now: datetime, until: datetime) -> bool:
        """False while another test is running."""
        ...

    async def end_test(self, org_id: UUID, until: datetime) -> None:
        """That of the one that began with this `until`."""
        ...

    async def claim(self, now: datetime, leased_until: datetime, *, struggling: bool) -> Claimed | None:
        """The one that has been due for the longest, of those that are enabled, whose organizations are active, and for which something
        waits; of those that were slow or failed the last time only with `struggling`. Nobody else claims it before `leased_until`."""
        ...

    async def taken(self, claimed: Claimed, positions: Sequence[int], now: datetime, *, posted: bool, slow: bool) -> None:
        """Remove these from the queue, and have the rest be due now. What was posted went well; else nothing is known of that."""
        ...

    async def failed(self, claimed: Claimed, failure: Result, now: datetime, due_at: datetime) -> None:
        """Keep the queue until then. Nothing happens if the lease has ended and somebody else has it."""
        ...


class WebhooksRead(Protocol):
    """The webhooks of organizations, looked at."""

    async def of_org(self, org_id: UUID) -> list[Webhook]:
        """The oldest first."""
        ...

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> Webhook | None: ...


class Webhooks(WebhooksRead, Protocol):
    """The same, changed; their secrets are sealed. The organization is locked before any of these."""

    async def add(self, webhook: Webhook, secret: str) -> None:
        """Raises core.webhooks.NameTaken."""
        ...

    async def save(self, webhook: Webhook) -> None:
        """Write what may change of it. Also wakes the dispatchers of all processes. Raises core.webhooks.NameTaken."""
        ...

    async def rotate(self, webhook: Webhook, secret: str, former_until: datetime) -> None:
        """Sign with this secret, and until then with the one that it had as well, beside those before it whose time has not come; of all
        former ones the newest core.webhooks.FORMER_SECRETS_KEPT are kept."""
        ...

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        """Its deliveries are past their use from now on."""
        ...


class DeliveriesRead(Protocol):
    """What webhooks were told, looked at."""

    async def page(self, org_id: UUID, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None) -> Listed[Delivery]:
        """The newest first. Two statements, one for the total."""
        ...


class Deliveries(DeliveriesRead, Protocol):
    """The queue of what webhooks are to be told. Events come into it by `Transaction.record`."""

    async def add(
        self, delivery_id: UUID, org_id: UUID, webhook_id: UUID, event_type: str, payload: str, actor_id: UUID, now: datetime
    ) -> Delivery:
        """Also wakes the dispatchers of all processes, when the transaction commits. The organization is locked before."""
        ...

    async def repeat(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID, new_id: UUID, now: datetime) -> Delivery | None:
        """The same with the payload of a delivery that there was to this webhook."""
        ...

    async def purge(self, webhook_id: UUID, limit: int) -> None:
        """Remove at most `limit` deliveries to a webhook that was deleted."""
        ...

    async def record(self, outcomes: Sequence[DeliveryOutcome]) -> None:
        """What became of attempts. A failure is without effect where the delivery has been claimed again since: it is another's now."""
        ...

    async def wake(self, now: datetime, limit: int) -> None:
        """Put at most `limit` of those that have come due among those that can be claimed; `claim` looks at no others."""
        ...

    def next_due(self) -> Soon[datetime]:
        """When the next one falls due that waits; or fell, if there were more than could be woken at once."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, room: Room) -> list[ClaimedDelivery]:
        """Due deliveries to active webhooks of active organizations, as many as there is room for, that nobody else holds; they fall due
        again at `lease_until`. The lowest share is one, and organizations and webhooks take turns."""
        ...


class Mails(Protocol):
    """The queue of mails. Tokens in it are sealed."""

    async def queue(self, mail: Mail) -> None:
        """Also wakes the mailers of all processes, when the transaction commits."""
        ...

    async def queue_within(self, mail: Mail, per_day: int) -> None:
        """The same for one that a directory causes: it is due as soon as there are no more than so many of its organization (core/mails.py,
        OF_DIRECTORIES) in the 24 hours before. The organization is locked."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, limit: int, held_back: HeldBack = NOTHING_HELD_BACK) -> list[Mail]:
        """Due mails, oldest first, that nobody else holds and that are not held back; they fall due again at `lease_until`.

        A token whose seal is broken counts as not made yet, so that one bad row does not hold up all others.
        """
        ...

    async def keep_token(self, mail: Mail, token: str | None, now: datetime) -> bool:
        """Keep the token, if the mail has one, for further attempts, and that it was let through. False, and nothing kept, when the mail
        has been claimed again since."""
        ...

    async def token_mails_since(self, address: Email, kinds: Collection[MailKind], since: datetime) -> int:
        """How many mails of these kinds to this address have had their token prepared, or were let through, since then."""
        ...

    async def lock_recipient(self, address: Email) -> None:
        """Make others who would count what this address gets wait; for mails to whom there may be no account to lock."""
        ...

    async def finish(self, mail: Mail, outcome: Outcome, now: datetime, *, reason: str | None = None) -> None:
        """The mail is done with; its token is forgotten.

        Without effect when it has been claimed again since, unless it was sent: that is true whoever holds it now.
        """
        ...

    async def postpone(self, mail: Mail, due_at: datetime, reason: str) -> None:
        """An attempt failed. Without effect when the mail has been claimed again since: its lease ended, and it is another's now."""
        ...


class SigningKeysRead(Protocol):
    async def live(self, now: datetime) -> list[SigningKey]:
        """Keys that are believed now, newest first."""
        ...


class SigningKeys(SigningKeysRead, Protocol):
    async def lock(self) -> None:
        """Make others who would rotate wait."""
        ...

    async def has_active(self) -> bool: ...

    async def add(self, key: SigningKey) -> None:
        """Also tells all processes, when the transaction commits."""
        ...

    async def retire_all(self, retires_at: datetime) -> None: ...


class PlatformRead(Protocol):
    async def figures(self) -> Figures: ...

    async def due_jobs(self, now: datetime) -> int:
        """How many pieces of background work are due."""
        ...


class PlatformUsersRead(Protocol):
    """People of every organization and of none, as platform owners see them."""

    async def search(self, limit: int, *, email: str | None = None, user_id: UUID | None = None) -> list[FoundPerson]:
        """Those whose address has `email` in it, which is in lower case, and who have this id, where these are given; the newest first."""
        ...

    async def mfa_status(self, user_id: UUID) -> MfaStanding | None: ...

    async def mfa_figures(self, since: datetime) -> MfaFigures:
        """What happened is counted since then."""
        ...

    async def alerts(self, since: datetime, limit: int) -> list[Alert]:
        """What is suspicious in the log of the second factor since then, the newest first."""
        ...


class Leases(Protocol):
    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        """Take or extend the lease on work that one process at a time may do; false while another holder has it."""
        ...


class Housekeeping(Protocol):
    async def sweep(self, what: Sweep, before: datetime, limit: int) -> int:
        """Remove at most `limit` rows that were past their use at `before`; how many it were. What is in use now is left alone.

        Totals of logins are not removed but put together, those of days before that of `before`.
        What is left of a deleted organization or service is past its use at once, the tombstone when it is older than `before` and nothing
        is left.
        Accounts take two statements: one locks them, and another judges again what is locked.
        Blankings are not swept by this, but by core.blanking.
        """
        ...


class Sealed(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, kind: SealedKind, after: str, limit: int) -> tuple[int, str | None]:
        """Seal under the active key what is not, in at most `limit` rows after the one named `after` ("" is before the first).

        How many it were, and the name of the last row, or None if there are no more. One statement for each of them.
        """
        ...


class Rates(Protocol):
    """Token buckets per client, shared by all processes (organizations.md section 8)."""

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket if all have one; else take none and return how many seconds until they do. 0 is yes."""
        ...


class RightAnswers(Protocol):
    async def clear(self, secret: Secret, subject: bytes) -> None:
        """Forget the guesses that were counted."""
        ...


class Guesses(RightAnswers, Protocol):
    """Counters of wrong guesses (core/guesses.py)."""

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        """Count one guess; or, when it must wait, count nothing and return until when. Atomic."""
        ...

    async def charge_password(self, email: Email, trust_hash: bytes | None, allowance: Allowance, now: datetime) -> Guess:
        """The same of a guess at the password of whoever has this address, which nobody need have.

        Where the account trusts the device with the trust token of this SHA-256, and the token is live, it is counted at the device.
        """
        ...

    async def take_back(self, secret: Secret, subject: bytes, allowance: Allowance) -> None:
        """Have a guess that was counted not count: it was right. Atomic."""
        ...


class ProviderStates(Protocol):
    """Browsers that were sent to identity providers, by the hash of the state that they have to come back with."""

    async def add(self, pending: ProviderState) -> bool:
        """Whether the service, or the live session, is there that it is for; else nothing is added."""
        ...


class Returns(Protocol):
    async def take(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        """Use the state up, in the browser in which it was made, and for this provider. Exactly one caller wins."""
        ...


class Reading(Protocol):
    """Questions that change nothing, each its own snapshot."""

    @property
    def tiers(self) -> TiersRead: ...
    @property
    def organizations(self) -> OrganizationsRead: ...
    @property
    def members(self) -> MembersRead: ...
    @property
    def invitations(self) -> InvitationsRead: ...
    @property
    def audit(self) -> AuditRead: ...
    @property
    def services(self) -> ServicesRead: ...
    @property
    def plans(self) -> PlansRead: ...
    @property
    def subscriptions(self) -> SubscriptionsRead: ...
    @property
    def analytics(self) -> AnalyticsRead: ...
    @property
    def api_keys(self) -> ApiKeysRead: ...
    @property
    def scim_tokens(self) -> ScimTokensRead: ...
    @property
    def scim_users(self) -> ScimUsersRead: ...
    @property
    def end_users(self) -> EndUsersRead: ...
    @property
    def service_users(self) -> ServiceUsersRead: ...
    @property
    def authorization_codes(self) -> AuthorizationCodesRead: ...
    @property
    def branding(self) -> BrandingRead: ...
    @property
    def device_codes(self) -> DeviceCodesRead: ...
    @property
    def devices(self) -> DevicesRead: ...
    @property
    def domains(self) -> DomainsRead: ...
    @property
    def home_realm(self) -> HomeRealmRead: ...
    @property
    def privacy(self) -> PrivacyRead: ...
    @property
    def identities(self) -> IdentitiesRead: ...
    @property
    def oauth_credentials(self) -> OAuthCredentialsRead: ...
    @property
    def saml(self) -> SamlRead: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnsRead: ...

    @property
    def accounts(self) -> AccountsRead: ...
    @property
    def one_time_tokens(self) -> OneTimeTokensRead: ...
    @property
    def sessions(self) -> SessionsRead: ...
    @property
    def signing_keys(self) -> SigningKeysRead: ...
    @property
    def mfa(self) -> MfaRead: ...
    @property
    def smtp(self) -> SmtpRead: ...
    @property
    def webhooks(self) -> WebhooksRead: ...
    @property
    def deliveries(self) -> DeliveriesRead: ...
    @property
    def siem(self) -> SiemRead: ...
    @property
    def platform(self) -> PlatformRead: ...
    @property
    def platform_users(self) -> PlatformUsersRead: ...


class Transaction(Protocol):
    """Questions and changes that become true together."""

    @property
    def tiers(self) -> Tiers: ...
    @property
    def organizations(self) -> Organizations: ...
    @property
    def members(self) -> Members: ...
    @property
    def invitations(self) -> Invitations: ...
    @property
    def services(self) -> Services: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    @property
    def billing(self) -> Billing: ...
    @property
    def cancellations(self) -> Cancellations: ...
    @property
    def api_keys(self) -> ApiKeys: ...
    @property
    def scim_tokens(self) -> ScimTokens: ...
    @property
    def scim_users(self) -> ScimUsers: ...
    @property
    def end_users(self) -> EndUsers: ...
    @property
    def service_users(self) -> ServiceUsers: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def authorization_codes(self) -> AuthorizationCodes: ...
    @property
    def branding(self) -> Branding: ...
    @property
    def device_codes(self) -> DeviceCodes: ...
    @property
    def devices(self) -> Devices: ...
    @property
    def domains(self) -> Domains: ...
    @property
    def home_realm(self) -> HomeRealm: ...
    @property
    def privacy(self) -> Privacy: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def oauth_credentials(self) -> OAuthCredentials: ...
    @property
    def saml(self) -> Saml: ...
    @property
    def saml_sign_ons(self) -> SamlSignOns: ...
    @property
    def saml_logouts(self) -> SamlLogouts: ...

    @property
    def accounts(self) -> Accounts: ...
    @property
    def one_time_tokens(self) -> OneTimeTokens: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def pre_auths(self) -> PreAuths: ...
    @property
    def provider_states(self) -> ProviderStates: ...
    @property
    def guesses(self) -> RightAnswers: ...
    @property
    def mails(self) -> Mails: ...
    @property
    def mfa(self) -> Mfa: ...
    @property
    def smtp(self) -> Smtp: ...
    @property
    def webhooks(self) -> Webhooks: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def siem(self) -> Siem: ...
    @property
    def signing_keys(self) -> SigningKeys: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def housekeeping(self) -> Housekeeping: ...
    @property
    def sealed(self) -> Sealed: ...

    def acts_as(self, person: Person) -> None:
        """Whose doing it is what is recorded, where that is known inside of the transaction only."""
        ...

    def record(self, event: Event) -> None:
        """Have the event's row, and its audit entry if it has one, written with the caller's name, address and agent.

        All of a transaction's are written together when its block ends, in this order, so `of_person` means the confirmed memberships as
        they are then. Last, because the totals of the log are what transactions of one organization may have to wait for.
        """
        ...


class Rotation(Protocol):
    async def rotate(
        self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime, by: Presenter = SOMEBODY
    ) -> Refreshed | None:
        """Replace a refresh token, if it is the current one of a live session whose person and organization are in good standing, and the
        presenter's to use.

        The session then lives until `expires_at`, but never past its absolute end. Exactly one caller wins.
        """
        ...


class Counting(Protocol):
    """Statements that are each a transaction of their own: because they must survive the refusal they lead to, or are all there is."""

    @property
    def pre_auths(self) -> Tries: ...
    @property
    def device_codes(self) -> Polls: ...
    @property
    def provider_states(self) -> Returns: ...
    @property
    def rates(self) -> Rates: ...
    @property
    def sessions(self) -> Rotation: ...
    @property
    def guesses(self) -> Guesses: ...
    @property
    def logins(self) -> FailedLogins: ...
    @property
    def members(self) -> Confirmations: ...
    @property
    def api_keys(self) -> KeyUse: ...
    @property
    def mfa(self) -> MfaLog: ...


class Storage(Protocol):
    """PostgreSQL, in tests too."""

    def transaction(self, by: Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Changes that happen together when the block ends, or not at all.

        What a person does, they do in their session: where that has ended by the time that what was recorded is written, whatever ended it,
        the block raises SessionEnded, and nothing was done (decisions, point 46; security.md J-4, Z-6). `in_session` is false for whoever
        has none before this, or none after it.
        """
        ...

    def reading(self) -> AbstractAsyncContextManager[Reading]: ...
    def counting(self) -> AbstractAsyncContextManager[Counting]: ...

    async def ping(self) -> None:
        """One trivial round trip. Raises StorageDown."""
        ...

"""What is asked of storage, in a file for each word, named as in `core` and `adapters.postgres` (ops/decisions/0017).

A transaction exposes repositories; leaving its block commits, and any exception, cancellation included, rolls it back. Every method
is one statement, named for the question it answers; the exceptions are `Sealed.renew`, `Housekeeping.sweep`, `Sessions.remove`,
`Privacy.blank_newest`, `AuditRead.page` and `DeliveriesRead.page`, which say so. "Now" is always a parameter. Times are UTC. Every method
may raise core.errors.StorageDown. Lock order everywhere: organization, membership, account, then the rest (security.md Z-6).
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from core.kernel.event_catalogue import Event
from core.kernel.principals import Caller, Person
from ports.storage.accounts import (
    Accounts,
    AccountsRead,
    Devices,
    DevicesRead,
    Guesses,
    Mails,
    Mfa,
    MfaLog,
    MfaRead,
    OneTimeTokens,
    OneTimeTokensRead,
    PlatformRead,
    PlatformUsersRead,
    RightAnswers,
)
from ports.storage.applications import (
    AnalyticsRead,
    ApiKeys,
    ApiKeysRead,
    EndUsers,
    EndUsersRead,
    KeyUse,
    Plans,
    PlansRead,
    Services,
    ServicesRead,
    ServiceUsers,
    ServiceUsersRead,
)
from ports.storage.authentication import (
    FailedLogins,
    Identities,
    IdentitiesRead,
    Logins,
    OAuthCredentials,
    OAuthCredentialsRead,
    PreAuths,
    Rotation,
    Sessions,
    SessionsRead,
    SigningKeys,
    SigningKeysRead,
    Tries,
)
from ports.storage.billing import Billing, Cancellations, Subscriptions, SubscriptionsRead
from ports.storage.eventing import Audit, AuditRead, Deliveries, DeliveriesRead, Siem, SiemRead, Webhooks, WebhooksRead
from ports.storage.federation import (
    AuthorizationCodes,
    AuthorizationCodesRead,
    DeviceCodes,
    DeviceCodesRead,
    Polls,
    ProviderStates,
    Returns,
    Saml,
    SamlLogouts,
    SamlRead,
    SamlSignOns,
    SamlSignOnsRead,
)
from ports.storage.kernel import Rates
from ports.storage.maintenance import Housekeeping, Leases, Sealed
from ports.storage.privacy import Privacy, PrivacyRead
from ports.storage.provisioning import ScimTokens, ScimTokensRead, ScimUsers, ScimUsersRead
from ports.storage.tenancy import (
    Branding,
    BrandingRead,
    Confirmations,
    Domains,
    DomainsRead,
    HomeRealm,
    HomeRealmRead,
    Invitations,
    InvitationsRead,
    Members,
    MembersRead,
    Organizations,
    OrganizationsRead,
    Smtp,
    SmtpRead,
    Tiers,
    TiersRead,
)


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

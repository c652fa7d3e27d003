"""The repositories, and the three kinds of blocks that show their own views: readings, transactions and autocommit."""

from typing import Any, Generic, Never, Protocol, TypeAlias, TypeVar, overload

from core.kernel.callers import Person
from core.kernel.event_catalog import Event
from ports.storage.accounts.accounts import (
    Accounts,
    AccountsRead,
    EmailChanges,
    EmailChangesRead,
    Images,
    ImagesRead,
    OneTimeTokens,
    OneTimeTokensRead,
    PlatformRead,
    PlatformUsersRead,
)
from ports.storage.accounts.emails import EmailLeases, EmailQueue
from ports.storage.accounts.passkeys import Passkeys, PasskeysRead
from ports.storage.accounts.security import (
    AttemptLimits,
    AttemptReset,
    Devices,
    DevicesRead,
    Mfa,
    MfaLog,
    MfaRead,
    SecurityNotices,
    SecurityNoticesRead,
)
from ports.storage.applications.authorization import (
    AccessReasonsRead,
    Authorizations,
    AuthorizationsRead,
    EvaluationsRead,
    RoleAssignments,
    RoleAssignmentsRead,
)
from ports.storage.applications.figures import FigureCounting, FiguresRead
from ports.storage.applications.services import (
    ApiKeys,
    ApiKeysRead,
    ApiKeyUse,
    ClientCharges,
    Plans,
    PlansRead,
    ServiceClaims,
    ServiceClaimsRead,
    Services,
    ServicesRead,
)
from ports.storage.applications.users import (
    AnalyticsRead,
    Assignments,
    AssignmentsRead,
    EndUsers,
    EndUsersRead,
    OverviewRead,
    OwnApplications,
    ServiceUsers,
    ServiceUsersRead,
)
from ports.storage.authentication.credentials import (
    Identities,
    IdentitiesRead,
    OAuthCredentials,
    OAuthCredentialsRead,
    PersonalTokens,
    PersonalTokensRead,
    PersonalTokenUse,
    SigningKeys,
    SigningKeysRead,
    UsedProofs,
    UsedProofsCleaning,
)
from ports.storage.authentication.flows import Flows, FlowsRead, FlowSteps
from ports.storage.authentication.sessions import (
    Impersonations,
    ImpersonationsRead,
    OpenIdFacts,
    OpenIdFactsRead,
    OrganizationSessions,
    OrganizationSessionsRead,
    RefreshTokenRotation,
    RefreshTokens,
    RefreshTokensRead,
    SessionContextsRead,
    Sessions,
    SessionSignIns,
    SessionSignInsRead,
    SessionsRead,
)
from ports.storage.authentication.sign_ins import (
    FailedLogins,
    KeptForms,
    KeptFormsRead,
    Logins,
    PolicyPasses,
    PolicyPassesRead,
    PolicyPassUse,
    ReauthenticationCodeAttempts,
    Reauthentications,
    ReauthenticationsRead,
    Recoveries,
    RecoveriesRead,
    RecoveryAttempts,
    SentForms,
    SentFormsRead,
    SignInLogRead,
)
from ports.storage.billing import Billing, Cancellations, Checkouts, Customers, CustomersRead, Subscriptions, SubscriptionsRead
from ports.storage.eventing import (
    Audit,
    AuditOutcomes,
    AuditRead,
    Deliveries,
    DeliveriesRead,
    LogoutNotices,
    PlatformLogRead,
    Siem,
    SiemRead,
    Webhooks,
    WebhooksRead,
)
from ports.storage.federation.connections import (
    ConnectionHealths,
    ConnectionHealthsRead,
    ConnectionIdentities,
    ConnectionIdentitiesRead,
    ConnectionKeys,
    ConnectionKeysRead,
    ConnectionLogins,
    ConnectionLoginsRead,
    OrganizationConnections,
    OrganizationConnectionsRead,
)
from ports.storage.federation.oauth import (
    AuthorizationCodes,
    AuthorizationCodeUse,
    Consents,
    ConsentsRead,
    DeviceCodes,
    DeviceCodesRead,
    DevicePolls,
    ExternalClients,
    ExternalClientsRead,
    ExternalGrants,
    ExternalGrantsRead,
    PushedRequests,
    PushedRequestsRead,
    PushedRequestUses,
    UsedAssertions,
)
from ports.storage.federation.saml import Saml, SamlLogouts, SamlRead, SamlSignOns, SamlSignOnsRead, SamlSignOnStarts
from ports.storage.kernel import Rates
from ports.storage.maintenance import ExpiringSecrets, Housekeeping, Leases, SealedColumns
from ports.storage.privacy import AccountLogsRead, PersonalDataRead, Privacy, PrivacyRead
from ports.storage.programs import (
    ApiResources,
    ApiResourcesRead,
    CreatedSecrets,
    CreatedSecretsRead,
    Credentials,
    CredentialsRead,
    ProgramClients,
    ProgramClientsRead,
    RegistrationTokens,
    RegistrationTokensRead,
    ServiceAccounts,
    ServiceAccountsRead,
)
from ports.storage.provisioning import (
    DirectoryBlocks,
    DirectoryBlocksRead,
    ScimRequests,
    ScimRequestsRead,
    ScimTokens,
    ScimTokensRead,
    ScimUsers,
    ScimUsersRead,
)
from ports.storage.setup import SetupLinks, SetupLinksAutocommit, SetupLinksRead
from ports.storage.tenancy.attributes import Attributes, AttributesRead
from ports.storage.tenancy.groups import GroupRoles, GroupRolesRead, Groups, GroupsRead, Roles, RolesRead
from ports.storage.tenancy.organizations import (
    Confirmations,
    Invitations,
    InvitationsRead,
    Members,
    MembersRead,
    Organizations,
    OrganizationsRead,
    Tiers,
    TiersRead,
)
from ports.storage.tenancy.settings import Branding, BrandingRead, Domains, DomainsRead, HomeRealm, HomeRealmRead, Smtp, SmtpRead
from ports.storage.tenancy.sign_in_policies import SignInPolicies, SignInPoliciesRead

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)

Absent: TypeAlias = object  # a kind of blocks does not show the repository


class Creates(Protocol[R_co, T_co, A_co]):
    """A class with objects that have all three views. mypy compares a class with every overload."""

    @overload
    def __call__(self, scope: Never, /) -> R_co: ...
    @overload
    def __call__(self, scope: Never, /) -> T_co: ...  # type: ignore[overload-cannot-match]
    @overload
    def __call__(self, scope: Never, /) -> A_co: ...  # type: ignore[overload-cannot-match]


class Views(Generic[R_co, T_co, A_co]):
    """A repository, as a reading, a transaction and autocommit show it. The storage adapter puts its own attribute in this place."""

    @overload
    def __get__(self, block: None, _: type) -> "Views[R_co, T_co, A_co]": ...
    @overload
    def __get__(self, block: "Transaction", _: type) -> T_co: ...
    @overload
    def __get__(self, block: "Reading", _: type) -> R_co: ...
    @overload
    def __get__(self, block: "Autocommit", _: type) -> A_co: ...
    def __get__(self, block: "Repositories | None", _: type) -> Any:
        return self

    def accept(self, create: Creates[R_co, T_co, A_co], /) -> None:
        """Accept a class that implements the views. Only mypy uses this signature."""


class Repositories:
    """All repositories. A line has the views for a reading, for a transaction, and for autocommit."""

    # accounts
    accounts = Views[AccountsRead, Accounts, Absent]()
    devices = Views[DevicesRead, Devices, Absent]()
    attempt_limits = Views[Absent, AttemptReset, AttemptLimits]()
    email_changes = Views[EmailChangesRead, EmailChanges, Absent]()
    security_notices = Views[SecurityNoticesRead, SecurityNotices, Absent]()
    email_queue = Views[Absent, EmailQueue, EmailLeases]()
    images = Views[ImagesRead, Images, Absent]()
    mfa = Views[MfaRead, Mfa, MfaLog]()
    one_time_tokens = Views[OneTimeTokensRead, OneTimeTokens, Absent]()
    passkeys = Views[PasskeysRead, Passkeys, Absent]()
    platform = Views[PlatformRead, Absent, Absent]()
    platform_users = Views[PlatformUsersRead, Absent, Absent]()
    # tenancy
    branding = Views[BrandingRead, Branding, Absent]()
    domains = Views[DomainsRead, Domains, Absent]()
    groups = Views[GroupsRead, Groups, Absent]()
    group_roles = Views[GroupRolesRead, GroupRoles, Absent]()
    home_realm = Views[HomeRealmRead, HomeRealm, Absent]()
    invitations = Views[InvitationsRead, Invitations, Absent]()
    members = Views[MembersRead, Members, Confirmations]()
    organizations = Views[OrganizationsRead, Organizations, Absent]()
    roles = Views[RolesRead, Roles, Absent]()
    attributes = Views[AttributesRead, Attributes, Absent]()
    sign_in_policies = Views[SignInPoliciesRead, SignInPolicies, Absent]()
    smtp = Views[SmtpRead, Smtp, Absent]()
    tiers = Views[TiersRead, Tiers, Absent]()
    # applications
    analytics = Views[AnalyticsRead, Absent, Absent]()
    api_keys = Views[ApiKeysRead, ApiKeys, ApiKeyUse]()
    assignments = Views[AssignmentsRead, Assignments, Absent]()
    authorizations = Views[AuthorizationsRead, Authorizations, Absent]()
    evaluations = Views[EvaluationsRead, Absent, Absent]()
    end_users = Views[EndUsersRead, EndUsers, Absent]()
    figure_counting = Views[Absent, FigureCounting, Absent]()
    figures = Views[FiguresRead, Absent, Absent]()
    overview = Views[OverviewRead, Absent, Absent]()
    own_applications = Views[OwnApplications, Absent, Absent]()
    plans = Views[PlansRead, Plans, Absent]()
    role_assignments = Views[RoleAssignmentsRead, RoleAssignments, Absent]()
    access_reasons = Views[AccessReasonsRead, Absent, Absent]()
    service_claims = Views[ServiceClaimsRead, ServiceClaims, Absent]()
    service_users = Views[ServiceUsersRead, ServiceUsers, Absent]()
    services = Views[ServicesRead, Services, ClientCharges]()
    # programs
    api_resources = Views[ApiResourcesRead, ApiResources, Absent]()
    created_secrets = Views[CreatedSecretsRead, CreatedSecrets, Absent]()
    registration_tokens = Views[RegistrationTokensRead, RegistrationTokens, Absent]()
    credentials = Views[CredentialsRead, Credentials, Absent]()
    program_clients = Views[ProgramClientsRead, Absent, ProgramClients]()
    service_accounts = Views[ServiceAccountsRead, ServiceAccounts, Absent]()
    # billing
    billing = Views[Absent, Billing, Absent]()
    cancellations = Views[Absent, Cancellations, Absent]()
    checkouts = Views[Absent, Checkouts, Absent]()
    customers = Views[CustomersRead, Customers, Absent]()
    subscriptions = Views[SubscriptionsRead, Subscriptions, Absent]()
    # authentication
    dpop_proofs = Views[Absent, UsedProofsCleaning, UsedProofs]()
    failed_logins = Views[Absent, Absent, FailedLogins]()
    flows = Views[FlowsRead, Flows, FlowSteps]()
    identities = Views[IdentitiesRead, Identities, Absent]()
    impersonations = Views[ImpersonationsRead, Impersonations, Absent]()
    kept_forms = Views[KeptFormsRead, KeptForms, Absent]()
    logins = Views[Absent, Logins, Absent]()
    oauth_credentials = Views[OAuthCredentialsRead, OAuthCredentials, Absent]()
    openid_facts = Views[OpenIdFactsRead, OpenIdFacts, Absent]()
    organization_sessions = Views[OrganizationSessionsRead, OrganizationSessions, Absent]()
    personal_tokens = Views[PersonalTokensRead, PersonalTokens, PersonalTokenUse]()
    policy_passes = Views[PolicyPassesRead, PolicyPasses, PolicyPassUse]()
    reauthentications = Views[ReauthenticationsRead, Reauthentications, ReauthenticationCodeAttempts]()
    recoveries = Views[RecoveriesRead, Recoveries, RecoveryAttempts]()
    refresh_tokens = Views[RefreshTokensRead, RefreshTokens, RefreshTokenRotation]()
    sent_forms = Views[SentFormsRead, SentForms, Absent]()
    session_contexts = Views[SessionContextsRead, SessionContextsRead, Absent]()
    session_sign_ins = Views[SessionSignInsRead, SessionSignIns, Absent]()
    sessions = Views[SessionsRead, Sessions, Absent]()
    sign_in_log = Views[SignInLogRead, Absent, Absent]()
    signing_keys = Views[SigningKeysRead, SigningKeys, Absent]()
    # federation
    authorization_codes = Views[Absent, AuthorizationCodes, AuthorizationCodeUse]()
    client_assertions = Views[Absent, Absent, UsedAssertions]()
    connections = Views[OrganizationConnectionsRead, OrganizationConnections, Absent]()
    connection_healths = Views[ConnectionHealthsRead, ConnectionHealths, Absent]()
    connection_identities = Views[ConnectionIdentitiesRead, ConnectionIdentities, Absent]()
    connection_keys = Views[ConnectionKeysRead, ConnectionKeys, Absent]()
    connection_logins = Views[ConnectionLoginsRead, ConnectionLogins, Absent]()
    consents = Views[ConsentsRead, Consents, Absent]()
    external_grants = Views[ExternalGrantsRead, ExternalGrants, Absent]()
    device_codes = Views[DeviceCodesRead, DeviceCodes, DevicePolls]()
    external_clients = Views[ExternalClientsRead, ExternalClients, Absent]()
    pushed_requests = Views[PushedRequestsRead, PushedRequests, PushedRequestUses]()
    saml = Views[SamlRead, Saml, Absent]()
    saml_logouts = Views[Absent, SamlLogouts, Absent]()
    saml_sign_ons = Views[SamlSignOnsRead, SamlSignOns, SamlSignOnStarts]()
    # provisioning
    directory_blocks = Views[DirectoryBlocksRead, DirectoryBlocks, Absent]()
    scim_requests = Views[ScimRequestsRead, Absent, ScimRequests]()
    scim_tokens = Views[ScimTokensRead, ScimTokens, Absent]()
    scim_users = Views[ScimUsersRead, ScimUsers, Absent]()
    # setup
    setup_links = Views[SetupLinksRead, SetupLinks, SetupLinksAutocommit]()
    # eventing
    audit = Views[AuditRead, Audit, AuditOutcomes]()
    deliveries = Views[DeliveriesRead, Deliveries, Absent]()
    logout_notices = Views[Absent, LogoutNotices, Absent]()
    platform_log = Views[PlatformLogRead, Absent, Absent]()
    siem = Views[SiemRead, Siem, Absent]()
    webhooks = Views[WebhooksRead, Webhooks, Absent]()
    # maintenance
    housekeeping = Views[Absent, Housekeeping, Absent]()
    leases = Views[Absent, Leases, Absent]()
    # kernel
    rates = Views[Absent, Rates, Rates]()
    # several areas
    account_logs = Views[AccountLogsRead, Absent, Absent]()
    expiring_secrets = Views[Absent, ExpiringSecrets, Absent]()
    personal_data = Views[PersonalDataRead, Absent, Absent]()
    privacy = Views[PrivacyRead, Privacy, Absent]()
    sealed = Views[Absent, SealedColumns, Absent]()


class Reading(Repositories):
    """Queries that change nothing. Every query has its own snapshot."""


class Autocommit(Repositories):
    """Statements that commit separately.

    Use autocommit for a use case with a single change, and for changes that must stay after a refusal, such as attempt
    counters.
    """


class Transaction(Repositories):
    """Queries and changes that are committed together. The block commits when it ends. Any exception, cancellation included, rolls back."""

    def acts_as(self, person: Person) -> None:
        """Set the user who causes the recorded events, if the user becomes known only during the transaction."""
        raise NotImplementedError

    def record(self, *events: Event) -> None:
        """Write the events, with the caller's id, address and user agent, and their audit log entries, if they have any.

        All events in a transaction are written when its block ends, in the order in which they were recorded. So
        `of_person` stands for the confirmed memberships at that moment. The events are written last because they lock
        the audit log's totals, and the organization's concurrent transactions wait for these rows.
        """
        raise NotImplementedError

"""The repositories, and the three kinds of blocks that show their own views: readings, transactions and autocommit."""

from typing import Any, Generic, Never, Protocol, TypeAlias, TypeVar, overload

from core.kernel.callers import Person
from core.kernel.event_catalog import Event
from ports.storage import eventing, maintenance, programs, provisioning, setup
from ports.storage.accounts import emails, security
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
from ports.storage.accounts.passkeys import Passkeys, PasskeysRead
from ports.storage.applications import authorization, users
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
from ports.storage.applications.users import FigureCounting, FiguresRead
from ports.storage.authentication import sign_ins
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
from ports.storage.billing import Billing, Cancellations, Checkouts, Customers, CustomersRead, Subscriptions, SubscriptionsRead
from ports.storage.federation import oauth
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
from ports.storage.federation.saml import Saml, SamlLogouts, SamlRead, SamlSignOns, SamlSignOnsRead, SamlSignOnStarts
from ports.storage.kernel import Rates
from ports.storage.privacy import AccountLogsRead, PersonalDataRead, Privacy, PrivacyRead
from ports.storage.tenancy import settings
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
from ports.storage.tenancy.settings import Attributes, AttributesRead
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
    devices = Views[security.DevicesRead, security.Devices, Absent]()
    attempt_limits = Views[Absent, security.AttemptReset, security.AttemptLimits]()
    email_changes = Views[EmailChangesRead, EmailChanges, Absent]()
    security_notices = Views[security.SecurityNoticesRead, security.SecurityNotices, Absent]()
    email_queue = Views[Absent, emails.EmailQueue, emails.EmailLeases]()
    images = Views[ImagesRead, Images, Absent]()
    mfa = Views[security.MfaRead, security.Mfa, security.MfaLog]()
    one_time_tokens = Views[OneTimeTokensRead, OneTimeTokens, Absent]()
    passkeys = Views[PasskeysRead, Passkeys, Absent]()
    platform = Views[PlatformRead, Absent, Absent]()
    platform_users = Views[PlatformUsersRead, Absent, Absent]()
    # tenancy
    branding = Views[settings.BrandingRead, settings.Branding, Absent]()
    domains = Views[settings.DomainsRead, settings.Domains, Absent]()
    groups = Views[GroupsRead, Groups, Absent]()
    group_roles = Views[GroupRolesRead, GroupRoles, Absent]()
    home_realm = Views[settings.HomeRealmRead, settings.HomeRealm, Absent]()
    invitations = Views[InvitationsRead, Invitations, Absent]()
    members = Views[MembersRead, Members, Confirmations]()
    organizations = Views[OrganizationsRead, Organizations, Absent]()
    roles = Views[RolesRead, Roles, Absent]()
    attributes = Views[AttributesRead, Attributes, Absent]()
    sign_in_policies = Views[SignInPoliciesRead, SignInPolicies, Absent]()
    smtp = Views[settings.SmtpRead, settings.Smtp, Absent]()
    tiers = Views[TiersRead, Tiers, Absent]()
    # applications
    analytics = Views[users.AnalyticsRead, Absent, Absent]()
    api_keys = Views[ApiKeysRead, ApiKeys, ApiKeyUse]()
    assignments = Views[users.AssignmentsRead, users.Assignments, Absent]()
    authorizations = Views[authorization.AuthorizationsRead, authorization.Authorizations, Absent]()
    evaluations = Views[authorization.EvaluationsRead, Absent, Absent]()
    end_users = Views[users.EndUsersRead, users.EndUsers, Absent]()
    figure_counting = Views[Absent, FigureCounting, Absent]()
    figures = Views[FiguresRead, Absent, Absent]()
    overview = Views[users.OverviewRead, Absent, Absent]()
    own_applications = Views[users.OwnApplications, Absent, Absent]()
    plans = Views[PlansRead, Plans, Absent]()
    role_assignments = Views[authorization.RoleAssignmentsRead, authorization.RoleAssignments, Absent]()
    access_reasons = Views[authorization.AccessReasonsRead, Absent, Absent]()
    service_claims = Views[ServiceClaimsRead, ServiceClaims, Absent]()
    service_users = Views[users.ServiceUsersRead, users.ServiceUsers, Absent]()
    services = Views[ServicesRead, Services, ClientCharges]()
    # programs
    api_resources = Views[programs.ApiResourcesRead, programs.ApiResources, Absent]()
    created_secrets = Views[programs.CreatedSecretsRead, programs.CreatedSecrets, Absent]()
    registration_tokens = Views[programs.RegistrationTokensRead, programs.RegistrationTokens, Absent]()
    credentials = Views[programs.CredentialsRead, programs.Credentials, Absent]()
    program_clients = Views[programs.ProgramClientsRead, Absent, programs.ProgramClients]()
    service_accounts = Views[programs.ServiceAccountsRead, programs.ServiceAccounts, Absent]()
    # billing
    billing = Views[Absent, Billing, Absent]()
    cancellations = Views[Absent, Cancellations, Absent]()
    checkouts = Views[Absent, Checkouts, Absent]()
    customers = Views[CustomersRead, Customers, Absent]()
    subscriptions = Views[SubscriptionsRead, Subscriptions, Absent]()
    # authentication
    dpop_proofs = Views[Absent, UsedProofsCleaning, UsedProofs]()
    failed_logins = Views[Absent, Absent, sign_ins.FailedLogins]()
    flows = Views[FlowsRead, Flows, FlowSteps]()
    identities = Views[IdentitiesRead, Identities, Absent]()
    impersonations = Views[ImpersonationsRead, Impersonations, Absent]()
    kept_forms = Views[sign_ins.KeptFormsRead, sign_ins.KeptForms, Absent]()
    logins = Views[Absent, sign_ins.Logins, Absent]()
    oauth_credentials = Views[OAuthCredentialsRead, OAuthCredentials, Absent]()
    openid_facts = Views[OpenIdFactsRead, OpenIdFacts, Absent]()
    organization_sessions = Views[OrganizationSessionsRead, OrganizationSessions, Absent]()
    personal_tokens = Views[PersonalTokensRead, PersonalTokens, PersonalTokenUse]()
    policy_passes = Views[sign_ins.PolicyPassesRead, sign_ins.PolicyPasses, sign_ins.PolicyPassUse]()
    reauthentications = Views[sign_ins.ReauthenticationsRead, sign_ins.Reauthentications, sign_ins.ReauthenticationCodeAttempts]()
    recoveries = Views[sign_ins.RecoveriesRead, sign_ins.Recoveries, sign_ins.RecoveryAttempts]()
    refresh_tokens = Views[RefreshTokensRead, RefreshTokens, RefreshTokenRotation]()
    sent_forms = Views[sign_ins.SentFormsRead, sign_ins.SentForms, Absent]()
    session_contexts = Views[SessionContextsRead, SessionContextsRead, Absent]()
    session_sign_ins = Views[SessionSignInsRead, SessionSignIns, Absent]()
    sessions = Views[SessionsRead, Sessions, Absent]()
    sign_in_log = Views[sign_ins.SignInLogRead, Absent, Absent]()
    signing_keys = Views[SigningKeysRead, SigningKeys, Absent]()
    # federation
    authorization_codes = Views[Absent, oauth.AuthorizationCodes, oauth.AuthorizationCodeUse]()
    client_assertions = Views[Absent, Absent, oauth.UsedAssertions]()
    connections = Views[OrganizationConnectionsRead, OrganizationConnections, Absent]()
    connection_healths = Views[ConnectionHealthsRead, ConnectionHealths, Absent]()
    connection_identities = Views[ConnectionIdentitiesRead, ConnectionIdentities, Absent]()
    connection_keys = Views[ConnectionKeysRead, ConnectionKeys, Absent]()
    connection_logins = Views[ConnectionLoginsRead, ConnectionLogins, Absent]()
    consents = Views[oauth.ConsentsRead, oauth.Consents, Absent]()
    external_grants = Views[oauth.ExternalGrantsRead, oauth.ExternalGrants, Absent]()
    device_codes = Views[oauth.DeviceCodesRead, oauth.DeviceCodes, oauth.DevicePolls]()
    external_clients = Views[oauth.ExternalClientsRead, oauth.ExternalClients, Absent]()
    pushed_requests = Views[oauth.PushedRequestsRead, oauth.PushedRequests, oauth.PushedRequestUses]()
    saml = Views[SamlRead, Saml, Absent]()
    saml_logouts = Views[Absent, SamlLogouts, Absent]()
    saml_sign_ons = Views[SamlSignOnsRead, SamlSignOns, SamlSignOnStarts]()
    # provisioning
    directory_blocks = Views[provisioning.DirectoryBlocksRead, provisioning.DirectoryBlocks, Absent]()
    scim_requests = Views[provisioning.ScimRequestsRead, Absent, provisioning.ScimRequests]()
    scim_tokens = Views[provisioning.ScimTokensRead, provisioning.ScimTokens, Absent]()
    scim_users = Views[provisioning.ScimUsersRead, provisioning.ScimUsers, Absent]()
    # setup
    setup_links = Views[setup.SetupLinksRead, setup.SetupLinks, setup.SetupLinksAutocommit]()
    # eventing
    audit = Views[eventing.AuditRead, eventing.Audit, eventing.AuditOutcomes]()
    deliveries = Views[eventing.DeliveriesRead, eventing.Deliveries, Absent]()
    logout_notices = Views[Absent, eventing.LogoutNotices, Absent]()
    siem = Views[eventing.SiemRead, eventing.Siem, Absent]()
    webhooks = Views[eventing.WebhooksRead, eventing.Webhooks, Absent]()
    # maintenance
    housekeeping = Views[Absent, maintenance.Housekeeping, Absent]()
    leases = Views[Absent, maintenance.Leases, Absent]()
    # kernel
    rates = Views[Absent, Rates, Rates]()
    # several areas
    account_logs = Views[AccountLogsRead, Absent, Absent]()
    expiring_secrets = Views[Absent, maintenance.ExpiringSecrets, Absent]()
    personal_data = Views[PersonalDataRead, Absent, Absent]()
    privacy = Views[PrivacyRead, Privacy, Absent]()
    sealed = Views[Absent, maintenance.SealedColumns, Absent]()


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

"""The repositories, and the three kinds of blocks that show their own views: readings, transactions and autocommit."""

from typing import Any, Generic, Never, Protocol, TypeAlias, TypeVar, overload

from core.kernel.callers import Person
from core.kernel.event_catalog import Event
from ports.storage import billing as billing_views
from ports.storage import eventing, maintenance, programs, provisioning, setup
from ports.storage import privacy as privacy_views
from ports.storage.accounts import accounts as account_views
from ports.storage.accounts import emails, security
from ports.storage.accounts import passkeys as passkey_views
from ports.storage.applications import authorization, users
from ports.storage.applications import services as service_views
from ports.storage.authentication import credentials as credential_views
from ports.storage.authentication import flows as flow_views
from ports.storage.authentication import sessions as session_views
from ports.storage.authentication import sign_ins
from ports.storage.federation import connections as connection_views
from ports.storage.federation import oauth
from ports.storage.federation import saml as saml_views
from ports.storage.kernel import Rates
from ports.storage.tenancy import groups as group_views
from ports.storage.tenancy import organizations as organization_views
from ports.storage.tenancy import settings
from ports.storage.tenancy import sign_in_policies as policy_views

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
    accounts = Views[account_views.AccountsRead, account_views.Accounts, Absent]()
    devices = Views[security.DevicesRead, security.Devices, Absent]()
    attempt_limits = Views[Absent, security.AttemptReset, security.AttemptLimits]()
    email_changes = Views[account_views.EmailChangesRead, account_views.EmailChanges, Absent]()
    security_notices = Views[security.SecurityNoticesRead, security.SecurityNotices, Absent]()
    email_queue = Views[Absent, emails.EmailQueue, emails.EmailLeases]()
    images = Views[account_views.ImagesRead, account_views.Images, Absent]()
    mfa = Views[security.MfaRead, security.Mfa, security.MfaLog]()
    one_time_tokens = Views[account_views.OneTimeTokensRead, account_views.OneTimeTokens, Absent]()
    passkeys = Views[passkey_views.PasskeysRead, passkey_views.Passkeys, Absent]()
    platform = Views[account_views.PlatformRead, Absent, Absent]()
    platform_users = Views[account_views.PlatformUsersRead, Absent, Absent]()
    # tenancy
    branding = Views[settings.BrandingRead, settings.Branding, Absent]()
    domains = Views[settings.DomainsRead, settings.Domains, Absent]()
    groups = Views[group_views.GroupsRead, group_views.Groups, Absent]()
    group_roles = Views[group_views.GroupRolesRead, group_views.GroupRoles, Absent]()
    home_realm = Views[settings.HomeRealmRead, settings.HomeRealm, Absent]()
    invitations = Views[organization_views.InvitationsRead, organization_views.Invitations, Absent]()
    members = Views[organization_views.MembersRead, organization_views.Members, organization_views.Confirmations]()
    organizations = Views[organization_views.OrganizationsRead, organization_views.Organizations, Absent]()
    roles = Views[group_views.RolesRead, group_views.Roles, Absent]()
    attributes = Views[settings.AttributesRead, settings.Attributes, Absent]()
    sign_in_policies = Views[policy_views.SignInPoliciesRead, policy_views.SignInPolicies, Absent]()
    smtp = Views[settings.SmtpRead, settings.Smtp, Absent]()
    tiers = Views[organization_views.TiersRead, organization_views.Tiers, Absent]()
    # applications
    analytics = Views[users.AnalyticsRead, Absent, Absent]()
    api_keys = Views[service_views.ApiKeysRead, service_views.ApiKeys, service_views.ApiKeyUse]()
    assignments = Views[users.AssignmentsRead, users.Assignments, Absent]()
    authorizations = Views[authorization.AuthorizationsRead, authorization.Authorizations, Absent]()
    evaluations = Views[authorization.EvaluationsRead, Absent, Absent]()
    end_users = Views[users.EndUsersRead, users.EndUsers, Absent]()
    figure_counting = Views[Absent, users.FigureCounting, Absent]()
    figures = Views[users.FiguresRead, Absent, Absent]()
    overview = Views[users.OverviewRead, Absent, Absent]()
    own_applications = Views[users.OwnApplications, Absent, Absent]()
    plans = Views[service_views.PlansRead, service_views.Plans, Absent]()
    role_assignments = Views[authorization.RoleAssignmentsRead, authorization.RoleAssignments, Absent]()
    access_reasons = Views[authorization.AccessReasonsRead, Absent, Absent]()
    service_claims = Views[service_views.ServiceClaimsRead, service_views.ServiceClaims, Absent]()
    service_users = Views[users.ServiceUsersRead, users.ServiceUsers, Absent]()
    services = Views[service_views.ServicesRead, service_views.Services, service_views.ClientCharges]()
    # programs
    api_resources = Views[programs.ApiResourcesRead, programs.ApiResources, Absent]()
    created_secrets = Views[programs.CreatedSecretsRead, programs.CreatedSecrets, Absent]()
    registration_tokens = Views[programs.RegistrationTokensRead, programs.RegistrationTokens, Absent]()
    credentials = Views[programs.CredentialsRead, programs.Credentials, Absent]()
    program_clients = Views[programs.ProgramClientsRead, Absent, programs.ProgramClients]()
    service_accounts = Views[programs.ServiceAccountsRead, programs.ServiceAccounts, Absent]()
    # billing
    billing = Views[Absent, billing_views.Billing, Absent]()
    cancellations = Views[Absent, billing_views.Cancellations, Absent]()
    checkouts = Views[Absent, billing_views.Checkouts, Absent]()
    customers = Views[billing_views.CustomersRead, billing_views.Customers, Absent]()
    subscriptions = Views[billing_views.SubscriptionsRead, billing_views.Subscriptions, Absent]()
    # authentication
    dpop_proofs = Views[Absent, credential_views.UsedProofsCleaning, credential_views.UsedProofs]()
    failed_logins = Views[Absent, Absent, sign_ins.FailedLogins]()
    flows = Views[flow_views.FlowsRead, flow_views.Flows, flow_views.FlowSteps]()
    identities = Views[credential_views.IdentitiesRead, credential_views.Identities, Absent]()
    impersonations = Views[session_views.ImpersonationsRead, session_views.Impersonations, Absent]()
    kept_forms = Views[sign_ins.KeptFormsRead, sign_ins.KeptForms, Absent]()
    logins = Views[Absent, sign_ins.Logins, Absent]()
    oauth_credentials = Views[credential_views.OAuthCredentialsRead, credential_views.OAuthCredentials, Absent]()
    openid_facts = Views[session_views.OpenIdFactsRead, session_views.OpenIdFacts, Absent]()
    organization_sessions = Views[session_views.OrganizationSessionsRead, session_views.OrganizationSessions, Absent]()
    personal_tokens = Views[credential_views.PersonalTokensRead, credential_views.PersonalTokens, credential_views.PersonalTokenUse]()
    policy_passes = Views[sign_ins.PolicyPassesRead, sign_ins.PolicyPasses, sign_ins.PolicyPassUse]()
    reauthentications = Views[sign_ins.ReauthenticationsRead, sign_ins.Reauthentications, sign_ins.ReauthenticationCodeAttempts]()
    recoveries = Views[sign_ins.RecoveriesRead, sign_ins.Recoveries, sign_ins.RecoveryAttempts]()
    refresh_tokens = Views[session_views.RefreshTokensRead, session_views.RefreshTokens, session_views.RefreshTokenRotation]()
    sent_forms = Views[sign_ins.SentFormsRead, sign_ins.SentForms, Absent]()
    session_contexts = Views[session_views.SessionContextsRead, session_views.SessionContextsRead, Absent]()
    session_sign_ins = Views[session_views.SessionSignInsRead, session_views.SessionSignIns, Absent]()
    sessions = Views[session_views.SessionsRead, session_views.Sessions, Absent]()
    sign_in_log = Views[sign_ins.SignInLogRead, Absent, Absent]()
    signing_keys = Views[credential_views.SigningKeysRead, credential_views.SigningKeys, Absent]()
    # federation
    authorization_codes = Views[Absent, oauth.AuthorizationCodes, oauth.AuthorizationCodeUse]()
    client_assertions = Views[Absent, Absent, oauth.UsedAssertions]()
    connections = Views[connection_views.OrganizationConnectionsRead, connection_views.OrganizationConnections, Absent]()
    connection_healths = Views[connection_views.ConnectionHealthsRead, connection_views.ConnectionHealths, Absent]()
    connection_identities = Views[connection_views.ConnectionIdentitiesRead, connection_views.ConnectionIdentities, Absent]()
    connection_keys = Views[connection_views.ConnectionKeysRead, connection_views.ConnectionKeys, Absent]()
    connection_logins = Views[connection_views.ConnectionLoginsRead, connection_views.ConnectionLogins, Absent]()
    consents = Views[oauth.ConsentsRead, oauth.Consents, Absent]()
    external_grants = Views[oauth.ExternalGrantsRead, oauth.ExternalGrants, Absent]()
    device_codes = Views[oauth.DeviceCodesRead, oauth.DeviceCodes, oauth.DevicePolls]()
    external_clients = Views[oauth.ExternalClientsRead, oauth.ExternalClients, Absent]()
    pushed_requests = Views[oauth.PushedRequestsRead, oauth.PushedRequests, oauth.PushedRequestUses]()
    saml = Views[saml_views.SamlRead, saml_views.Saml, Absent]()
    saml_logouts = Views[Absent, saml_views.SamlLogouts, Absent]()
    saml_sign_ons = Views[saml_views.SamlSignOnsRead, saml_views.SamlSignOns, saml_views.SamlSignOnStarts]()
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
    account_logs = Views[privacy_views.AccountLogsRead, Absent, Absent]()
    expiring_secrets = Views[Absent, maintenance.ExpiringSecrets, Absent]()
    personal_data = Views[privacy_views.PersonalDataRead, Absent, Absent]()
    privacy = Views[privacy_views.PrivacyRead, privacy_views.Privacy, Absent]()
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

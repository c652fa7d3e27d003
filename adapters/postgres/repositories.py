"""The repositories for all areas."""

from typing import Any, Generic, Protocol, TypeVar

from adapters.postgres.accounts.accounts import Accounts, EmailChanges
from adapters.postgres.accounts.attempt_limits import AttemptLimits
from adapters.postgres.accounts.devices import Devices
from adapters.postgres.accounts.email_queue import EmailQueue, OneTimeTokens
from adapters.postgres.accounts.images import Images
from adapters.postgres.accounts.mfa import Mfa
from adapters.postgres.accounts.passkeys import Passkeys
from adapters.postgres.accounts.platform_users import Platform, PlatformUsers
from adapters.postgres.accounts.security_notices import SecurityNotices
from adapters.postgres.applications.access_reasons import AccessReasons
from adapters.postgres.applications.analytics import Analytics, OrganizationOverview
from adapters.postgres.applications.api_keys import ApiKeys
from adapters.postgres.applications.assignments import Assignments
from adapters.postgres.applications.authorization import Authorizations
from adapters.postgres.applications.end_users import EndUsers
from adapters.postgres.applications.evaluations import Evaluations
from adapters.postgres.applications.figures import FigureCounting, Figures
from adapters.postgres.applications.plans import Plans
from adapters.postgres.applications.role_assignments import RoleAssignments
from adapters.postgres.applications.service_access import OwnApplications
from adapters.postgres.applications.service_users import ServiceUsers
from adapters.postgres.applications.services import ServiceClaims, Services
from adapters.postgres.authentication import forms
from adapters.postgres.authentication.challenges import Flows
from adapters.postgres.authentication.dpop import UsedProofs
from adapters.postgres.authentication.identities import Identities
from adapters.postgres.authentication.logins import FailedLogins, Logins
from adapters.postgres.authentication.oauth_credentials import OAuthCredentials
from adapters.postgres.authentication.openid import OpenIdFacts
from adapters.postgres.authentication.personal_tokens import PersonalTokens
from adapters.postgres.authentication.policy_passes import PolicyPasses
from adapters.postgres.authentication.recoveries import Recoveries
from adapters.postgres.authentication.refresh_tokens import RefreshTokens
from adapters.postgres.authentication.session_contexts import Impersonations, SessionContexts
from adapters.postgres.authentication.session_sign_ins import SessionSignIns
from adapters.postgres.authentication.sessions import OrganizationSessions, Sessions
from adapters.postgres.authentication.sign_in_log import SignInLog
from adapters.postgres.authentication.signing_keys import SigningKeys
from adapters.postgres.billing.checkouts import Checkouts, Customers
from adapters.postgres.billing.facts import Billing
from adapters.postgres.billing.subscriptions import Cancellations, Subscriptions
from adapters.postgres.engine.statements import Scope
from adapters.postgres.eventing.audit import Audit
from adapters.postgres.eventing.deliveries import Deliveries, LogoutNotices
from adapters.postgres.eventing.siem import Siem
from adapters.postgres.eventing.webhooks import Webhooks
from adapters.postgres.expiring_secrets import ExpiringSecrets
from adapters.postgres.federation.connections.connections import ConnectionKeys, OrganizationConnections
from adapters.postgres.federation.connections.health import ConnectionHealths
from adapters.postgres.federation.connections.identities import ConnectionIdentities
from adapters.postgres.federation.connections.logins import ConnectionLogins
from adapters.postgres.federation.oauth import authorization
from adapters.postgres.federation.oauth.authorization import UsedAssertions
from adapters.postgres.federation.oauth.consents import Consents, ExternalGrants
from adapters.postgres.federation.oauth.device_flow import DeviceCodes
from adapters.postgres.federation.oauth.external_clients import ExternalClients
from adapters.postgres.federation.saml.configuration import Saml
from adapters.postgres.federation.saml.logout import SamlLogouts
from adapters.postgres.federation.saml.sign_on import SamlSignOns
from adapters.postgres.kernel.rate_limits import Rates
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases
from adapters.postgres.personal_data import AccountLogs, PersonalData
from adapters.postgres.privacy import Privacy
from adapters.postgres.programs.api_resources import ApiResources
from adapters.postgres.programs.created_secrets import CreatedSecrets
from adapters.postgres.programs.credentials import Credentials, ProgramClients
from adapters.postgres.programs.registration_tokens import RegistrationTokens
from adapters.postgres.programs.service_accounts import ServiceAccounts
from adapters.postgres.provisioning import tokens
from adapters.postgres.provisioning.blocks import DirectoryBlocks
from adapters.postgres.provisioning.users import ScimUsers
from adapters.postgres.sealed_columns import SealedColumns
from adapters.postgres.setup.links import SetupLinks
from adapters.postgres.tenancy.attributes import Attributes
from adapters.postgres.tenancy.domains import Domains, HomeRealm
from adapters.postgres.tenancy.groups import GroupRoles, Groups
from adapters.postgres.tenancy.invitations import Invitations
from adapters.postgres.tenancy.members import Members
from adapters.postgres.tenancy.organizations import Organizations, Tiers
from adapters.postgres.tenancy.roles import Roles
from adapters.postgres.tenancy.settings import Branding, Smtp
from adapters.postgres.tenancy.sign_in_policies import SignInPolicies
from ports.storage import repositories
from ports.storage.repositories import Repositories as Port

T = TypeVar("T")
Class_contra = TypeVar("Class_contra", contravariant=True)


class Accepts(Protocol[Class_contra]):
    """A line in the port (`ports.storage.repositories.Views`) that this class implements."""

    def accept(self, create: Class_contra, /) -> None: ...


class Kept(Generic[T]):
    """A repository of this class. The repository is created at its first use, like `functools.cached_property`, but without its lock."""

    def __init__(self, _: Accepts[type[T]], create: type[T]) -> None:
        self.implementation: Any = create

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _: type | None = None) -> T:
        value: T = self.implementation(owner)
        owner.__dict__[self._name] = value
        return value


class Repositories(Scope, repositories.Reading, repositories.Autocommit):
    """All repositories on a single connection.

    A repository is created at its first use, and then kept. A request uses two or three repositories, so creating all
    repositories for every request would cost more than the queries' own Python code.
    """

    # accounts
    accounts = Kept(Port.accounts, Accounts)
    devices = Kept(Port.devices, Devices)
    attempt_limits = Kept(Port.attempt_limits, AttemptLimits)
    email_changes = Kept(Port.email_changes, EmailChanges)
    security_notices = Kept(Port.security_notices, SecurityNotices)
    email_queue = Kept(Port.email_queue, EmailQueue)
    images = Kept(Port.images, Images)
    mfa = Kept(Port.mfa, Mfa)
    one_time_tokens = Kept(Port.one_time_tokens, OneTimeTokens)
    passkeys = Kept(Port.passkeys, Passkeys)
    platform = Kept(Port.platform, Platform)
    platform_users = Kept(Port.platform_users, PlatformUsers)
    # tenancy
    branding = Kept(Port.branding, Branding)
    domains = Kept(Port.domains, Domains)
    groups = Kept(Port.groups, Groups)
    group_roles = Kept(Port.group_roles, GroupRoles)
    home_realm = Kept(Port.home_realm, HomeRealm)
    invitations = Kept(Port.invitations, Invitations)
    members = Kept(Port.members, Members)
    organizations = Kept(Port.organizations, Organizations)
    roles = Kept(Port.roles, Roles)
    attributes = Kept(Port.attributes, Attributes)
    sign_in_policies = Kept(Port.sign_in_policies, SignInPolicies)
    smtp = Kept(Port.smtp, Smtp)
    tiers = Kept(Port.tiers, Tiers)
    # applications
    analytics = Kept(Port.analytics, Analytics)
    api_keys = Kept(Port.api_keys, ApiKeys)
    assignments = Kept(Port.assignments, Assignments)
    authorizations = Kept(Port.authorizations, Authorizations)
    evaluations = Kept(Port.evaluations, Evaluations)
    end_users = Kept(Port.end_users, EndUsers)
    figure_counting = Kept(Port.figure_counting, FigureCounting)
    figures = Kept(Port.figures, Figures)
    overview = Kept(Port.overview, OrganizationOverview)
    own_applications = Kept(Port.own_applications, OwnApplications)
    plans = Kept(Port.plans, Plans)
    role_assignments = Kept(Port.role_assignments, RoleAssignments)
    access_reasons = Kept(Port.access_reasons, AccessReasons)
    service_claims = Kept(Port.service_claims, ServiceClaims)
    service_users = Kept(Port.service_users, ServiceUsers)
    services = Kept(Port.services, Services)
    # programs
    api_resources = Kept(Port.api_resources, ApiResources)
    created_secrets = Kept(Port.created_secrets, CreatedSecrets)
    registration_tokens = Kept(Port.registration_tokens, RegistrationTokens)
    credentials = Kept(Port.credentials, Credentials)
    program_clients = Kept(Port.program_clients, ProgramClients)
    service_accounts = Kept(Port.service_accounts, ServiceAccounts)
    # billing
    billing = Kept(Port.billing, Billing)
    cancellations = Kept(Port.cancellations, Cancellations)
    checkouts = Kept(Port.checkouts, Checkouts)
    customers = Kept(Port.customers, Customers)
    subscriptions = Kept(Port.subscriptions, Subscriptions)
    # authentication
    dpop_proofs = Kept(Port.dpop_proofs, UsedProofs)
    failed_logins = Kept(Port.failed_logins, FailedLogins)
    flows = Kept(Port.flows, Flows)
    identities = Kept(Port.identities, Identities)
    impersonations = Kept(Port.impersonations, Impersonations)
    kept_forms = Kept(Port.kept_forms, forms.KeptForms)
    logins = Kept(Port.logins, Logins)
    oauth_credentials = Kept(Port.oauth_credentials, OAuthCredentials)
    openid_facts = Kept(Port.openid_facts, OpenIdFacts)
    organization_sessions = Kept(Port.organization_sessions, OrganizationSessions)
    personal_tokens = Kept(Port.personal_tokens, PersonalTokens)
    policy_passes = Kept(Port.policy_passes, PolicyPasses)
    reauthentications = Kept(Port.reauthentications, forms.Reauthentications)
    recoveries = Kept(Port.recoveries, Recoveries)
    refresh_tokens = Kept(Port.refresh_tokens, RefreshTokens)
    sent_forms = Kept(Port.sent_forms, forms.SentForms)
    session_contexts = Kept(Port.session_contexts, SessionContexts)
    session_sign_ins = Kept(Port.session_sign_ins, SessionSignIns)
    sessions = Kept(Port.sessions, Sessions)
    sign_in_log = Kept(Port.sign_in_log, SignInLog)
    signing_keys = Kept(Port.signing_keys, SigningKeys)
    # federation
    authorization_codes = Kept(Port.authorization_codes, authorization.AuthorizationCodes)
    client_assertions = Kept(Port.client_assertions, UsedAssertions)
    connections = Kept(Port.connections, OrganizationConnections)
    connection_healths = Kept(Port.connection_healths, ConnectionHealths)
    connection_identities = Kept(Port.connection_identities, ConnectionIdentities)
    connection_keys = Kept(Port.connection_keys, ConnectionKeys)
    connection_logins = Kept(Port.connection_logins, ConnectionLogins)
    consents = Kept(Port.consents, Consents)
    external_grants = Kept(Port.external_grants, ExternalGrants)
    device_codes = Kept(Port.device_codes, DeviceCodes)
    external_clients = Kept(Port.external_clients, ExternalClients)
    pushed_requests = Kept(Port.pushed_requests, authorization.PushedRequests)
    saml = Kept(Port.saml, Saml)
    saml_logouts = Kept(Port.saml_logouts, SamlLogouts)
    saml_sign_ons = Kept(Port.saml_sign_ons, SamlSignOns)
    # provisioning
    directory_blocks = Kept(Port.directory_blocks, DirectoryBlocks)
    scim_requests = Kept(Port.scim_requests, tokens.ScimRequests)
    scim_tokens = Kept(Port.scim_tokens, tokens.ScimTokens)
    scim_users = Kept(Port.scim_users, ScimUsers)
    # setup
    setup_links = Kept(Port.setup_links, SetupLinks)
    # eventing
    audit = Kept(Port.audit, Audit)
    deliveries = Kept(Port.deliveries, Deliveries)
    logout_notices = Kept(Port.logout_notices, LogoutNotices)
    siem = Kept(Port.siem, Siem)
    webhooks = Kept(Port.webhooks, Webhooks)
    # maintenance
    housekeeping = Kept(Port.housekeeping, Housekeeping)
    leases = Kept(Port.leases, Leases)
    # kernel
    rates = Kept(Port.rates, Rates)
    # several areas
    account_logs = Kept(Port.account_logs, AccountLogs)
    expiring_secrets = Kept(Port.expiring_secrets, ExpiringSecrets)
    personal_data = Kept(Port.personal_data, PersonalData)
    privacy = Kept(Port.privacy, Privacy)
    sealed = Kept(Port.sealed, SealedColumns)

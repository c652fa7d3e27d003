"""The repositories of all areas."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from adapters.postgres.account_logs import AccountLogs
from adapters.postgres.accounts.accounts import Accounts
from adapters.postgres.accounts.attempt_limits import AttemptLimits
from adapters.postgres.accounts.devices import Devices
from adapters.postgres.accounts.email_changes import EmailChanges
from adapters.postgres.accounts.email_queue import EmailQueue
from adapters.postgres.accounts.images import Images
from adapters.postgres.accounts.mfa import Mfa
from adapters.postgres.accounts.one_time_tokens import OneTimeTokens
from adapters.postgres.accounts.passkeys import Passkeys
from adapters.postgres.accounts.platform import Platform
from adapters.postgres.accounts.platform_users import PlatformUsers
from adapters.postgres.accounts.security_notices import SecurityNotices
from adapters.postgres.applications.access_reasons import AccessReasons
from adapters.postgres.applications.analytics import Analytics
from adapters.postgres.applications.api_keys import ApiKeys
from adapters.postgres.applications.assignments import Assignments
from adapters.postgres.applications.authorization import Authorizations
from adapters.postgres.applications.claims import ServiceClaims
from adapters.postgres.applications.end_users import EndUsers
from adapters.postgres.applications.evaluations import Evaluations
from adapters.postgres.applications.figure_counting import FigureCounting
from adapters.postgres.applications.figures import Figures
from adapters.postgres.applications.overview import OrganizationOverview
from adapters.postgres.applications.own_applications import OwnApplications
from adapters.postgres.applications.plans import Plans
from adapters.postgres.applications.role_assignments import RoleAssignments
from adapters.postgres.applications.service_users import ServiceUsers
from adapters.postgres.applications.services import Services
from adapters.postgres.authentication.challenges import Flows
from adapters.postgres.authentication.dpop import UsedProofs
from adapters.postgres.authentication.failed_logins import FailedLogins
from adapters.postgres.authentication.forms import KeptForms, SentForms
from adapters.postgres.authentication.identities import Identities
from adapters.postgres.authentication.impersonations import Impersonations
from adapters.postgres.authentication.logins import Logins
from adapters.postgres.authentication.oauth_credentials import OAuthCredentials
from adapters.postgres.authentication.openid_facts import OpenIdFacts
from adapters.postgres.authentication.organization_sessions import OrganizationSessions
from adapters.postgres.authentication.personal_tokens import PersonalTokens
from adapters.postgres.authentication.policy_passes import PolicyPasses
from adapters.postgres.authentication.reauthentications import Reauthentications
from adapters.postgres.authentication.recoveries import Recoveries
from adapters.postgres.authentication.refresh_tokens import RefreshTokens
from adapters.postgres.authentication.session_contexts import SessionContexts
from adapters.postgres.authentication.session_sign_ins import SessionSignIns
from adapters.postgres.authentication.sessions import Sessions
from adapters.postgres.authentication.sign_in_log import SignInLog
from adapters.postgres.authentication.signing_keys import SigningKeys
from adapters.postgres.billing.cancellations import Cancellations
from adapters.postgres.billing.checkouts import Checkouts
from adapters.postgres.billing.customers import Customers
from adapters.postgres.billing.facts import Billing
from adapters.postgres.billing.subscriptions import Subscriptions
from adapters.postgres.engine.scope import Scope
from adapters.postgres.eventing.audit import Audit
from adapters.postgres.eventing.deliveries import Deliveries
from adapters.postgres.eventing.logout_notices import LogoutNotices
from adapters.postgres.eventing.platform_log import PlatformLog
from adapters.postgres.eventing.siem import Siem
from adapters.postgres.eventing.webhooks import Webhooks
from adapters.postgres.expiring_secrets import ExpiringSecrets
from adapters.postgres.federation.connections.connections import OrganizationConnections
from adapters.postgres.federation.connections.health import ConnectionHealths
from adapters.postgres.federation.connections.identities import ConnectionIdentities
from adapters.postgres.federation.connections.keys import ConnectionKeys
from adapters.postgres.federation.connections.logins import ConnectionLogins
from adapters.postgres.federation.oauth.authorization import AuthorizationCodes
from adapters.postgres.federation.oauth.client_assertions import UsedAssertions
from adapters.postgres.federation.oauth.consents import Consents
from adapters.postgres.federation.oauth.device_flow import DeviceCodes
from adapters.postgres.federation.oauth.external_clients import ExternalClients
from adapters.postgres.federation.oauth.external_grants import ExternalGrants
from adapters.postgres.federation.oauth.pushed_requests import PushedRequests
from adapters.postgres.federation.saml.configuration import Saml
from adapters.postgres.federation.saml.logout import SamlLogouts
from adapters.postgres.federation.saml.sign_on import SamlSignOns
from adapters.postgres.kernel.rate_limits import Rates
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases
from adapters.postgres.personal_data import PersonalData
from adapters.postgres.privacy import Privacy
from adapters.postgres.programs.api_resources import ApiResources
from adapters.postgres.programs.created_secrets import CreatedSecrets
from adapters.postgres.programs.credentials import Credentials
from adapters.postgres.programs.program_clients import ProgramClients
from adapters.postgres.programs.registration_tokens import RegistrationTokens
from adapters.postgres.programs.service_accounts import ServiceAccounts
from adapters.postgres.provisioning.blocks import DirectoryBlocks
from adapters.postgres.provisioning.request_log import ScimRequests
from adapters.postgres.provisioning.tokens import ScimTokens
from adapters.postgres.provisioning.users import ScimUsers
from adapters.postgres.sealed_columns import SealedColumns
from adapters.postgres.setup.links import SetupLinks
from adapters.postgres.tenancy.attributes import Attributes
from adapters.postgres.tenancy.branding import Branding
from adapters.postgres.tenancy.domains import Domains
from adapters.postgres.tenancy.group_roles import GroupRoles
from adapters.postgres.tenancy.groups import Groups
from adapters.postgres.tenancy.home_realm import HomeRealm
from adapters.postgres.tenancy.invitations import Invitations
from adapters.postgres.tenancy.mail_server import Smtp
from adapters.postgres.tenancy.members import Members
from adapters.postgres.tenancy.organizations import Organizations
from adapters.postgres.tenancy.roles import Roles
from adapters.postgres.tenancy.sign_in_policies import SignInPolicies
from adapters.postgres.tenancy.tiers import Tiers

T = TypeVar("T")


class Kept(Generic[T]):
    """A value that is created at its first use, like `functools.cached_property`, but without its lock, which costs more than the rest."""

    def __init__(self, create: Callable[[Any], T]) -> None:
        self._create = create

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _: type | None = None) -> T:
        value = self._create(owner)
        owner.__dict__[self._name] = value
        return value


class Repositories(Scope):
    """All repositories on one connection. The ports Reading, Transaction and Autocommit each show a part of them.

    A repository is created at its first use, and then kept. A request uses two or three of them, so creating
    all of them for each request would cost more than the queries' own Python code.
    """

    # accounts
    accounts = Kept(Accounts)
    devices = Kept(Devices)
    attempt_limits = Kept(AttemptLimits)
    email_changes = Kept(EmailChanges)
    security_notices = Kept(SecurityNotices)
    email_queue = Kept(EmailQueue)
    images = Kept(Images)
    mfa = Kept(Mfa)
    one_time_tokens = Kept(OneTimeTokens)
    passkeys = Kept(Passkeys)
    platform = Kept(Platform)
    platform_users = Kept(PlatformUsers)
    # tenancy
    branding = Kept(Branding)
    domains = Kept(Domains)
    groups = Kept(Groups)
    group_roles = Kept(GroupRoles)
    home_realm = Kept(HomeRealm)
    invitations = Kept(Invitations)
    members = Kept(Members)
    organizations = Kept(Organizations)
    roles = Kept(Roles)
    attributes = Kept(Attributes)
    sign_in_policies = Kept(SignInPolicies)
    smtp = Kept(Smtp)
    tiers = Kept(Tiers)
    # applications
    analytics = Kept(Analytics)
    api_keys = Kept(ApiKeys)
    assignments = Kept(Assignments)
    authorizations = Kept(Authorizations)
    evaluations = Kept(Evaluations)
    end_users = Kept(EndUsers)
    figure_counting = Kept(FigureCounting)
    figures = Kept(Figures)
    overview = Kept(OrganizationOverview)
    own_applications = Kept(OwnApplications)
    plans = Kept(Plans)
    role_assignments = Kept(RoleAssignments)
    access_reasons = Kept(AccessReasons)
    service_claims = Kept(ServiceClaims)
    service_users = Kept(ServiceUsers)
    services = Kept(Services)
    # programs
    api_resources = Kept(ApiResources)
    created_secrets = Kept(CreatedSecrets)
    registration_tokens = Kept(RegistrationTokens)
    credentials = Kept(Credentials)
    program_clients = Kept(ProgramClients)
    service_accounts = Kept(ServiceAccounts)
    # billing
    billing = Kept(Billing)
    cancellations = Kept(Cancellations)
    checkouts = Kept(Checkouts)
    customers = Kept(Customers)
    subscriptions = Kept(Subscriptions)
    # authentication
    dpop_proofs = Kept(UsedProofs)
    failed_logins = Kept(FailedLogins)
    flows = Kept(Flows)
    identities = Kept(Identities)
    impersonations = Kept(Impersonations)
    kept_forms = Kept(KeptForms)
    logins = Kept(Logins)
    oauth_credentials = Kept(OAuthCredentials)
    openid_facts = Kept(OpenIdFacts)
    organization_sessions = Kept(OrganizationSessions)
    personal_tokens = Kept(PersonalTokens)
    policy_passes = Kept(PolicyPasses)
    reauthentications = Kept(Reauthentications)
    recoveries = Kept(Recoveries)
    refresh_tokens = Kept(RefreshTokens)
    sent_forms = Kept(SentForms)
    session_contexts = Kept(SessionContexts)
    session_sign_ins = Kept(SessionSignIns)
    sessions = Kept(Sessions)
    sign_in_log = Kept(SignInLog)
    signing_keys = Kept(SigningKeys)
    # federation
    authorization_codes = Kept(AuthorizationCodes)
    client_assertions = Kept(UsedAssertions)
    connections = Kept(OrganizationConnections)
    connection_healths = Kept(ConnectionHealths)
    connection_identities = Kept(ConnectionIdentities)
    connection_keys = Kept(ConnectionKeys)
    connection_logins = Kept(ConnectionLogins)
    consents = Kept(Consents)
    external_grants = Kept(ExternalGrants)
    device_codes = Kept(DeviceCodes)
    external_clients = Kept(ExternalClients)
    pushed_requests = Kept(PushedRequests)
    saml = Kept(Saml)
    saml_logouts = Kept(SamlLogouts)
    saml_sign_ons = Kept(SamlSignOns)
    # provisioning
    directory_blocks = Kept(DirectoryBlocks)
    scim_requests = Kept(ScimRequests)
    scim_tokens = Kept(ScimTokens)
    scim_users = Kept(ScimUsers)
    # setup
    setup_links = Kept(SetupLinks)
    # eventing
    audit = Kept(Audit)
    deliveries = Kept(Deliveries)
    logout_notices = Kept(LogoutNotices)
    platform_log = Kept(PlatformLog)
    siem = Kept(Siem)
    webhooks = Kept(Webhooks)
    # maintenance
    housekeeping = Kept(Housekeeping)
    leases = Kept(Leases)
    # kernel
    rates = Kept(Rates)
    # several areas
    account_logs = Kept(AccountLogs)
    expiring_secrets = Kept(ExpiringSecrets)
    personal_data = Kept(PersonalData)
    privacy = Kept(Privacy)
    sealed = Kept(SealedColumns)

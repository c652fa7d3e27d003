"""The repositories of all areas."""

from functools import cached_property

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


class Repositories(Scope):
    """All repositories on one connection. The ports Reading, Transaction and Autocommit each show a part of them.

    A repository is created at its first use, and then kept. A request uses two or three of them, so creating
    all of them for each request would cost more than the queries' own Python code.
    """

    # accounts
    accounts = cached_property(Accounts)
    devices = cached_property(Devices)
    attempt_limits = cached_property(AttemptLimits)
    email_changes = cached_property(EmailChanges)
    security_notices = cached_property(SecurityNotices)
    email_queue = cached_property(EmailQueue)
    images = cached_property(Images)
    mfa = cached_property(Mfa)
    one_time_tokens = cached_property(OneTimeTokens)
    passkeys = cached_property(Passkeys)
    platform = cached_property(Platform)
    platform_users = cached_property(PlatformUsers)
    # tenancy
    branding = cached_property(Branding)
    domains = cached_property(Domains)
    groups = cached_property(Groups)
    group_roles = cached_property(GroupRoles)
    home_realm = cached_property(HomeRealm)
    invitations = cached_property(Invitations)
    members = cached_property(Members)
    organizations = cached_property(Organizations)
    roles = cached_property(Roles)
    attributes = cached_property(Attributes)
    sign_in_policies = cached_property(SignInPolicies)
    smtp = cached_property(Smtp)
    tiers = cached_property(Tiers)
    # applications
    analytics = cached_property(Analytics)
    api_keys = cached_property(ApiKeys)
    assignments = cached_property(Assignments)
    authorizations = cached_property(Authorizations)
    evaluations = cached_property(Evaluations)
    end_users = cached_property(EndUsers)
    figure_counting = cached_property(FigureCounting)
    figures = cached_property(Figures)
    overview = cached_property(OrganizationOverview)
    own_applications = cached_property(OwnApplications)
    plans = cached_property(Plans)
    role_assignments = cached_property(RoleAssignments)
    access_reasons = cached_property(AccessReasons)
    service_claims = cached_property(ServiceClaims)
    service_users = cached_property(ServiceUsers)
    services = cached_property(Services)
    # programs
    api_resources = cached_property(ApiResources)
    created_secrets = cached_property(CreatedSecrets)
    registration_tokens = cached_property(RegistrationTokens)
    credentials = cached_property(Credentials)
    program_clients = cached_property(ProgramClients)
    service_accounts = cached_property(ServiceAccounts)
    # billing
    billing = cached_property(Billing)
    cancellations = cached_property(Cancellations)
    checkouts = cached_property(Checkouts)
    customers = cached_property(Customers)
    subscriptions = cached_property(Subscriptions)
    # authentication
    dpop_proofs = cached_property(UsedProofs)
    failed_logins = cached_property(FailedLogins)
    flows = cached_property(Flows)
    identities = cached_property(Identities)
    impersonations = cached_property(Impersonations)
    kept_forms = cached_property(KeptForms)
    logins = cached_property(Logins)
    oauth_credentials = cached_property(OAuthCredentials)
    openid_facts = cached_property(OpenIdFacts)
    organization_sessions = cached_property(OrganizationSessions)
    personal_tokens = cached_property(PersonalTokens)
    policy_passes = cached_property(PolicyPasses)
    reauthentications = cached_property(Reauthentications)
    recoveries = cached_property(Recoveries)
    refresh_tokens = cached_property(RefreshTokens)
    sent_forms = cached_property(SentForms)
    session_contexts = cached_property(SessionContexts)
    session_sign_ins = cached_property(SessionSignIns)
    sessions = cached_property(Sessions)
    sign_in_log = cached_property(SignInLog)
    signing_keys = cached_property(SigningKeys)
    # federation
    authorization_codes = cached_property(AuthorizationCodes)
    client_assertions = cached_property(UsedAssertions)
    consents = cached_property(Consents)
    external_grants = cached_property(ExternalGrants)
    device_codes = cached_property(DeviceCodes)
    external_clients = cached_property(ExternalClients)
    pushed_requests = cached_property(PushedRequests)
    saml = cached_property(Saml)
    saml_logouts = cached_property(SamlLogouts)
    saml_sign_ons = cached_property(SamlSignOns)
    # provisioning
    directory_blocks = cached_property(DirectoryBlocks)
    scim_requests = cached_property(ScimRequests)
    scim_tokens = cached_property(ScimTokens)
    scim_users = cached_property(ScimUsers)
    # eventing
    audit = cached_property(Audit)
    deliveries = cached_property(Deliveries)
    logout_notices = cached_property(LogoutNotices)
    platform_log = cached_property(PlatformLog)
    siem = cached_property(Siem)
    webhooks = cached_property(Webhooks)
    # maintenance
    housekeeping = cached_property(Housekeeping)
    leases = cached_property(Leases)
    # kernel
    rates = cached_property(Rates)
    # several areas
    account_logs = cached_property(AccountLogs)
    expiring_secrets = cached_property(ExpiringSecrets)
    personal_data = cached_property(PersonalData)
    privacy = cached_property(Privacy)
    sealed = cached_property(SealedColumns)

"""The port of statements that each commit by themselves."""

from typing import Protocol

from ports.storage.accounts.emails import EmailLeases
from ports.storage.accounts.security import AttemptLimits, MfaLog
from ports.storage.applications.services import ApiKeyUse, ClientCharges
from ports.storage.authentication.credentials import PersonalTokenUse, UsedProofs
from ports.storage.authentication.flows import FlowSteps
from ports.storage.authentication.policies import PolicyPassUse
from ports.storage.authentication.recoveries import RecoveryAttempts
from ports.storage.authentication.sessions import RefreshTokenRotation
from ports.storage.authentication.sign_ins import FailedLogins, ReauthenticationCodeAttempts
from ports.storage.eventing import AuditOutcomes
from ports.storage.federation.oauth import AuthorizationCodeUse, DevicePolls, PushedRequestUses, UsedAssertions
from ports.storage.federation.saml import SamlSignOnStarts
from ports.storage.kernel import Rates
from ports.storage.programs import ProgramClients
from ports.storage.provisioning import ScimRequests
from ports.storage.setup import SetupLinksAutocommit
from ports.storage.tenancy.organizations import Confirmations


class Autocommit(Protocol):
    """Statements that each commit by themselves.

    Use it for a use case with a single change, and for changes that must stay after a refusal, such
    as counters of attempts.
    """

    # accounts
    @property
    def attempt_limits(self) -> AttemptLimits: ...
    @property
    def email_queue(self) -> EmailLeases: ...
    @property
    def mfa(self) -> MfaLog: ...
    # tenancy
    @property
    def members(self) -> Confirmations: ...
    # applications
    @property
    def services(self) -> ClientCharges: ...
    @property
    def api_keys(self) -> ApiKeyUse: ...
    # programs
    @property
    def program_clients(self) -> ProgramClients: ...
    # authentication
    @property
    def dpop_proofs(self) -> UsedProofs: ...
    @property
    def failed_logins(self) -> FailedLogins: ...
    @property
    def flows(self) -> FlowSteps: ...
    @property
    def personal_tokens(self) -> PersonalTokenUse: ...
    @property
    def policy_passes(self) -> PolicyPassUse: ...
    @property
    def reauthentications(self) -> ReauthenticationCodeAttempts: ...
    @property
    def recoveries(self) -> RecoveryAttempts: ...
    @property
    def refresh_tokens(self) -> RefreshTokenRotation: ...
    # federation
    @property
    def authorization_codes(self) -> AuthorizationCodeUse: ...
    @property
    def client_assertions(self) -> UsedAssertions: ...
    @property
    def device_codes(self) -> DevicePolls: ...
    @property
    def pushed_requests(self) -> PushedRequestUses: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnStarts: ...
    # provisioning
    @property
    def scim_requests(self) -> ScimRequests: ...
    # setup
    @property
    def setup_links(self) -> SetupLinksAutocommit: ...
    # eventing
    @property
    def audit(self) -> AuditOutcomes: ...
    # kernel
    @property
    def rates(self) -> Rates: ...

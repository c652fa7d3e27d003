"""Storage of sessions, logins, pending sign-ins, signing keys, linked identities and OAuth credentials."""

from typing import Protocol

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
    ReauthenticationCodeAttempts,
    Reauthentications,
    ReauthenticationsRead,
    SentForms,
    SentFormsRead,
)


class AuthenticationReading(Protocol):
    """Read access to the repositories of authentication."""

    @property
    def flows(self) -> FlowsRead: ...
    @property
    def identities(self) -> IdentitiesRead: ...
    @property
    def impersonations(self) -> ImpersonationsRead: ...
    @property
    def kept_forms(self) -> KeptFormsRead: ...
    @property
    def oauth_credentials(self) -> OAuthCredentialsRead: ...
    @property
    def openid_facts(self) -> OpenIdFactsRead: ...
    @property
    def organization_sessions(self) -> OrganizationSessionsRead: ...
    @property
    def personal_tokens(self) -> PersonalTokensRead: ...
    @property
    def reauthentications(self) -> ReauthenticationsRead: ...
    @property
    def refresh_tokens(self) -> RefreshTokensRead: ...
    @property
    def sent_forms(self) -> SentFormsRead: ...
    @property
    def session_contexts(self) -> SessionContextsRead: ...
    @property
    def session_sign_ins(self) -> SessionSignInsRead: ...
    @property
    def sessions(self) -> SessionsRead: ...
    @property
    def signing_keys(self) -> SigningKeysRead: ...


class AuthenticationTransaction(Protocol):
    """The repositories of authentication in a transaction."""

    @property
    def dpop_proofs(self) -> UsedProofsCleaning: ...
    @property
    def flows(self) -> Flows: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def impersonations(self) -> Impersonations: ...
    @property
    def kept_forms(self) -> KeptForms: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def oauth_credentials(self) -> OAuthCredentials: ...
    @property
    def openid_facts(self) -> OpenIdFacts: ...
    @property
    def organization_sessions(self) -> OrganizationSessions: ...
    @property
    def personal_tokens(self) -> PersonalTokens: ...
    @property
    def reauthentications(self) -> Reauthentications: ...
    @property
    def refresh_tokens(self) -> RefreshTokens: ...
    @property
    def sent_forms(self) -> SentForms: ...
    @property
    def session_contexts(self) -> SessionContextsRead: ...
    @property
    def session_sign_ins(self) -> SessionSignIns: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def signing_keys(self) -> SigningKeys: ...


class AuthenticationAutocommit(Protocol):
    """The statements of authentication that commit by themselves."""

    @property
    def dpop_proofs(self) -> UsedProofs: ...
    @property
    def flows(self) -> FlowSteps: ...
    @property
    def logins(self) -> FailedLogins: ...
    @property
    def personal_tokens(self) -> PersonalTokenUse: ...
    @property
    def reauthentications(self) -> ReauthenticationCodeAttempts: ...
    @property
    def refresh_tokens(self) -> RefreshTokenRotation: ...

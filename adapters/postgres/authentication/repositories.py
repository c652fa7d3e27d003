"""The repositories of authentication."""

from adapters.postgres.authentication.challenges import Flows
from adapters.postgres.authentication.dpop import UsedProofs
from adapters.postgres.authentication.identities import Identities
from adapters.postgres.authentication.impersonations import Impersonations
from adapters.postgres.authentication.kept_forms import KeptForms
from adapters.postgres.authentication.logins import Logins
from adapters.postgres.authentication.oauth_credentials import OAuthCredentials
from adapters.postgres.authentication.openid_facts import OpenIdFacts
from adapters.postgres.authentication.organization_sessions import OrganizationSessions
from adapters.postgres.authentication.personal_tokens import PersonalTokens
from adapters.postgres.authentication.reauthentications import Reauthentications
from adapters.postgres.authentication.refresh_tokens import RefreshTokens
from adapters.postgres.authentication.sent_forms import SentForms
from adapters.postgres.authentication.session_contexts import SessionContexts
from adapters.postgres.authentication.session_sign_ins import SessionSignIns
from adapters.postgres.authentication.sessions import Sessions
from adapters.postgres.authentication.signing_keys import SigningKeys
from adapters.postgres.engine.scope import Scope, repository


class AuthenticationRepositories(Scope):
    """The repositories of authentication, for every kind of access."""

    dpop_proofs = repository(UsedProofs)
    flows = repository(Flows)
    identities = repository(Identities)
    impersonations = repository(Impersonations)
    kept_forms = repository(KeptForms)
    logins = repository(Logins)
    oauth_credentials = repository(OAuthCredentials)
    openid_facts = repository(OpenIdFacts)
    organization_sessions = repository(OrganizationSessions)
    personal_tokens = repository(PersonalTokens)
    reauthentications = repository(Reauthentications)
    refresh_tokens = repository(RefreshTokens)
    sent_forms = repository(SentForms)
    session_contexts = repository(SessionContexts)
    session_sign_ins = repository(SessionSignIns)
    sessions = repository(Sessions)
    signing_keys = repository(SigningKeys)

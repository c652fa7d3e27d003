"""The repositories of federation."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.federation.oauth.authorization import AuthorizationCodes
from adapters.postgres.federation.oauth.client_assertions import UsedAssertions
from adapters.postgres.federation.oauth.consents import Consents
from adapters.postgres.federation.oauth.device_flow import DeviceCodes
from adapters.postgres.federation.oauth.pushed_requests import PushedRequests
from adapters.postgres.federation.saml.configuration import Saml
from adapters.postgres.federation.saml.logout import SamlLogouts
from adapters.postgres.federation.saml.sign_on import SamlSignOns


class FederationRepositories(Scope):
    """The repositories of federation, for every kind of access."""

    authorization_codes = repository(AuthorizationCodes)
    client_assertions = repository(UsedAssertions)
    consents = repository(Consents)
    device_codes = repository(DeviceCodes)
    pushed_requests = repository(PushedRequests)
    saml = repository(Saml)
    saml_logouts = repository(SamlLogouts)
    saml_sign_ons = repository(SamlSignOns)

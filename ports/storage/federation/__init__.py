"""Storage of OAuth authorization codes, device codes, SAML and sign-ins at identity providers."""

from typing import Protocol

from ports.storage.federation.oauth import (
    AuthorizationCodes,
    Consents,
    ConsentsRead,
    DeviceCodes,
    DeviceCodesRead,
    DevicePolls,
    PushedRequests,
    PushedRequestsRead,
    PushedRequestUses,
    UsedAssertions,
)
from ports.storage.federation.saml import Saml, SamlLogouts, SamlRead, SamlSignOns, SamlSignOnsRead, SamlSignOnStarts


class FederationReading(Protocol):
    """Read access to the repositories of federation."""

    @property
    def consents(self) -> ConsentsRead: ...
    @property
    def device_codes(self) -> DeviceCodesRead: ...
    @property
    def pushed_requests(self) -> PushedRequestsRead: ...
    @property
    def saml(self) -> SamlRead: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnsRead: ...


class FederationTransaction(Protocol):
    """The repositories of federation in a transaction."""

    @property
    def authorization_codes(self) -> AuthorizationCodes: ...
    @property
    def consents(self) -> Consents: ...
    @property
    def device_codes(self) -> DeviceCodes: ...
    @property
    def pushed_requests(self) -> PushedRequests: ...
    @property
    def saml(self) -> Saml: ...
    @property
    def saml_logouts(self) -> SamlLogouts: ...
    @property
    def saml_sign_ons(self) -> SamlSignOns: ...


class FederationAutocommit(Protocol):
    """The statements of federation that commit by themselves."""

    @property
    def client_assertions(self) -> UsedAssertions: ...
    @property
    def device_codes(self) -> DevicePolls: ...
    @property
    def pushed_requests(self) -> PushedRequestUses: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnStarts: ...

"""The storage port of tenancy: organizations, members, invitations and their settings."""

from typing import Protocol

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
from ports.storage.tenancy.settings import Branding, BrandingRead, Domains, DomainsRead, HomeRealm, HomeRealmRead, Smtp, SmtpRead


class TenancyReading(Protocol):
    """Read access to the repositories of tenancy."""

    @property
    def branding(self) -> BrandingRead: ...
    @property
    def domains(self) -> DomainsRead: ...
    @property
    def home_realm(self) -> HomeRealmRead: ...
    @property
    def invitations(self) -> InvitationsRead: ...
    @property
    def members(self) -> MembersRead: ...
    @property
    def organizations(self) -> OrganizationsRead: ...
    @property
    def smtp(self) -> SmtpRead: ...
    @property
    def tiers(self) -> TiersRead: ...


class TenancyTransaction(Protocol):
    """The repositories of tenancy in a transaction."""

    @property
    def branding(self) -> Branding: ...
    @property
    def domains(self) -> Domains: ...
    @property
    def home_realm(self) -> HomeRealm: ...
    @property
    def invitations(self) -> Invitations: ...
    @property
    def members(self) -> Members: ...
    @property
    def organizations(self) -> Organizations: ...
    @property
    def smtp(self) -> Smtp: ...
    @property
    def tiers(self) -> Tiers: ...


class TenancyAutocommit(Protocol):
    """The statements of tenancy that commit by themselves."""

    @property
    def members(self) -> Confirmations: ...

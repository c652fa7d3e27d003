"""Storage for domains, home realm discovery, branding, mail servers and declared attributes."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from core.accounts.model.email_queue import TokenPurpose
from core.kernel import values
from core.kernel.connections import ConnectionRef
from core.tenancy.model import attributes, domains
from core.tenancy.model.settings import BrandingSettings, Design, MailServer, SmtpSettings


class DomainsRead(Protocol):
    """Read access to the organizations' domains."""

    async def of_organization(self, org_id: UUID) -> list[domains.DomainClaim]:
        """Return the organization's domains, ordered by name."""

    async def find(self, org_id: UUID, domain: values.Domain) -> domains.DomainClaim | None: ...

    def verified_owner(self, email: values.Email) -> Awaitable[UUID | None]:
        """Return the organization that verified this address's domain, or its closest verified parent domain."""

    async def verified_owner_of_host(self, host: str) -> UUID | None:
        """Return the organization that verified this host as its domain, or the closest verified parent domain."""

    async def foreign_accounts(self, org_id: UUID, domain: values.Domain, page: values.Page) -> values.PageResult[domains.ForeignAccount]:
        """Return a page with the accounts at the organization's domain that it did not create, newest first, with the total number."""

    async def foreign_invitations(
        self, org_id: UUID, domain: values.Domain, page: values.Page, now: datetime
    ) -> values.PageResult[domains.ForeignInvitation]:
        """Return a page with foreign pending invitations to the organization's domain, newest first, with the total number."""


class Domains(DomainsRead, Protocol):
    """Write access to the organizations' domains. Lock order: the organization before any call."""

    async def add(self, claim: domains.DomainClaim) -> None: ...

    async def mark_verified(self, org_id: UUID, domain: values.Domain, now: datetime) -> domains.DomainClaim:
        """Mark the organization's domain as verified, and return it. Raises: DomainTaken."""

    async def remove(self, org_id: UUID, domain: values.Domain) -> None: ...


class HomeRealmRead(Protocol):
    """Read access to home realm routes."""

    async def routes(self, org_id: UUID) -> list[domains.HomeRealmRoute]:
        """Return the organization's routes, ordered by domain. A route is verified if `match` would use it."""

    async def match(self, domain: values.Domain) -> domains.HomeRealmMatch | None:
        """Return the route for this domain, or None.

        Only one organization decides: the organization that has verified the domain, or else its closest verified
        parent domain. The organization must be active, and have a route for exactly this domain. A connection must be
        active, too.
        """

    async def connections(self, org_id: UUID) -> list[ConnectionRef]:
        """Return the organization's connections, in every state, ordered by slug."""

    async def leads_to_connections(self) -> bool:
        """Return whether `match` would give a connection for any domain."""


class HomeRealm(HomeRealmRead, Protocol):
    """Write access to home realm routes. Lock order: the organization first."""

    async def replace(self, org_id: UUID, routes: Mapping[values.Domain, str]) -> None:
        """Replace the organization's routes. The values are slugs: for its connections, or for the platform's providers."""


class BrandingRead(Protocol):
    """Read access to branding settings, and to designs, which only active organizations have."""

    async def settings(self, org_id: UUID) -> BrandingSettings | None: ...

    def design(self, org_id: UUID) -> Awaitable[Design | None]:
        """Return the organization's design if it is active."""

    async def design_of_link(self, token_hash: bytes, purpose: TokenPurpose) -> Design | None:
        """Return the design of the organization that sent an email with this token. The token may be used or expired."""


class Branding(BrandingRead, Protocol):
    """Write access to branding settings. Lock order: the organization before `put`."""

    async def active_org_id(self, slug: str) -> UUID | None:
        """Return the active organization's id by its slug, or None. Emails may use only an active organization's design."""

    async def keep_active_org(self, slug: str) -> UUID | None:
        """Do the same as `active_org_id`, and keep the organization from being deleted until the transaction ends."""

    async def put(self, org_id: UUID, settings: BrandingSettings, now: datetime) -> None: ...


class SmtpRead(Protocol):
    """Read access to the organizations' mail servers."""

    async def settings(self, org_id: UUID) -> SmtpSettings | None: ...

    async def server(self, org_id: UUID) -> MailServer | None:
        """Return the mail server with its password. Raises: SealBroken."""


class Smtp(SmtpRead, Protocol):
    """Write access to the organizations' mail servers. Passwords are stored encrypted.

    Lock order: the organization before any call.
    """

    async def put(self, server: MailServer, now: datetime) -> None:
        """Add the mail server, or replace the organization's earlier mail server."""

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        """Remove the mail server, and return its settings, or None if there was none."""


class AttributesRead(Protocol):
    """Read access to attributes and their values."""

    async def list_declared(self, org_id: UUID) -> Sequence[attributes.Attribute]:
        """Return the organization's attributes, by position."""

    async def of_user(self, org_id: UUID, user_id: UUID) -> attributes.AttributeValues:
        """Return the organization's attributes, this user's values, and the values of the user's groups."""

    async def of_group(self, org_id: UUID, group_id: UUID) -> attributes.AttributeValues:
        """Return the organization's attributes, and this group's values."""

    async def own(self, user_id: UUID) -> Sequence[attributes.OwnAttributes]:
        """Return a user's values in every organization that declares attributes and has the user, by organization name.

        The user is a confirmed member or an end user there.
        """


class Attributes(AttributesRead, Protocol):
    """Write access to attributes and their values. Lock order: the organization before any call."""

    async def put(self, attribute: attributes.Attribute) -> None:
        """Store an attribute, or replace all but its name, its kind and its time."""

    async def delete(self, org_id: UUID, name: str) -> None:
        """Delete an attribute, and its values for all users and groups."""

    async def save_values(self, org_id: UUID, user_id: UUID, values: Mapping[str, Any], now: datetime) -> bool:
        """Replace all the user's values.

        Return False, and store nothing, if the user is neither a member nor an end user, and unknown to the directory.
        """

    async def save_group_values(self, org_id: UUID, group_id: UUID, values: Mapping[str, Any], now: datetime) -> None:
        """Replace all values for a group in the organization."""

"""The world beyond the process: mail, the DNS, identity providers, and what is known of addresses and of user agents."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.devices_rules import Location, ParsedUserAgent
from core.billing.checkout_rules import Checkout, CheckoutSession
from core.billing.provider_objects import ProviderSnapshot
from core.email_preparation_rules import PreparedEmail
from core.kernel.outbound import Reply
from core.kernel.providers import AuthenticationRequest, FederatedIdentity, Provider, ProviderClient, ProviderTokens
from core.kernel.values import Email
from core.tenancy.mail_server_rules import MailServer, MailServerCheck


@dataclass(frozen=True, slots=True)
class EmailMessage:
    """A mail ready to go. The same mail gives the same `message_id` and `date` at every attempt, so that a receiver can tell a duplicate.

    `date` is UTC. The bodies hold one-time links, so they are not shown.
    """

    message_id: str
    date: datetime
    to: Email
    subject: str
    text: str = field(repr=False)
    html: str = field(repr=False)


class EmailTemplates(Protocol):
    """Wording and design of mails."""

    def compose(self, mail: PreparedEmail) -> EmailMessage:
        """The letter for a prepared mail; every link is on the configured base URL (security.md E-2)."""
        ...


class MailRefused(Exception):
    """The mail server could not be reached or did not take the letter; the text says why, without secrets, for the operator."""


class MailTransport(Protocol):
    """Where letters leave the house."""

    async def send(self, letter: EmailMessage, server: MailServer | None = None) -> None:
        """Hand the letter over: to the server of an organization, which is then who it is from, or to the platform's.

        Raises MailRefused, whose text repeats nothing that the server of an organization said. Returns within 60 s.

        A line break or another control character in a header is refused before anything is sent (security.md E-4). Cancellation
        leaves it open whether the letter went out.
        """
        ...

    async def try_out(self, server: MailServer) -> MailServerCheck:
        """Connect to the server of an organization and sign in, but send nothing. Returns within 15 s."""
        ...


class TxtRecords(Protocol):
    """What the owners of domains publish."""

    async def texts(self, name: str) -> Collection[str]:
        """The texts of the TXT records at this name, none where there are none. Returns within 6 s. Raises core.domains.DnsFailed.

        A text of several parts is put together. The name is a full one: nothing is added to it. Only the resolvers that the operator
        chose are asked, so whoever gives the name does not choose whom we talk to (security.md W-1).
        """
        ...


class UserAgentParser(Protocol):
    """What User-Agent headers say."""

    def parse(self, agent: str | None) -> ParsedUserAgent:
        """What this header says, of which 512 characters are looked at, in a few milliseconds at most; None is no header."""
        ...


class GeoIp(Protocol):
    """Where addresses are."""

    def of(self, address: str | None) -> Location | None:
        """The place of this address, if it is known; never where nothing is configured to know any."""
        ...


class HttpSender(Protocol):
    """Posts to targets that tenants chose (security.md W-1 to W-3)."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], within: float) -> Reply:
        """What the target answers to this, of whose body 64 KiB are read; redirects are answers. Raises core.outbound.SendFailed.

        The host is looked up anew each time, and all its addresses are judged before one is connected to. Returns within that many seconds
        from the look-up to the last byte. Nothing else of us is sent along: no cookies, no credentials, no name of a proxy.
        """
        ...


class IdentityProviders(Protocol):
    """The external identity providers that the operator has set up (identity.md section 4.9; security.md O-8).

    Each at the addresses of the operator's settings and nowhere else. All that a provider says is text of a stranger: nothing of it is in
    what is raised, which is core.errors.ProviderFailed. Every method that awaits returns within 10 s.
    """

    def knows(self, provider: Provider) -> bool:
        """Whether the operator has said where the provider is, so that whoever has credentials there can be sent to it."""
        ...

    def platform_client(self, provider: Provider) -> ProviderClient | None:
        """By what the provider knows the platform; None where it is not set up."""
        ...

    def is_issuer(self, provider: Provider, issuer: str) -> bool:
        """Whether an `iss` that came back with a code (RFC 9207) names this provider."""
        ...

    def address(self, provider: Provider, asking: AuthenticationRequest) -> str:
        """Where a browser is sent, to come back to `asking.redirect_uri` with a code. With `asking.fresh_since` those that can be asked to
        (core.providers.SUPPORTS_REAUTHENTICATION) have the person show again who they are, whatever the operator's address says."""
        ...

    async def vouch(self, provider: Provider, asking: AuthenticationRequest, code: str) -> FederatedIdentity:
        """Whom the provider vouches for by this code. An ID token is verified for signature, `iss`, `aud`, `nonce` and `exp`; and with
        `asking.fresh_since` for `auth_time`, if it has one, which may be a minute older than that, or newer than now.

        Raises ProviderFailed; and ReauthenticationNotConfirmed, where the provider let somebody in whom it was to ask again.
        """
        ...

    async def refresh(self, provider: Provider, client: ProviderClient, refresh_token: str) -> ProviderTokens:
        """New tokens in the place of expired ones; the old refresh token where no new one is given. Raises ProviderFailed."""
        ...


class Payments(Protocol):
    """The payment provider, at the address of the operator's settings (organizations.md sections 2.11 and 4.2).

    Nothing of what it says is in what is raised, which is core.errors.PaymentsFailed. Every method that awaits returns within 10 s.
    """

    @property
    def is_on(self) -> bool:
        """Whether it is set up; else nothing may be asked of it."""
        ...

    async def create_customer(self, org_id: UUID, name: str, key: UUID) -> str:
        """A customer for the organization: its name there. However often it is asked for with one key, one is made.

        Raises also core.billing.checkout_rules.IdempotencyKeySpent, where nothing comes of that key any more.
        """
        ...

    async def begin_checkout(self, checkout: Checkout, customer_id: str) -> CheckoutSession:
        """Where a browser goes to buy this. However often it is asked for, one is begun. Raises also core.billing.checkout_rules.CustomerNotFound."""
        ...

    async def subscription(self, id_: str) -> ProviderSnapshot | None:
        """A subscription as it is, None where there is none of this name."""
        ...

    async def subscriptions_of(self, customer_id: str, since: datetime) -> list[ProviderSnapshot]:
        """Those of the customer that were made since then, or a little before, whatever became of them; the newest few hundred."""
        ...

    async def cancel(self, id_: str) -> bool:
        """End a subscription at once; it may be over already. False where the provider does not know it, or not as ours."""
        ...

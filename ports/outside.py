"""Interfaces to the world outside the core: email, the DNS, webhook targets, identity providers, payments, GeoIP, images, threads."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from core.accounts.model import devices
from core.billing.model.checkout import Checkout, CheckoutSession
from core.billing.model.provider_objects import ProviderSnapshot
from core.federation.connections.model import openid
from core.federation.oauth.model.client_documents import ClientDocument
from core.kernel import connections, images, outbound
from core.kernel.shares import Share
from core.kernel.values import Email
from core.mailing.model.emails import PreparedEmail
from core.tenancy.model import settings


@dataclass(frozen=True, slots=True)
class EmailMessage:
    """A rendered email. `date` is in UTC.

    Every attempt to send the same email has the same `message_id` and `date`, so that a receiver
    can recognize a duplicate. The bodies contain one-time links, so the representation omits them.
    """

    message_id: str
    date: datetime
    to: Email
    subject: str
    text: str = field(repr=False)
    html: str = field(repr=False)


class EmailTemplates(Protocol):
    """Email texts and their design."""

    def compose(self, mail: PreparedEmail) -> EmailMessage:
        """Render a prepared email. All our links start with the configured base URL (security E-2)."""


class MailRefused(Exception):
    """The mail server was not reached, or did not accept the email. The text gives the operator the reason and contains no secrets."""


class MailTransport(Protocol):
    """Delivering emails to a mail server."""

    async def send(self, message: EmailMessage, server: settings.MailServer | None = None) -> None:
        """Send an email through the platform's mail server, or through an organization's server and with its sender address.

        An email with a control character in a header is refused before a connection is made
        (security E-4). If the call is canceled, the email may or may not have been sent. It returns
        within 60 s.

        Raises: MailRefused. Its text quotes nothing that an organization's server sent.
        """

    async def check_server(self, server: settings.MailServer, message: EmailMessage) -> settings.MailServerTest:
        """Send an email through an organization's mail server to test it. It returns within 15 s."""


class TxtRecords(Protocol):
    """Looking up TXT records in the DNS."""

    async def texts(self, name: str) -> Collection[str]:
        """Return the texts in the TXT records with this full name, or nothing if there are none. It returns within 6 s.

        Texts in several parts are joined. Only the operator's resolvers are asked, so a tenant who
        chooses the name cannot choose the servers that we connect to (security W-1).

        Raises: DnsFailed.
        """


class UserAgentParser(Protocol):
    """The parser for User-Agent headers."""

    def parse(self, agent: str | None) -> devices.ParsedUserAgent:
        """Parse a header's first 512 characters, within a few milliseconds. None means that the request had no header."""


class GeoIp(Protocol):
    """Locations for IP addresses."""

    def locate(self, address: str | None) -> devices.Location | None:
        """Return this address's location, or None if it is unknown or no GeoIP file is configured."""


class Anonymizers(Protocol):
    """The networks that VPNs and proxies use."""

    def has(self, address: str | None) -> bool:
        """Return whether this address belongs to a VPN or a proxy. Without a configured file, none does."""


class HttpSender(Protocol):
    """HTTP requests to URLs that tenants chose (security W-1, W-2, W-3)."""

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], within: float, *, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        """Send a POST request and return the response, with at most this many bytes from its body. Redirects are not followed.

        Every call resolves the host again, and checks all its addresses before it connects to an address. The time
        limit `within`, in seconds, covers everything from the lookup to the last byte. The request contains no cookies
        and no credentials, and uses no proxy.

        Raises: SendFailed.
        """

    async def get(
        self, url: str, within: float, *, headers: Mapping[str, str] = outbound.NO_HEADERS, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        """Return the response to a GET request, as `post` does."""


class PublishedKeys(Protocol):
    """The public keys that external parties publish: OAuth clients at URLs of their own (RFC 7517), or issuers (security W-1).

    Issuers sign pipeline tokens. Their URL leads to their metadata (OpenID Connect Discovery). Keys are cached for an
    hour. A URL from which they could not be fetched is not tried again for a minute.
    """

    async def get(self, url: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return the keys, and whether they were fetched now, with at most two requests that take 5 s. Raises: ClientAssertionInvalid."""

    async def get_newer(self, url: str, keys: Sequence[Mapping[str, Any]], cause: Share) -> Sequence[Mapping[str, Any]] | None:
        """Return keys that are newer than `keys`, or None if this cause led to a fetch less than a minute ago.

        `cause` is the share of the caller who sent the token that no key verifies. In a minute, at most six causes lead to a fetch.

        Raises: ClientAssertionInvalid.
        """


class ClientDocuments(Protocol):
    """The metadata that external clients publish at their addresses (security W-1). At most 1,000 are kept, in memory only."""

    def cached(self, address: str) -> ClientDocument | None:
        """Return the document at this address if it was fetched a short while ago: 5 minutes to 24 hours, by its headers."""

    async def fetch(self, address: str, since: datetime | None = None) -> ClientDocument:
        """Return the document at this address, fetched after that time, if a time is given.

        In a process, a share sends one request at a time to a host. It returns within 6 s. A failure is not kept.

        Raises: ClientDocumentUnavailable.
        """


class OpenIdProviders(Protocol):
    """The identity providers of organizations, which choose the addresses (security W-1), and of the platform (security O-8).

    Every method waits at most 5 s for a place, and then returns within 10 s. Redirects are not followed. At most three calls of a
    connection, and six calls of an organization, run at a time. Calls that strangers cause have their own places. At most 50 calls of
    a platform connection run at a time. All methods raise Limited, OpenIdAnswerRefused and OpenIdProviderUnreachable. For a platform
    connection, ProviderFailed replaces OpenIdAnswerRefused and OpenIdProviderUnreachable. Errors and log lines quote no provider.
    """

    async def discover(self, client: openid.OpenIdClient, *, refresh: bool = False) -> openid.OpenIdProviderMetadata:
        """Return the metadata of the client's issuer, kept for an hour. With `refresh`, fetch them now.

        For a platform connection, the metadata come from the operator's settings.
        """

    async def exchange(
        self,
        client: openid.OpenIdClient,
        metadata: openid.OpenIdProviderMetadata,
        request: openid.CodeRequest,
        code: str,
        needed: Collection[str],
        wanted: Collection[str] = (),
    ) -> openid.OpenIdAnswer:
        """Redeem a code and return the verified claims about the user (OpenID Connect Core section 3.1.3.7).

        The userinfo endpoint is asked if the ID token lacks a `needed` or `wanted` claim. If it fails, only a missing `needed` claim
        ends the sign-in. For a platform connection, the answer also has the tokens for the provider's API.
        """

    async def refresh(
        self, connection: connections.Connection, client: connections.ProviderClient, refresh_token: str
    ) -> connections.ProviderTokens:
        """Return new tokens for a refresh token. The old refresh token is kept if the provider returns no new refresh token."""

    def read_token(
        self, client: openid.OpenIdClient, request: openid.CodeRequest, id_token: str, keys: Sequence[Mapping[str, str]]
    ) -> Mapping[str, Any]:
        """Return the claims in an ID token for this request that any of these keys signed (RS256), as `exchange` verifies them.

        Nothing is sent.
        """

    async def check_client(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, redirect_uri: str) -> None:
        """Check that the token endpoint accepts our credentials, by a request with a wrong code."""

    async def keys(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata) -> Sequence[openid.ProviderKey]:
        """Return the keys that the provider publishes now, at most 50."""

    async def read_logout(self, client: openid.OpenIdClient, metadata: openid.OpenIdProviderMetadata, token: str) -> openid.ProviderLogout:
        """Return the sign-out that a logout token reports.

        The caller lets a `token_id` work only once (Back-Channel Logout section 2.6).
        """


class Payments(Protocol):
    """The payment provider, at the URL in the operator's settings.

    Errors contain only our own words, and quote nothing from the provider. Every asynchronous method returns within 10
    s and can raise PaymentsFailed.
    """

    @property
    def is_on(self) -> bool:
        """Whether the payment provider is configured. Call the remaining methods only if the provider is configured."""

    async def create_customer(self, org_id: UUID, name: str, key: UUID) -> str:
        """Create a customer for an organization and return the provider's customer id. Calls with the same key create a single customer.

        Raises: IdempotencyKeySpent if the key will never succeed.
        """

    async def begin_checkout(self, checkout: Checkout, customer_id: str) -> CheckoutSession:
        """Create the provider's session for this checkout. Repeated calls return the same session.

        Raises: CustomerNotFound; IdempotencyKeySpent if the provider will never create this session.
        """

    async def subscription(self, id_: str) -> ProviderSnapshot | None:
        """Return a subscription with its current state, or None if the provider does not know it."""

    async def subscriptions_of(self, customer_id: str, since: datetime) -> list[ProviderSnapshot]:
        """Return the customer's subscriptions in every state that were created after `since`, or shortly before it.

        Only the newest few hundred are returned.
        """

    async def cancel(self, id_: str) -> bool:
        """End a subscription immediately. Return False if the provider does not know it.

        A subscription that has already ended counts as canceled.
        """


class Images(Protocol):
    """The decoder for uploaded images."""

    async def reencode(self, content: bytes, header: images.ImageHeader, *, is_square: bool) -> images.NewImage:
        """Return the image in both sizes, without the file's other contents. Animations keep only their first frame.

        `content` has passed `check_header`, which returned `header`. With `is_square`, the longer side is cut.
        Threads and memory are bounded.

        Raises: ImageDamaged; Limited if too many images wait.
        """

    def url(self, key: str) -> str:
        """Return the large image's URL, by its key."""


T = TypeVar("T")


class WorkerThreads(Protocol):
    """Worker threads for CPU work in the core that would block other requests for milliseconds."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result. Raises: the errors of `work`."""

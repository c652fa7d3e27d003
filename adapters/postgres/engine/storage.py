"""ports.storage.Storage on PostgreSQL: transactions that expose repositories, plain SQL beside its method."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Generic, TypeVar

import trio

from adapters.postgres.accounts.accounts import Accounts
from adapters.postgres.accounts.attempt_limits import Guesses
from adapters.postgres.accounts.devices import Devices
from adapters.postgres.accounts.email_queue import Mails
from adapters.postgres.accounts.mfa import Mfa, MfaLog
from adapters.postgres.accounts.one_time_tokens import OneTimeTokens
from adapters.postgres.accounts.platform import Platform
from adapters.postgres.accounts.platform_users import PlatformUsers
from adapters.postgres.applications.analytics import Analytics
from adapters.postgres.applications.api_keys import ApiKeys
from adapters.postgres.applications.end_users import EndUsers
from adapters.postgres.applications.plans import Plans
from adapters.postgres.applications.service_users import ServiceUsers
from adapters.postgres.applications.services import Services
from adapters.postgres.authentication.identities import Identities
from adapters.postgres.authentication.logins import Logins
from adapters.postgres.authentication.oauth_credentials import OAuthCredentials
from adapters.postgres.authentication.pre_auths import PreAuths
from adapters.postgres.authentication.sessions import Sessions
from adapters.postgres.authentication.signing_keys import SigningKeys
from adapters.postgres.billing.provider_events import Billing, Cancellations
from adapters.postgres.billing.subscriptions import Subscriptions
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool, translated
from adapters.postgres.eventing.audit import Audit
from adapters.postgres.eventing.deliveries import Deliveries
from adapters.postgres.eventing.event_log import Records
from adapters.postgres.eventing.siem import Siem
from adapters.postgres.eventing.webhooks import Webhooks
from adapters.postgres.federation.oauth.authorization import AuthorizationCodes
from adapters.postgres.federation.oauth.device_flow import DeviceCodes
from adapters.postgres.federation.saml.configuration import Saml
from adapters.postgres.federation.saml.logout import SamlLogouts
from adapters.postgres.federation.saml.sign_on import SamlSignOns
from adapters.postgres.federation.upstream.social import ProviderStates
from adapters.postgres.kernel.rate_limits import Rates
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases
from adapters.postgres.maintenance.sealed import Sealed
from adapters.postgres.privacy import Privacy
from adapters.postgres.provisioning.tokens import ScimTokens
from adapters.postgres.provisioning.users import ScimUsers
from adapters.postgres.tenancy.branding import Branding
from adapters.postgres.tenancy.domains import Domains
from adapters.postgres.tenancy.home_realm import HomeRealm
from adapters.postgres.tenancy.invitations import Invitations
from adapters.postgres.tenancy.mail_server import Smtp
from adapters.postgres.tenancy.members import Members
from adapters.postgres.tenancy.organizations import Organizations
from adapters.postgres.tenancy.tiers import Tiers
from core.kernel.errors import SessionEnded, StorageDown
from core.kernel.event_catalogue import Event
from core.kernel.principals import Caller, Person
from ports.crypto import Vault
from ports.observe import Clock

T = TypeVar("T")

ROLLBACK_DEADLINE: Final = 5.0  # seconds
PING_DEADLINE: Final = 3.0  # who asks whether the service is ready wants to hear it soon


class Reading:
    """ports.storage.Reading."""

    __slots__ = (
        "accounts",
        "analytics",
        "api_keys",
        "audit",
        "authorization_codes",
        "branding",
        "deliveries",
        "device_codes",
        "devices",
        "domains",
        "end_users",
        "home_realm",
        "identities",
        "invitations",
        "members",
        "mfa",
        "oauth_credentials",
        "one_time_tokens",
        "organizations",
        "plans",
        "platform",
        "platform_users",
        "privacy",
        "saml",
        "saml_sign_ons",
        "scim_tokens",
        "scim_users",
        "service_users",
        "services",
        "sessions",
        "siem",
        "signing_keys",
        "smtp",
        "subscriptions",
        "tiers",
        "webhooks",
    )

    def __init__(self, connection: Connection, vault: Vault) -> None:
        self.accounts = Accounts(connection)
        self.one_time_tokens = OneTimeTokens(connection)
        self.sessions = Sessions(connection)
        self.signing_keys = SigningKeys(connection, vault)
        self.mfa = Mfa(connection, vault)
        self.smtp = Smtp(connection, vault)
        self.siem = Siem(connection, vault)
        self.platform = Platform(connection)
        self.privacy = Privacy(connection)
        self.platform_users = PlatformUsers(connection)
        self.tiers = Tiers(connection)
        self.organizations = Organizations(connection)
        self.members = Members(connection)
        self.invitations = Invitations(connection)
        self.audit = Audit(connection)
        self.services = Services(connection)
        self.plans = Plans(connection)
        self.analytics = Analytics(connection)
        self.subscriptions = Subscriptions(connection)
        self.api_keys = ApiKeys(connection)
        self.scim_tokens = ScimTokens(connection)
        self.scim_users = ScimUsers(connection)
        self.end_users = EndUsers(connection)
        self.service_users = ServiceUsers(connection)
        self.authorization_codes = AuthorizationCodes(connection)
        self.branding = Branding(connection)
        self.device_codes = DeviceCodes(connection)
        self.devices = Devices(connection)
        self.domains = Domains(connection)
        self.home_realm = HomeRealm(connection)
        self.identities = Identities(connection, vault)
        self.oauth_credentials = OAuthCredentials(connection, vault)
        self.saml = Saml(connection, vault)
        self.saml_sign_ons = SamlSignOns(connection)
        self.webhooks = Webhooks(connection, vault)
        self.deliveries = Deliveries(connection, vault)


class Counting:
    """ports.storage.Counting."""

    __slots__ = ("api_keys", "device_codes", "guesses", "logins", "members", "mfa", "pre_auths", "provider_states", "rates", "sessions")

    def __init__(self, connection: Connection, vault: Vault) -> None:
        self.rates = Rates(connection)
        self.sessions = Sessions(connection)
        self.guesses = Guesses(connection)
        self.logins = Logins(connection)
        self.pre_auths = PreAuths(connection, vault)
        self.device_codes = DeviceCodes(connection)
        self.members = Members(connection)
        self.api_keys = ApiKeys(connection)
        self.mfa = MfaLog(connection)
        self.provider_states = ProviderStates(connection)


class Transaction(Reading):
    """ports.storage.Transaction. The repositories that read are those that change, too."""

    __slots__ = (
        "_caller",
        "_clock",
        "_connection",
        "_events",
        "_in_session",
        "_webhook_delay",
        "billing",
        "cancellations",
        "guesses",
        "housekeeping",
        "leases",
        "logins",
        "mails",
        "pre_auths",
        "provider_states",
        "saml_logouts",
        "sealed",
    )

    def __init__(self, connection: Connection, vault: Vault, clock: Clock, by: Caller, in_session: bool, webhook_delay: timedelta) -> None:
        super().__init__(connection, vault)
        self._webhook_delay = webhook_delay
        self._connection = connection
        self._clock = clock
        self._caller = by
        self._in_session = in_session
        self._events: list[Event] = []
        self.billing = Billing(connection, vault)
        self.cancellations = Cancellations(connection)
        self.logins = Logins(connection)
        self.pre_auths = PreAuths(connection, vault)
        self.provider_states = ProviderStates(connection)
        self.mails = Mails(connection, vault)
        self.guesses = Guesses(connection)
        self.leases = Leases(connection)
        self.housekeeping = Housekeeping(connection)
        self.saml_logouts = SamlLogouts(connection)
        self.sealed = Sealed(connection, vault)

    def acts_as(self, person: Person) -> None:
        self._caller = person

    def record(self, event: Event) -> None:
        self._events.append(event)

    async def write_records(self) -> None:
        """What was recorded, in one statement. Raises SessionEnded."""
        if not self._events:
            return
        now = self._clock.now()
        # Last of all locks but those of the totals, so that whoever ends sessions and holds other things does not wait for us in a circle.
        if self._in_session and isinstance(self._caller, Person) and not await self.sessions.hold(self._caller, now):
            raise SessionEnded
        await Records(self._connection).add(self._events, self._caller, now, self._webhook_delay)


class _Using(Generic[T]):
    """One connection in autocommit, seen through `T`. Every request passes here, and a class costs half of what a generator does."""

    __slots__ = ("_lease", "_view")

    def __init__(self, pool: Pool, view: Callable[[Connection], T]) -> None:
        self._lease = pool.connection()
        self._view = view

    async def __aenter__(self) -> T:
        return self._view(await self._lease.__aenter__())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._lease.__aexit__(kind, error, trace)


class _Changing:
    """One connection in a transaction, which is committed with its records, or rolled back if anything was raised."""

    __slots__ = ("_connection", "_lease", "_transaction", "_view")

    _connection: Connection
    _transaction: Transaction

    def __init__(self, pool: Pool, view: Callable[[Connection], Transaction]) -> None:
        self._lease = pool.connection()
        self._view = view

    async def __aenter__(self) -> Transaction:
        self._connection = await self._lease.__aenter__()
        self._connection.begin()
        self._transaction = self._view(self._connection)
        return self._transaction

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                await self._transaction.write_records()
                with translated():
                    await self._connection.commit()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if error is not None:
                await self._roll_back()
            await self._lease.__aexit__(None, error, None)

    async def _roll_back(self) -> None:
        # Whatever becomes of the rollback, what was raised goes on; a connection that is closed rolls back as well.
        with trio.move_on_after(ROLLBACK_DEADLINE, shield=True):
            try:
                with translated():
                    await self._connection.rollback()
            except StorageDown:
                self._connection.finish()


class Postgres:
    """ports.storage.Storage. The vault seals the few columns that must be readable again."""

    def __init__(self, pool: Pool, vault: Vault, clock: Clock, webhook_delay: timedelta = timedelta()) -> None:
        """`webhook_delay` is how long after an event webhooks are told of it."""
        self._pool = pool
        self._vault = vault
        self._clock = clock
        self._webhook_delay = webhook_delay

    def transaction(self, by: Caller, *, in_session: bool = True) -> _Changing:
        return _Changing(
            self._pool, lambda connection: Transaction(connection, self._vault, self._clock, by, in_session, self._webhook_delay)
        )

    def reading(self) -> _Using[Reading]:
        return _Using(self._pool, lambda connection: Reading(connection, self._vault))

    def counting(self) -> _Using[Counting]:
        return _Using(self._pool, lambda connection: Counting(connection, self._vault))

    async def about(self) -> tuple[int, datetime]:
        """The server's version number, such as 150004, and its clock, in UTC; for `gatehouse doctor`."""
        async with self._pool.connection() as connection:
            with translated():
                row = await connection.row("select current_setting('server_version_num')::int, clock_timestamp()")
        assert row is not None, "it always answers"
        return row[0], row[1]

    async def ping(self) -> None:
        try:
            with trio.fail_after(PING_DEADLINE):
                async with self._pool.connection() as connection:
                    with translated():
                        await connection.row("select 1")
        except trio.TooSlowError:
            raise StorageDown from None

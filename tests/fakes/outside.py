"""Small real implementations of the ports to the outside world, which tests inspect and control."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import trio

from core.accounts.model.devices import Location
from core.accounts.model.email_queue import EmailOutcome
from core.accounts.model.passkeys import Ceremony, PasskeyReason
from core.authentication.model.login import LoginFailure
from core.federation.connections.model.health import HealthState
from core.kernel.connections import ConnectionProtocol
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy.decision import Outcome
from core.kernel.values import is_printable
from core.tenancy.model.domains import DnsFailed
from core.tenancy.model.settings import MailServer, MailServerCheck, MailServerTest
from ports.outside import EmailMessage, MailRefused


class FakeClock:
    """ports.observe.Clock that stands still until a test moves it."""

    def __init__(self, now: datetime = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def advance(self, time: timedelta) -> None:
        self._now += time


class FakeMailTransport:
    """ports.outside.MailTransport that keeps the emails.

    While `refusal` is set, it refuses all. An email to an address in `gates` waits for that event.
    For an address in `stuck_after`, the email is accepted, and then the conversation never ends.
    """

    def __init__(self) -> None:
        self.emails: list[EmailMessage] = []
        self.servers: dict[str, MailServer | None] = {}  # by message id
        self.checked_servers: list[MailServer] = []
        self.tests: list[EmailMessage] = []  # sent through these servers
        self.check_result = MailServerTest(MailServerCheck.GOOD)
        self.attempts: Counter[str] = Counter()  # started deliveries, by address
        self.refusal: str | None = None
        self.gates: dict[str, trio.Event] = {}
        self.stuck_after: set[str] = set()
        self._changed = trio.Event()

    async def check_server(self, server: MailServer, message: EmailMessage) -> MailServerTest:
        await trio.lowlevel.checkpoint()
        self.checked_servers.append(server)
        self.tests.append(message)
        return self.check_result

    async def send(self, message: EmailMessage, server: MailServer | None = None) -> None:
        await trio.lowlevel.checkpoint()
        if not all(is_printable(header) for header in (message.message_id, message.to, message.subject)):
            raise MailRefused("a header of the message contains a control character")
        self.attempts[message.to] += 1
        self._wake_waiters()
        if message.to in self.gates:
            await self.gates[message.to].wait()
        if self.refusal is not None:
            raise MailRefused(self.refusal)
        self.emails.append(message)
        self.servers[message.message_id] = server
        self._wake_waiters()
        if message.to in self.stuck_after:
            await trio.sleep_forever()

    async def arrived(self, count: int) -> list[EmailMessage]:
        """Return the emails, as soon as there are `count`."""
        while len(self.emails) < count:
            await self._changed.wait()
        return self.emails

    def newest(self, pattern: str, to: str | None = None) -> EmailMessage:
        """Return the newest email that matches this pattern. Emails from the same moment come in any order.

        Raises: IndexError if there is none.
        """
        return [email for email in self.emails if re.search(pattern, email.subject + email.text) and to in (None, email.to)][-1]

    async def wait_for_attempt(self, address: str) -> None:
        """Return as soon as an email to the address is being delivered."""
        while not self.attempts[address]:
            await self._changed.wait()

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class FakeMetrics:
    """ports.observe.Metrics that keeps the values."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int, float]] = []
        self.login_failures: Counter[str] = Counter()
        self.passkey_ceremonies: Counter[tuple[str, str]] = Counter()
        self.policy_decisions: Counter[tuple[PolicyPath, Outcome]] = Counter()
        self.tokens_issued = 0
        self.jobs: list[tuple[str, float]] = []
        self.siem_failures: Counter[str] = Counter()
        self.deliveries: list[float] = []
        self.logout_notices: list[float] = []
        self.due: int | None = None
        self.siem_drops = 0
        self.mail_attempt_failures = 0
        self.mail_outcomes: Counter[str] = Counter()
        self.mail_backlog: tuple[int, float] | None = None
        self.restarts: Counter[tuple[str, str]] = Counter()
        self.connections: tuple[int, int, int] | None = None
        self.connection_answers: Counter[tuple[ConnectionProtocol, bool]] = Counter()
        self.signature_disputes = 0
        self.health_of_connections: tuple[Mapping[HealthState, int], datetime | None] | None = None
        self.figures: tuple[int, int, int, int, int] | None = None

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.append((method, route, status, seconds))

    def passkey_ceremony(self, ceremony: Ceremony, refused: PasskeyReason | None) -> None:
        self.passkey_ceremonies[ceremony, refused or "ok"] += 1

    def login_failed(self, reason: LoginFailure) -> None:
        self.login_failures[reason] += 1

    def sign_in_policy_decided(self, path: PolicyPath, outcome: Outcome) -> None:
        self.policy_decisions[path, outcome] += 1

    def token_issued(self) -> None:
        self.tokens_issued += 1

    def job_done(self, job_type: str, seconds: float) -> None:
        self.jobs.append((job_type, seconds))

    def mail_attempt_failed(self) -> None:
        self.mail_attempt_failures += 1

    def mail_ended(self, outcome: EmailOutcome) -> None:
        self.mail_outcomes[outcome] += 1

    def mail_queue(self, depth: int, age: float) -> None:
        self.mail_backlog = (depth, age)

    def actor_restarted(self, actor: str, reason: str) -> None:
        self.restarts[actor, reason] += 1

    def siem_failed(self, reason: str) -> None:
        self.siem_failures[reason] += 1

    def siem_dropped(self, entries: int) -> None:
        self.siem_drops += entries

    def webhook_delivered(self, seconds: float) -> None:
        self.deliveries.append(seconds)

    def logout_notified(self, seconds: float) -> None:
        self.logout_notices.append(seconds)

    def queue_depth(self, depth: int) -> None:
        self.due = depth

    def pool(self, total: int, idle: int, maximum: int) -> None:
        self.connections = (total, idle, maximum)

    def connection_answered(self, protocol: ConnectionProtocol, *, is_accepted: bool) -> None:
        self.connection_answers[protocol, is_accepted] += 1

    def saml_signature_disputed(self) -> None:
        self.signature_disputes += 1

    def connection_health(self, count: Mapping[HealthState, int], first_end: datetime | None) -> None:
        self.health_of_connections = (count, first_end)

    def platform(
        self, active_users: int, organizations: int, mfa_enabled_users: int, passkey_users: int, password_alone_users: int
    ) -> None:
        self.figures = (active_users, organizations, mfa_enabled_users, passkey_users, password_alone_users)


class FakeTxtRecords:
    """ports.outside.TxtRecords with the records that a test publishes.

    It fails for names in `failing`. While there is a `gate`, every answer waits for it.
    """

    def __init__(self) -> None:
        self.published: dict[str, list[str]] = {}
        self.failing: set[str] = set()
        self.lookups: list[str] = []
        self.lookup_started = trio.Event()  # set at the first lookup
        self.gate: trio.Event | None = None

    async def texts(self, name: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        self.lookups.append(name)
        self.lookup_started.set()
        texts, fails = list(self.published.get(name.lower(), ())), name in self.failing
        if self.gate is not None:
            await self.gate.wait()
        if fails:
            raise DnsFailed
        return texts


class FakeGeoIp:
    """ports.outside.GeoIp. It knows the locations that a test sets."""

    def __init__(self) -> None:
        self.known: dict[str, Location] = {}

    def locate(self, address: str | None) -> Location | None:
        return self.known.get(address or "")

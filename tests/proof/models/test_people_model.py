"""Users against a simple model: passwords, second factors, devices and sessions, in any order of
requests.

The requirements are security A-3, A-6, A-8, J-8, S-1, S-2, S-3, S-4, S-5, M-1, M-2, M-3, M-4, M-5,
M-6 and decisions 39, 40, 41, 42, 43, 44, 45, 46, 47, 59, 60, 61, 78, 79, 80, 81, 82, 83, 84, 85.
The module is longer than 400 lines, because the model and its rules share the state.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pyotp
import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts import accounts, devices, mfa, mfa_rules
from core.accounts.accounts_rules import CurrentPasswordWrong, LinkInvalid
from core.accounts.attempt_limits_rules import TooManyAttempts
from core.accounts.devices_rules import DeviceIsCurrent, DeviceNotFound, DeviceOfAnotherUser, ListedDevice, Location, PresentedDevice
from core.accounts.mfa_rules import AlreadyEnabled, CodeMalformed, CodeWrong, NotEnabled, NotSetUp, SetupCodeMalformed, SetupCodeWrong
from core.authentication import login, session_start, sessions, signing_keys
from core.authentication.login_rules import CredentialsInvalid, PreAuthInvalid, PreAuthToken, SignedIn
from core.authentication.sessions_rules import RefreshTokenInvalid, RefreshTokenReused, TokenPair
from core.kernel.errors import TokenExpired, Unauthenticated
from core.kernel.policy import Policy
from core.kernel.principals import Anonymous, Person, PreAuthClaims, ServiceContext
from core.kernel.values import digest, new_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport, FakeMetrics
from tests.support.background import Background
from tests.support.builders import FIREFOX, PASSWORD, add_account, add_organization, deliver, link, make_ports, make_vault, run_sql
from tests.support.mfa import add_mfa
from tests.support.services import add_service, service_context

T = TypeVar("T")

MILLISECOND, SECOND, MINUTE, DAY = timedelta(milliseconds=1), timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
HOUR = 60 * MINUTE
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.1 Mobile/15E148 Safari/604.1"
)
# Browser, operating system and type of device.
SAID = {FIREFOX: ("Firefox", "Linux", "browser"), IPHONE: ("Mobile Safari", "iOS", "mobile")}
PLACES = {"203.0.113.9": Location("Lisbon", "PT"), "198.51.100.7": Location(None, "NO")}


@dataclass(frozen=True)
class Visit:
    """The client of a request: the device id that it keeps, if any, its user agent, and its
    address."""

    client: str | None
    agent: str = FIREFOX
    address: str = "203.0.113.9"

    @property
    def caller(self) -> Anonymous:
        return Anonymous(address=self.address, agent=self.agent)


HOME = Visit("laptop")
VISITS = st.sampled_from(
    [
        HOME,
        HOME,
        Visit("phone", IPHONE),
        Visit(None),
        Visit(None, IPHONE),
        Visit("laptop", address="198.51.100.7"),
        Visit("laptop", address="192.0.2.1"),
    ]
)
CODES = st.sampled_from(
    ["now", "now", "now", "next", "previous", "later", "older", "used", "wrong", "backup", "backup", "used backup", "old backup"]
)
TIMES = st.sampled_from(
    [SECOND, 11 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 5 * HOUR, DAY, DAY, 7 * DAY, 29 * DAY, 31 * DAY]
)
# The trust period of each organization in days, and the user's role in it.
DAYS, PART = st.sampled_from([1, 90]), st.sampled_from(["none", "invited", "confirmed"])


@dataclass(eq=False)
class KnownDevice:
    """A device in the model."""

    id: UUID
    client: str | None
    kind: str
    name: str
    agent: str = ""
    address: str = ""
    last_used_at: datetime | None = None
    risk: "KnownRisk | None" = None
    mfa_at: datetime | None = None
    token: str | None = None
    trusted_until: datetime | None = None
    revoked: bool = False

    def distrust(self) -> None:
        self.mfa_at = self.token = self.trusted_until = None

    def is_trusted(self, days: int, now: datetime) -> bool:
        if self.revoked or self.mfa_at is None or self.trusted_until is None:
            return False
        return now < min(self.trusted_until, self.mfa_at + days * DAY)


@dataclass(frozen=True)
class KnownRisk:
    score: int
    factors: tuple[str, ...]


@dataclass(frozen=True)
class Coming:
    """A sign-in in the model: the device, or None for a new one, whether it is trusted, and the
    risk."""

    device: KnownDevice | None
    trusted: bool
    risk: KnownRisk


@dataclass(eq=False)
class KnownSession:
    """A session in the model."""

    id: UUID
    device: KnownDevice
    of_service: bool
    ends_at: datetime
    expires_at: datetime
    tokens: list[str] = field(default_factory=list)  # refresh tokens, oldest first; only the last one is valid
    access: list[tuple[str, datetime]] = field(default_factory=list)  # access tokens and when they expire, oldest first
    rotated_at: datetime | None = None
    over: bool = False


@dataclass(eq=False)
class KnownPreAuth:
    claims: PreAuthClaims
    token: str
    ends_at: datetime
    of_service: bool
    tries: int = 0
    over: bool = False

    def lives(self, now: datetime) -> bool:
        return not self.over and self.tries < 5 and now < self.ends_at


@dataclass(eq=False)
class KnownLink:
    token: str
    ends_at: datetime
    over: bool = False


@dataclass
class Counter:
    """Wrong attempts at one secret, within 15 minutes of the first.

    From the limit on, each attempt blocks the next, for `first_wait`, then twice as long, and so
    on. After `quiet` without attempts they are forgotten.
    """

    limit: int
    first_wait: timedelta = 30 * SECOND
    quiet: timedelta = 15 * MINUTE
    count: int = 0
    began: datetime | None = None
    blocked_until: datetime | None = None

    def admits(self, now: datetime) -> bool:
        """Count an attempt, and return whether it is allowed."""
        if self.blocked_until is not None and now < self.blocked_until:
            return False
        forgotten_at = now if self.began is None else self.began + 15 * MINUTE
        if self.blocked_until is not None:
            forgotten_at = self.blocked_until + self.quiet
        if now >= forgotten_at:
            self.forget()
            self.began = now
        self.count += 1
        if self.count >= self.limit:
            self.blocked_until = now + min(self.first_wait * 2 ** (self.count - self.limit), 15 * MINUTE)
        return True

    def forget(self) -> None:
        self.count, self.began, self.blocked_until = 0, None, None


@dataclass
class SecondFactor:
    """The second factor of the account, pending or active, and the authenticator app with its
    secret."""

    secret: str
    setup_at: datetime
    enabled_at: datetime | None = None
    last_step: int | None = None
    codes: dict[str, bool] = field(default_factory=dict)  # backup codes, and whether they were used

    def app(self, step: int) -> str:
        return pyotp.TOTP(self.secret).generate_otp(step)

    def step_of(self, code: str, now: datetime) -> int | None:
        """Return the newest step with this code, of the current, the previous and the next one, or
        None."""
        return next((step for step in range(step_at(now) + 1, step_at(now) - 2, -1) if self.app(step) == code), None)

    def is_right(self, code: str, now: datetime) -> bool:
        if "-" in code:
            return self.codes.get(code) is False
        step = self.step_of(code, now)
        return step is not None and (self.last_step is None or step > self.last_step)

    def accept(self, code: str, now: datetime) -> None:
        if "-" in code:
            self.codes[code] = True
        else:
            self.last_step = self.step_of(code, now)


def step_at(now: datetime) -> int:
    return int(now.timestamp()) // 30


def to_the_second(time: datetime) -> datetime:
    return time.replace(microsecond=0)


STATE = """
    with whose as (select %s::uuid as id, %s::text as email, %s::timestamptz as now, %s::uuid as other),
    alive as (select s.id from sessions s, whose w where s.user_id = w.id and s.ended_at is null and s.expires_at > w.now)
    select
        array(select id from alive),
        array(select token_hash from refresh_tokens t join alive a on a.id = t.session_id where rotated_at is null),
        (select count(*) from refresh_tokens t join sessions s on s.id = t.session_id where s.user_id = w.id),
        array(select p.id from pre_auths p where p.user_id = w.id and p.expires_at > w.now and p.failures < 5),
        array(select event_type from mfa_events e where e.user_id = w.id order by created_at),
        array(select kind from mails m where m.address = w.email order by created_at),
        array(select success from login_events e where e.user_id = w.id order by created_at),
        array(select risk_score from login_events e where e.user_id = w.id order by created_at),
        array(select device_id from sessions s where s.user_id = w.id order by created_at),
        array[
            (select u::text from users u where u.id = w.other), (select m::text from mfa m where m.user_id = w.other),
            (select string_agg(d::text, ' ' order by d.id) from devices d where d.user_id = w.other),
            (select string_agg(s::text, ' ' order by s.id) from sessions s where s.user_id = w.other),
            (select string_agg(p::text, ' ' order by p.id) from pre_auths p where p.user_id = w.other),
            (select string_agg(c::text, ' ' order by c.code_hash) from backup_codes c where c.user_id = w.other),
            (select string_agg(e::text, ' ' order by e.id) from mfa_events e where e.user_id = w.other),
            (select string_agg(e::text, ' ' order by e.id) from login_events e where e.user_id = w.other)]
    from whose w"""
ALL_OF_ONE = """
    with whose as (select %s::uuid as id, %s::text as email)
    select string_agg(line, ' ') from (
        select t::text as line from users t join whose w on t.id = w.id
        union all select t::text from mfa t join whose w on t.user_id = w.id
        union all select t::text from backup_codes t join whose w on t.user_id = w.id
        union all select t::text from mfa_events t join whose w on t.user_id = w.id
        union all select t::text from pre_auths t join whose w on t.user_id = w.id
        union all select t::text from devices t join whose w on t.user_id = w.id
        union all select t::text from sessions t join whose w on t.user_id = w.id
        union all select t::text from refresh_tokens t join sessions s on s.id = t.session_id join whose w on s.user_id = w.id
        union all select t::text from login_events t join whose w on t.user_id = w.id
        union all select t::text from one_time_tokens t join whose w on t.user_id = w.id
        union all select t::text from mails t join whose w on t.address = w.email
        union all select t::text from audit_log t join whose w on t.target_id = w.id::text or t.actor_id = w.id
        union all select t::text from events t join whose w on t.target_id = w.id::text or t.actor_id = w.id
        union all select t::text from guesses t) kept"""


class PeopleMachine(RuleBasedStateMachine):
    """One account with its secrets on a few clients, and another account that must not change."""

    background: ClassVar[Background]
    shared: ClassVar[Ports]
    sent: ClassVar[FakeMailTransport]
    pool: ClassVar[Pool]
    limit: ClassVar[int]
    number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.password = PASSWORD
        self.passwords = [PASSWORD]
        self.factor: SecondFactor | None = None
        self.sessions: list[KnownSession] = []
        self.pre_auths: list[KnownPreAuth] = []
        self.devices: list[KnownDevice] = []
        self.links: list[KnownLink] = []
        self.logins: list[tuple[datetime, bool, int]] = []
        self.places: set[Location] = set()
        self.mfa_log: list[str] = []
        self.mails: list[str] = []
        self.jar: dict[tuple[str | None, str], str] = {}  # the last trust token of each client
        self.trust_tokens: list[str] = []
        self.old_backup_codes: list[str] = []
        self.used_codes: list[str] = []
        self.password_guesses = Counter(self.limit)
        self.code_guesses = Counter(self.limit, first_wait=15 * MINUTE, quiet=timedelta())
        self.guesses_with: dict[str, Counter] = defaultdict(lambda: Counter(self.limit))
        self.days = [30, 30]
        self.part = ["none", "none"]  # one session for each organization; the first organization has the service

    def run(self, act: Callable[..., Awaitable[T]], *args: object) -> T:
        return self.background.run(act, *args)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def tick(self) -> None:
        """Advance the clock, so that no two requests have the same time."""
        self.clock.advance(MILLISECOND)

    @initialize(enabled=st.booleans())
    def begin(self, enabled: bool) -> None:
        PeopleMachine.number += 1
        self.clock = FakeClock()
        self.ports = replace(self.shared, clock=self.clock, storage=Postgres(self.pool, make_vault(), self.clock))
        self.account = self.run(add_account, self.ports, f"person-{self.number}@example.com")
        self.orgs = [self.run(add_organization, self.pool, f"{name}-{self.number}") for name in ("acme", "borg")]
        self.service = self.run(service_context, self.pool, self.run(add_service, self.pool, self.orgs[0]))
        if enabled:
            found = self.run(add_mfa, self.ports, self.account)
            self.factor = SecondFactor(found.secret, self.now, self.now, step_at(self.now) - 1, dict.fromkeys(found.backup_codes, False))
        self.run(self._add_witness)
        self.witness = self.run(self._look)[-1]

    async def _add_witness(self) -> None:
        """Add the other account, with a session on a trusted device and a pending sign-in."""
        self.other = await add_account(self.ports, f"witness-{self.number}@example.com")
        app = await add_mfa(self.ports, self.other)
        email, client, caller = self.other.email, PresentedDevice(HOME.client), HOME.caller
        waiting = await login.sign_in_with_password(self.ports, caller, email, PASSWORD, client)
        assert isinstance(waiting, PreAuthToken)
        claims = await signing_keys.read_pre_auth(self.ports, waiting.token)
        signed_in = await login.sign_in_with_code(self.ports, caller, claims, app.code(), client, trust_device=True)
        assert signed_in.device_token is not None
        assert signed_in.session.device_id is not None
        self.others_token, self.others_device = signed_in.device_token, signed_in.session.device_id
        assert isinstance(await login.sign_in_with_password(self.ports, caller, email, PASSWORD, client), PreAuthToken)

    # The model

    @property
    def asked_for(self) -> SecondFactor | None:
        return self.factor if self.factor is not None and self.factor.enabled_at is not None else None

    @property
    def pending(self) -> SecondFactor | None:
        """Return the secret that can be confirmed now."""
        waits = self.factor is not None and self.factor.enabled_at is None and self.now < self.factor.setup_at + 15 * MINUTE
        return self.factor if waits else None

    def lives(self, session: KnownSession) -> bool:
        return not session.over and self.now < session.expires_at

    def trust_days(self, of_service: bool) -> int:
        periods = [days for days, part in zip(self.days, self.part, strict=True) if part == "confirmed"]
        return min([*periods, self.days[0]] if of_service else periods, default=30)

    def recognised(self, visit: Visit, token: str | None) -> KnownDevice | None:
        browser, system, kind = SAID[visit.agent]
        here = sorted((device for device in self.devices if not device.revoked), key=lambda device: device.last_used_at or self.now)
        if token is not None and (by_token := [device for device in here if device.token == token]):
            return by_token[-1]
        if visit.client is not None:
            return next((device for device in here if device.client == visit.client), None)
        alike = [one for one in here if one.client is None and (*SAID[one.agent][:2], one.kind) == (browser, system, kind)]
        return alike[-1] if alike else None

    def coming(self, visit: Visit, token: str | None, of_service: bool) -> Coming:
        device, now = self.recognised(visit, token), self.now
        good = [at for at, success, _ in self.logins if success]
        since = max([now - DAY, *good])
        lately = [at for at in good if at > now - 30 * DAY]
        location = PLACES.get(visit.address)
        parts = {
            "new_device": 30 * (device is None),
            "unknown_location": 20 * (location is not None and location not in self.places),
            "unusual_time": 10 * (len(lately) >= 10 and now.hour not in {at.hour for at in lately}),
            "failed_attempts": 20 * sum(not success and at > since for at, success, _ in self.logins),
        }
        risk = KnownRisk(min(100, sum(parts.values())), tuple(name for name, points in parts.items() if points))
        shown = device is not None and token is not None and device.token == token
        trusted = shown and device is not None and device.is_trusted(self.trust_days(of_service), now) and risk.score <= 70
        return Coming(device, trusted, risk)

    def end_all(self, but: KnownSession | None = None) -> None:
        for session in self.sessions:
            session.over = session.over or session is not but

    def end_trust(self) -> None:
        """End what a change of the password or of the second factor ends."""
        for device in self.devices:
            device.distrust()
        for waiting in self.pre_auths:
            waiting.over = True

    def failed(self) -> None:
        self.logins.append((self.now, False, 0))

    def took(self, session: KnownSession, pair: TokenPair) -> None:
        """Store a pair of tokens, after checking the lifetimes."""
        expires_at = to_the_second(min(self.now + 15 * MINUTE, session.ends_at))
        assert pair.expires_in == int((expires_at - to_the_second(self.now)).total_seconds())
        assert pair.refresh_token not in {token for known in self.sessions for token in known.tokens}
        session.tokens.append(pair.refresh_token)
        session.access.append((pair.access_token, expires_at))
        session.expires_at = min(self.now + 30 * DAY, session.ends_at)

    def began(self, found: SignedIn, visit: Visit, coming: Coming, of_service: bool, name: str | None = None) -> KnownSession:
        """Store the session of a sign-in."""
        said, id_ = SAID[visit.agent], found.session.device_id
        assert id_ is not None
        device = coming.device
        if device is None:
            assert id_ not in {known.id for known in self.devices}
            device = KnownDevice(id_, visit.client, said[2], f"{said[0]} on {said[1]}")
            self.devices.append(device)
        assert id_ == device.id
        device.name = name or device.name
        device.agent, device.address, device.last_used_at, device.risk = visit.agent, visit.address, self.now, coming.risk
        assert found.session.id not in {known.id for known in self.sessions}
        session = KnownSession(found.session.id, device, of_service, self.now + 90 * DAY, self.now)
        self.took(session, session_start.issue_first_tokens(self.ports, found))
        self.sessions.append(session)
        self.logins.append((self.now, True, coming.risk.score))
        if visit.address in PLACES:
            self.places.add(PLACES[visit.address])
        if coming.risk.score > 70 and self.asked_for is None:
            self.mails.append("unusual_sign_in")
        if of_service and self.part[0] == "invited":
            self.part[0] = "confirmed"
        return session

    # Signing in

    def _password(self, visit: Visit, password: str, token: str | None = None, of_service: bool = False) -> KnownPreAuth | None:
        """Send the password. Return the sign-in that waits for the second factor, if any."""
        self.tick()
        trusting = [one for one in self.devices if token is not None and one.token == token and not one.revoked]
        bypasses = any(one.trusted_until is not None and self.now < one.trusted_until for one in trusting)
        counter = self.guesses_with[token] if bypasses and token is not None else self.password_guesses
        admitted, right = counter.admits(self.now), password == self.password
        try:
            found = self.run(self._with_password, visit, password, token, self.service if of_service else None)
        except TooManyAttempts as refusal:
            self.refused(admitted, refusal, counter)
            return None
        except CredentialsInvalid:
            assert admitted
            assert not right
            self.failed()
            return None
        assert admitted
        assert right
        counter.forget()
        coming = self.coming(visit, token, of_service)
        if not isinstance(found, PreAuthToken):
            assert self.asked_for is None or coming.trusted
            assert found.device_token is None
            self.began(found, visit, coming, of_service)
            return None
        assert self.asked_for is not None
        assert not coming.trusted
        assert found.expires_in == 600
        claims = self.run(signing_keys.read_pre_auth, self.ports, found.token)
        waiting = KnownPreAuth(claims, found.token, self.now + 600 * SECOND, of_service)
        self.pre_auths.append(waiting)
        return waiting

    async def _with_password(
        self, visit: Visit, password: str, token: str | None, service: ServiceContext | None
    ) -> SignedIn | PreAuthToken:
        client = PresentedDevice(visit.client, token)
        return await login.sign_in_with_password(self.ports, visit.caller, self.account.email, password, client, service)

    def refused(self, admitted: bool, refusal: TooManyAttempts, counter: Counter) -> None:
        assert not admitted
        assert counter.blocked_until is not None
        assert refusal.retry_after == math.ceil((counter.blocked_until - self.now).total_seconds())

    def _code(self, waiting: KnownPreAuth, code: str, visit: Visit, *, trust: bool = False, name: str | None = None) -> None:
        """Send a code for the second factor."""
        self.tick()
        alive = waiting.lives(self.now)
        admitted = alive and self.code_guesses.admits(self.now)
        factor = self.asked_for
        right = factor is not None and factor.is_right(code, self.now)
        waiting.tries += admitted
        try:
            found = self.run(self._with_code, waiting.claims, code, visit, trust, name)
        except PreAuthInvalid:
            assert not alive
            return
        except TooManyAttempts as refusal:
            assert alive
            self.refused(admitted, refusal, self.code_guesses)
            return
        except CodeWrong:
            assert admitted
            assert not right
            self.mfa_log += ["mfa_verify_attempt", "mfa_verify_failed"]
            self.failed()
            return
        assert admitted
        assert right
        assert factor is not None
        factor.accept(code, self.now)
        self.used_codes.append(code)
        self.code_guesses.forget()
        waiting.over = True
        self.mfa_log += ["mfa_verify_attempt", "mfa_verify_success"]
        if "-" in code:
            self.mfa_log.append("backup_code_used")
            self.mails.append("backup_code_used")
        session = self.began(found, visit, self.coming(visit, None, waiting.of_service), waiting.of_service, name)
        session.device.mfa_at = self.now
        assert (found.device_token is not None) is trust
        if found.device_token is not None:
            assert found.device_token not in self.trust_tokens
            session.device.token, session.device.trusted_until = found.device_token, self.now + 90 * DAY
            self.jar[visit.client, visit.agent] = found.device_token
            self.trust_tokens.append(found.device_token)

    async def _with_code(self, claims: PreAuthClaims, code: str, visit: Visit, trust: bool, name: str | None) -> SignedIn:
        return await login.sign_in_with_code(
            self.ports, visit.caller, claims, code, PresentedDevice(visit.client, name=name), trust_device=trust
        )

    def code(self, kind: str) -> str:
        """Return a code of this kind, if there is one."""
        factor = self.factor or SecondFactor("A" * 32, self.now)
        steps = {"now": 0, "next": 1, "previous": -1, "later": 2, "older": -2}
        used = [code for code, was_used in factor.codes.items() if was_used]
        fresh = [code for code, was_used in factor.codes.items() if not was_used]
        by_kind = {"used": self.used_codes[-1:], "backup": fresh[:1], "used backup": used[-1:], "old backup": self.old_backup_codes[-1:]}
        if by_kind.get(kind):
            return by_kind[kind][0]
        if kind in steps:
            return factor.app(step_at(self.now) + steps[kind])
        near = {factor.app(step_at(self.now) + steps) for steps in range(-3, 4)}
        return "ABCD-2345" if "backup" in kind else next(code for code in map(str, range(100000, 200000)) if code not in near)

    def have_second_factor(self) -> None:
        if self.asked_for is None:
            self.wait_for(self.code_guesses)
            self.enable(timedelta(), anew=False)

    def wait_for(self, counter: Counter) -> None:
        if counter.blocked_until is not None:
            self.clock.advance(max(counter.blocked_until - self.now, timedelta()))

    def new_code(self) -> str:
        """Return a valid code of the app, after waiting for one if necessary."""
        factor = self.factor
        assert factor is not None
        self.tick()  # a code that is made now is sent at the next tick
        while factor.last_step is not None and step_at(self.now + MILLISECOND) <= factor.last_step:
            self.clock.advance(30 * SECOND)
        return factor.app(step_at(self.now + MILLISECOND))

    def sign_in(self, visit: Visit = HOME, *, trust: bool = False) -> KnownSession:
        """Sign in successfully. To trust the device, the account gets a second factor."""
        if trust:
            self.have_second_factor()
        self.wait_for(self.password_guesses)
        self.wait_for(self.code_guesses)
        before = len(self.sessions)
        waiting = self._password(visit, self.password)
        if waiting is not None:
            self._code(waiting, self.new_code(), visit, trust=trust)
        assert len(self.sessions) == before + 1
        return self.sessions[-1]

    @rule(
        visit=VISITS,
        which=st.sampled_from(["right"] * 4 + ["old", "wrong"]),
        token=st.integers(-2, 9),
        of_service=st.sampled_from([False] * 4 + [True]),
    )
    def show_the_password(self, visit: Visit, which: str, token: int, of_service: bool) -> None:
        password = {"right": self.password, "old": self.passwords[-2:][0], "wrong": "wrong password"}[which]
        self._password(visit, password, self.trust_token(visit, token), of_service)

    def trust_token(self, visit: Visit, number: int) -> str | None:
        """Return the token of this client.

        Tokens of other clients, old ones and none occur less often.
        """
        if number < 0:
            return [None, self.others_token][number]
        if number < 2 and self.trust_tokens:
            return self.trust_tokens[-1 - number % len(self.trust_tokens)]
        return self.jar.get((visit.client, visit.agent))

    @rule(times=st.integers(1, 5), visit=VISITS, whose=st.sampled_from(["none", "own", "own", "another's"]), patient=st.booleans())
    def guess_passwords(self, times: int, visit: Visit, whose: str, patient: bool) -> None:
        """Guess as an attacker, with or without patience.

        Then send the right password, perhaps from a trusted device.
        """
        if whose == "own":
            self.sign_in(visit, trust=True)
        token = {"none": None, "own": self.trust_token(visit, 9), "another's": self.others_token}[whose]
        for _ in range(times):
            self._password(visit, "wrong password")
            if patient:
                self.wait_for(self.password_guesses)
                self._password(visit, "wrong password")
        self._password(visit, "wrong password", token)
        self._password(visit, self.password, token)

    @rule(nth=st.integers(0, 2), kind=CODES, visit=VISITS, trust=st.booleans(), name=st.sampled_from([None, None, "Mine"]))
    def show_the_second_factor(self, nth: int, kind: str, visit: Visit, trust: bool, name: str | None) -> None:
        """Send a code for any sign-in, pending or not."""
        if self.pre_auths:
            self._code(self.pre_auths[-1 - nth % len(self.pre_auths)], self.code(kind), visit, trust=trust, name=name)

    @rule(kind=CODES, visit=VISITS, trust=st.booleans())
    def sign_in_with(self, kind: str, visit: Visit, trust: bool) -> None:
        waiting = self._password(visit, self.password)
        if waiting is not None:
            self._code(waiting, self.code(kind), visit, trust=trust)

    @rule(kind=st.sampled_from(["app", "backup"]), pause=st.sampled_from([timedelta(), 30 * SECOND, 60 * SECOND]), then=CODES)
    def show_a_code_twice(self, kind: str, pause: timedelta, then: str) -> None:
        """Send a code in two sign-ins, with a pause between them, and then another code in the
        second one."""
        self.have_second_factor()
        self.wait_for(self.password_guesses)
        self.wait_for(self.code_guesses)
        first, second = self._password(HOME, self.password), self._password(Visit("phone", IPHONE), self.password)
        assert first is not None
        assert second is not None
        code = self.new_code()
        if kind == "backup":
            code = self.code("backup")
        self._code(first, code, HOME)
        self.clock.advance(pause)
        self._code(second, code, HOME)
        self._code(second, self.code(then), HOME)

    @rule(visit=VISITS)
    def come_to_be_trusted(self, visit: Visit) -> None:
        self.sign_in(visit, trust=True)

    @rule(times=st.integers(2, 6))
    def guess_codes(self, times: int) -> None:
        waiting = self._password(HOME, self.password)
        for _ in range(times if waiting is not None else 0):
            assert waiting is not None
            self._code(waiting, self.code("wrong"), HOME)
        if waiting is not None:
            self._code(waiting, self.new_code(), HOME)

    @rule(code=st.sampled_from(["", "12345", "1234567", "12345\N{ARABIC-INDIC DIGIT SIX}", "abcd-efgh", "ABCDEFGH", "123456 "]))
    def show_no_code(self, code: str) -> None:
        """Send no code. This counts as no attempt, and reveals nothing about the sign-in."""
        self.tick()
        if self.pre_auths:
            with pytest.raises(CodeMalformed):
                self.run(self._with_code, self.pre_auths[-1].claims, code, HOME, True, None)

    @rule()
    def pre_auth_tokens_open_nothing_else(self) -> None:
        for waiting in self.pre_auths[-1:]:
            with pytest.raises(Unauthenticated):
                self.run(self._authenticate, waiting.token)
            with pytest.raises(RefreshTokenInvalid):
                self.run(sessions.refresh, self.ports, HOME.caller, waiting.token)

    # Staying signed in

    def person(self, session: KnownSession, nth: int = -1) -> Person | None:
        """Return the caller of an access token of the session, after checking that it is accepted
        or refused correctly."""
        text, expires_at = session.access[nth]
        try:
            found = self.run(self._authenticate, text)
        except TokenExpired:
            assert self.now >= expires_at
            return None
        except Unauthenticated:
            assert not self.lives(session)
            return None
        assert self.lives(session)
        assert self.now < expires_at
        assert (found.user_id, found.session_id) == (self.account.id, session.id)
        assert (found.service is not None) is session.of_service
        return found

    async def _authenticate(self, token: str) -> Person:
        return await sessions.authenticate(self.ports, token, address=HOME.address, agent=HOME.agent)

    def _refresh(self, session: KnownSession, nth: int) -> None:
        lived, text = self.lives(session), session.tokens[nth]
        age = len(session.tokens) - 1 - session.tokens.index(text)
        raced = age == 1 and session.rotated_at is not None and self.now - session.rotated_at <= 10 * SECOND
        try:
            pair = self.run(sessions.refresh, self.ports, HOME.caller, text)
        except RefreshTokenInvalid as refusal:
            assert not lived or age > 0
            assert isinstance(refusal, RefreshTokenReused) is (lived and not raced)  # noqa: PT017
            session.over = session.over or (lived and not raced)
            return
        assert lived
        assert age == 0
        session.rotated_at = self.now
        self.took(session, pair)

    def somebody(self, nth: int = 0) -> tuple[KnownSession, Person]:
        """Return a live session of the account without a service, from a new sign-in if necessary."""
        signed_in = [session for session in self.sessions if self.lives(session) and not session.of_service]
        session = signed_in[-1 - nth % len(signed_in)] if signed_in else self.sign_in()
        if self.now >= session.access[-1][1]:
            self._refresh(session, -1)
        found = self.person(session)
        assert found is not None
        return session, found

    @rule(nth=st.integers(0, 3), age=st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
    def refresh(self, nth: int, age: int) -> None:
        """Refresh with any token of any session."""
        if self.sessions:
            session = self.sessions[-1 - nth % len(self.sessions)]
            self._refresh(session, -1 - min(age, len(session.tokens) - 1))

    @rule(
        pause=st.sampled_from([timedelta(), 10 * SECOND, 10 * SECOND + timedelta(microseconds=1), MINUTE]), tabs=st.sampled_from([2, 2, 3])
    )
    def tabs_refresh(self, pause: timedelta, tabs: int) -> None:
        """Refresh with one token in three tabs.

        The third one is late, after the first has refreshed again.
        """
        session, _ = self.somebody()
        for _ in range(tabs - 1):
            self._refresh(session, -1)
        self.clock.advance(pause)
        self._refresh(session, -tabs)

    @rule(nth=st.integers(0, 3), age=st.integers(0, 2))
    def come_in(self, nth: int, age: int) -> None:
        if self.sessions:
            session = self.sessions[-1 - nth % len(self.sessions)]
            self.person(session, -1 - min(age, len(session.access) - 1))

    @rule(nth=st.integers(0, 3))
    def log_out(self, nth: int) -> None:
        session, person = self.somebody(nth)
        self.run(sessions.logout, self.ports, person)
        session.over = True
        assert self.person(session) is None

    # Passwords

    @rule(nth=st.integers(0, 2), which=st.sampled_from(["right", "right", "right", "wrong"]), meanwhile=st.booleans())
    def change_password(self, nth: int, which: str, meanwhile: bool) -> None:
        """Change the password, perhaps during a sign-in with it."""
        session, person = self.somebody(nth)
        if meanwhile:
            self._password(Visit("phone", IPHONE), self.password)
        self.tick()
        admitted, changed = self.password_guesses.admits(self.now), f"changed password {len(self.passwords)}"
        current = self.password if which == "right" else "wrong password"
        try:
            self.run(accounts.change_password, self.ports, person, current, changed)
        except TooManyAttempts as refusal:
            self.refused(admitted, refusal, self.password_guesses)
            return
        except CurrentPasswordWrong:
            assert admitted
            assert which == "wrong"
            return
        assert admitted
        assert which == "right"
        for known in self.links:
            known.over = True
        self.changed_to(changed, but=session)
        assert self.person(session) is not None

    def changed_to(self, password: str, but: KnownSession | None = None) -> None:
        self.password = password
        self.passwords.append(password)
        self.password_guesses.forget()
        self.end_all(but)
        self.end_trust()
        self.mails.append("password_changed")

    @precondition(lambda self: len(self.links) < 4)
    @rule()
    def ask_for_a_reset(self) -> None:
        self.tick()
        token = self.run(self._ask_for_a_reset)
        for known in self.links:
            known.over = True
        self.links.append(KnownLink(token, self.now + HOUR))
        self.mails.append("reset_password")

    @precondition(lambda self: len(self.links) < 4)
    @rule(guesses=st.sampled_from([0, 3, 4]), changed=st.booleans(), pause=st.sampled_from([timedelta(), HOUR - MILLISECOND, HOUR]))
    def forget_the_password(self, guesses: int, changed: bool, pause: timedelta) -> None:
        """Reset the password, which may be known. Other sign-ins may run at the same time."""
        self._password(Visit("phone", IPHONE), self.password)
        for _ in range(guesses):
            self._password(HOME, "forgotten password")
        self.ask_for_a_reset()
        if changed:
            self.change_password(0, "right", meanwhile=False)
        self.clock.advance(max(self.links[-1].ends_at - HOUR + pause - MILLISECOND - self.now, timedelta()))
        self.reset_password(0)
        self._password(HOME, self.password)

    async def _ask_for_a_reset(self) -> str:
        await accounts.forgot_password(self.ports, HOME.caller, self.account.email)
        await deliver(self.ports)
        return next(link(letter) for letter in reversed(self.sent.emails) if letter.to == self.account.email and "token=" in letter.text)

    @rule(nth=st.sampled_from([0, 0, 0, 1]))
    def reset_password(self, nth: int) -> None:
        self.tick()
        if self.links:
            known, changed = self.links[-1 - nth % len(self.links)], f"reset password {len(self.passwords)}"
            if known.over or self.now >= known.ends_at:
                with pytest.raises(LinkInvalid):
                    self.run(accounts.reset_password, self.ports, HOME.caller, known.token, changed)
            else:
                self.run(accounts.reset_password, self.ports, HOME.caller, known.token, changed)
                known.over = True
                self.changed_to(changed)

    # The second factor of the account

    @rule(nth=st.integers(0, 2))
    def set_up(self, nth: int) -> None:
        _, person = self.somebody(nth)
        self.tick()
        if self.asked_for is not None:
            with pytest.raises(AlreadyEnabled):
                self.run(mfa.start_setup, self.ports, person)
        else:
            self.factor = SecondFactor(self.run(mfa.start_setup, self.ports, person).secret, self.now)
            self.mfa_log.append("mfa_setup_initiated")
            found = self.run(mfa.find_pending_setup, self.ports, person)
            assert found is not None
            assert found.secret == self.factor.secret

    @rule(nth=st.integers(0, 2), kind=st.sampled_from(["now", "now", "next", "previous", "older", "later", "wrong", "used", "backup"]))
    def confirm(self, nth: int, kind: str) -> None:
        _, person = self.somebody(nth)
        self._confirm(person, self.code(kind))

    def _confirm(self, person: Person, code: str) -> None:
        self.tick()
        pending = self.pending
        if "-" in code:
            with pytest.raises(SetupCodeMalformed):
                self.run(mfa.confirm_setup, self.ports, person, code)
            return
        if pending is None:
            with pytest.raises(NotSetUp if self.asked_for is None else AlreadyEnabled):
                self.run(mfa.confirm_setup, self.ports, person, code)
            return
        admitted, step = self.code_guesses.admits(self.now), pending.step_of(code, self.now)
        try:
            codes = self.run(mfa.confirm_setup, self.ports, person, code)
        except TooManyAttempts as refusal:
            self.refused(admitted, refusal, self.code_guesses)
            return
        except SetupCodeWrong:
            assert admitted
            assert step is None
            self.mfa_log.append("mfa_setup_failed")
            return
        assert admitted
        assert step is not None
        self.code_guesses.forget()
        pending.enabled_at, pending.last_step = self.now, step
        self.used_codes.append(code)
        self.new_backup_codes(pending, codes)
        self.end_trust()
        self.mfa_log += ["mfa_setup_completed", "mfa_enabled", "backup_codes_generated"]
        self.mails.append("mfa_enabled")

    def new_backup_codes(self, factor: SecondFactor, codes: Sequence[str]) -> None:
        assert len(set(codes)) == 10
        self.old_backup_codes += factor.codes
        factor.codes = dict.fromkeys(codes, False)

    @rule(pause=st.sampled_from([timedelta(), 15 * MINUTE - MILLISECOND, 15 * MINUTE]), anew=st.booleans())
    def enable(self, pause: timedelta, anew: bool) -> None:
        """Enable the second factor, slowly, and perhaps with another app than before."""
        if anew:
            self.disable(0)
        self.set_up(0)
        self.clock.advance(max(pause - MILLISECOND, timedelta()))  # the confirmation takes a tick
        _, person = self.somebody()
        self._confirm(person, self.code("now"))

    @rule(nth=st.integers(0, 2))
    def disable(self, nth: int) -> None:
        _, person = self.somebody(nth)
        self.tick()
        was_on = self.asked_for
        assert self.run(mfa.disable, self.ports, person) is (was_on is not None)
        self.factor = None
        if was_on is not None:
            self.old_backup_codes += was_on.codes
            self.end_trust()
            self.mfa_log.append("mfa_disabled")
            self.mails.append("mfa_disabled")

    @rule(nth=st.integers(0, 2))
    def regenerate(self, nth: int) -> None:
        _, person = self.somebody(nth)
        self.tick()
        if self.asked_for is None:
            with pytest.raises(NotEnabled):
                self.run(mfa.regenerate_backup_codes, self.ports, person)
        else:
            self.new_backup_codes(self.asked_for, self.run(mfa.regenerate_backup_codes, self.ports, person))
            self.mfa_log.append("backup_codes_generated")
            self.mails.append("backup_codes_regenerated")

    # Devices, and the organizations that limit their trust

    @rule(nth=st.integers(0, 2), which=st.integers(0, 5), comes_back=st.booleans())
    def revoke(self, nth: int, which: int, comes_back: bool) -> None:
        session, person = self.somebody(nth)
        self.tick()
        device = self.devices[-1 - which % len(self.devices)]
        if device is session.device:
            with pytest.raises(DeviceIsCurrent):
                self.run(devices.revoke, self.ports, person, device.id)
        else:
            self.run(devices.revoke, self.ports, person, device.id)
            device.revoked = True
            device.distrust()
            for one in self.sessions:
                one.over = one.over or one.device is device
        if comes_back:
            self.sign_in(Visit(device.client, device.agent))

    @rule(nth=st.integers(0, 2), which=st.integers(0, 5), name=st.sampled_from(["Study", "Kitchen"]))
    def rename(self, nth: int, which: int, name: str) -> None:
        _, person = self.somebody(nth)
        self.tick()
        device = self.devices[-1 - which % len(self.devices)]
        if device.revoked:
            with pytest.raises(DeviceNotFound):
                self.run(devices.rename, self.ports, person, device.id, name)
        else:
            self.run(devices.rename, self.ports, person, device.id, name)
            device.name = name

    @rule()
    def meddle_with_a_device_of_another(self) -> None:
        _, person = self.somebody()
        for act in (devices.find, devices.revoke):
            with pytest.raises(DeviceOfAnotherUser):
                self.run(act, self.ports, person, self.others_device)
        with pytest.raises(DeviceOfAnotherUser):
            self.run(devices.rename, self.ports, person, self.others_device, "Taken")

    @rule(org=st.sampled_from([0, 1]), days=DAYS, part=PART)
    def organizations_change(self, org: int, days: int, part: str) -> None:
        self.days[org], self.part[org] = days, part
        self.run(self._organization_changes, self.orgs[org], days, part)

    async def _organization_changes(self, org: UUID, days: int, part: str) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("update organizations set device_trust_days = %s where id = %s", (days, org))
            await connection.execute("delete from memberships where org_id = %s", (org,))
            if part != "none":
                insert = (
                    "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, 'member', %s, %s)"
                )
                confirmed_at = self.now if part == "confirmed" else None
                await connection.execute(insert, (new_id(), org, self.account.id, self.now, confirmed_at))

    @rule(time=TIMES)
    def wait(self, time: timedelta) -> None:
        self.clock.advance(time)

    @rule(visit=VISITS, days=st.tuples(DAYS, DAYS), parts=st.tuples(PART, PART), again=st.booleans(), of_service=st.booleans())
    def come_back_at_the_end_of_trust(
        self, visit: Visit, days: tuple[int, int], parts: tuple[str, str], again: bool, of_service: bool
    ) -> None:
        """Return in the last moment of trust and in the first one after it.

        The second factor may have been used on the device between them.
        """
        self.sign_in(visit, trust=True)
        for org in (0, 1):
            self.organizations_change(org, days[org], parts[org])
        device, token = self.sessions[-1].device, self.jar[visit.client, visit.agent]
        assert device.trusted_until is not None
        if again:
            self.clock.advance(DAY)
            self.sign_in(visit)
        assert device.mfa_at is not None
        ends_at = min(device.trusted_until, device.mfa_at + self.trust_days(of_service) * DAY)
        self.clock.advance(ends_at - self.now - 2 * MILLISECOND)
        for _ in range(2):  # each takes a tick
            self._password(visit, self.password, token, of_service)

    @precondition(lambda self: self.sessions and len(self.sessions) < 10)
    @rule(then=st.sampled_from([MINUTE, 2 * HOUR]), failures=st.integers(2, 4))
    def make_it_a_habit(self, then: timedelta, failures: int) -> None:
        """Sign in so often that the hour of a sign-in can be unusual.

        Then fail once, and sign in on a trusted device.
        """
        self.sign_in(trust=True)
        while len(self.sessions) < 10:
            self.clock.advance(5 * SECOND)
            self._password(HOME, self.password, self.jar[HOME.client, HOME.agent])
        self.clock.advance(then)
        self.guess_passwords(failures - 1, HOME, "own", patient=False)

    # Invariants

    async def _look(self) -> tuple[Any, ...]:
        [row] = await run_sql(self.pool, STATE, self.account.id, self.account.email, self.now, self.other.id)
        return row

    async def _look_around(self) -> tuple[tuple[Any, ...], mfa_rules.MfaStatus, list[ListedDevice]]:
        current = self.sessions[-1].id if self.sessions else new_id()
        person = Person(address=None, agent=None, user_id=self.account.id, email=self.account.email, session_id=current)
        listed = [seen async for batch in devices.list_own(self.ports, person) for seen in batch]
        return await self._look(), await mfa.get_status(self.ports, person), listed

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        row, status, listed = self.run(self._look_around)
        alive, good, tokens, waiting, mfa_log, mails, successes, risks, used, witness = row
        living = [session for session in self.sessions if self.lives(session)]
        assert set(alive) == {session.id for session in living}
        assert set(good) == {digest(session.tokens[-1]) for session in living}
        assert tokens == sum(len(session.tokens) for session in self.sessions)
        assert set(waiting) == {one.claims.id for one in self.pre_auths if one.lives(self.now)}
        assert mfa_log == self.mfa_log
        assert mails == self.mails
        assert successes == [success for _, success, _ in self.logins]
        assert risks == [risk for _, _, risk in self.logins]
        assert used == [session.device.id for session in self.sessions]
        assert witness == self.witness
        factor = self.asked_for
        assert status.enabled_at == (factor.enabled_at if factor else None)
        assert status.backup_codes == (list(factor.codes.values()).count(False) if factor else 0)
        self.devices_are(listed)
        if self.sessions:
            self.person(self.sessions[self.clock.now().microsecond // 1000 % len(self.sessions)])

    def devices_are(self, listed: list[ListedDevice]) -> None:
        here = [device for device in self.devices if not device.revoked]
        here.sort(key=lambda device: device.last_used_at or self.now, reverse=True)
        assert [seen.device.id for seen in listed] == [device.id for device in here]
        days = self.trust_days(of_service=False)
        for seen, known in zip(listed, here, strict=True):
            found = seen.device
            assert (found.name, found.device_type.value, found.last_used_at) == (known.name, known.kind, known.last_used_at)
            assert (found.browser, found.os) == SAID[known.agent][:2]
            assert (found.last_ip, found.location) == (known.address, PLACES.get(known.address))
            assert KnownRisk(found.risk.score, found.risk.factors) == known.risk
            assert (found.mfa_at, found.trust_expires_at) == (known.mfa_at, known.trusted_until)
            assert seen.trusted is known.is_trusted(days, self.now)
            assert seen.is_current is (known is self.sessions[-1].device)

    def teardown(self) -> None:
        """Check that no secret is readable anywhere."""
        if not hasattr(self, "witness"):
            return
        [(kept,)] = self.run(run_sql, self.pool, ALL_OF_ONE, self.account.id, self.account.email)
        secrets = {*self.passwords, *self.trust_tokens, *self.old_backup_codes, *(known.token for known in self.links)}
        secrets |= {token for session in self.sessions for token in session.tokens}
        if self.factor is not None:
            secrets |= {self.factor.secret, *self.factor.codes}
        assert not [secret for secret in secrets if secret in kept or secret.encode().hex() in kept]
        self.run(run_sql, self.pool, "delete from mails where address = %s", self.account.email)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [pytest.param(10**6, id="patient"), pytest.param(3, id="three guesses")])
def test_users_get_the_responses_of_the_model(conninfo: str, limit: int) -> None:
    with Background() as background:
        PeopleMachine.background, PeopleMachine.limit = background, limit
        PeopleMachine.sent, PeopleMachine.pool = FakeMailTransport(), Pool(conninfo, size=2)
        places = FakeGeoIp()
        places.known.update(PLACES)
        policy = Policy(account_guess_limit=limit, mfa_guess_limit=limit, mails_per_recipient=10**6)
        PeopleMachine.shared = background.run(_ports, PeopleMachine.pool, PeopleMachine.sent, policy, places)
        try:
            seed(limit)(PeopleMachine)  # otherwise both would have the same effect
            steady = settings(derandomize=True, deadline=None, max_examples=16, stateful_step_count=30, database=None)
            run_state_machine_as_test(PeopleMachine, settings=steady)
        finally:
            background.run(PeopleMachine.pool.aclose)


async def _ports(pool: Pool, sent: FakeMailTransport, policy: Policy, places: FakeGeoIp) -> Ports:
    return await make_ports(pool, FakeClock(), sent, FakeMetrics(), policy, geoip=places)

"""Users against a simple model: passwords, second factors, devices and sessions, with requests in any order.

The requirements are security A-3, A-6, A-8, J-8, S-1, S-2, S-3, S-4, S-5, M-1, M-2, M-3, M-4, M-5,
M-6 and decisions 61, 78, 79, 83.
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
from adapters.postgres.storage import Postgres
from core.accounts import accounts, devices, mfa
from core.accounts.model import mfa as mfa_model
from core.accounts.model.accounts import CurrentPasswordWrong, LinkInvalid
from core.accounts.model.attempt_limits import TooManyAttempts
from core.accounts.model.devices import (
    GUESSABLE_CLIENT_ID_LENGTH,
    DeviceIsCurrent,
    DeviceNotFound,
    DeviceOfAnotherUser,
    ListedDevice,
    Location,
    PresentedDevice,
)
from core.accounts.model.mfa import AlreadyEnabled, CodeMalformed, CodeWrong, NotEnabled, NotSetUp, SetupCodeMalformed, SetupCodeWrong
from core.accounts.model.security_notices import UNDO_TTL
from core.authentication import callers, session_start, sessions
from core.authentication.flow.model import Flow, FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods.password import Password
from core.authentication.methods.second_factor import Code
from core.authentication.model.dpop import PresentedToken
from core.authentication.model.login import CredentialsInvalid, PreAuthInvalid, SignedIn
from core.authentication.model.sessions import RefreshTokenInvalid, RefreshTokenReused, TokenPair
from core.kernel.access import Requirement
from core.kernel.callers import Person, ServiceContext
from core.kernel.causes import Anonymous
from core.kernel.claims import PreAuthClaims
from core.kernel.errors import TokenExpired, Unauthenticated
from core.kernel.policy import Policy
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
# Browser, operating system and device type by user agent.
EXPECTED_USER_AGENTS = {FIREFOX: ("Firefox", "Linux", "browser"), IPHONE: ("Mobile Safari", "iOS", "mobile")}
LOCATIONS = {"203.0.113.9": Location("Lisbon", "PT"), "198.51.100.7": Location(None, "NO")}


@dataclass(frozen=True)
class ClientProfile:
    """A request's client: the device id that it keeps, if any, its user agent, and its address."""

    client: str | None
    agent: str = FIREFOX
    address: str = "203.0.113.9"

    @property
    def caller(self) -> Anonymous:
        return Anonymous(address=self.address, agent=self.agent)


LAPTOP = "laptop-5Jw0Qk3rT1nX8bVz"  # long enough to make the device known to a password guess (security A-3)
HOME = ClientProfile(LAPTOP)
PROFILES = st.sampled_from(
    [
        HOME,
        HOME,
        ClientProfile("phone", IPHONE),
        ClientProfile(None),
        ClientProfile(None, IPHONE),
        ClientProfile(LAPTOP, address="198.51.100.7"),
        ClientProfile(LAPTOP, address="192.0.2.1"),
    ]
)
CODES = st.sampled_from(
    ["now", "now", "now", "next", "previous", "later", "older", "used", "wrong", "backup", "backup", "used backup", "old backup"]
)
TIMES = st.sampled_from(
    [SECOND, 11 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 5 * HOUR, DAY, DAY, 7 * DAY, 29 * DAY, 31 * DAY]
)
# Every organization's trust period in days, and the state of the user's membership.
DAYS, MEMBERSHIPS = st.sampled_from([1, 90]), st.sampled_from(["none", "invited", "confirmed"])


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

    @property
    def is_unproved(self) -> bool:
        if self.risk is None or self.last_used_at is None or self.risk.score <= 70:
            return False
        return self.mfa_at is None or self.mfa_at < self.last_used_at

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
class ExpectedSignIn:
    """A sign-in in the model: the device, or None for a new device, whether it is trusted, and the risk."""

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
    tokens: list[str] = field(default_factory=list)  # refresh tokens, oldest first; only the last token is valid
    access: list[tuple[str, datetime]] = field(default_factory=list)  # access tokens and when they expire, oldest first
    rotated_at: datetime | None = None
    ended: bool = False


@dataclass(eq=False)
class KnownPreAuth:
    claims: PreAuthClaims
    token: str
    ends_at: datetime
    of_service: bool
    tries: int = 0
    ended: bool = False

    def is_live(self, now: datetime) -> bool:
        return not self.ended and self.tries < 5 and now < self.ends_at


@dataclass(eq=False)
class KnownLink:
    token: str
    ends_at: datetime
    ended: bool = False


@dataclass
class Counter:
    """Wrong attempts at a secret, within 15 minutes after the first.

    From the limit on, an attempt blocks the next, for `first_wait`, then twice as long, and so on. After `quiet`
    without attempts, the count is reset.
    """

    limit: int
    first_wait: timedelta = 30 * SECOND
    quiet: timedelta = 15 * MINUTE
    count: int = 0
    first_at: datetime | None = None
    blocked_until: datetime | None = None

    def count_attempt(self, now: datetime) -> bool:
        """Count an attempt, and return whether it is allowed."""
        if self.blocked_until is not None and now < self.blocked_until:
            return False
        reset_at = now if self.first_at is None else self.first_at + 15 * MINUTE
        if self.blocked_until is not None:
            reset_at = self.blocked_until + self.quiet
        if now >= reset_at:
            self.reset()
            self.first_at = now
        self.count += 1
        if self.count >= self.limit:
            self.blocked_until = now + min(self.first_wait * 2 ** (self.count - self.limit), 15 * MINUTE)
        return True

    def reset(self) -> None:
        self.count, self.first_at, self.blocked_until = 0, None, None


@dataclass
class SecondFactor:
    """The account's second factor, pending or active, and the authenticator app with its secret."""

    secret: str
    setup_at: datetime
    enabled_at: datetime | None = None
    last_step: int | None = None
    codes: dict[str, bool] = field(default_factory=dict)  # backup codes, and whether they were used

    def app(self, step: int) -> str:
        return pyotp.TOTP(self.secret).generate_otp(step)

    def step_of(self, code: str, now: datetime) -> int | None:
        """Return the newest step with this code, or None.

        The next, the current and the previous step are tried.
        """
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
    with subject as (select %s::uuid as id, %s::text as email, %s::timestamptz as now, %s::uuid as other),
    alive as (select s.id from sessions s, subject w where s.user_id = w.id and s.ended_at is null and s.expires_at > w.now)
    select
        array(select id from alive),
        array(select token_hash from refresh_tokens t join alive a on a.id = t.session_id where rotated_at is null),
        (select count(*) from refresh_tokens t join sessions s on s.id = t.session_id where s.user_id = w.id),
        array(select p.id from sign_in_flows p where p.user_id = w.id and p.proofs_expire_at > w.now and p.failures < 5),
        array(select event_type from mfa_events e where e.user_id = w.id order by created_at),
        array(select kind from mails m where m.address = w.email order by created_at),
        array(select success from login_events e where e.user_id = w.id order by created_at),
        array(select risk_score from login_events e where e.user_id = w.id order by created_at),
        array(select device_id from sessions s where s.user_id = w.id order by created_at),
        array[
            (select u::text from users u where u.id = w.other), (select m::text from mfa m where m.user_id = w.other),
            (select string_agg(d::text, ' ' order by d.id) from devices d where d.user_id = w.other),
            (select string_agg(s::text, ' ' order by s.id) from sessions s where s.user_id = w.other),
            (select string_agg(p::text, ' ' order by p.id) from sign_in_flows p where p.user_id = w.other),
            (select string_agg(c::text, ' ' order by c.code_hash) from backup_codes c where c.user_id = w.other),
            (select string_agg(e::text, ' ' order by e.id) from mfa_events e where e.user_id = w.other),
            (select string_agg(e::text, ' ' order by e.id) from login_events e where e.user_id = w.other)]
    from subject w"""
ALL_OF_ONE = """
    with subject as (select %s::uuid as id, %s::text as email)
    select string_agg(line, ' ') from (
        select t::text as line from users t join subject w on t.id = w.id
        union all select t::text from mfa t join subject w on t.user_id = w.id
        union all select t::text from backup_codes t join subject w on t.user_id = w.id
        union all select t::text from mfa_events t join subject w on t.user_id = w.id
        union all select t::text from sign_in_flows t join subject w on t.user_id = w.id
        union all select t::text from devices t join subject w on t.user_id = w.id
        union all select t::text from sessions t join subject w on t.user_id = w.id
        union all select t::text from refresh_tokens t join sessions s on s.id = t.session_id join subject w on s.user_id = w.id
        union all select t::text from login_events t join subject w on t.user_id = w.id
        union all select t::text from one_time_tokens t join subject w on t.user_id = w.id
        union all select t::text from mails t join subject w on t.address = w.email
        union all select t::text from audit_log t join subject w on t.target_id = w.id::text or t.actor_id = w.id
        union all select t::text from events t join subject w on t.target_id = w.id::text or t.actor_id = w.id
        union all select t::text from guesses t) lines"""


class PeopleMachine(RuleBasedStateMachine):
    """An account with its secrets on a few clients, and another account that must not change."""

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
        self.wrong_at: list[datetime] = []
        self.locations: set[Location] = set()
        self.mfa_log: list[str] = []
        self.mails: list[str] = []
        self.jar: dict[tuple[str | None, str], str] = {}  # the last trust token, per client
        self.trust_tokens: list[str] = []
        self.old_backup_codes: list[str] = []
        self.used_codes: list[str] = []
        self.password_guesses = Counter(self.limit)
        self.code_guesses = Counter(self.limit, first_wait=15 * MINUTE, quiet=timedelta())
        self.guesses_on: dict[UUID, Counter] = defaultdict(lambda: Counter(self.limit))  # by device
        self.guesses_in: dict[UUID, Counter] = defaultdict(lambda: Counter(self.limit))  # by session
        self.days = [30, 30]
        self.memberships = ["none", "none"]  # a session per organization; the first organization has the service

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
        self.clock.advance(DAY * PeopleMachine.number)  # how many failures an hour may have is limited
        self.ports = replace(self.shared, clock=self.clock, storage=Postgres(self.pool, make_vault(), self.clock))
        self.account = self.run(add_account, self.ports, f"person-{self.number}@example.com")
        self.orgs = [self.run(add_organization, self.pool, f"{name}-{self.number}") for name in ("acme", "borg")]
        self.service = self.run(service_context, self.pool, self.run(add_service, self.pool, self.orgs[0]))
        if enabled:
            app = self.run(add_mfa, self.ports, self.account)
            self.factor = SecondFactor(app.secret, self.now, self.now, step_at(self.now) - 1, dict.fromkeys(app.backup_codes, False))
        self.run(self._add_other_account)
        self.other_rows = self.run(self._read_state)[-1]

    async def _add_other_account(self) -> None:
        """Add the second account, with a session on a trusted device and a pending sign-in."""
        self.other = await add_account(self.ports, f"witness-{self.number}@example.com")
        app = await add_mfa(self.ports, self.other)
        email, client, caller = self.other.email, PresentedDevice(HOME.client), HOME.caller
        waiting = await prove(self.ports, caller, new_flow(self.now, FlowTarget.API, ""), Password(email, PASSWORD), client)
        assert isinstance(waiting, Flow)
        signed_in = await prove(self.ports, caller, waiting, Code(app.code(), trusts_device=True), client)
        assert isinstance(signed_in, SignedIn)
        assert signed_in.device_token is not None
        assert signed_in.session.device_id is not None
        self.others_token, self.others_device = signed_in.device_token, signed_in.session.device_id
        assert isinstance(await prove(self.ports, caller, new_flow(self.now, FlowTarget.API, ""), Password(email, PASSWORD), client), Flow)

    # The model

    @property
    def active_factor(self) -> SecondFactor | None:
        return self.factor if self.factor is not None and self.factor.enabled_at is not None else None

    @property
    def pending_factor(self) -> SecondFactor | None:
        """Return the secret that can be confirmed now."""
        waits = self.factor is not None and self.factor.enabled_at is None and self.now < self.factor.setup_at + 15 * MINUTE
        return self.factor if waits else None

    def is_live(self, session: KnownSession) -> bool:
        return not session.ended and self.now < session.expires_at

    def trust_days(self, of_service: bool) -> int:
        periods = [days for days, membership in zip(self.days, self.memberships, strict=True) if membership == "confirmed"]
        return min([*periods, self.days[0]] if of_service else periods, default=30)

    def match_device(self, profile: ClientProfile, token: str | None) -> KnownDevice | None:
        browser, system, kind = EXPECTED_USER_AGENTS[profile.agent]
        here = sorted((device for device in self.devices if not device.revoked), key=lambda device: device.last_used_at or self.now)
        if token is not None and (by_token := [device for device in here if device.token == token]):
            return by_token[-1]
        if profile.client is not None:
            return next((device for device in here if device.client == profile.client), None)
        alike = [one for one in here if one.client is None and (*EXPECTED_USER_AGENTS[one.agent][:2], one.kind) == (browser, system, kind)]
        return alike[-1] if alike else None

    def expect_sign_in(self, profile: ClientProfile, token: str | None, of_service: bool) -> ExpectedSignIn:
        device, now = self.match_device(profile, token), self.now
        successes = [at for at, success, risk in self.logins if success and risk <= 70]
        since = max([now - DAY, *successes, *(one.mfa_at for one in self.devices if one.mfa_at is not None)])
        recent = [at for at in successes if at > now - 30 * DAY]
        location = LOCATIONS.get(profile.address)
        points = {
            "new_device": 30 * (device is None or device.is_unproved),
            "unknown_location": 20 * (location is not None and location not in self.locations),
            "unusual_time": 10 * (len(recent) >= 10 and now.hour not in {at.hour for at in recent}),
            "failed_attempts": 20 * sum(at > since for at in self.wrong_at),
        }
        risk = KnownRisk(min(100, sum(points.values())), tuple(name for name, value in points.items() if value))
        is_token_valid = device is not None and token is not None and device.token == token
        trusted = is_token_valid and device is not None and device.is_trusted(self.trust_days(of_service), now) and risk.score <= 70
        return ExpectedSignIn(device, trusted, risk)

    def end_all(self, but: KnownSession | None = None) -> None:
        for session in self.sessions:
            session.ended = session.ended or session is not but

    def end_trust(self) -> None:
        """End what a changed password or second factor ends."""
        for device in self.devices:
            device.distrust()
        for waiting in self.pre_auths:
            waiting.ended = True

    def store_failure(self, *, wrong: bool = True) -> None:
        """Record a failure, at most 20 in an hour, 5 of them not `wrong`: attempts while the account is locked, which raise no risk."""
        hour_ago = self.now - 60 * MINUTE
        failures = sum(not success and at > hour_ago for at, success, _ in self.logins)
        if failures < 20 and (wrong or failures - sum(at > hour_ago for at in self.wrong_at) < 5):
            self.logins.append((self.now, False, 0))
            self.wrong_at += [self.now] * wrong

    def store_tokens(self, session: KnownSession, pair: TokenPair) -> None:
        """Store a token pair, after checking the lifetimes."""
        expires_at = to_the_second(min(self.now + 15 * MINUTE, session.ends_at))
        assert pair.expires_in == int((expires_at - to_the_second(self.now)).total_seconds())
        assert pair.refresh_token not in {token for known in self.sessions for token in known.tokens}
        session.tokens.append(pair.refresh_token)
        session.access.append((pair.access_token, expires_at))
        session.expires_at = min(self.now + 30 * DAY, session.ends_at)

    def store_session(
        self, signed_in: SignedIn, profile: ClientProfile, expected: ExpectedSignIn, of_service: bool, name: str | None = None
    ) -> KnownSession:
        """Store a sign-in's session."""
        browser, system, kind = EXPECTED_USER_AGENTS[profile.agent]
        id_ = signed_in.session.device_id
        assert id_ is not None
        device = expected.device
        if device is None:
            assert id_ not in {known.id for known in self.devices}
            device = KnownDevice(id_, profile.client, kind, f"{browser} on {system}")
            self.devices.append(device)
        assert id_ == device.id
        device.name = name or device.name
        was_unproved = device.is_unproved
        device.agent, device.address, device.last_used_at, device.risk = profile.agent, profile.address, self.now, expected.risk
        assert signed_in.session.id not in {known.id for known in self.sessions}
        session = KnownSession(signed_in.session.id, device, of_service, self.now + 90 * DAY, self.now)
        self.store_tokens(session, self.run(session_start.issue_first_tokens, self.ports, signed_in))
        self.sessions.append(session)
        self.logins.append((self.now, True, expected.risk.score))
        if profile.address in LOCATIONS and expected.risk.score <= 70:
            self.locations.add(LOCATIONS[profile.address])
        if expected.risk.score > 70 and self.active_factor is None and not was_unproved:
            self.mails.append("unusual_sign_in")
        if of_service and self.memberships[0] == "invited":
            self.memberships[0] = "confirmed"
        return session

    # Signing in

    def _password(self, profile: ClientProfile, password: str, token: str | None = None, of_service: bool = False) -> KnownPreAuth | None:
        """Send the password. Return the sign-in that waits for the second factor, if any."""
        self.tick()
        counter = self.guesses_of(profile, token)
        allowed, right = counter.count_attempt(self.now), password == self.password
        try:
            result = self.run(self._with_password, profile, password, token, self.service if of_service else None)
        except TooManyAttempts as refusal:
            self.check_refusal(allowed, refusal, counter)
            self.store_failure(wrong=False)
            return None
        except CredentialsInvalid:
            assert allowed
            assert not right
            self.store_failure()
            return None
        assert allowed
        assert right
        counter.reset()
        expected = self.expect_sign_in(profile, token, of_service)
        if not isinstance(result, Flow):
            assert self.active_factor is None or expected.trusted
            assert result.device_token is None
            self.store_session(result, profile, expected, of_service)
            return None
        assert self.active_factor is not None
        assert not expected.trusted
        assert result.proofs_expire_at == self.now + 600 * SECOND
        claims = PreAuthClaims(id=result.id, user_id=self.account.id, issued_at=self.now, expires_at=result.proofs_expire_at)
        waiting = KnownPreAuth(claims, self.ports.tokens.sign_pre_auth(claims), result.proofs_expire_at, of_service)
        self.pre_auths.append(waiting)
        return waiting

    async def _with_password(
        self, profile: ClientProfile, password: str, token: str | None, service: ServiceContext | None
    ) -> SignedIn | Flow:
        client = PresentedDevice(profile.client, token)
        org_id, service_id = (None, None) if service is None else (service.org_id, service.id)
        flow = new_flow(self.now, FlowTarget.API, "", org_id=org_id, service_id=service_id, service=service)
        return await prove(self.ports, profile.caller, flow, Password(self.account.email, password), client)

    def guesses_of(self, profile: ClientProfile, token: str | None = None) -> Counter:
        """Return the counter for passwords from this client: by a device that knows it, or by the address."""
        here, client = [device for device in self.devices if not device.revoked], profile.client
        known = [one for one in here if token is not None and one.token == token and one.trusted_until and self.now < one.trusted_until]
        known += [one for one in here if client is not None and len(client) > GUESSABLE_CLIENT_ID_LENGTH and one.client == client]
        return self.guesses_on[known[0].id] if known else self.password_guesses

    def check_refusal(self, allowed: bool, refusal: TooManyAttempts, counter: Counter) -> None:
        assert not allowed
        assert counter.blocked_until is not None
        assert refusal.retry_after == math.ceil((counter.blocked_until - self.now).total_seconds())

    def _code(self, waiting: KnownPreAuth, code: str, profile: ClientProfile, *, trust: bool = False, name: str | None = None) -> None:
        """Send a code for the second factor."""
        self.tick()
        alive = waiting.is_live(self.now)
        allowed = alive and self.code_guesses.count_attempt(self.now)
        factor = self.active_factor
        right = factor is not None and factor.is_right(code, self.now)
        waiting.tries += allowed
        try:
            result = self.run(self._with_code, waiting.claims, code, profile, trust, name)
        except PreAuthInvalid:
            assert not alive
            return
        except TooManyAttempts as refusal:
            assert alive
            self.check_refusal(allowed, refusal, self.code_guesses)
            self.store_failure(wrong=False)
            return
        except CodeWrong:
            assert allowed
            assert not right
            self.mfa_log += ["mfa_verify_attempt", "mfa_verify_failed"]
            self.store_failure()
            return
        assert allowed
        assert right
        assert factor is not None
        factor.accept(code, self.now)
        self.used_codes.append(code)
        self.code_guesses.reset()
        waiting.ended = True
        self.mfa_log += ["mfa_verify_attempt", "mfa_verify_success"]
        if "-" in code:
            self.mfa_log.append("backup_code_used")
            self.mails.append("backup_code_used")
        session = self.store_session(result, profile, self.expect_sign_in(profile, None, waiting.of_service), waiting.of_service, name)
        session.device.mfa_at = self.now
        assert (result.device_token is not None) is trust
        if result.device_token is not None:
            assert result.device_token not in self.trust_tokens
            session.device.token, session.device.trusted_until = result.device_token, self.now + 90 * DAY
            self.jar[profile.client, profile.agent] = result.device_token
            self.trust_tokens.append(result.device_token)

    async def _with_code(self, claims: PreAuthClaims, code: str, profile: ClientProfile, trust: bool, name: str | None) -> SignedIn:
        flow = replace(new_flow(self.now, FlowTarget.API, ""), id=claims.id, user_id=claims.user_id)
        client = PresentedDevice(profile.client, name=name)
        signed_in = await prove(self.ports, profile.caller, flow, Code(code, trusts_device=trust), client)
        assert isinstance(signed_in, SignedIn)
        return signed_in

    def code(self, kind: str) -> str:
        """Return a code of this kind, if any."""
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

    def ensure_second_factor(self) -> None:
        if self.active_factor is None:
            self.wait_for(self.code_guesses)
            self.enable(timedelta(), anew=False)

    def wait_for(self, counter: Counter) -> None:
        if counter.blocked_until is not None:
            self.clock.advance(max(counter.blocked_until - self.now, timedelta()))

    def new_code(self) -> str:
        """Return a valid code from the app, after waiting for it if necessary."""
        factor = self.factor
        assert factor is not None
        self.tick()  # a code from this moment is sent at the next tick
        while factor.last_step is not None and step_at(self.now + MILLISECOND) <= factor.last_step:
            self.clock.advance(30 * SECOND)
        return factor.app(step_at(self.now + MILLISECOND))

    def sign_in(self, profile: ClientProfile = HOME, *, trust: bool = False) -> KnownSession:
        """Sign in successfully. To trust the device, the account gets a second factor."""
        if trust:
            self.ensure_second_factor()
        self.wait_for(self.guesses_of(profile))
        self.wait_for(self.code_guesses)
        before = len(self.sessions)
        waiting = self._password(profile, self.password)
        if waiting is not None:
            self._code(waiting, self.new_code(), profile, trust=trust)
        assert len(self.sessions) == before + 1
        return self.sessions[-1]

    @rule(
        profile=PROFILES,
        which=st.sampled_from(["right"] * 4 + ["old", "wrong"]),
        token=st.integers(-2, 9),
        of_service=st.sampled_from([False] * 4 + [True]),
    )
    def send_the_password(self, profile: ClientProfile, which: str, token: int, of_service: bool) -> None:
        password = {"right": self.password, "old": self.passwords[-2:][0], "wrong": "wrong password"}[which]
        self._password(profile, password, self.trust_token(profile, token), of_service)

    def trust_token(self, profile: ClientProfile, number: int) -> str | None:
        """Return this client's token.

        Other clients' tokens, old tokens and no token occur less often.
        """
        if number < 0:
            return [None, self.others_token][number]
        if number < 2 and self.trust_tokens:
            return self.trust_tokens[-1 - number % len(self.trust_tokens)]
        return self.jar.get((profile.client, profile.agent))

    @rule(
        times=st.integers(1, 5), profile=PROFILES, token_owner=st.sampled_from(["none", "own", "own", "another's"]), patient=st.booleans()
    )
    def guess_passwords(self, times: int, profile: ClientProfile, token_owner: str, patient: bool) -> None:
        """Guess as an attacker, with or without patience.

        Then send the right password, perhaps from a trusted device.
        """
        if token_owner == "own":
            self.sign_in(profile, trust=True)
        token = {"none": None, "own": self.trust_token(profile, 9), "another's": self.others_token}[token_owner]
        for _ in range(times):
            self._password(profile, "wrong password")
            if patient:
                self.wait_for(self.guesses_of(profile))
                self._password(profile, "wrong password")
        self._password(profile, "wrong password", token)
        self._password(profile, self.password, token)

    @rule(nth=st.integers(0, 2), kind=CODES, profile=PROFILES, trust=st.booleans(), name=st.sampled_from([None, None, "Mine"]))
    def send_a_code(self, nth: int, kind: str, profile: ClientProfile, trust: bool, name: str | None) -> None:
        """Send a code for any sign-in, pending or not."""
        if self.pre_auths:
            self._code(self.pre_auths[-1 - nth % len(self.pre_auths)], self.code(kind), profile, trust=trust, name=name)

    @rule(kind=CODES, profile=PROFILES, trust=st.booleans())
    def sign_in_with(self, kind: str, profile: ClientProfile, trust: bool) -> None:
        waiting = self._password(profile, self.password)
        if waiting is not None:
            self._code(waiting, self.code(kind), profile, trust=trust)

    @rule(kind=st.sampled_from(["app", "backup"]), pause=st.sampled_from([timedelta(), 30 * SECOND, 60 * SECOND]), then=CODES)
    def send_a_code_twice(self, kind: str, pause: timedelta, then: str) -> None:
        """Send a code in two sign-ins, with a pause between them, and then another code in the second sign-in."""
        self.ensure_second_factor()
        self.wait_for(self.guesses_of(HOME))
        self.wait_for(self.password_guesses)
        self.wait_for(self.code_guesses)
        first, second = self._password(HOME, self.password), self._password(ClientProfile("phone", IPHONE), self.password)
        assert first is not None
        assert second is not None
        code = self.new_code()
        if kind == "backup":
            code = self.code("backup")
        self._code(first, code, HOME)
        self.clock.advance(pause)
        self._code(second, code, HOME)
        self._code(second, self.code(then), HOME)

    @rule(profile=PROFILES)
    def trust_a_device(self, profile: ClientProfile) -> None:
        self.sign_in(profile, trust=True)

    @rule(times=st.integers(2, 6))
    def guess_codes(self, times: int) -> None:
        waiting = self._password(HOME, self.password)
        for _ in range(times if waiting is not None else 0):
            assert waiting is not None
            self._code(waiting, self.code("wrong"), HOME)
        if waiting is not None:
            self._code(waiting, self.new_code(), HOME)

    @rule(code=st.sampled_from(["", "12345", "1234567", "12345\N{ARABIC-INDIC DIGIT SIX}", "abcd-efgh", "ABCDEFGH", "123456 "]))
    def send_a_malformed_code(self, code: str) -> None:
        """Send a malformed code. It does not count as an attempt, and reveals nothing about the sign-in."""
        self.tick()
        if self.pre_auths:
            with pytest.raises(CodeMalformed):
                self.run(self._with_code, self.pre_auths[-1].claims, code, HOME, True, None)

    @rule()
    def use_a_pre_auth_token_elsewhere(self) -> None:
        for waiting in self.pre_auths[-1:]:
            with pytest.raises(Unauthenticated):
                self.run(self._authenticate, waiting.token)
            with pytest.raises(RefreshTokenInvalid):
                self.run(sessions.refresh, self.ports, HOME.caller, waiting.token)

    # Staying signed in

    def person(self, session: KnownSession, nth: int = -1) -> Person | None:
        """Return the caller for the session's access token, after checking that it is accepted or refused correctly."""
        text, expires_at = session.access[nth]
        try:
            person = self.run(self._authenticate, text)
        except TokenExpired:
            assert self.now >= expires_at
            return None
        except Unauthenticated:
            assert not self.is_live(session)
            return None
        assert self.is_live(session)
        assert self.now < expires_at
        assert (person.user_id, person.session_id) == (self.account.id, session.id)
        assert (person.service is not None) is session.of_service
        return person

    async def _authenticate(self, token: str) -> Person:
        return await callers.authenticate(
            self.ports, Anonymous(address=HOME.address, agent=HOME.agent), PresentedToken(token), Requirement()
        )

    def _refresh(self, session: KnownSession, nth: int) -> None:
        was_live, text = self.is_live(session), session.tokens[nth]
        age = len(session.tokens) - 1 - session.tokens.index(text)
        is_concurrent = age == 1 and session.rotated_at is not None and self.now - session.rotated_at <= 10 * SECOND
        try:
            pair = self.run(sessions.refresh, self.ports, HOME.caller, text)
        except RefreshTokenInvalid as refusal:
            assert not was_live or age > 0
            assert isinstance(refusal, RefreshTokenReused) is (was_live and not is_concurrent)  # noqa: PT017
            session.ended = session.ended or (was_live and not is_concurrent)
            return
        assert was_live
        assert age == 0
        session.rotated_at = self.now
        self.store_tokens(session, pair)

    def sign_in_or_reuse(self, nth: int = 0) -> tuple[KnownSession, Person]:
        """Return an account session without a service and its caller, after a new sign-in if necessary."""
        signed_in = [session for session in self.sessions if self.is_live(session) and not session.of_service]
        session = signed_in[-1 - nth % len(signed_in)] if signed_in else self.sign_in()
        if self.now >= session.access[-1][1]:
            self._refresh(session, -1)
        person = self.person(session)
        assert person is not None
        return session, person

    @rule(nth=st.integers(0, 3), age=st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
    def refresh(self, nth: int, age: int) -> None:
        """Refresh with any token from any session."""
        if self.sessions:
            session = self.sessions[-1 - nth % len(self.sessions)]
            self._refresh(session, -1 - min(age, len(session.tokens) - 1))

    @rule(
        pause=st.sampled_from([timedelta(), 10 * SECOND, 10 * SECOND + timedelta(microseconds=1), MINUTE]), tabs=st.sampled_from([2, 2, 3])
    )
    def tabs_refresh(self, pause: timedelta, tabs: int) -> None:
        """Refresh with the same token in three tabs.

        The third tab is late, after the first has refreshed again.
        """
        session, _ = self.sign_in_or_reuse()
        for _ in range(tabs - 1):
            self._refresh(session, -1)
        self.clock.advance(pause)
        self._refresh(session, -tabs)

    @rule(nth=st.integers(0, 3), age=st.integers(0, 2))
    def use_an_access_token(self, nth: int, age: int) -> None:
        if self.sessions:
            session = self.sessions[-1 - nth % len(self.sessions)]
            self.person(session, -1 - min(age, len(session.access) - 1))

    @rule(nth=st.integers(0, 3))
    def log_out(self, nth: int) -> None:
        session, person = self.sign_in_or_reuse(nth)
        self.run(sessions.logout, self.ports, person)
        session.ended = True
        assert self.person(session) is None

    # Passwords

    @rule(nth=st.integers(0, 2), which=st.sampled_from(["right", "right", "right", "wrong"]), during_sign_in=st.booleans())
    def change_password(self, nth: int, which: str, during_sign_in: bool) -> None:
        """Change the password, perhaps during a sign-in with it."""
        session, person = self.sign_in_or_reuse(nth)
        if during_sign_in:
            self._password(ClientProfile("phone", IPHONE), self.password)
        self.tick()
        counter, changed = self.guesses_in[session.id], f"changed password {len(self.passwords)}"
        allowed = counter.count_attempt(self.now)
        current = self.password if which == "right" else "wrong password"
        try:
            self.run(accounts.change_password, self.ports, person, current, changed)
        except TooManyAttempts as refusal:
            self.check_refusal(allowed, refusal, counter)
            return
        except CurrentPasswordWrong:
            assert allowed
            assert which == "wrong"
            return
        assert allowed
        assert which == "right"
        counter.reset()
        for known in self.links:
            known.ended = True
        self.store_password(changed, but=session)
        assert self.person(session) is not None

    def store_password(self, password: str, but: KnownSession | None = None) -> None:
        self.password = password
        self.passwords.append(password)
        self.end_all(but)
        self.end_trust()
        self.mails.append("password_changed")

    @precondition(lambda self: len(self.links) < 4)
    @rule()
    def request_a_reset(self) -> None:
        self.tick()
        token = self.run(self._request_reset)
        for known in self.links:
            known.ended = True
        self.links.append(KnownLink(token, self.now + HOUR))
        self.mails.append("reset_password")

    @precondition(lambda self: len(self.links) < 4)
    @rule(guesses=st.sampled_from([0, 3, 4]), changed=st.booleans(), pause=st.sampled_from([timedelta(), HOUR - MILLISECOND, HOUR]))
    def reset_a_forgotten_password(self, guesses: int, changed: bool, pause: timedelta) -> None:
        """Reset the password, which may be known. Further sign-ins may run at the same time."""
        self._password(ClientProfile("phone", IPHONE), self.password)
        for _ in range(guesses):
            self._password(HOME, "forgotten password")
        self.request_a_reset()
        if changed:
            self.change_password(0, "right", during_sign_in=False)
        self.clock.advance(max(self.links[-1].ends_at - HOUR + pause - MILLISECOND - self.now, timedelta()))
        self.reset_password(0)
        self._password(HOME, self.password)

    async def _request_reset(self) -> str:
        await accounts.forgot_password(self.ports, HOME.caller, self.account.email)
        await deliver(self.ports)
        return next(
            link(message)
            for message in reversed(self.sent.emails)
            if message.to == self.account.email and "/auth/reset-password?token=" in message.text
        )

    @rule(nth=st.sampled_from([0, 0, 0, 1]))
    def reset_password(self, nth: int) -> None:
        self.tick()
        if self.links:
            known, changed = self.links[-1 - nth % len(self.links)], f"reset password {len(self.passwords)}"
            if known.ended or self.now >= known.ends_at:
                with pytest.raises(LinkInvalid):
                    self.run(accounts.reset_password, self.ports, HOME.caller, known.token, changed)
            else:
                self.run(accounts.reset_password, self.ports, HOME.caller, known.token, changed)
                known.ended = True
                for counter in (self.password_guesses, *self.guesses_on.values()):
                    counter.reset()
                added = self.active_factor
                if added is not None and added.enabled_at is not None and self.now < added.enabled_at + UNDO_TTL:
                    self.factor = None
                    self.old_backup_codes += added.codes
                    self.mfa_log.append("mfa_disabled")
                self.store_password(changed)

    # The account's second factor

    @rule(nth=st.integers(0, 2))
    def set_up(self, nth: int) -> None:
        _, person = self.sign_in_or_reuse(nth)
        self.tick()
        if self.active_factor is not None:
            with pytest.raises(AlreadyEnabled):
                self.run(mfa.start_setup, self.ports, person)
        else:
            self.factor = SecondFactor(self.run(mfa.start_setup, self.ports, person).secret, self.now)
            self.mfa_log.append("mfa_setup_initiated")
            setup = self.run(mfa.find_pending_setup, self.ports, person)
            assert setup is not None
            assert setup.secret == self.factor.secret

    @rule(nth=st.integers(0, 2), kind=st.sampled_from(["now", "now", "next", "previous", "older", "later", "wrong", "used", "backup"]))
    def confirm(self, nth: int, kind: str) -> None:
        _, person = self.sign_in_or_reuse(nth)
        self._confirm(person, self.code(kind))

    def _confirm(self, person: Person, code: str) -> None:
        self.tick()
        pending = self.pending_factor
        if "-" in code:
            with pytest.raises(SetupCodeMalformed):
                self.run(mfa.confirm_setup, self.ports, person, code)
            return
        if pending is None:
            with pytest.raises(NotSetUp if self.active_factor is None else AlreadyEnabled):
                self.run(mfa.confirm_setup, self.ports, person, code)
            return
        allowed, step = self.code_guesses.count_attempt(self.now), pending.step_of(code, self.now)
        try:
            codes = self.run(mfa.confirm_setup, self.ports, person, code)
        except TooManyAttempts as refusal:
            self.check_refusal(allowed, refusal, self.code_guesses)
            return
        except SetupCodeWrong:
            assert allowed
            assert step is None
            self.mfa_log.append("mfa_setup_failed")
            return
        assert allowed
        assert step is not None
        self.code_guesses.reset()
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
        _, person = self.sign_in_or_reuse()
        self._confirm(person, self.code("now"))

    @rule(nth=st.integers(0, 2))
    def disable(self, nth: int) -> None:
        _, person = self.sign_in_or_reuse(nth)
        self.tick()
        was_on = self.active_factor
        assert self.run(mfa.disable, self.ports, person) is (was_on is not None)
        self.factor = None
        if was_on is not None:
            self.old_backup_codes += was_on.codes
            self.end_trust()
            self.mfa_log.append("mfa_disabled")
            self.mails.append("mfa_disabled")

    @rule(nth=st.integers(0, 2))
    def regenerate(self, nth: int) -> None:
        _, person = self.sign_in_or_reuse(nth)
        self.tick()
        if self.active_factor is None:
            with pytest.raises(NotEnabled):
                self.run(mfa.regenerate_backup_codes, self.ports, person)
        else:
            self.new_backup_codes(self.active_factor, self.run(mfa.regenerate_backup_codes, self.ports, person))
            self.mfa_log.append("backup_codes_generated")
            self.mails.append("backup_codes_regenerated")

    # Devices, and the organizations that limit their trust

    @rule(nth=st.integers(0, 2), which=st.integers(0, 5), returns=st.booleans())
    def revoke(self, nth: int, which: int, returns: bool) -> None:
        session, person = self.sign_in_or_reuse(nth)
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
                one.ended = one.ended or one.device is device
        if returns:
            self.sign_in(ClientProfile(device.client, device.agent))

    @rule(nth=st.integers(0, 2), which=st.integers(0, 5), name=st.sampled_from(["Study", "Kitchen"]))
    def rename(self, nth: int, which: int, name: str) -> None:
        _, person = self.sign_in_or_reuse(nth)
        self.tick()
        device = self.devices[-1 - which % len(self.devices)]
        if device.revoked:
            with pytest.raises(DeviceNotFound):
                self.run(devices.rename, self.ports, person, device.id, name)
        else:
            self.run(devices.rename, self.ports, person, device.id, name)
            device.name = name

    @rule()
    def use_the_device_of_another_user(self) -> None:
        _, person = self.sign_in_or_reuse()
        for act in (devices.find, devices.revoke):
            with pytest.raises(DeviceOfAnotherUser):
                self.run(act, self.ports, person, self.others_device)
        with pytest.raises(DeviceOfAnotherUser):
            self.run(devices.rename, self.ports, person, self.others_device, "Renamed")

    @rule(org=st.sampled_from([0, 1]), days=DAYS, membership=MEMBERSHIPS)
    def organizations_change(self, org: int, days: int, membership: str) -> None:
        self.days[org], self.memberships[org] = days, membership
        self.run(self._organization_changes, self.orgs[org], days, membership)

    async def _organization_changes(self, org: UUID, days: int, membership: str) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("update organizations set device_trust_days = %s where id = %s", (days, org))
            await connection.execute("delete from memberships where org_id = %s", (org,))
            if membership != "none":
                insert = (
                    "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, 'member', %s, %s)"
                )
                confirmed_at = self.now if membership == "confirmed" else None
                await connection.execute(insert, (new_id(), org, self.account.id, self.now, confirmed_at))

    @rule(time=TIMES)
    def wait(self, time: timedelta) -> None:
        self.clock.advance(time)

    @rule(
        profile=PROFILES,
        days=st.tuples(DAYS, DAYS),
        memberships=st.tuples(MEMBERSHIPS, MEMBERSHIPS),
        again=st.booleans(),
        of_service=st.booleans(),
    )
    def sign_in_at_the_end_of_trust(
        self, profile: ClientProfile, days: tuple[int, int], memberships: tuple[str, str], again: bool, of_service: bool
    ) -> None:
        """Return in the last moment of trust and in the first moment after it.

        The second factor may have been used on the device between them.
        """
        self.sign_in(profile, trust=True)
        for org in (0, 1):
            self.organizations_change(org, days[org], memberships[org])
        device, token = self.sessions[-1].device, self.jar[profile.client, profile.agent]
        assert device.trusted_until is not None
        if again:
            self.clock.advance(DAY)
            self.sign_in(profile)
        assert device.mfa_at is not None
        ends_at = min(device.trusted_until, device.mfa_at + self.trust_days(of_service) * DAY)
        self.clock.advance(ends_at - self.now - 2 * MILLISECOND)
        for _ in range(2):  # every sign-in takes a tick
            self._password(profile, self.password, token, of_service)

    @precondition(lambda self: self.sessions and len(self.sessions) < 10)
    @rule(then=st.sampled_from([MINUTE, 2 * HOUR]), failures=st.integers(2, 4))
    def sign_in_regularly(self, then: timedelta, failures: int) -> None:
        """Sign in so often that a sign-in's hour can be unusual.

        Then fail once, and sign in on a trusted device.
        """
        self.sign_in(trust=True)
        while len(self.sessions) < 10:
            self.clock.advance(5 * SECOND)
            self._password(HOME, self.password, self.jar[HOME.client, HOME.agent])
        self.clock.advance(then)
        self.guess_passwords(failures - 1, HOME, "own", patient=False)

    # Invariants

    async def _read_state(self) -> tuple[Any, ...]:
        [row] = await run_sql(self.pool, STATE, self.account.id, self.account.email, self.now, self.other.id)
        return row

    async def _read_all(self) -> tuple[tuple[Any, ...], mfa_model.MfaStatus, list[ListedDevice]]:
        current = self.sessions[-1].id if self.sessions else new_id()
        person = Person(address=None, agent=None, user_id=self.account.id, email=self.account.email, session_id=current)
        listed = [entry async for batch in devices.list_own(self.ports, person) for entry in batch]
        return await self._read_state(), await mfa.get_status(self.ports, person), listed

    @invariant()
    def the_service_agrees_with_the_model(self) -> None:
        row, status, listed = self.run(self._read_all)
        session_ids, token_hashes, tokens, pre_auths, mfa_log, mails, successes, risks, device_ids, other_rows = row
        live_sessions = [session for session in self.sessions if self.is_live(session)]
        assert set(session_ids) == {session.id for session in live_sessions}
        assert set(token_hashes) == {digest(session.tokens[-1]) for session in live_sessions}
        assert tokens == sum(len(session.tokens) for session in self.sessions)
        assert set(pre_auths) == {one.claims.id for one in self.pre_auths if one.is_live(self.now)}
        assert mfa_log == self.mfa_log
        assert mails == self.mails
        assert successes == [success for _, success, _ in self.logins]
        assert risks == [risk for _, _, risk in self.logins]
        assert device_ids == [session.device.id for session in self.sessions]
        assert other_rows == self.other_rows
        factor = self.active_factor
        assert status.enabled_at == (factor.enabled_at if factor else None)
        assert status.backup_codes == (list(factor.codes.values()).count(False) if factor else 0)
        self.check_devices(listed)
        if self.sessions:
            self.person(self.sessions[self.clock.now().microsecond // 1000 % len(self.sessions)])

    def check_devices(self, listed: list[ListedDevice]) -> None:
        here = [device for device in self.devices if not device.revoked]
        here.sort(key=lambda device: device.last_used_at or self.now, reverse=True)
        assert [entry.device.id for entry in listed] == [device.id for device in here]
        days = self.trust_days(of_service=False)
        for entry, known in zip(listed, here, strict=True):
            device = entry.device
            assert (device.name, device.device_type.value, device.last_used_at) == (known.name, known.kind, known.last_used_at)
            assert (device.browser, device.os) == EXPECTED_USER_AGENTS[known.agent][:2]
            assert (device.last_ip, device.location) == (known.address, LOCATIONS.get(known.address))
            assert KnownRisk(device.risk.score, device.risk.factors) == known.risk
            assert (device.mfa_at, device.trust_expires_at) == (known.mfa_at, known.trusted_until)
            assert entry.trusted is known.is_trusted(days, self.now)
            assert entry.is_current is (known is self.sessions[-1].device)

    def teardown(self) -> None:
        """Check that no secret is readable anywhere."""
        if not hasattr(self, "other_rows"):
            return
        [(text,)] = self.run(run_sql, self.pool, ALL_OF_ONE, self.account.id, self.account.email)
        secrets = {*self.passwords, *self.trust_tokens, *self.old_backup_codes, *(known.token for known in self.links)}
        secrets |= {token for session in self.sessions for token in session.tokens}
        if self.factor is not None:
            secrets |= {self.factor.secret, *self.factor.codes}
        assert not [secret for secret in secrets if secret in text or secret.encode().hex() in text]
        self.run(run_sql, self.pool, "delete from mails where address = %s", self.account.email)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [pytest.param(10**6, id="patient"), pytest.param(3, id="three guesses")])
def test_users_get_the_responses_of_the_model(conninfo: str, limit: int) -> None:
    with Background() as background:
        PeopleMachine.background, PeopleMachine.limit = background, limit
        PeopleMachine.sent, PeopleMachine.pool = FakeMailTransport(), Pool(conninfo, size=2)
        locations = FakeGeoIp()
        locations.known.update(LOCATIONS)
        policy = Policy(account_guess_limit=limit, mfa_guess_limit=limit, mails_per_recipient=10**6)
        PeopleMachine.shared = background.run(_ports, PeopleMachine.pool, PeopleMachine.sent, policy, locations)
        try:
            seed(limit)(PeopleMachine)  # otherwise the two would have the same effect
            steady = settings(max_examples=16, stateful_step_count=30)
            run_state_machine_as_test(PeopleMachine, settings=steady)
        finally:
            background.run(PeopleMachine.pool.aclose)


async def _ports(pool: Pool, sent: FakeMailTransport, policy: Policy, locations: FakeGeoIp) -> Ports:
    return await make_ports(pool, FakeClock(), sent, FakeMetrics(), policy, geoip=locations)

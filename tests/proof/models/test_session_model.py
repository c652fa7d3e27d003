"""Sessions against a small model: users, thieves and time, with requests in any order.

The requirements are security S-1, S-2, S-3 and A-8.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule, run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts
from core.authentication import callers, sessions
from core.authentication.model.dpop import PresentedToken
from core.authentication.model.login import CredentialsInvalid
from core.authentication.model.sessions import RefreshTokenInvalid, TokenPair
from core.authentication.service_access import find_password_service
from core.kernel.access import NotAnEndUser, Requirement
from core.kernel.callers import OrganizationStatus, Person, ServiceContext
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.errors import OrganizationNotActive, TokenExpired, Unauthenticated
from core.kernel.policy import Policy
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.background import Background
from tests.support.builders import PASSWORD, add_account, add_organization, deliver, link, log_in, make_ports, run_sql
from tests.support.services import add_service, service_context

if TYPE_CHECKING:
    from core.accounts.model.accounts import Account

T = TypeVar("T")

ANONYMOUS = Anonymous(address="203.0.113.9", agent="tests")
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


@dataclass(eq=False)
class KnownSession:
    """A session in the model."""

    ends_at: datetime
    expires_at: datetime
    tokens: list[str]  # refresh tokens, oldest first; only the last token is valid
    of_service: bool = False
    rotated_at: list[datetime] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True, eq=False)
class RefreshToken:
    session: KnownSession
    text: str


@dataclass(frozen=True, eq=False)
class AccessToken:
    session: KnownSession
    text: str
    expires_at: datetime


class SessionMachine(RuleBasedStateMachine):
    """An account, with its own sessions and a service's sessions."""

    background: ClassVar[Background]
    ports: ClassVar[Ports]
    clock: ClassVar[FakeClock]
    sent: ClassVar[FakeMailTransport]
    pool: ClassVar[Pool]
    number: ClassVar[int] = 0

    refresh_tokens = Bundle("refresh_tokens")
    access_tokens = Bundle("access_tokens")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[KnownSession] = []
        self.password = PASSWORD
        self.active = True
        self.changes = 0
        self.uses_service = False
        self.suspended = False
        self.account: Account
        self.service: ServiceContext

    def run(self, act: Callable[..., Awaitable[T]], *args: object) -> T:
        return self.background.run(act, *args)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def is_live(self, session: KnownSession) -> bool:
        return self.active and not session.ended and self.now < session.expires_at

    def is_accepted(self, session: KnownSession) -> bool:
        """Return whether the session is live and its tokens are accepted. The user may have left the service."""
        return self.is_live(session) and (self.uses_service or not session.of_service)

    def store_tokens(self, session: KnownSession, pair: TokenPair) -> AccessToken:
        """Store a token pair, after checking the lifetimes."""
        expires_at = min(self.now + 15 * MINUTE, session.ends_at)
        assert pair.expires_in == int((expires_at - self.now).total_seconds())
        assert pair.refresh_token not in {token for known in self.known for token in known.tokens}
        session.tokens.append(pair.refresh_token)
        session.expires_at = min(self.now + 30 * DAY, session.ends_at)
        return AccessToken(session, pair.access_token, expires_at)

    def person(self, token: AccessToken) -> Person | None:
        """Return the token's caller, after checking that it is accepted or refused correctly."""
        try:
            person = self.run(self._authenticate, token.text)
        except NotAnEndUser:
            assert self.is_live(token.session)
            assert not self.is_accepted(token.session)
            return None
        except Unauthenticated as refusal:
            assert not self.is_live(token.session) or self.now >= token.expires_at
            assert not isinstance(refusal, TokenExpired) or self.now >= token.expires_at  # noqa: PT017
            return None
        assert self.is_accepted(token.session)
        assert self.now < token.expires_at + 30 * SECOND, "leeway"
        assert person.user_id == self.account.id
        # The organization's routes check the organization's state.
        status = OrganizationStatus.SUSPENDED if self.suspended else OrganizationStatus.ACTIVE
        assert person.service == (replace(self.service, status=status) if token.session.of_service else None)
        return person

    async def _authenticate(self, token: str) -> Person:
        return await callers.authenticate(self.ports, SYSTEM, PresentedToken(token), Requirement())

    @initialize()
    def begin(self) -> None:
        SessionMachine.number += 1
        self.account = self.run(add_account, self.ports, f"person-{SessionMachine.number}@example.com")
        self.org = self.run(add_organization, self.pool, f"acme-{SessionMachine.number}")
        self.service = self.run(service_context, self.pool, self.run(add_service, self.pool, self.org))

    @rule(target=refresh_tokens)
    def login(self) -> object:
        try:
            pair = self.run(log_in, self.ports, self.account.email, self.password)
        except CredentialsInvalid:
            assert not self.active
            return multiple()
        assert self.active
        session = KnownSession(self.now + 90 * DAY, self.now, [])
        self.store_tokens(session, pair)
        self.known.append(session)
        return RefreshToken(session, pair.refresh_token)

    def _login_to_service(self) -> tuple[object, object]:
        org, slug = self.service.org_slug, self.service.slug
        try:
            service = self.run(find_password_service, self.ports, org, slug)
            pair = self.run(log_in, self.ports, self.account.email, self.password, service)
        except OrganizationNotActive:
            assert self.suspended
            return multiple(), multiple()
        except CredentialsInvalid:
            assert not self.active
            return multiple(), multiple()
        assert self.active
        assert not self.suspended
        self.uses_service = True
        session = KnownSession(self.now + 90 * DAY, self.now, [], of_service=True)
        self.known.append(session)
        return RefreshToken(session, pair.refresh_token), self.store_tokens(session, pair)

    @rule(target=refresh_tokens)
    def login_to_service(self) -> object:
        return self._login_to_service()[0]

    @rule(target=access_tokens)
    def login_to_service_for_access(self) -> object:
        return self._login_to_service()[1]

    @rule(suspended=st.sampled_from([True, False, False]))
    def suspend_or_activate(self, suspended: bool) -> None:
        self.suspended = suspended
        status = "suspended" if suspended else "active"
        self.run(run_sql, self.pool, "update organizations set status = %s where id = %s", status, self.org)

    @rule()
    def remove_the_service_user(self) -> None:
        self.uses_service = False
        self.run(run_sql, self.pool, "delete from service_users where service_id = %s and user_id = %s", self.service.id, self.account.id)

    @rule()
    def end_sessions_in_the_organization(self) -> None:
        ended = [session for session in self.known if session.of_service and not session.ended and self.now < session.expires_at]
        assert self.run(self._end_in_organization) == len(ended)
        for session in ended:
            session.ended = True

    async def _end_in_organization(self) -> int:
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.lock(self.account.id)
            return await tx.organization_sessions.end(self.org, [self.account.id], self.now)

    @rule(target=access_tokens)
    def login_for_access(self) -> object:
        if not self.active:
            return multiple()
        pair = self.run(log_in, self.ports, self.account.email, self.password)
        session = KnownSession(self.now + 90 * DAY, self.now, [])
        self.known.append(session)
        return self.store_tokens(session, pair)

    @rule(wrong=st.sampled_from(["", "wrong password", PASSWORD + " "]))
    def login_with_a_wrong_password(self, wrong: str) -> None:
        with pytest.raises(CredentialsInvalid):
            self.run(log_in, self.ports, self.account.email, wrong)

    @rule(target=refresh_tokens, token=refresh_tokens)
    def refresh(self, token: RefreshToken) -> object:
        """Refresh with any token, new or used."""
        return self._refresh(token.session, token.text)[0]

    @rule(target=access_tokens, token=refresh_tokens)
    def refresh_with_the_newest(self, token: RefreshToken) -> object:
        return self._refresh(token.session, token.session.tokens[-1])[1]

    @rule(token=refresh_tokens)
    def refresh_with_the_one_before(self, token: RefreshToken) -> None:
        if len(token.session.tokens) > 1:
            self._refresh(token.session, token.session.tokens[-2])

    def _refresh(self, session: KnownSession, text: str) -> tuple[object, object]:
        was_live, age = self.is_live(session), len(session.tokens) - 1 - session.tokens.index(text)
        has_left, is_suspended = session.of_service and not self.uses_service, session.of_service and self.suspended
        try:
            pair = self.run(sessions.refresh, self.ports, ANONYMOUS, text)
        except OrganizationNotActive:
            assert was_live
            assert is_suspended
            assert not has_left
            assert age == 0
            return multiple(), multiple()
        except RefreshTokenInvalid:
            assert not was_live or age > 0 or has_left
            if age == 0:
                return multiple(), multiple()
            is_concurrent = age == 1 and self.now - session.rotated_at[-1] <= 10 * SECOND
            if was_live and not is_concurrent:
                session.ended = True  # a thief is among its two holders
            return multiple(), multiple()
        assert was_live
        assert not has_left
        assert not is_suspended
        assert age == 0, "a used token never gives a second pair"
        session.rotated_at.append(self.now)
        access = self.store_tokens(session, pair)
        return RefreshToken(session, pair.refresh_token), access

    # With equal chances, the next two rules would run too rarely.

    def ensure_session(self) -> KnownSession:
        """Return a session that has not ended, after a new sign-in if necessary."""
        if not self.active:
            self.deactivate_or_reactivate(active=True)
        if not any(self.is_live(session) for session in self.known):
            self.login()
        session = next(session for session in reversed(self.known) if self.is_live(session))
        if session.of_service:
            self.suspend_or_activate(suspended=False)
            self.login_to_service()
        return session

    @rule(pause=st.sampled_from([timedelta(), 9 * SECOND, 10 * SECOND, 10 * SECOND + timedelta(microseconds=1), 11 * SECOND, MINUTE]))
    def two_tabs_refresh(self, pause: timedelta) -> None:
        session = self.ensure_session()
        used = session.tokens[-1]
        self._refresh(session, used)
        self.clock.advance(pause)
        self._refresh(session, used)

    @rule(pause=st.sampled_from([18 * DAY, 29 * DAY, 30 * DAY - SECOND]))
    def use_a_session_for_months(self, pause: timedelta) -> None:
        session = self.ensure_session()
        for _ in range(90 * DAY // pause + 1):
            self.clock.advance(pause)
            self._refresh(session, session.tokens[-1])

    @rule(text=st.sampled_from(["", "x", "ü" * 100]))
    def refresh_with_an_invalid_token(self, text: str) -> None:
        with pytest.raises(RefreshTokenInvalid):
            self.run(sessions.refresh, self.ports, ANONYMOUS, text)

    @rule(token=access_tokens)
    def use_an_access_token(self, token: AccessToken) -> None:
        self.person(token)

    @rule(token=access_tokens)
    def logout(self, token: AccessToken) -> None:
        person = self.person(token)
        if person is not None:
            self.run(sessions.logout, self.ports, person)
            token.session.ended = True
            assert self.person(token) is None

    @rule(token=access_tokens)
    def change_password(self, token: AccessToken) -> None:
        person = self.person(token)
        if person is not None:
            self.changes += 1
            changed = f"changed password {self.changes}"
            self.run(accounts.change_password, self.ports, person, self.password, changed)
            self.password = changed
            self.end_all(but=token.session)
            assert self.person(token) is not None

    @rule(at_last=st.sampled_from([False, False, True]))
    def reset_password(self, at_last: bool) -> None:
        if self.active and at_last:
            self.changes += 1
            self.password = f"reset password {self.changes}"
            self.run(self._reset, self.password)
            self.end_all()

    async def _reset(self, password: str) -> None:
        await accounts.forgot_password(self.ports, ANONYMOUS, self.account.email)
        await deliver(self.ports)
        token = next(
            link(message)
            for message in reversed(self.sent.emails)
            if message.to == self.account.email and "/auth/reset-password?token=" in message.text
        )
        await accounts.reset_password(self.ports, ANONYMOUS, token, password)

    def end_all(self, but: KnownSession | None = None) -> None:
        for session in self.known:
            if session is not but:
                session.ended = True

    @rule(active=st.sampled_from([True, True, True, False]))
    def deactivate_or_reactivate(self, active: bool) -> None:
        self.active = active
        self.run(run_sql, self.pool, "update users set deactivated_at = %s where id = %s", None if active else self.now, self.account.id)

    @rule(time=st.sampled_from([SECOND, 10 * SECOND, 11 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 16 * MINUTE, DAY, 29 * DAY, 31 * DAY]))
    def wait(self, time: timedelta) -> None:
        self.clock.advance(time)

    @invariant()
    def the_database_agrees(self) -> None:
        if not self.known:
            return
        query = """
            select (select count(*) from sessions where user_id = %s and ended_at is null and expires_at > %s),
                   count(*), count(*) filter (where rotated_at is null)
            from refresh_tokens t join sessions s on s.id = t.session_id where user_id = %s"""
        [(live, tokens, unused)] = self.run(run_sql, self.pool, query, self.account.id, self.now, self.account.id)
        assert live == sum(not session.ended and self.now < session.expires_at for session in self.known)
        assert tokens == sum(len(session.tokens) for session in self.known)
        assert unused == len(self.known), "each session has one token that was not used"


@pytest.mark.slow
def test_sessions_have_the_states_of_the_model(conninfo: str) -> None:
    with Background() as background:
        SessionMachine.background = background
        SessionMachine.clock, SessionMachine.sent = FakeClock(), FakeMailTransport()
        SessionMachine.pool = Pool(conninfo, size=2)
        policy = Policy(account_guess_limit=10**6, mails_per_recipient=10**6)
        SessionMachine.ports = replace(
            background.run(make_ports, SessionMachine.pool, SessionMachine.clock, SessionMachine.sent, FakeMetrics()), policy=policy
        )
        try:
            steady = settings(max_examples=40, stateful_step_count=35)
            run_state_machine_as_test(SessionMachine, settings=steady)
        finally:
            background.run(SessionMachine.pool.aclose)

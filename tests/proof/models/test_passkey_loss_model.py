"""An account with passkeys in any order of steps: a squatter who added the first passkey, thieves, the rightful owner, and time.

The requirements are security PK-12 and PK-13, and security M-8.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, TypeVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts, passkey_waits, passkeys, undo
from core.accounts.model.accounts import Account, PasswordAndMailboxNeeded
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.passkeys import NoPasskey, NoPasskeyWait, PasskeyDeleted, PasskeyUnknown, PasskeyWait, PasskeyWaitNotOver
from core.accounts.model.security_notices import UndoLinkInvalid
from core.accounts.relying_party import StoredId
from core.authentication import account_recovery, callers
from core.authentication.flow.model import FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods import passkey as passkey_method
from core.authentication.methods.passkey import DiscoveredPasskey
from core.authentication.model.dpop import PresentedToken
from core.authentication.model.login import AccountInRecovery
from core.authentication.model.recovery import IssuedRecovery
from core.kernel.access import Requirement
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.policy import Policy
from core.kernel.proofs import Method, Proof
from core.kernel.sign_in_policy.explanations import SignInNotAccepted
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.background import Background
from tests.support.builders import BASE_URL, PASSWORD, add_account, add_platform_owner, deliver, link, make_ports, sign_in
from tests.support.passkeys.authenticator import SoftAuthenticator

T = TypeVar("T")

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY: Final = 24 * HOUR
OWNER, SQUATTER = "owner", "squatter"
TIMES = st.sampled_from([MINUTE, 5 * HOUR, 23 * HOUR, 25 * HOUR, 47 * HOUR, 73 * HOUR])


class PasskeyLossMachine(RuleBasedStateMachine):
    """A single account. The reference knows when the wait began, and nothing else."""

    background: ClassVar[Background]
    ports: ClassVar[Ports]
    clock: ClassVar[FakeClock]
    sent: ClassVar[FakeMailTransport]
    number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, list[SoftAuthenticator]]
        self.wait_at: datetime | None
        self.recovery: IssuedRecovery | None
        self.account: Account
        self.owner_of_platform: Account

    def run(self, act: Callable[..., Awaitable[T]], *args: object, **options: object) -> T:
        async def call() -> T:
            return await act(*args, **options)

        return self.background.run(call)

    def person(self, *methods: Method) -> Person:
        """Return the caller in a new session with these proofs."""
        return self.run(self._person, tuple(methods))

    async def _person(self, methods: tuple[Method, ...]) -> Person:
        session, now = await sign_in(self.ports, self.account), self.clock.now()
        proofs = tuple(
            Proof(each, now, user_verified=each is Method.PASSKEY, phishing_resistant=each is Method.PASSKEY) for each in methods
        )
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.session_sign_ins.reauthenticate(session.session_id, self.account.id, proofs)
            context = await tx.session_contexts.load(session.session_id, self.account.id, None, now)
        assert context is not None
        return Person(
            user_id=self.account.id, email=self.account.email, email_verified=True, session_id=session.session_id, sign_in=context.sign_in
        )

    def stored(self) -> tuple[PasskeyWait | None, dict[str, UUID]]:
        """Return the account's wait, and its passkeys by credential id."""
        return self.run(self._stored)

    async def _stored(self) -> tuple[PasskeyWait | None, dict[str, UUID]]:
        async with self.ports.storage.reading() as read:
            account = await read.accounts.by_id(self.account.id)
            keys = {key.credential_id.hex(): key.id for key in await read.passkeys.of_user(self.account.id)}
        assert account is not None
        assert account.passkey_count == len(keys)
        return PasskeyWait.of(account, self.clock.now()), keys

    def is_there(self, authenticator: SoftAuthenticator) -> bool:
        return authenticator.credentials[0].id.hex() in self.stored()[1]

    def add(self, who: str, caller: Person) -> None:
        authenticator = SoftAuthenticator(origin=BASE_URL)
        credential = authenticator.create(self.run(passkeys.start, self.ports, caller))
        self.run(passkeys.register, self.ports, caller, credential, None)
        self.keys[who].append(authenticator)
        self.wait_at = None

    @initialize(has_own=st.booleans(), age=TIMES)
    def begin(self, *, has_own: bool, age: timedelta) -> None:
        PasskeyLossMachine.number += 1
        self.keys, self.wait_at, self.recovery = {OWNER: [], SQUATTER: []}, None, None
        self.account = self.run(add_account, self.ports, f"person-{PasskeyLossMachine.number}@example.com")
        self.owner_of_platform = self.run(add_platform_owner, self.ports, f"owner-{PasskeyLossMachine.number}@example.com")
        caller = self.person(Method.PASSWORD)
        self.add(SQUATTER, caller)
        if has_own:
            self.add(OWNER, caller)  # in the session that has shown the first passkey
        self.clock.advance(age)

    @rule(time=TIMES)
    def wait(self, time: timedelta) -> None:
        self.clock.advance(time)

    # With a passkey

    @rule(who=st.sampled_from([OWNER, SQUATTER]), number=st.integers(0, 3))
    def sign_in_with_passkey(self, who: str, number: int) -> None:
        self.clock.advance(MINUTE)
        if not self.keys[who]:
            return
        authenticator = self.keys[who][number % len(self.keys[who])]
        is_there = self.is_there(authenticator)
        options = self.run(passkey_method.start, self.ports, PresentedDevice(), StoredId())
        method = DiscoveredPasskey(authenticator.get(options))
        flow = new_flow(self.clock.now(), FlowTarget.API, "")
        try:
            self.run(prove, self.ports, SYSTEM, flow, method, PresentedDevice())
        except (PasskeyUnknown, PasskeyDeleted):
            assert not is_there
        except AccountInRecovery:
            assert self.recovery is not None
            assert self.recovery.refuses_sign_ins
        else:
            assert is_there
            self.wait_at = None
            assert self.recovery is None or not self.recovery.refuses_sign_ins

    @rule()
    def the_squatter_adds_another(self) -> None:
        self.clock.advance(MINUTE)
        if any(map(self.is_there, self.keys[SQUATTER])) and len(self.stored()[1]) < 5:
            self.add(SQUATTER, self.person(Method.PASSKEY))

    # Without a passkey

    @rule(methods=st.sampled_from([(Method.PASSWORD,), (Method.EMAIL,), (Method.PROVIDER,), (Method.PASSWORD, Method.PROVIDER)]))
    def a_thief_without_the_passkey_changes_nothing(self, methods: tuple[Method, ...]) -> None:
        self.clock.advance(MINUTE)
        _, keys = self.stored()
        if keys:
            caller = self.person(*methods)
            with pytest.raises(SignInNotAccepted):
                self.run(passkeys.start, self.ports, caller)
            with pytest.raises(SignInNotAccepted):
                self.run(passkeys.delete, self.ports, caller, next(iter(keys.values())))
            with pytest.raises(SignInNotAccepted):
                self.run(accounts.remove_password, self.ports, caller)
            waits = [passkey_waits.start, passkey_waits.finish] if self.run(self._has_password) else []
            for wait in waits:
                with pytest.raises(PasswordAndMailboxNeeded):
                    self.run(wait, self.ports, caller)

    def person_with_both(self) -> Person:
        """Return the owner with password and mailbox. An undo may have ended the password."""
        if not self.run(self._has_password):
            self.reset_password()
        self.clock.advance(MINUTE)
        return self.person(Method.PASSWORD, Method.EMAIL)

    async def _has_password(self) -> bool:
        async with self.ports.storage.reading() as read:
            account = await read.accounts.by_id(self.account.id)
        return account is not None and account.password_hash is not None

    @rule()
    def start_the_wait(self) -> None:
        caller = self.person_with_both()
        _, keys = self.stored()
        if not keys:
            with pytest.raises(NoPasskey):
                self.run(passkey_waits.start, self.ports, caller)
        elif self.present_wait is not None:
            with pytest.raises(PasskeyWaitNotOver):
                self.run(passkey_waits.start, self.ports, caller)
        else:
            self.run(passkey_waits.start, self.ports, caller)
            self.wait_at = self.clock.now()

    @rule()
    def remove_the_passkeys(self) -> None:
        caller = self.person_with_both()
        _, keys = self.stored()
        refusal = NoPasskey if not keys else NoPasskeyWait if self.present_wait is None else PasskeyWaitNotOver
        if keys and self.present_wait is not None and self.clock.now() >= self.present_wait + DAY:
            self.run(passkey_waits.finish, self.ports, caller)
            self.wait_at = None
            assert self.stored()[1] == {}
        else:
            with pytest.raises(refusal):
                self.run(passkey_waits.finish, self.ports, caller)

    @rule()
    def cancel(self) -> None:
        with suppress(NoPasskeyWait):
            self.run(passkey_waits.cancel, self.ports, self.person(Method.EMAIL))
        self.wait_at = None

    @rule()
    def sweep(self) -> None:
        self.run(passkey_waits.sweep, self.ports, new_id())

    @rule(number=st.integers(0, 5))
    def undo_changes(self, number: int) -> None:
        self.clock.advance(MINUTE)
        self.run(deliver, self.ports)
        tokens = [link(mail) for mail in self.sent.emails if mail.to == self.account.email and "/auth/undo?" in mail.text]
        if not tokens:
            return
        with suppress(UndoLinkInvalid):
            self.run(undo.undo, self.ports, SYSTEM, tokens[-1 - number % len(tokens)])
            self.wait_at = None

    @rule()
    def reset_password(self) -> None:
        """Reset the password, and keep the passkeys that the owner recognizes."""
        self.clock.advance(MINUTE)
        self.run(accounts.forgot_password, self.ports, SYSTEM, self.account.email)
        self.run(deliver, self.ports)
        token = link(self.sent.newest("Set a new password", self.account.email))
        reset = self.run(accounts.find_reset, self.ports, token)
        own = {key for name, key in self.stored()[1].items() if name in {each.credentials[0].id.hex() for each in self.keys[OWNER]}}
        assert reset is not None
        self.run(accounts.reset_password, self.ports, SYSTEM, token, PASSWORD, [each.id for each in reset.added if each.id in own])

    def issuer(self) -> Person:
        """Return a platform owner with a fresh sign-in."""
        session = self.run(sign_in, self.ports, self.owner_of_platform)
        return self.run(callers.authenticate, self.ports, SYSTEM, PresentedToken(session.access_token), Requirement())

    def recover(self) -> None:
        """Open the newest recovery with the link from the mailbox and the code, and set up a passkey."""
        assert self.recovery is not None
        self.run(deliver, self.ports)
        token = link(self.sent.newest("/auth/recover?", self.account.email))
        opened = self.run(account_recovery.open_in_browser, self.ports, SYSTEM, token, self.recovery.code, "browser")
        authenticator = SoftAuthenticator(origin=BASE_URL)
        credential = authenticator.create(self.run(account_recovery.start_passkey, self.ports, SYSTEM, opened, "browser"))
        self.run(account_recovery.finish_with_passkey, self.ports, SYSTEM, opened, "browser", credential)
        self.keys[OWNER].append(authenticator)

    # The properties

    @property
    def present_wait(self) -> datetime | None:
        return None if self.wait_at is None or self.clock.now() >= self.wait_at + 3 * DAY else self.wait_at

    @invariant()
    def the_wait_is_that_of_the_reference(self) -> None:
        wait, keys = self.stored() if hasattr(self, "account") else (None, {})
        if keys:
            assert (None if wait is None else wait.started_at) == self.present_wait

    def squatter_signs_in(self, *, is_awake: bool) -> None:
        if is_awake:
            for number in range(len(self.keys[SQUATTER])):
                self.sign_in_with_passkey(SQUATTER, number)

    @rule(is_awake=st.booleans(), pause=st.sampled_from([MINUTE, 23 * HOUR]))
    def the_owner_of_mailbox_and_password_gets_the_account_back(self, *, is_awake: bool, pause: timedelta) -> None:
        """Without a recovery, unless sign-ins with the squatter's passkey end every wait. They do not end every recovery (security M-8)."""
        self.reset_password()
        if any(map(self.is_there, self.keys[SQUATTER])):
            if self.present_wait is None or self.clock.now() > self.present_wait + 2 * DAY:
                self.cancel()
                self.start_the_wait()
            self.squatter_signs_in(is_awake=is_awake)
            self.clock.advance(DAY)
            self.sweep()
            self.remove_the_passkeys()
        if any(map(self.is_there, self.keys[SQUATTER])):
            for _ in range(2):
                self.recovery = self.run(account_recovery.issue_by_platform, self.ports, self.issuer(), self.account.id, "Lost")
                self.squatter_signs_in(is_awake=is_awake)
                self.clock.advance(pause)
                self.squatter_signs_in(is_awake=is_awake)
            self.recover()
            assert not any(map(self.is_there, self.keys[SQUATTER]))
            self.begin(has_own=False, age=MINUTE)  # now with a second factor, no wait helps any longer
            return
        assert not any(map(self.is_there, self.keys[SQUATTER]))
        if not self.stored()[1]:
            self.add(OWNER, self.person(Method.PASSWORD))


@pytest.mark.slow
def test_only_the_owner_of_password_and_mailbox_removes_passkeys_and_only_after_a_day(conninfo: str) -> None:
    with Background() as background:
        machine = PasskeyLossMachine
        pool = Pool(conninfo, size=2)
        machine.background, machine.clock, machine.sent = background, FakeClock(), FakeMailTransport()
        ports = background.run(make_ports, pool, machine.clock, machine.sent, FakeMetrics())
        machine.ports = replace(ports, policy=Policy(account_guess_limit=10**6, mails_per_recipient=10**6))
        try:
            run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=20))
        finally:
            background.run(pool.aclose)

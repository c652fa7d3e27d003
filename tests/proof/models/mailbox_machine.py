"""An account and the people around it: its owner, a mailbox thief, a session thief with an organization, a squatter, and time.

Every step is a use case on real PostgreSQL, in any order. `Timeline` is the reference: it knows which second factors the account had, and
when, and nothing about apps, keys or links.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts, email_changes, mfa, passkeys, security_notices, undo
from core.accounts.model.accounts import Account, FactorRequired, LinkInvalid, RecoveryRequired, TooManyEmailChanges
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.passkeys import OnlySignInMethod, PasskeyKind
from core.accounts.model.security_notices import UndoLinkInvalid
from core.authentication import callers, identities
from core.authentication.model.dpop import PresentedToken
from core.authentication.model.identities import Identity, LastSignInMethod, NotLinked
from core.kernel.access import Requirement
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.connections import CODEHOST, ProviderTokens
from core.kernel.errors import Unauthenticated
from core.kernel.proofs import Method, Proof, Strength
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Email, new_id
from core.maintenance import housekeeping
from core.tenancy import members
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.background import Background
from tests.support.builders import BASE_URL, PASSWORD, add_account, add_member, add_organization, deliver, run_sql, sign_in, two_factors
from tests.support.mfa import Authenticator, show
from tests.support.passkeys.authenticator import SoftAuthenticator

T = TypeVar("T")

ANONYMOUS: Final = Anonymous(address="203.0.113.9", agent="tests")
MICROSECOND, MINUTE, HOUR = timedelta(microseconds=1), timedelta(minutes=1), timedelta(hours=1)
LIMIT: Final = 72 * HOUR
OWNER, THIEF = "owner", "thief"  # the session thief, or the squatter
PEOPLE = st.sampled_from([OWNER, THIEF])
NOTHING, EVERYTHING, BY_API = "nothing", "everything", "by API"
UNDO_LINK = re.compile(r"/auth/undo\?token=([0-9a-f-]+)")
RESET_LINK = re.compile(r"/auth/reset-password\?token=([0-9a-f-]+)")
POLICIES = {Strength.TWO: {"second_factor": ["everyone"]}, Strength.PHISHING_RESISTANT: {"phishing_resistant": ["everyone"]}}
STRENGTH = """
    select passkey_count, mfa_enabled_at is not null or (passkey_second_at is not null and security_key_count > 0),
           recovery_required_at is not null
    from users where id = %s"""
ADDED = """
    with s as (select %s::timestamptz as since)
    select (select count(*) from passkeys where user_id = u.id and created_at >= since) + coalesce((u.mfa_enabled_at >= since)::int, 0)
        + (exists (select from passkeys where user_id = u.id and created_at < since and u.passkey_second_at >= since))::int
    from users u, s where u.id = %s"""


@dataclass
class Timeline:
    """The account's second factors over time, by their secrets or credential ids."""

    changes: list[tuple[datetime, frozenset[str]]] = field(default_factory=list)

    def observe(self, now: datetime, factors: frozenset[str]) -> None:
        if not self.changes or self.changes[-1][1] != factors:
            self.changes.append((now, factors))

    @property
    def present(self) -> frozenset[str]:
        return self.changes[-1][1]

    def earlier(self, now: datetime) -> frozenset[str]:
        """Return the second factors that the account had 72 hours ago. A gap up to 72 hours does not count."""
        then, ends = now - LIMIT, [at for at, _ in self.changes[1:]] + [now]
        periods = [(begin, end, factors) for (begin, factors), end in zip(self.changes, ends, strict=True) if factors]
        before = [(end, factors) for begin, end, factors in periods if begin <= then]
        if not before:
            return frozenset()
        gap_end = min((begin for begin, _, _ in periods if begin > then), default=now)
        end, factors = before[-1]
        return factors if end > then or gap_end - end <= LIMIT else frozenset()

    def steady(self, now: datetime) -> frozenset[str]:
        """Return the second factors that the account has had for the whole last 72 hours."""
        ends = [at for at, _ in self.changes[1:]] + [now]
        recent = [factors for (_, factors), end in zip(self.changes, ends, strict=True) if end > now - LIMIT]
        return frozenset.intersection(*recent) if self.changes[0][0] <= now - LIMIT else frozenset()

    def ever_before(self, now: datetime) -> frozenset[str]:
        """Return all second factors that the account had at any time until 72 hours ago."""
        return frozenset().union(*(factors for at, factors in self.changes if at <= now - LIMIT))


@dataclass(eq=False)
class Belongings:
    """A person's factors: apps, keys and backup codes that work, or that worked once."""

    apps: dict[str, Authenticator] = field(default_factory=dict)  # by secret
    keys: set[str] = field(default_factory=set)  # credential ids
    codes: list[str] = field(default_factory=list)


class MailboxMachine(RuleBasedStateMachine):
    """A single account.

    The owner and the session thief can do everything in a session. The mailbox is open to its owner and to a thief.
    """

    background: ClassVar[Background]
    ports: ClassVar[Ports]
    clock: ClassVar[FakeClock]
    sent: ClassVar[FakeMailTransport]
    pool: ClassVar[Pool]
    number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline()
        self.people = {OWNER: Belongings(), THIEF: Belongings()}
        self.removed: set[str] = set()  # factors that an admin, a reset or an undo removed
        self.slug = ""  # the organization that the thief has joined, if any
        self.needed = Strength.NONE  # by its policy
        self.account: Account

    def run(self, act: Callable[..., Awaitable[T]], *args: object, **options: object) -> T:
        async def call() -> T:
            return await act(*args, **options)

        return self.background.run(call)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    # The account's state

    async def _load(self) -> tuple[frozenset[str], str | None, dict[str, UUID]]:
        """Return the second factors, the app's secret, and all keys by credential id."""
        async with self.ports.storage.reading() as read:
            account = await read.accounts.by_id(self.account.id)
            enrollment = await read.mfa.enrollment(self.account.id)
            keys = {key.credential_id.hex(): key.id for key in await read.passkeys.of_user(self.account.id)}
        assert account is not None
        assert enrollment is not None
        app = None if account.mfa_enabled_at is None else enrollment.secret
        seconds = {*([app] if app else []), *(keys if account.passkey_second_at else [])}
        return frozenset(seconds), app, keys

    def observe(self) -> None:
        self.timeline.observe(self.now, self.run(self._load)[0])
        self.removed -= self.timeline.steady(self.now)

    def person(self) -> Person:
        """Return the caller in a new session that has shown all factors, and a passkey (security PK-12)."""
        session = self.run(sign_in, self.ports, self.account, second_factor=True)
        self.run(self._show_passkey, session.session_id)
        return self.run(callers.authenticate, self.ports, SYSTEM, PresentedToken(session.access_token), Requirement())

    async def _show_passkey(self, session_id: UUID) -> None:
        proof = Proof(Method.PASSKEY, self.now, user_verified=True, phishing_resistant=True, passkey=new_id())
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.session_sign_ins.reauthenticate(session_id, self.account.id, (*two_factors(self.now), proof))

    def begin_step(self) -> None:
        self.clock.advance(MINUTE)

    # In a session

    @initialize(
        is_squatted=st.sampled_from([False, False, True]),
        has=st.sampled_from([["app"], ["passkey"], ["security_key"], ["app", "passkey"], []]),
        age=st.sampled_from([300 * HOUR, HOUR]),
    )
    def begin(self, is_squatted: bool, has: Collection[str], age: timedelta) -> None:
        """Begin with the owner's account, or with an account that a squatter has registered and its owner has verified."""
        MailboxMachine.number += 1
        self.sent.emails.clear()
        self.account = self.run(add_account, self.ports, f"person-{MailboxMachine.number}@example.com")
        self.observe()
        for kind in has:
            self.add_second(THIEF if is_squatted else OWNER, kind)
        self.clock.advance(age)

    @rule(person=PEOPLE)
    def add_app(self, person: str) -> None:
        self.begin_step()
        if self.run(self._load)[1] is None:
            with suppress(RecoveryRequired):
                caller = self.person()
                app = Authenticator(self.run(mfa.start_setup, self.ports, caller).secret, self.clock)
                self.people[person].apps[app.secret] = app
                self.people[person].codes = list(self.run(mfa.confirm_setup, self.ports, caller, app.code()))
            self.observe()

    @rule()
    def turn_app_off(self) -> None:
        self.begin_step()
        with suppress(FactorRequired):
            self.run(mfa.disable, self.ports, self.person())
        self.observe()

    @rule(gap=st.sampled_from([MINUTE, 71 * HOUR]), person=PEOPLE)
    def remove_as_admin(self, gap: timedelta, person: str) -> None:
        """An admin removes all second factors. The user adds another factor. No undo brings an earlier factor back in its place."""
        self.leave_organization()  # otherwise only a recovery removes them
        self.begin_step()
        if self.timeline.present:
            self.removed.update(*(factors for _, factors in self.timeline.changes))
        self.run(self._remove_all)
        self.observe()
        self.wait(gap)
        self.add_app(person)

    async def _remove_all(self) -> None:
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            account = await tx.accounts.lock(self.account.id)
            assert account is not None
            await mfa.force_removal(tx, SYSTEM, account, self.now)

    def add_second(self, person: str, kind: str) -> None:
        if kind == "app":
            self.add_app(person)
        else:
            self.add_key(person, kind, second=True)

    @rule(
        person=PEOPLE, kind=st.sampled_from(["app", "passkey", "security_key"]), gap=st.sampled_from([MINUTE, HOUR, 71 * HOUR, 73 * HOUR])
    )
    def replace_second(self, person: str, kind: str, gap: timedelta) -> None:
        """Everything off, and after a while another second factor on, as after changing the phone."""
        self.turn_app_off()
        self.switch_keys(on=False)
        self.wait(gap)
        self.add_second(person, kind)

    @rule(person=PEOPLE, kind=st.sampled_from(["passkey", "security_key"]), second=st.booleans())
    def add_key(self, person: str, kind: str, *, second: bool) -> None:
        self.begin_step()
        if len(self.run(self._load)[2]) < 6:
            with suppress(RecoveryRequired):
                caller, authenticator = self.person(), SoftAuthenticator(origin=BASE_URL)
                options = self.run(passkeys.start, self.ports, caller, PasskeyKind(kind))
                credential = authenticator.create(options)
                _, codes = self.run(passkeys.register, self.ports, caller, credential, None, PasskeyKind(kind), second=second)
                self.people[person].keys.add(authenticator.credentials[0].id.hex())
                self.people[person].codes = list(codes) or self.people[person].codes
            self.observe()

    @rule(number=st.integers(0, 5))
    def delete_key(self, number: int) -> None:
        self.begin_step()
        keys = sorted(self.run(self._load)[2].values())
        if keys:
            with suppress(OnlySignInMethod, FactorRequired):
                self.run(passkeys.delete, self.ports, self.person(), keys[number % len(keys)])
            self.observe()

    @rule(on=st.booleans())
    def switch_keys(self, *, on: bool) -> None:
        self.begin_step()
        if self.run(self._load)[2]:
            with suppress(RecoveryRequired, FactorRequired):
                self.run(passkeys.set_second, self.ports, self.person(), on=on)
            self.observe()

    @rule(needed=st.sampled_from([*POLICIES]))
    def join_organization(self, needed: Strength) -> None:
        """A session thief joins their own organization, and its policy asks for a factor."""
        self.begin_step()
        if not self.slug:
            self.slug, self.needed = f"evil-{new_id()}", needed
            self.run(self._join)

    async def _join(self) -> None:
        org = await add_organization(self.pool, self.slug)
        await add_member(self.pool, org, self.account.id, confirmed=True)
        policy = SignInPolicy(org_id=org, service_id=None, rules=Rules.read(POLICIES[self.needed]), changed_at=self.now)
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.sign_in_policies.put(policy)

    @rule()
    def leave_organization(self) -> None:
        self.begin_step()
        if self.slug:
            self.run(members.leave, self.ports, self.person(), self.slug)
            self.slug, self.needed = "", Strength.NONE

    @rule(person=PEOPLE, what=st.sampled_from(["codes", "link", "unlink", "address"]))
    def change_something_else(self, person: str, what: str) -> None:
        """Replace backup codes, link or unlink an account, or request another address, which nobody proves. All start an undo."""
        self.begin_step()
        with suppress(NotLinked, LastSignInMethod, TooManyEmailChanges):
            if what == "codes" and self.timeline.present:
                self.people[person].codes = list(self.run(mfa.regenerate_backup_codes, self.ports, self.person()))
            elif what == "link":
                self.run(self._link)
            elif what == "unlink":
                self.run(identities.unlink, self.ports, self.person(), CODEHOST)
            elif what == "address":
                self.run(email_changes.request, self.ports, self.person(), Email(f"other-{self.account.id}@example.com"))

    async def _link(self) -> None:
        tokens = ProviderTokens("access", None, None, ())
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            account = await tx.accounts.lock(self.account.id)
            assert account is not None
            issuer, email = "https://codehost.example", Email("thief@example.com")
            identity = Identity(new_id(), account.id, None, CODEHOST, issuer, str(account.id), email, self.now, tokens)
            if await tx.identities.add(identity):
                await security_notices.notify(tx, account, EmailKind.IDENTITY_LINKED, self.now, session_id=None, detail=CODEHOST)

    @rule(time=st.sampled_from([MINUTE, HOUR, 11 * HOUR, 25 * HOUR, 60 * HOUR, 71 * HOUR, 73 * HOUR]))
    def wait(self, time: timedelta) -> None:
        self.clock.advance(time)
        self.run(housekeeping.sweep, self.ports, new_id())

    # In the mailbox

    def links(self, pattern: re.Pattern[str]) -> Sequence[str]:
        """Return the tokens in all links of this kind in the mailbox, oldest first."""
        self.run(deliver, self.ports)
        own = [mail.text for mail in self.sent.emails if mail.to == self.account.email]
        return [token for text in own for token in pattern.findall(text)]

    @rule(keeps=st.sampled_from([NOTHING, EVERYTHING, BY_API]), again=st.booleans())
    def reset_password(self, keeps: str, *, again: bool) -> None:
        """Reset the password on the page or over the API. With `again`, use an old link, if any."""
        self.begin_step()
        tokens = self.links(RESET_LINK)
        if not (again and tokens):
            self.run(accounts.forgot_password, self.ports, ANONYMOUS, self.account.email)
            tokens = self.links(RESET_LINK)[-1:]
        with suppress(LinkInvalid):
            with self.from_the_mailbox() as step:
                reset = self.run(accounts.find_reset, self.ports, tokens[0])
                kept = None if keeps == BY_API or reset is None else [each.id for each in reset.added if keeps == EVERYTHING]
                self.run(accounts.reset_password, self.ports, ANONYMOUS, tokens[0], PASSWORD, kept)
            if keeps == NOTHING:
                step.require_ended(self.now - LIMIT + MICROSECOND)

    @rule(link=st.integers(-4, 3), start=st.sampled_from([-1, 0, -2, 1, -3, 2]))
    def undo_changes(self, link: int, start: int) -> None:
        """Use a link "This wasn't me" with any start. Link and start are counted from the newest or the oldest."""
        self.begin_step()
        tokens = self.links(UNDO_LINK)
        with suppress(UndoLinkInvalid):
            if tokens:
                self._undo(tokens[link % len(tokens)], start)

    @rule(start=st.sampled_from([-1, -2, 0]))
    def undo_with_the_newest_link(self, start: int) -> None:
        self.undo_changes(-1, start)

    def _undo(self, token: str, start: int) -> None:
        starts = self.run(undo.find_undoable, self.ports, token).starts
        first = starts[start % len(starts)]
        with self.from_the_mailbox() as step:
            self.run(undo.undo, self.ports, ANONYMOUS, token, first.id)
        step.require_ended(first.created_at)

    def from_the_mailbox(self) -> "FromTheMailbox":
        return FromTheMailbox(self)

    # The properties

    def shows_a_factor(self, person: str, among: Collection[str]) -> bool:
        """Return whether this person has a factor named here, and the account asks for it now. A backup code stands for all factors."""
        seconds, app, _ = self.run(self._load)
        belongings = self.people[person]
        if app is not None and app in belongings.apps and app in among:
            with suppress(Unauthenticated):
                self.run(show, self.ports, self.account, belongings.apps[app].code())
                return True
        return not belongings.keys.isdisjoint(seconds & frozenset(among))

    @rule()
    def the_owner_gets_in_again(self) -> None:
        """The mailbox and an old factor are enough, and without an old factor the mailbox alone.

        Then nothing that the thief added stays.
        """
        self.begin_step()
        earlier = self.timeline.earlier(self.now) if self.timeline.present else frozenset()
        own = {*self.people[OWNER].apps, *self.people[OWNER].keys}
        # A removed factor is no old factor, also if a session has added it again since. An undo can bring an older factor back.
        old = self.timeline.ever_before(self.now) & own - self.removed
        self.reset_password(NOTHING, again=False)
        if self.timeline.present and not self.shows_a_factor(OWNER, old):
            if earlier and not earlier & old:
                return  # only a recovery helps
            self._undo(self.links(UNDO_LINK)[-1], 0)
            self.begin_step()
            self.reset_password(NOTHING, again=False)
            assert not self.timeline.present or self.shows_a_factor(OWNER, old), "the owner of the mailbox is locked out"
        self._clean_up()

    def _clean_up(self) -> None:
        """Let the owner remove the factors that the thief has added."""
        self.leave_organization()
        self.begin_step()
        _, app, keys = self.run(self._load)
        caller, thief = self.person(), self.people[THIEF]
        for credential in thief.keys & set(keys):
            self.run(passkeys.delete, self.ports, caller, keys[credential])
        if app in thief.apps:
            self.run(mfa.disable, self.ports, caller)
        self.observe()
        if self.timeline.present:
            self.people[OWNER].codes = list(self.run(mfa.regenerate_backup_codes, self.ports, caller))
        assert self.run(run_sql, self.pool, "select from identities where user_id = %s", self.account.id) == []
        assert not self.shows_a_factor(THIEF, self.timeline.present)

    def teardown(self) -> None:
        if self.timeline.changes:
            self.the_owner_gets_in_again()


class FromTheMailbox:
    """A step that the mailbox alone allows. It removes no last second factor from an account that had a second factor 72 hours ago.

    If the account then no longer meets a policy, only a recovery gives it another factor: the step does not get past the policy.
    """

    def __init__(self, machine: MailboxMachine) -> None:
        self.machine = machine

    def __enter__(self) -> "FromTheMailbox":
        self.machine.observe()
        self.strength, _ = self.load()
        self.before = self.machine.timeline.present
        self.is_kept = bool(self.before) and bool(self.machine.timeline.earlier(self.machine.now))
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.machine.observe()
            present = self.machine.timeline.present
            self.machine.removed -= present - self.before
            self.machine.removed |= self.before - present
            assert present or not self.is_kept, "the mailbox alone removed the last second factor"
            strength, needs_recovery = self.load()
            is_lost = self.strength >= self.machine.needed > strength
            assert needs_recovery or not is_lost, "the mailbox alone gets past the policy"

    def load(self) -> tuple[Strength, bool]:
        """Return the strongest sign-in that the account can do, and whether only a recovery gives it another factor."""
        [(passkeys, has_second, needs)] = self.machine.run(run_sql, self.machine.pool, STRENGTH, self.machine.account.id)
        return Strength.PHISHING_RESISTANT if passkeys else Strength.TWO if has_second else Strength.ONE, bool(needs)

    def require_ended(self, since: datetime) -> None:
        """Check that everything added since then has ended, but for the second factor that the step must keep."""
        [(count,)] = self.machine.run(run_sql, self.machine.pool, ADDED, since, self.machine.account.id)
        assert count <= int(self.is_kept), "a factor of the thief stays"

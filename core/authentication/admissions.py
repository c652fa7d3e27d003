"""The judgement of a request with a session, and what follows: a refusal, a pass, the reports of break glass, and reminders.

`core.kernel.judgement` alone judges. An allowed session gets a pass, so that the next requests need no verdict.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple, Self
from urllib.parse import urlencode
from uuid import UUID

from core.accounts import factor_changes, relying_party
from core.accounts.factors import own_proofs
from core.accounts.model import email_queue
from core.authentication.model import policy
from core.authentication.model.sessions import RefreshTokenInvalid
from core.authentication.service_access import Opened
from core.kernel import callers, judgement, page_paths, proofs, sign_in_age
from core.kernel.access import Requirement
from core.kernel.errors import Refusal
from core.kernel.page_paths import ENROLL_PATH, REAUTHENTICATION_PATH
from core.kernel.roles import is_admin
from core.kernel.sign_in_policy import rules
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.explanations import PolicyRefused
from core.kernel.sign_in_policy.steps import START, Ask, Refuse, Start, Step, Verdict
from core.tenancy import events
from ports import Ports, storage

KEYS: Final = (proofs.FactorKind.PASSKEY, proofs.FactorKind.SECURITY_KEY)


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict about a session, or about a sign-in that can start a session. Without a policy, `subject` is None."""

    subject: policy.PolicySubject | None = None
    verdict: Verdict = START

    @property
    def decision(self) -> Decision:
        """The decision of the policy."""
        return self.verdict.decision

    @property
    def is_allowed(self) -> bool:
        """Whether nothing stops the session."""
        return isinstance(self.verdict, Start)

    @property
    def step(self) -> Step | None:
        """The step that the verdict asks for, or None."""
        return self.verdict.step if isinstance(self.verdict, Ask) else None

    @property
    def needs_factor(self) -> bool:
        """Whether the user has to set up a factor, now or when a rule starts."""
        return self.step is Step.ENROLL or self.decision.due_at is not None

    @property
    def has_access(self) -> bool:
        """Whether the user may use the application. A user who may not learns nothing about its policy."""
        return not (isinstance(self.verdict, Start) and self.verdict.is_stranger)

    @property
    def factors(self) -> tuple[proofs.Factor, ...]:
        """The factors of the account, or none without a policy."""
        return () if self.subject is None else self.subject.account.factors

    @property
    def has_unused_key(self) -> bool:
        """Whether the account has a passkey or security key that sign-ins do not ask for."""
        return any(factor.kind in KEYS and not factor.is_second for factor in self.factors)

    @property
    def has_app(self) -> bool:
        """Whether the account has an authenticator app."""
        return any(factor.kind is proofs.FactorKind.TOTP for factor in self.factors)

    @property
    def place(self) -> policy.PolicyPlace:
        """Where the policy is."""
        return policy.PolicyPlace(None) if self.subject is None else self.subject.place

    def enrollment(self, ports: Ports) -> policy.DueEnrollment | None:
        """Return the requirement of a rule that starts later, or None."""
        due_at = self.decision.due_at
        return None if due_at is None else policy.DueEnrollment(enrollment_url(ports, self.place), due_at)

    def is_reminded(self, now: datetime) -> bool:
        """Return whether the user was reminded today of a rule that starts later, in any session."""
        reminded_at = None if self.subject is None or self.subject.session is None else self.subject.session.reminded_at
        return reminded_at is not None and now - reminded_at < policy.REMINDER_PAUSE

    async def remind(self, ports: Ports, user: callers.Person) -> None:
        """Remind the user of a rule that starts later, once a day."""
        if self.decision.due_at is not None and not self.is_reminded(ports.clock.now()) and await claim_reminder(ports, user):
            refusal = self._enrolment_required(ports)
            refusal.caller = user
            raise refusal

    def _enrolment_required(self, ports: Ports) -> policy.EnrolmentRequired:
        return policy.EnrolmentRequired(self.decision, self.place, enrollment_url(ports, self.place))

    def refusal(self, ports: Ports, user: callers.Person | None, age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY) -> Refusal:
        """Return the refusal if the session is not allowed. `age`: how recent a sign-in the request needs."""
        refusal: Refusal
        if isinstance(self.verdict, Refuse):
            refusal = self.verdict.reason
        elif self.step is Step.ENROLL:
            refusal = self._enrolment_required(ports)
        else:
            refusal = policy.StepUpNeeded(self.decision, self.place, connection_url(ports, self.place, self.decision, age), age)
        refusal.caller = user
        return refusal

    def require(self, ports: Ports, user: callers.Person, age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY) -> None:
        """Check that the session is allowed. Raises: EnrolmentRequired, StepUpNeeded; the reason of a refusal."""
        if not self.is_allowed:
            raise self.refusal(ports, user, age)

    def require_for_code(self) -> None:
        """Check that a session can start from an authorization code or a device code. Raises: GrantBelowPolicy."""
        if not isinstance(self.verdict, Start):
            raise policy.GrantBelowPolicy(self.verdict)

    def refresh_refusal(self, ports: Ports) -> RefreshTokenInvalid | None:
        """Return the refusal of a refresh, or None if the session is allowed."""
        if isinstance(self.verdict, Start):
            return None
        refusal = self.refusal(ports, None)
        if isinstance(refusal, policy.EnrolmentRequired):
            return policy.RefreshNeedsEnrolment(refusal)
        return policy.RefreshNeedsSignIn(self.verdict, refusal)

    def new_pass(self, session_id: UUID, now: datetime) -> policy.PolicyPass | None:
        """Return the pass of a session that is allowed, or None without a policy."""
        return None if self.subject is None else policy.PolicyPass.of(self.subject, self.decision, session_id, now)

    async def save_pass(self, tx: storage.Transaction, session_id: UUID, now: datetime) -> None:
        """Store the session's pass, and report if break glass was used."""
        if (new := self.new_pass(session_id, now)) is not None:
            await tx.policy_passes.save(new)
            await self.report_break_glass(tx, session_id, now)

    async def report_break_glass(self, tx: storage.Transaction, session_id: UUID, now: datetime) -> None:
        """If the decision uses break glass, record it, and email all admins and platform owners. A session is reported once."""
        decision, org_id = self.decision, None if self.subject is None else self.subject.policy.org_id
        if self.subject is None or org_id is None or decision.connection is None or not decision.breaks_glass:
            return
        if not await tx.policy_passes.add_break_glass_use(org_id, session_id, now):
            return
        account = self.subject.account
        tx.record(events.break_glass_used(org_id, account.id, decision.connection.slug))
        for address in sorted({*await tx.members.admin_addresses(org_id), *await tx.accounts.platform_owner_addresses()}):
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.BREAK_GLASS_USED, address, now, token=account.email, org_id=org_id)
            )


NO_ADMISSION: Final = Admission()


def connection_url(
    ports: Ports, place: policy.PolicyPlace, decision: Decision, age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY
) -> str | None:
    """Return the URL at which a browser begins the sign-in through the connection that a policy requires, or None.

    For the `age` of a sign-in, the page that confirms follows: it asks again if the identity provider did not ask the user.
    """
    if decision.connection is None or (decision.rule is not rules.Rule.CONNECTION and decision.leads_to is None):
        return None
    parameters = {} if place.service_slug is None else {"org": place.org_slug, "service": place.service_slug}
    if age is not sign_in_age.SignInAge.ANY and place.org_slug is not None:
        confirmed = {"next": page_paths.ORGANIZATION_PATH.format(org_slug=place.org_slug), "policy": place.org_slug, "age": age.value}
        parameters = {"next": f"{REAUTHENTICATION_PATH}?{urlencode(confirmed)}"}
    return ports.tokens.issuer + page_paths.connection_start_path(decision.connection.id, **parameters)


def enrollment_url(ports: Ports, place: policy.PolicyPlace) -> str:
    """Return the URL of the page on which the user sets up the factor that this policy requires."""
    return ports.tokens.issuer + enrollment_path(place)


def enrollment_path(place: policy.PolicyPlace, **more: str) -> str:
    """Return the path of `enrollment_url`, with further parameters."""
    names = {"org": place.org_slug, "service": place.service_slug} | more
    query = urlencode({name: value for name, value in names.items() if value is not None})
    return f"{ENROLL_PATH}?{query}" if query else ENROLL_PATH


async def claim_reminder(ports: Ports, user: callers.Person) -> bool:
    """Return whether the user is reminded now of a rule that starts later.

    If a user sends several requests in a day, only one request gets True.
    """
    now = ports.clock.now()
    async with ports.storage.autocommit() as statements:
        return await statements.policy_passes.claim_reminder(user.user_id, now, now - policy.REMINDER_PAUSE)


# Sessions


class UserSession(NamedTuple):
    """A user with a session and an IP address."""

    user_id: UUID
    id: UUID
    address: str | None = None

    @classmethod
    def of(cls, user: callers.Person) -> Self:
        """Return the present session of the user."""
        return cls(user.user_id, user.session_id, user.address)


def facts_of(
    ports: Ports,
    path: judgement.PolicyPath,
    subject: policy.PolicySubject,
    now: datetime,
    address: str | None = None,
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
) -> judgement.SignInFacts:
    """Return the facts about the session of a user that a policy binds."""
    session, account = subject.session or policy.PolicySession(()), subject.account
    return judgement.SignInFacts(
        now=now,
        settings=ports.policy,
        path=path,
        age=age,
        address=address,
        has_password=account.password_hash is not None,
        factors=account.factors,
        factors_here=relying_party.without_lost_keys(ports, account, subject.keys).factors,
        policy=subject.policy,
        first_ways=account.first_ways(subject.providers, email_is_on=ports.policy.offers_email(subject.email_sign_in)),
        is_admin=subject.is_admin,
        connections=subject.connections,
        proofs=session.proofs,
        risk_is_high=session.risk_is_high,
        used_at=session.used_at,
        factor_at_device=session.factor_at_device,
    )


def count(ports: Ports, facts: judgement.SignInFacts, verdict: Verdict) -> None:
    """Count the decision of the policy, unless it is about a view."""
    if facts.policy is not None and not facts.path.is_view:
        ports.metrics.sign_in_policy_decided(facts.path, verdict.decision.outcome)


class _Loaded(NamedTuple):
    """A user that a policy binds, and the facts about their session."""

    subject: policy.PolicySubject
    facts: judgement.SignInFacts


async def _load(
    ports: Ports,
    read: storage.Reading | storage.Transaction,
    path: judgement.PolicyPath,
    opened: Opened,
    session: UserSession,
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
) -> _Loaded | None:
    """Return the facts about a user's session, or None without a policy, and for a view in an impersonation, which has no proofs."""
    subject = await read.policy_passes.load(opened.org_id, opened.service_id, session.user_id, session.id)
    if subject is None or (path.is_view and subject.session is not None and not subject.session.proofs):
        return None
    return _Loaded(subject, facts_of(ports, path, subject, ports.clock.now(), session.address, age))


async def judge_in(
    ports: Ports,
    read: storage.Reading | storage.Transaction,
    path: judgement.PolicyPath,
    opened: Opened,
    session: UserSession,
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
) -> Admission:
    """Return the verdict about a user's session, and count it. `age`: how recent a sign-in through a required connection must be."""
    if (loaded := await _load(ports, read, path, opened, session, age)) is None:
        return NO_ADMISSION
    subject, facts = loaded
    verdict = judgement.judge(replace(facts, may_use=None))
    count(ports, facts, verdict)
    if isinstance(verdict, Ask) and verdict.step is Step.CHECK_ACCESS:
        verdict = judgement.judge(replace(facts, may_use=await opened.admits(read, session.user_id, facts.now)))
    return Admission(None if isinstance(verdict, Start) and verdict.is_stranger else subject, verdict)


async def judge_session(
    ports: Ports,
    path: judgement.PolicyPath,
    opened: Opened,
    user: callers.Person,
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
    session_id: UUID | None = None,
) -> Admission:
    """Return the verdict about the user's present session, or about the session with this id. If it is allowed, it gets a pass."""
    session_id = session_id or user.session_id
    async with ports.storage.reading() as read:
        admission = await judge_in(ports, read, path, opened, UserSession(user.user_id, session_id, user.address), age)
    if not admission.is_allowed or path is judgement.PolicyPath.PREVIEW:
        return admission
    now = ports.clock.now()
    if admission.decision.breaks_glass:
        async with ports.storage.transaction(by=user) as tx:
            await admission.save_pass(tx, session_id, now)
    elif (new := admission.new_pass(session_id, now)) is not None:
        async with ports.storage.autocommit() as statements:
            await statements.policy_passes.save(new)
    return admission


async def require(ports: Ports, path: judgement.PolicyPath, opened: Opened, user: callers.Person) -> Admission:
    """Check that the user's session meets the policy, and return the verdict. No policy of an organization binds an impersonator.

    Raises: the errors of `Admission.require`.
    """
    if user.impersonator_id is not None:
        return NO_ADMISSION
    admission = await judge_session(ports, path, opened, user)
    admission.require(ports, user)
    return admission


async def require_in_transaction(
    ports: Ports,
    tx: storage.Transaction,
    path: judgement.PolicyPath,
    opened: Opened,
    user: callers.Person,
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
) -> None:
    """Check as `require` does, and the age of the sign-in through a required connection, in a transaction. No pass is stored."""
    if user.impersonator_id is not None:
        return
    admission = await judge_in(ports, tx, path, opened, UserSession.of(user), age)
    admission.require(ports, user, age)
    await admission.report_break_glass(tx, user.session_id, ports.clock.now())


async def require_in(
    ports: Ports,
    path: judgement.PolicyPath,
    user: callers.Person,
    organization: callers.OrganizationContext,
    state: callers.PolicyState | None,
) -> Admission:
    """Check that a user who acts in this organization meets its policy. A live pass is enough."""
    if state is None or (state.is_met and (not is_admin(organization.rights) or _is_inside(state, user.address))):
        return NO_ADMISSION
    try:
        return await require(ports, path, Opened(organization.id), user)
    except PolicyRefused as refusal:
        refusal.caller = callers.to_member(user, organization)
        raise


async def require_on_platform(ports: Ports, user: callers.Person) -> None:
    """Check that a platform owner who uses the platform's pages or API meets its policy."""
    async with ports.storage.reading() as read:
        state = await read.policy_passes.state_on_platform(user.session_id, ports.clock.now())
    if state is not None and not (state.is_met and _is_inside(state, user.address)):
        await require(ports, judgement.PolicyPath.API, Opened(), user)


async def require_of_impersonator(ports: Ports, user: callers.Person) -> None:
    """Check that the platform owner who acts as this user meets the platform's policy."""
    assert user.impersonator_id is not None, "the user is impersonated"
    async with ports.storage.reading() as read:
        session_id = await read.impersonations.started_in(user.session_id)
    if session_id is not None:
        await require_on_platform(ports, replace(user, user_id=user.impersonator_id, session_id=session_id, impersonator_id=None))


def _is_inside(state: callers.PolicyState, address: str | None) -> bool:
    return not state.admin_networks or rules.Rules.read({rules.Rule.ADMIN_NETWORKS: state.admin_networks}).admits(address)


async def judge_at_application(
    ports: Ports,
    path: judgement.PolicyPath,
    service: callers.ServiceContext | None,
    user: callers.Person | None,
    session_id: UUID | None = None,
    external_for: UUID | None = None,
) -> Admission:
    """Return the verdict about a user's session at an application, if both exist.

    `session_id`: as in `judge_session`. `external_for`: as in `Opened`, because the client may not be stored yet.
    """
    if user is None or service is None or not service.has_sign_in_policy:
        return NO_ADMISSION
    opened = Opened(service.org_id, service.id, path is judgement.PolicyPath.SAML, external_for=external_for)
    return await judge_session(ports, path, opened, user, session_id=session_id)


async def preview(ports: Ports, opened: Opened, session: UserSession) -> Admission:
    """Return the verdict about a session, for a page before the page that enforces the verdict."""
    if opened.org_id is None:
        return NO_ADMISSION
    async with ports.storage.reading() as read:
        return await judge_in(ports, read, judgement.PolicyPath.PREVIEW, opened, session)


async def judge_grant(
    ports: Ports, tx: storage.Transaction, path: judgement.PolicyPath, service: callers.ServiceContext | None, session: UserSession
) -> Admission:
    """Return the verdict about the session in which the user approved a session of this application."""
    if service is None or not service.has_sign_in_policy:
        return NO_ADMISSION
    return await judge_in(ports, tx, path, Opened(service.org_id, service.id), session)


# Sign-in age through the connection that an organization requires from a user (security SP-9). If an act in the organization needs a recent
# sign-in, a session must have a recent sign-in through that connection. Otherwise a user that the identity provider has removed could
# confirm the act with a different method.


async def find_connection_sign_in(
    ports: Ports, path: judgement.PolicyPath, member: callers.Member, age: sign_in_age.SignInAge
) -> callers.ConnectionSignIn:
    """Return the sign-in through the required connection, if any, for a request of this member. The use of break glass is reported."""
    async with ports.storage.reading() as read:
        loaded = await _load(ports, read, path, Opened(member.acts_in.id), UserSession.of(member), age)
    if loaded is None or not judgement.requires_connection(loaded.facts):
        return callers.ConnectionSignIn(is_required=False)
    admission = Admission(loaded.subject, judgement.judge(loaded.facts))
    count(ports, loaded.facts, admission.verdict)
    if not admission.is_allowed:
        return callers.ConnectionSignIn(is_required=True, refusal=admission.refusal(ports, member, age))
    if admission.decision.breaks_glass and sign_in_age.is_enough(member.sign_in, age, ports.policy, ports.clock.now()):
        async with ports.storage.transaction(by=member) as tx:
            await admission.report_break_glass(tx, member.session_id, ports.clock.now())
    return callers.ConnectionSignIn(is_required=not admission.decision.breaks_glass)


async def find_renewal(ports: Ports, user: callers.Person, org_slug: str) -> Decision | None:
    """Return the fresh sign-in that the organization's policy asks of its member, or None if it accepts any sign-in.

    None as well if the policy requires a connection, which has pages of its own.
    """
    async with ports.storage.reading() as read:
        org_id = await read.organizations.id_by_slug(org_slug)
        if org_id is None or user.restricted_to not in (None, org_id) or not await read.members.exists(org_id, user.user_id):
            return None
        loaded = await _load(ports, read, judgement.PolicyPath.ENROLL, Opened(org_id), UserSession.of(user), sign_in_age.SignInAge.FRESH)
    if loaded is None or judgement.requires_connection(loaded.facts):
        return None
    decision = judgement.decide_with_age(loaded.facts)
    return decision if decision.outcome is Outcome.STEP_UP else None


async def find_own_way(ports: Ports, user: callers.Person) -> Decision | None:
    """Return the decision for acts in the token's organization, if it asks for the account's own sign-in methods, or None.

    It asks for them after a sign-in through the required connection, if the identity provider may not have asked the user.
    """
    if user.organization is None:
        return None
    async with ports.storage.reading() as read:
        loaded = await _load(ports, read, judgement.PolicyPath.ENROLL, Opened(user.organization.id), UserSession.of(user))
    if loaded is None or not judgement.requires_connection(loaded.facts):
        return None
    decisions = (
        judgement.judge(replace(loaded.facts, age=age)).decision for age in (sign_in_age.SignInAge.FRESH, sign_in_age.SignInAge.RECENT)
    )
    return next((decision for decision in decisions if decision.outcome is Outcome.STEP_UP and decision.asks_own), None)


def check_act(ports: Ports, path: judgement.PolicyPath, caller: callers.Person, requirement: Requirement) -> judgement.SignInFacts:
    """Refuse a request that the caller's credentials alone forbid. Return the facts about the request for `admit`."""
    needs_more = requirement.age is not sign_in_age.SignInAge.ANY or requirement.changes_factors or requirement.is_of_platform
    act = judgement.Act(caller, requirement, is_loaded=not needs_more and caller.impersonator_id is None)
    facts = judgement.SignInFacts(now=ports.clock.now(), settings=ports.policy, path=path, act=act)
    verdict = judgement.judge(facts)
    if not isinstance(verdict, Ask):
        Admission(verdict=verdict).require(ports, caller)
    return facts


async def admit(ports: Ports, facts: judgement.SignInFacts) -> callers.Person:
    """Return the caller, if they may send the request now. A member comes with the sign-in at a required connection."""
    assert facts.act is not None, "the facts are about a request"
    caller, requirement = facts.act.caller, facts.act.requirement
    if facts.act.is_loaded:
        return caller
    if caller.impersonator_id is not None and not requirement.ends_session:
        await require_of_impersonator(ports, caller)
    if requirement.is_of_platform:
        await require_on_platform(ports, caller)
    has_policy = isinstance(caller, callers.Member) and caller.has_sign_in_policy and caller.personal_token is None
    if isinstance(caller, callers.Member) and has_policy and requirement.age is not sign_in_age.SignInAge.ANY:
        found = await find_connection_sign_in(ports, facts.path, caller, requirement.age)
        caller = replace(caller, connection_sign_in=found)
    missing = None
    if requirement.changes_factors:
        is_fresh = sign_in_age.is_enough(caller.sign_in, requirement.age, ports.policy, facts.now)
        find = own_proofs.find_missing_passkey if is_fresh else factor_changes.find_missing_sign_in
        missing = await find(ports, caller)
    verdict = judgement.judge(replace(facts, act=judgement.Act(caller, requirement, missing, is_loaded=True)))
    Admission(verdict=verdict).require(ports, caller)
    return caller

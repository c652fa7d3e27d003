"""The sign-in policy on every path that gives, uses or renews a session or a token.

`decide` (core.kernel.sign_in_policy) alone decides. This module loads the facts for it, and acts on its decision. A session with
the decision ALLOWED gets a pass, so that the next requests need no decision.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from core.accounts import relying_party
from core.accounts.model.devices import DeviceMatch
from core.authentication import policy_passes
from core.authentication.model.policy import (
    REMINDER_PAUSE,
    DueEnrollment,
    EnrolmentRequired,
    PolicyPath,
    PolicyPlace,
    PolicyRefused,
    PolicySession,
    PolicySubject,
    StepUpNeeded,
    TokenBelowPolicy,
)
from core.authentication.service_access import may_use
from core.kernel.callers import OrganizationContext, Person, PolicyState, ServiceContext, to_member
from core.kernel.errors import Refusal
from core.kernel.page_paths import ENROLL_PATH, ORGANIZATION_PATH, REAUTHENTICATION_PATH, connection_start_path
from core.kernel.proofs import Factor, FactorKind, Proofs, covers, in_session, seen_in
from core.kernel.roles import is_admin
from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.decision import NO_POLICY, Decision, Outcome, PolicyFacts, decide
from core.kernel.sign_in_policy.explanations import name_methods
from core.kernel.sign_in_policy.rules import Rule, Rules
from core.kernel.sign_in_policy.silent_sign_ins import beside_own, vouched_at
from ports import Ports
from ports.storage import Reading, Transaction

KEYS: Final = (FactorKind.PASSKEY, FactorKind.SECURITY_KEY)
# Paths in which the user acts in the organization or on the platform, so that the networks of its admins count.
_ACTING = (PolicyPath.API, PolicyPath.CONSOLE, PolicyPath.PERSONAL_TOKEN)
# Paths on which users confirm that they are here, in the session that they have.
_CONFIRMING = (PolicyPath.API, PolicyPath.CONSOLE, PolicyPath.ENROLL)
# Paths on which a page or an answer only says what the user can do next. The request that follows is counted.
_VIEWS = (PolicyPath.ENROLL, PolicyPath.PREVIEW)


def judge(ports: Ports, path: PolicyPath, subject: PolicySubject | None, now: datetime, address: str | None = None) -> Decision:
    """Return the decision about a user's session, and count it, unless it is about a view. Without a policy, everything is allowed."""
    if subject is None:
        return NO_POLICY
    decision = _judge(ports, path, subject, now, address)
    if path not in _VIEWS:
        ports.metrics.sign_in_policy_decided(path, decision.outcome)
    return decision


def _judge(ports: Ports, path: PolicyPath, subject: PolicySubject, now: datetime, address: str | None = None) -> Decision:
    """Return the decision about a user's session, uncounted."""
    session = subject.session or PolicySession(())
    seen = beside_own(seen_in(session.proofs, subject.policy.org_id, now))
    decision = decide(
        subject.policy,
        PolicyFacts(
            now=now,
            proofs=seen,
            factors=relying_party.without_lost_keys(ports, subject.account, subject.keys).factors,
            first_ways=subject.account.first_ways(subject.providers, email_is_on=ports.policy.offers_email(subject.email_sign_in))
            | {proof.method for proof in seen if not proof.is_own and proof.method is not None},
            is_admin=subject.is_admin,
            connections=subject.connections,
            may_break_glass=subject.is_admin and subject.connections.is_listed and path is not PolicyPath.PERSONAL_TOKEN,
            acts=path in _ACTING,
            risk_is_high=session.risk_is_high,
            address=address,
            used_at=session.used_at,
            factor_at_device=session.factor_at_device,
            ages=path is not PolicyPath.PERSONAL_TOKEN,
        ),
    )
    if (ends := [proof.until for proof in seen if proof.until is not None]) and decision.outcome is Outcome.ALLOWED:
        decision = replace(decision, valid_until=min(ends if decision.valid_until is None else [*ends, decision.valid_until]))
    if path in _CONFIRMING and subject.account.password_hash is not None:
        decision = _ask_own(decision, seen, now)
    return name_methods(decision, ports.policy.provider_names)


def _ask_own(decision: Decision, seen: Proofs, now: datetime) -> Decision:
    """Return the decision, which asks for a way of the account's own if the required connection has just vouched for the user.

    The connection stays another way, because the identity provider may not have been asked to authenticate the user. Listed users
    need no break glass then.
    """
    again_at, max_age = decision.connection if decision.breaks_glass else decision.leads_to, decision.max_age
    if again_at is None or max_age is None:
        return decision
    if not any(proof.connection == again_at.id and now - vouched_at(proof) <= max_age for proof in seen):
        return decision
    return replace(decision, methods=None, first_at=None, asks_own=True)


def refusal_of(ports: Ports, path: PolicyPath, subject: PolicySubject, decision: Decision, age: SignInAge = SignInAge.ANY) -> Refusal:
    """Return the refusal of a decision that is not ALLOWED. `age` is that of the sign-in which the request needs."""
    if decision.outcome is Outcome.REFUSED:
        return PolicyRefused(decision)
    if path is PolicyPath.PERSONAL_TOKEN:
        return TokenBelowPolicy(decision)
    if decision.outcome is Outcome.ENROLL:
        return EnrolmentRequired(decision, subject.place, enrollment_url(ports, subject.place))
    return StepUpNeeded(decision, subject.place, connection_url(ports, subject.place, decision, age), age)


def connection_url(ports: Ports, place: PolicyPlace, decision: Decision, age: SignInAge = SignInAge.ANY) -> str | None:
    """Return the URL at which a browser begins the sign-in through the connection that a policy requires, or None.

    For the `age` of a sign-in, the page that confirms follows: it asks again if the identity provider did not ask the user.
    """
    if decision.connection is None or (decision.rule is not Rule.CONNECTION and decision.leads_to is None):
        return None
    parameters = {} if place.service_slug is None else {"org": place.org_slug, "service": place.service_slug}
    if age is not SignInAge.ANY and place.org_slug is not None:
        confirmed = {"next": ORGANIZATION_PATH.format(org_slug=place.org_slug), "policy": place.org_slug, "age": age.value}
        parameters = {"next": f"{REAUTHENTICATION_PATH}?{urlencode(confirmed)}"}
    return ports.tokens.issuer + connection_start_path(decision.connection.id, **parameters)


def enrollment_url(ports: Ports, place: PolicyPlace) -> str:
    """Return the URL of the page on which the user sets up the factor that this policy requires."""
    return ports.tokens.issuer + enrollment_path(place)


def enrollment_path(place: PolicyPlace, **more: str) -> str:
    """Return the path of `enrollment_url`, with further parameters."""
    names = {"org": place.org_slug, "service": place.service_slug} | more
    query = urlencode({name: value for name, value in names.items() if value is not None})
    return f"{ENROLL_PATH}?{query}" if query else ENROLL_PATH


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about a session, or about a sign-in that can start one. Without a policy, `subject` is None.

    A user who may not use the application learns nothing about its policy: then `has_access` is False, and there is no decision.
    """

    subject: PolicySubject | None = None
    decision: Decision = NO_POLICY
    has_access: bool = True

    @property
    def asks(self) -> bool:
        """Whether the user must do something, now or when a rule starts."""
        return not self.is_allowed or self.decision.due_at is not None

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors of the account, or none without a policy."""
        return () if self.subject is None else self.subject.account.factors

    @property
    def has_unused_key(self) -> bool:
        """Whether the account has a passkey or security key that sign-ins do not ask for."""
        return any(factor.kind in KEYS and not factor.is_second for factor in self.factors)

    @property
    def has_app(self) -> bool:
        """Whether the account has an authenticator app."""
        return any(factor.kind is FactorKind.TOTP for factor in self.factors)

    @property
    def place(self) -> PolicyPlace:
        """Where the policy is."""
        return PolicyPlace(None) if self.subject is None else self.subject.place

    def enrollment(self, ports: Ports) -> DueEnrollment | None:
        """Return the requirement of a rule that starts later, or None."""
        due_at = self.decision.due_at
        return None if due_at is None else DueEnrollment(enrollment_url(ports, self.place), due_at)

    def is_reminded(self, now: datetime) -> bool:
        """Return whether the user was reminded today of a rule that starts later, in any session."""
        reminded_at = None if self.subject is None or self.subject.session is None else self.subject.session.reminded_at
        return reminded_at is not None and now - reminded_at < REMINDER_PAUSE

    @property
    def is_allowed(self) -> bool:
        return self.decision.outcome is Outcome.ALLOWED

    @property
    def asks_all_factors(self) -> bool:
        """Whether a factor that a trusted device skips would meet the policy."""
        if self.subject is None or self.subject.session is None or self.decision.outcome is not Outcome.STEP_UP:
            return False
        if self.decision.leads_to is not None:
            return False
        return not covers(in_session(self.subject.session.proofs), self.subject.account.factors)

    async def remind(self, ports: Ports, user: Person) -> None:
        """Remind the user of a rule that starts later, once a day."""
        if self.decision.due_at is not None and not self.is_reminded(ports.clock.now()) and await claim_reminder(ports, user):
            refusal = EnrolmentRequired(self.decision, self.place, enrollment_url(ports, self.place))
            refusal.caller = user
            raise refusal

    def require(self, ports: Ports, path: PolicyPath, user: Person) -> None:
        """Check that the sign-in meets the policy. Raises: EnrolmentRequired, StepUpNeeded, PolicyRefused, TokenBelowPolicy."""
        if self.subject is not None and not self.is_allowed:
            refusal = refusal_of(ports, path, self.subject, self.decision)
            refusal.caller = user
            raise refusal

    async def save_pass(self, tx: Transaction, session_id: UUID, now: datetime) -> None:
        """Store the pass of the session, which has started."""
        if self.subject is not None:
            await policy_passes.save(tx, self.subject, self.decision, session_id, now)


NO_ADMISSION: Final = Admission()
NO_ACCESS: Final = Admission(has_access=False)


async def judge_session(
    ports: Ports, path: PolicyPath, org_id: UUID | None, service_id: UUID | None, user: Person, session_id: UUID | None = None
) -> Admission:
    """Return the decision about the user's present session, or the one with this id. If it is allowed, it gets a pass.

    `org_id` None: the platform.
    """
    now, session_id = ports.clock.now(), session_id or user.session_id
    async with ports.storage.reading() as read:
        subject = await read.policy_passes.load(org_id, service_id, user.user_id, session_id)
    if subject is None or subject.session is None or not subject.session.proofs:
        return NO_ADMISSION
    decision = judge(ports, path, subject, now, user.address)
    if decision.outcome is Outcome.ALLOWED and path is not PolicyPath.PREVIEW:
        await policy_passes.save_at_once(ports, user, subject, decision, session_id, now)
    return Admission(subject, decision)


async def require(ports: Ports, path: PolicyPath, org_id: UUID | None, service_id: UUID | None, user: Person) -> Admission:
    """Check that the user's session meets the policy, and return the decision. No policy of an organization binds an impersonator.

    Raises: EnrolmentRequired, StepUpNeeded, PolicyRefused, TokenBelowPolicy.
    """
    if user.impersonator_id is not None:
        return NO_ADMISSION
    admission = await judge_session(ports, path, org_id, service_id, user)
    admission.require(ports, path, user)
    return admission


async def require_in_transaction(
    ports: Ports, tx: Transaction, path: PolicyPath, org_id: UUID, service_id: UUID | None, user: Person
) -> None:
    """Check as `require` does, in a transaction that goes on. No pass is stored."""
    if user.impersonator_id is not None:
        return
    subject, now = await tx.policy_passes.load(org_id, service_id, user.user_id, user.session_id), ports.clock.now()
    if subject is not None and subject.session is not None:
        admission = Admission(subject, judge(ports, path, subject, now, user.address))
        admission.require(ports, path, user)
        await policy_passes.report_break_glass(tx, subject, admission.decision, user.session_id, now)


async def require_in(
    ports: Ports, path: PolicyPath, user: Person, organization: OrganizationContext, state: PolicyState | None
) -> Admission:
    """Check that a user who acts in this organization meets its policy. A live pass is enough."""
    if state is None or (state.is_met and (not is_admin(organization.rights) or _is_inside(state, user.address))):
        return NO_ADMISSION
    try:
        return await require(ports, path, organization.id, None, user)
    except PolicyRefused as refusal:
        refusal.caller = to_member(user, organization)
        raise


async def require_on_platform(ports: Ports, user: Person) -> None:
    """Check that a platform owner who uses the platform's pages or API meets its policy."""
    async with ports.storage.reading() as read:
        state = await read.policy_passes.state_on_platform(user.session_id, ports.clock.now())
    if state is not None and not (state.is_met and _is_inside(state, user.address)):
        await require(ports, PolicyPath.API, None, None, user)


async def require_of_impersonator(ports: Ports, user: Person) -> None:
    """Check that the platform owner who acts as this user meets the platform's policy."""
    assert user.impersonator_id is not None, "the user is impersonated"
    async with ports.storage.reading() as read:
        session_id = await read.impersonations.started_in(user.session_id)
    if session_id is not None:
        await require_on_platform(ports, replace(user, user_id=user.impersonator_id, session_id=session_id, impersonator_id=None))


def _is_inside(state: PolicyState, address: str | None) -> bool:
    return not state.admin_networks or Rules.read({Rule.ADMIN_NETWORKS: state.admin_networks}).admits(address)


# Sessions of applications


def judge_sign_in(
    ports: Ports, subject: PolicySubject | None, proofs: Proofs, device: DeviceMatch, now: datetime, *, counts: bool = True
) -> Admission:
    """Return the decision about a sign-in with these proofs, before its session starts. `counts`: in the metric of decisions."""
    if subject is None:
        return NO_ADMISSION
    is_high, mfa_at = device.device.risk.is_high, device.device.mfa_at if device.is_trusted_there else None
    subject = replace(subject, session=PolicySession(proofs, mfa_at, is_high))
    return Admission(subject, (judge if counts else _judge)(ports, PolicyPath.SIGN_IN, subject, now))


async def judge_visit(
    ports: Ports,
    path: PolicyPath,
    service: ServiceContext | None,
    user: Person | None,
    session_id: UUID | None = None,
    external_for: UUID | None = None,
) -> Admission:
    """Return the decision about the session of a user at an application, if there are both. `session_id` as in `judge_session`.

    `external_for` is the API resource that an external client asks for. It decides about the access of users, and the client
    may not be stored yet.
    """
    if user is None or service is None or not service.has_sign_in_policy:
        return NO_ADMISSION
    admission = await judge_session(ports, path, service.org_id, service.id, user, session_id)
    if not admission.asks:  # most visits: no connection is needed
        return admission
    async with ports.storage.reading() as read:
        application, is_sign_on = (service.org_id, service.id), path is PolicyPath.SAML
        return await hide_from_strangers(
            read, admission, application, user.user_id, ports.clock.now(), is_sign_on=is_sign_on, external_for=external_for
        )


async def preview_session(ports: Ports, read: Reading, application: tuple[UUID, UUID | None], user_id: UUID, session_id: UUID) -> Admission:
    """Return the decision about this session at the application, for a page before the one that asks. It is not counted."""
    subject = await read.policy_passes.load(*application, user_id, session_id)
    return NO_ADMISSION if subject is None else Admission(subject, judge(ports, PolicyPath.PREVIEW, subject, ports.clock.now()))


async def hide_from_strangers(
    read: Reading | Transaction,
    admission: Admission,
    application: tuple[UUID | None, UUID | None],
    user_id: UUID,
    now: datetime,
    *,
    is_sign_on: bool = False,
    external_for: UUID | None = None,
) -> Admission:
    """Return the decision, or NO_ACCESS if it asks for something and the user may not use the application.

    The last arguments are those of `may_use`.
    """
    if not admission.asks or await may_use(read, application, user_id, now, is_sign_on=is_sign_on, external_for=external_for):
        return admission
    return NO_ACCESS


async def judge_grant(
    ports: Ports, tx: Transaction, path: PolicyPath, service: ServiceContext | None, user_id: UUID, session_id: UUID
) -> Admission:
    """Return the decision about a session that the application starts by the approval of the user in the session with this id."""
    if service is None or not service.has_sign_in_policy:
        return NO_ADMISSION
    subject = await tx.policy_passes.load(service.org_id, service.id, user_id, session_id)
    return NO_ADMISSION if subject is None else Admission(subject, judge(ports, path, subject, ports.clock.now()))


async def claim_reminder(ports: Ports, user: Person) -> bool:
    """Return whether the user is reminded now of a rule that starts later. Of several requests of one day, one gets True."""
    now = ports.clock.now()
    async with ports.storage.autocommit() as statements:
        return await statements.policy_passes.claim_reminder(user.user_id, now, now - REMINDER_PAUSE)

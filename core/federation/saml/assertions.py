"""SAML assertions: who may get one, and their contents.

Sources: security X-7 and X-8.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model import users
from core.authentication import events
from core.authentication.admissions import require_in_transaction
from core.authentication.flow.model import Flow
from core.authentication.model import claim_rules
from core.authentication.model.claim_document import LIST_CLAIMS
from core.authentication.model.openid import UserFacts
from core.authentication.model.sessions import SessionStart
from core.authentication.service_access import Opened
from core.authentication.sessions import new_session
from core.federation.saml import configuration as saml
from core.federation.saml.model import configuration, messages, sign_on
from core.kernel import access, callers, errors
from core.kernel.judgement import PolicyPath
from core.kernel.proofs import Method, Proofs, Strength, first_method_of, proved_at, session_strength
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class AuthorizedUser:
    """A user who may get an assertion from this identity provider. The account is locked."""

    person: callers.Person
    account: Account
    provider: configuration.SamlIdentityProvider
    facts: UserFacts | None  # None if the attributes need none


async def authorize_assertion(
    ports: Ports,
    tx: storage.Transaction,
    person: callers.Person,
    org_slug: str,
    service_slug: str,
    *,
    session_id: UUID,
    flow: Flow | None = None,
    confirm_membership: bool = False,
) -> AuthorizedUser:
    """Lock the user, and check that they may get an assertion for this service. Finish the `flow` of a sign-on.

    Lock order: membership, account, service, end user, flow, session. All are locked in one round
    trip. The session stays locked until the transaction ends, so the transaction need not check it
    again when it writes events.

    A user who may use the service with SAML (`core.authentication.service_access`) gets one, while
    the session with this id is alive (security X-8). A member who is not an end user
    of the service yet becomes one until the membership ends. `confirm_membership` confirms the
    membership first.

    Raises: MfaMissing, NoAccessToService, OwnProofNeeded, SecondFactorRequired, AddressNotVerified, SessionEnded, SignOnNotFound; the
    errors that `configuration.find_provider` and `admissions.require` raise.
    """
    now = ports.clock.now()
    locked = tx.saml_sign_ons.lock_user(org_slug, person.user_id, now, confirm_membership=confirm_membership)
    enrolled = tx.end_users.enroll_by_saml(org_slug, service_slug, person.user_id, now)
    finished = None if flow is None else tx.flows.close(flow, now)
    session_lives = tx.saml_sign_ons.lock_session(session_id, person.user_id, now)
    provider = await saml.find_provider(tx, org_slug, service_slug, now)
    access.require_mfa(person)
    # While this transaction waited for the account lock, another one may have ended the session
    # (security Z-5).
    account = await locked or errors.refuse(errors.SessionEnded)
    if not await session_lives:
        raise errors.SessionEnded
    access.require_reach(person, provider.service.org_id)  # before the access: the session's provider must not learn of it
    if not await enrolled:  # refused by the rule, or the service is being deleted
        org_id = provider.service.org_id
        if await tx.end_users.may_sign_on(org_id, provider.service.id, account.id, now) is not False:
            raise configuration.SamlDisabled
        raise users.NoAccessToService if await tx.end_users.blocked_at(org_id, account.id) is None else users.BlockedByAdmin
    session = person.browser if isinstance(person, callers.Visitor) else await tx.session_sign_ins.load_factors(session_id, account.id)
    require_sign_on_factors(provider, account, () if session is None else callers.proofs_at(provider.service, session.proofs, now))
    if provider.service.has_sign_in_policy and flow is None:  # `resume` has asked for the sign-on of a flow
        await require_in_transaction(ports, tx, PolicyPath.SAML, Opened(provider.service.org_id, provider.service.id), person)
    if finished is not None and not await finished:
        raise sign_on.SignOnNotFound
    facts = await load_facts(tx, provider, account.id, now)
    return AuthorizedUser(person, account, provider, None if facts is None else facts.seen_by(person.restricted_to))


def require_sign_on_factors(provider: configuration.SamlIdentityProvider, account: Account, used: Proofs) -> None:
    """Check the strength of the sign-in and the address of a user who may use the service.

    Raises: SecondFactorRequired, PasskeyRequired, AddressNotVerified.
    """
    required = provider.service.required_strength
    if Strength.ONE < required > session_strength(used):
        raise users.PasskeyRequired if required is Strength.PHISHING_RESISTANT else users.SecondFactorRequired
    if provider.name_id_format is configuration.NameIdFormat.EMAIL and account.email_verified_at is None:
        raise access.AddressNotVerified


@dataclass(frozen=True, slots=True)
class RecordedAssertion:
    """An assertion that was recorded by a transaction, before its commit."""

    assertion: messages.SamlAssertion
    session_index: Awaitable[str | None] | None  # None for the one in `assertion`

    async def after_commit(self) -> messages.SamlAssertion:
        """Return the assertion. Call this after the commit."""
        if self.session_index is None:
            return self.assertion
        index = await self.session_index
        assert index is not None, "the statement always returns a row"
        return replace(self.assertion, session_index=index)


async def record_assertion(
    ports: Ports,
    tx: storage.Transaction,
    user: AuthorizedUser,
    name_id: messages.NameId,
    now: datetime,
    *,
    browser: callers.BrowserSession | None = None,
    context_class: str | None = None,
) -> RecordedAssertion:
    """Return the assertion for an authorized user, and record a login event.

    With `browser`, single logout of this browser session includes the service later.

    The context class always states how the user really signed in, even if the service requests
    another one. Most services request a sign-in with a password only because their library does so
    by default. Services that need one check the assertion.
    """
    account, provider = user.account, user.provider
    service, new_index, session_index = provider.service, messages.new_message_id(), None
    if browser is not None:
        session_index = tx.saml_sign_ons.add_session(browser.id, service.org_id, service.id, new_index, name_id, now)
    start = SessionStart(id=user.person.session_id, user_id=account.id, caller=user.person, service=service)
    await tx.logins.record_success(new_session(ports, start, now), sign_on.LOGIN_PROVIDER)
    tx.record(events.signed_in(account.id, (sign_on.LOGIN_PROVIDER,), service))
    proofs = None if browser is None else callers.proofs_at(service, browser.proofs, now)
    used_password = proofs is not None and first_method_of(proofs) == Method.PASSWORD
    assertion = messages.SamlAssertion(
        id=messages.new_message_id(),
        name_id=name_id,
        session_index=new_index,
        authenticated_at=now if proofs is None else proved_at(proofs),
        context_class=(context_class or messages.PASSWORD_CONTEXT) if used_password else messages.UNSPECIFIED_CONTEXT,
        attributes=build_attributes(provider, account, user.facts),
    )
    return RecordedAssertion(assertion, session_index)


async def load_facts(
    read: storage.Reading | storage.Transaction, provider: configuration.SamlIdentityProvider, user_id: UUID, now: datetime
) -> UserFacts | None:
    """Return the facts that the attributes need besides the address and the id, or None if they need none."""
    return await read.openid_facts.load_all(user_id, provider.service.id, now) if provider.needs_further_facts else None


def build_attributes(
    provider: configuration.SamlIdentityProvider, account: Account, facts: UserFacts | None
) -> tuple[configuration.SamlAttribute, ...]:
    """Return the attributes of an assertion about this user. An unverified address is left out.

    Raises: TooManySamlValues, SamlValuesNotJoinable.
    """
    attributes = list[configuration.SamlAttribute]()
    for source, name in provider.attribute_mapping.items():
        values = _values_of(source, account, facts)
        if len(values) > configuration.MAX_VALUES:
            raise configuration.TooManySamlValues(name)
        if values:
            written = provider.attribute_formats.get(name, configuration.AttributeFormat())
            texts = values if written.separator is None else (_join(values, written.separator, name),)
            attributes.append(configuration.SamlAttribute(name, texts, written.name_format))
    return tuple(attributes)


def _join(values: Sequence[str], separator: str, name: str) -> str:
    """Return the values as one text that the application splits into the same ones.

    SAML knows no escaping here. A group named "a;admins" would make its users admins.
    """
    joined = separator.join(values)
    if joined.split(separator) != list(values):
        raise configuration.SamlValuesNotJoinable(name, separator)
    return joined


def _values_of(source: str, account: Account, facts: UserFacts | None) -> tuple[str, ...]:
    """Return the values of a source as texts."""
    if source == "id":
        return (str(account.id),)
    if source == "email":
        return () if account.email_verified_at is None else (str(account.email),)
    if facts is None:
        return ()
    value = claim_rules.list_of(source, facts) if source in LIST_CLAIMS else claim_rules.value_of(source, facts)
    if isinstance(value, list):
        return tuple(map(str, value))
    if isinstance(value, bool):
        return (str(value).lower(),)
    return () if value in (None, "") else (str(value),)


async def find_name_id(
    tx: storage.Transaction, user: AuthorizedUser, browser: callers.BrowserSession, subject: messages.NameId | None, now: datetime
) -> messages.NameId:
    """Return the name by which the service knows this user.

    Raises: SubjectMismatch if the service requested a `subject` that is not this user (SAML core
    section 3.4.1.4, SAML profiles section 4.1.4.1).
    """
    name_id = await new_name_id(tx, user, now)
    known = [name_id]
    if (
        name_id.format is configuration.NameIdFormat.TRANSIENT
    ):  # `name_id` is new, so the subject can only be an earlier name of this browser session
        known = [
            name
            for session in await tx.saml_logouts.sessions(browser.id, now)
            if session.service_id == user.provider.service.id
            for name in session.names
        ]
    if subject is not None and not any(subject.matches(name) for name in known):
        raise sign_on.SubjectMismatch
    return name_id


async def new_name_id(tx: storage.Transaction, user: AuthorizedUser, now: datetime) -> messages.NameId:
    """Return the name for a new assertion, in the service's format."""
    account, service = user.account, user.provider.service
    match user.provider.name_id_format:
        case configuration.NameIdFormat.EMAIL:
            name = str(account.email)
        case configuration.NameIdFormat.UNSPECIFIED:
            name = str(account.id)
        case configuration.NameIdFormat.TRANSIENT:
            name = messages.new_message_id()
        case configuration.NameIdFormat.PERSISTENT:
            name = await tx.saml_sign_ons.persistent_name_id(service.org_id, service.id, account.id, messages.new_message_id(), now)
    return messages.NameId(name, user.provider.name_id_format)

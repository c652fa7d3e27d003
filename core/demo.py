"""A small world to try things out in: two organizations with people, services, a plan, a key and end users (`gatehouse demo`).

Everything in it is known by its name, so a second time finds what the first one made. Secrets that cannot be shown again are made anew.
All of it is one transaction: where something is in the way, the secrets that somebody has of it go on working.
No mail goes out: the addresses are of a domain that nobody can have (RFC 2606 section 3).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from core.accounts import accounts, mfa
from core.accounts import events as accounts_events
from core.accounts.mfa_rules import MfaEvent
from core.applications import api_keys, plans, services, services_rules
from core.applications.services_rules import ServiceSettings, ServiceType
from core.authentication import events as authentication_events
from core.authentication import sessions
from core.authentication.sessions_rules import SessionStart
from core.billing import subscriptions
from core.eventing import webhooks as hooks
from core.federation.saml import configuration as saml
from core.federation.saml import configuration_rules as saml_rules
from core.federation.saml import events as saml_events
from core.federation.saml.configuration_rules import SamlConfiguration, NameIdFormat
from core.kernel import principals, uris
from core.kernel.errors import Invalid, Refusal
from core.kernel.principals import SYSTEM, OrganizationContext, OrganizationStatus, Permission, Person, Role, ServiceKey
from core.kernel.values import Batches, Email, Slug, digest, new_id, new_secret
from core.provisioning import tokens as scim_tokens
from core.tenancy import events as tenancy_events
from core.tenancy import governance, members, organizations
from core.tenancy.organizations_rules import Membership

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from core.applications.plans_rules import Plan
    from core.applications.services_rules import Service
    from core.eventing.webhooks_rules import Webhook
    from core.kernel.principals import Caller, Member
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Autocommit, Reading, Storage, Transaction

STEWARD: Final = Email("steward@demo.example")
ORGANIZATIONS: Final[Mapping[Slug, str]] = {Slug("demo"): "Demo", Slug("demo-other"): "Another Demo"}
END_USERS: Final = ("ada", "grace")
CAUTIOUS: Final = "grace"  # who is asked for a second factor
WEB, MOBILE = Slug("web-shop"), Slug("mobile-shop")
KEY: Final = "Demo"
PLAN: Final = "Professional"
# A webhook at an address that nobody has, until somebody gives it another one.
HOOK, HOOK_URL, HOOK_EVENTS = "Demo", "https://hooks.demo.example/gatehouse", ("user.login.success", "user.joined", "user.removed")
# Where the applications take people back to unless they are told otherwise.
WEB_URIS: Final = ("http://localhost:3000/callback",)
MOBILE_URIS: Final = ("http://127.0.0.1/callback", "com.example.demo:/callback")
# And what one of them says of itself where it has people signed in with SAML.
SAML: Final = SamlConfiguration(
    enabled=True,
    entity_id="http://localhost:3000/saml/metadata",
    acs_url="http://localhost:3000/saml/acs",
    slo_url="http://localhost:3000/saml/slo",
    name_id_format=NameIdFormat.EMAIL,
)


class DemoRefused(Invalid):
    """Something is in the way of the demo. Nothing was changed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} Nothing was changed.")


@dataclass(frozen=True, slots=True)
class DemoUser:
    """Somebody who can sign in: with the password alone, or also with the codes that an authenticator app makes of the base32 secret."""

    id: UUID
    email: Email
    password: str = field(repr=False)
    totp_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Application:
    """A service as its developer knows it; a public one has no secret."""

    service: Service
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An organization with everything in it. The key may do everything; the end users are verified, and one of them has a second factor;
    `saml` is how the first application has people signed in with SAML, which is open."""

    organization: Organization
    owner: DemoUser
    admin: DemoUser
    member: DemoUser
    web: Application
    mobile: Application
    saml: SamlConfiguration
    plan: Plan
    api_key: str = field(repr=False)
    scim_token: str = field(repr=False)
    webhook: Webhook
    webhook_secret: str = field(repr=False)
    end_users: Sequence[DemoUser]


@dataclass(frozen=True, slots=True)
class Demo:
    """All of it."""

    platform_owner: DemoUser
    first: Tenant
    other: Tenant


async def seed(ports: Ports, redirect_uris: Sequence[str] = ()) -> Demo:
    """Have the demo there, with new passwords, client secrets and keys; its applications take people back to `redirect_uris`, if given.

    Raises DemoRefused, RedirectUriInvalid, DuplicateRedirectUri; nothing has changed then.
    """
    services_rules.validate_redirect_uris(ServiceType.MOBILE, redirect_uris)
    passwords = {email: new_secret()[:16] for email in _everybody()}
    hashes = {email: await ports.passwords.hash(password) for email, password in passwords.items()}  # before anybody has to wait for us
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()  # which also lets two seeds come one after the other
        there = await _look_around(tx)
        seeding = _Seeding(replace(ports, storage=_Within(tx, ports.storage)), tx, passwords, hashes, redirect_uris)
        steward = await _person(seeding, STEWARD)
        await tx.accounts.promote(steward.id, ports.clock.now())  # beside those that there are: who runs this has the database anyway
        first, other = [await _tenant(seeding, steward, slug, there[slug]) for slug in ORGANIZATIONS]
    return Demo(steward, first, other)


def mobile_only_uris(redirect_uris: Sequence[str]) -> list[str]:
    """Those that only an application installed on a device may have: they are of its own kind."""
    return [uri for uri in redirect_uris if not uris.is_web_url(uri)]


@dataclass(frozen=True, slots=True)
class _Seeding:
    """What the steps have in common. Use cases are called with these ports, and so within the transaction."""

    ports: Ports
    tx: Transaction
    passwords: Mapping[Email, str]
    hashes: Mapping[Email, str]
    redirect_uris: Sequence[str]


class _Within:
    """ports.storage.Storage whose transactions are all one that is open already, so that use cases which make their own succeed together.

    What they read outside of a transaction is what was there before.
    """

    def __init__(self, tx: Transaction, storage: Storage) -> None:
        self._tx = tx
        self._storage = storage

    def transaction(self, by: Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        return nullcontext(self._tx)  # whoever acts, it is the operator's command that did it

    def reading(self) -> AbstractAsyncContextManager[Reading]:
        return self._storage.reading()

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        return self._storage.autocommit()

    async def ping(self) -> None:
        await self._storage.ping()


def _owner(slug: Slug) -> Email:
    return Email(f"owner@{slug}.example")


def _colleague(slug: Slug, role: Role) -> Email:
    return Email(f"{role}@{slug}.example")


def _customer(slug: Slug, name: str) -> Email:
    return Email(f"{name}@customer.{slug}.example")


def _everybody() -> list[Email]:
    found = [STEWARD]
    for slug in ORGANIZATIONS:
        found += [_owner(slug), *(_colleague(slug, role) for role in (Role.ADMIN, Role.MEMBER))]
        found += [_customer(slug, name) for name in END_USERS]
    return found


# What there is already


async def _look_around(tx: Transaction) -> Mapping[Slug, Organization | None]:
    """The organizations of the demo that there are. Raises DemoRefused for what is in the way.

    They and then the accounts are locked from here on, which is the order in which everybody locks.
    """
    seen = [organization for slug in ORGANIZATIONS if (organization := await _ours(tx, slug)) is not None]
    for org_id in sorted(organization.id for organization in seen):
        await tx.organizations.lock(org_id)
    there = {slug: await _ours(tx, slug) for slug in ORGANIZATIONS}
    for slug, organization in there.items():
        match organization.status if organization else None:
            case OrganizationStatus.SUSPENDED:
                raise DemoRefused(f"The organization {slug} is suspended. Activate or delete it, and try again.")
            case OrganizationStatus.REJECTED:
                raise DemoRefused(f"The organization {slug} was rejected. Delete it, and try again.")
    accounts_there = [account for email in _everybody() if (account := await tx.accounts.by_email(email)) is not None]
    for user_id in sorted(account.id for account in accounts_there):
        account = await tx.accounts.lock(user_id)
        if account is not None and not account.is_usable:
            raise DemoRefused(f"The account {account.email} is deactivated. Activate it, or set SSO_DATABASE_URL to another database.")
    return there


async def _ours(tx: Transaction, slug: Slug) -> Organization | None:
    """The organization of this slug, which the demo's owner owns; None if there is none. Raises DemoRefused."""
    owner = await tx.accounts.by_email(_owner(slug))
    for organization, membership in [] if owner is None else await tx.organizations.by_member(owner.id):
        if organization.slug == slug and membership.role is Role.OWNER:
            return organization
    if await tx.organizations.status_by_slug(slug) is not None:
        raise DemoRefused(
            f"The organization {slug} is not the demo's: {_owner(slug)} does not own it. "
            "Delete it if nobody needs it, or set SSO_DATABASE_URL to another database, and try again."
        )
    return None


# What there is to be


async def _person(seeding: _Seeding, email: Email) -> DemoUser:
    """An account with this address, verified, with its new password."""
    tx, now = seeding.tx, seeding.ports.clock.now()
    account, _ = await accounts.find_or_add(tx, email, now)
    if account.email_verified_at is None:  # somebody else may have registered the address, and must not keep a way in
        await accounts.revoke_all_access(tx, account, now)
    await tx.accounts.mark_verified(account.id, now)
    await tx.accounts.set_password(account.id, seeding.hashes[email], now)
    return DemoUser(account.id, email, seeding.passwords[email])


def _as_person(who: DemoUser) -> Person:
    return Person(user_id=who.id, email=who.email, email_verified=True, session_id=new_id())


async def _tenant(seeding: _Seeding, steward: DemoUser, slug: Slug, there: Organization | None) -> Tenant:
    """Raises DemoRefused."""
    try:
        return await _furnished(seeding, steward, slug, there)
    except Refusal as refusal:  # such as a limit that is reached
        raise DemoRefused(f"In the organization {slug} the demo cannot be made: {refusal.message}") from refusal


async def _furnished(seeding: _Seeding, steward: DemoUser, slug: Slug, there: Organization | None) -> Tenant:
    owner = await _person(seeding, _owner(slug))
    organization = await _active(seeding, steward, owner, slug, there)
    context = OrganizationContext(organization.id, organization.slug, organization.status, Role.OWNER)
    me = principals.member(_as_person(owner), context)
    admin, member = [await _member(seeding, me, role) for role in (Role.ADMIN, Role.MEMBER)]
    web = await _application(seeding, me, WEB, "Web Shop", ServiceType.WEB)
    mobile = await _application(seeding, me, MOBILE, "Mobile Shop", ServiceType.MOBILE)
    identity_provider = await _identity_provider(seeding, me, web.service)
    plan = await _plan(seeding, me, web.service, f"price_{slug}_professional")
    key_id, key = await _key(seeding, me, web.service)
    directory = await _directory(seeding, me)
    end_users = [await _end_user(seeding, me, web.service, slug, name) for name in END_USERS]
    await _subscribe(seeding, me, web.service, key_id, end_users[0], plan)
    webhook, webhook_secret = await _webhook(seeding, me)
    return Tenant(
        organization=organization,
        owner=owner,
        admin=admin,
        member=member,
        web=web,
        mobile=mobile,
        saml=identity_provider,
        plan=plan,
        api_key=key,
        scim_token=directory,
        webhook=webhook,
        webhook_secret=webhook_secret,
        end_users=end_users,
    )


async def _active(seeding: _Seeding, steward: DemoUser, owner: DemoUser, slug: Slug, found: Organization | None) -> Organization:
    if found is None:
        now = seeding.ports.clock.now()
        found = await organizations.add_organization(seeding.tx, seeding.ports, slug, ORGANIZATIONS[slug], now)
        await organizations.add_first_owner(seeding.tx, found, owner.id, now, now)
    if found.status is OrganizationStatus.PENDING:
        found = await governance.approve(seeding.ports, _as_person(steward), found.id, None)
    return found


async def _member(seeding: _Seeding, me: Member, role: Role) -> DemoUser:
    tx, org_id, now = seeding.tx, me.acts_in.id, seeding.ports.clock.now()
    who = await _person(seeding, _colleague(Slug(me.acts_in.slug), role))
    if await tx.members.lock(org_id, who.id) is None:
        await tx.members.add(Membership(id=new_id(), org_id=org_id, user_id=who.id, role=role, created_at=now, confirmed_at=now))
        tx.record(tenancy_events.user_joined(org_id, who.id, role))
    await members.change_role(seeding.ports, me, who.id, role)
    return who


async def _application(seeding: _Seeding, me: Member, slug: Slug, name: str, service_type: ServiceType) -> Application:
    others = () if service_type.is_public else mobile_only_uris(seeding.redirect_uris)
    wanted = tuple(uri for uri in seeding.redirect_uris if uri not in others)
    first = ServiceSettings(redirect_uris=wanted or (MOBILE_URIS if service_type.is_public else WEB_URIS))
    service = await seeding.tx.services.by_slug(me.acts_in.id, slug)
    if service is None:
        created = await services.create(seeding.ports, me, slug, name, service_type, first)
        return Application(created.service, created.client_secret)
    if service.service_type is not service_type:
        service, _ = await services.update(seeding.ports, me, slug, replace(first, service_type=service_type))
    elif wanted or not service.redirect_uris:
        service, _ = await services.update(seeding.ports, me, slug, first)
    return Application(service, None if service_type.is_public else await services.rotate_secret(seeding.ports, me, slug))


async def _identity_provider(seeding: _Seeding, me: Member, service: Service) -> SamlConfiguration:
    """How it is set up, as somebody may have done it since; it is open."""
    tx, now = seeding.tx, seeding.ports.clock.now()
    there = await tx.saml.configuration(service.org_id, service.id)
    if there is None or not there.enabled:
        await saml.configure(seeding.ports, me, service.slug, there := SAML)
    if await tx.saml.certificate(service.org_id, service.id) is None:  # core.saml would look for the service outside the transaction
        certificate = await seeding.ports.certificates.create(me.acts_in.slug, service.slug, now, saml_rules.CERTIFICATE_YEARS)
        await tx.saml.add_certificate(service.org_id, service.id, certificate)
        tx.record(saml_events.saml_certificate_created(service, certificate))
    return there


async def _plan(seeding: _Seeding, me: Member, service: Service, price: str) -> Plan:
    async def read_on(last: Plan | None, count: int) -> list[Plan]:
        return await seeding.tx.plans.list_after(service.org_id, service.id, last, count)

    async for batch in Batches(read_on):
        for plan in batch:
            if plan.billing_price_id == price:
                return plan
    return await plans.create(seeding.ports, me, service.slug, PLAN, 1900, "eur", ("exports", "support"), price)


async def _key(seeding: _Seeding, me: Member, service: Service) -> tuple[UUID, str]:
    for key in (await seeding.tx.api_keys.page(service.org_id, service.id, 100, 0)).items:
        if key.name == KEY:
            await api_keys.delete(seeding.ports, me, service.slug, key.id)
    key, text = await api_keys.create(seeding.ports, me, service.slug, KEY, list(Permission), None)
    return key.id, text


async def _directory(seeding: _Seeding, me: Member) -> str:
    for token in await seeding.tx.scim_tokens.of_org(me.acts_in.id):
        if token.name == KEY:
            await scim_tokens.revoke(seeding.ports, me, token.id)
    _, text = await scim_tokens.create(seeding.ports, me, KEY, None)
    return text


async def _webhook(seeding: _Seeding, me: Member) -> tuple[Webhook, str]:
    for webhook in await seeding.tx.webhooks.of_org(me.acts_in.id):
        if webhook.name == HOOK:
            return await hooks.rotate_secret(seeding.ports, me, webhook.id)
    return await hooks.create(seeding.ports, me, HOOK, HOOK_URL, HOOK_EVENTS)


async def _end_user(seeding: _Seeding, me: Member, service: Service, slug: Slug, name: str) -> DemoUser:
    tx, now = seeding.tx, seeding.ports.clock.now()
    who = await _person(seeding, _customer(slug, name))
    if await tx.service_users.by_id(service.org_id, service.id, who.id) is None:
        # As if they had signed in, so that the analytics have something to show.
        context = await tx.services.context_by_slug(me.acts_in.slug, service.slug)
        start = SessionStart(user_id=who.id, caller=SYSTEM, service=context, provider="password")
        session = sessions.new_session(seeding.ports, start, now)
        await tx.end_users.enroll(service.id, who.id, now, signed_in=True)
        await tx.sessions.begin(session, digest(new_secret()))
        await tx.logins.record_success(session, "password")
        tx.record(authentication_events.signed_in(who.id, "password", context))
    return await _secured(seeding, who) if name == CAUTIOUS else who


async def _secured(seeding: _Seeding, who: DemoUser) -> DemoUser:
    """The same person, with a second factor and its new secret. There are no backup codes until somebody asks for some."""
    tx, secret, now = seeding.tx, seeding.ports.codes.new_secret(), seeding.ports.clock.now()
    account = await tx.accounts.lock(who.id)
    assert account is not None, "it was locked before"
    had_one = await mfa.remove_factor(tx, account, now)
    await tx.mfa.save_pending_secret(who.id, secret, now)
    await tx.accounts.set_mfa(who.id, now, now)
    if not had_one:
        await tx.mfa.log(who.id, [MfaEvent.SETUP_INITIATED, MfaEvent.SETUP_COMPLETED, MfaEvent.ENABLED], SYSTEM, now)
        for event in accounts_events.mfa_enabled(who.id):
            tx.record(event)
    return replace(who, totp_secret=secret)


async def _subscribe(seeding: _Seeding, me: Member, service: Service, key_id: UUID, who: DemoUser, plan: Plan) -> None:
    if await seeding.tx.subscriptions.of_user(service.org_id, service.id, who.id, seeding.ports.clock.now()) is None:
        context = await seeding.tx.services.context_by_slug(me.acts_in.slug, service.slug)
        assert context is not None, "it is there by now"
        key = ServiceKey(key_id=key_id, permissions=frozenset(Permission), service=context)
        await subscriptions.create(seeding.ports, key, who.id, plan.id)

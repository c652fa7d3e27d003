"""The cast of the access tests: four organizations, and everybody who may knock at their doors.

Made once for each process, with the real repositories, and put back before every test: ids and tokens stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from adapters.postgres.pool import Pool
from core.access import SYSTEM, OrganizationStatus, Person, Role
from core.accounts import Account
from core.events import CATALOGUE, Event
from core.invitations import Invitation, InvitationStatus
from core.mails import MailKind, new_mail
from core.one_time_tokens import Purpose
from core.organizations import Membership, Organization
from core.values import Email, Slug, digest, new_id
from ports import Ports
from tests.access.state import State, state
from tests.builders import SignedIn, add_account, run_sql, sign_in

AUDITED: Final = ("organization.updated", "user.invited", "user.removed", "security.password.changed")


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization and its people: an owner, an admin, a member, a further one who calls nothing, and a guest who is only invited.

    `things` say what `<name>` in a path and `{name}` in a request stand for, when they are meant to be this organization's.
    """

    organization: Organization
    people: Mapping[str, Account]
    things: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who calls about the things of the organization `at`, and has this role in it."""

    name: str
    at: Tenant
    account: Account | None = None
    session: SignedIn | None = None
    role: Role | None = None
    impersonated: bool = False
    key: Mapping[str, str] = field(default_factory=dict)  # the header of a credential that is no session

    @property
    def is_platform_owner(self) -> bool:
        return self.account is not None and self.account.is_platform_owner

    @property
    def headers(self) -> Mapping[str, str]:
        return self.key if self.session is None else {"Authorization": f"Bearer {self.session.access_token}"}

    @property
    def things(self) -> Mapping[str, str]:
        """Those of the organization, and one's own."""
        if self.account is None or self.session is None:
            return self.at.things
        return {**self.at.things, **_own(self.account, self.session)}


@dataclass(frozen=True, slots=True)
class World:
    """All of it. `home` is the organization that the tests are about, `rival` another one of the same kind."""

    home: Tenant
    rival: Tenant
    both: Account  # a member of either
    callers: Mapping[str, Caller]
    state: State = field(repr=False)
    state_without_home: State = field(repr=False)  # what it would be if the home organization and its people did not exist


async def make_world(ports: Ports, pool: Pool) -> World:
    """Make it in an empty database."""
    steward = await _add_person(ports, "steward@platform.example", is_platform_owner=True)
    stranger = await _add_person(ports, "stranger@nowhere.example")
    # Two organizations know this person; what either knows of the other is what must not come out.
    both = await _add_person(ports, "both@between.example")
    rival = await _add_tenant(ports, pool, "borealis", both=both)
    suspended = await _add_tenant(ports, pool, "dormant", status=OrganizationStatus.SUSPENDED)
    pending = await _add_tenant(ports, pool, "unborn", status=OrganizationStatus.PENDING)
    callers = [
        *await _people_of(ports, rival, "foreign-", steward),
        replace((await _people_of(ports, suspended))[0], name="suspended"),
        replace((await _people_of(ports, pending))[0], name="pending"),
    ]
    stranger_session, steward_session = await sign_in(ports, stranger), await sign_in(ports, steward)
    await sign_in(ports, both, rival.organization.id)
    without_home = await state(pool)
    home = await _add_tenant(ports, pool, "aurora", both=both, invites=rival.people["further"].email)
    await sign_in(ports, both, home.organization.id)
    guest = home.people["guest"]
    callers += [
        *await _people_of(ports, home, "", steward),
        Caller(name="anonymous", at=home),
        Caller(name="stranger", at=home, account=stranger, session=stranger_session),
        Caller(name="guest", at=home, account=guest, session=await sign_in(ports, guest)),
        Caller(name="platform", at=home, account=steward, session=steward_session),
        # The same person as foreign-owner, at somebody else's door.
        replace(callers[0], name="foreign", at=home, role=None),
        Caller(name="foreign-stranger", at=rival, account=stranger, session=stranger_session),
        Caller(name="foreign-anonymous", at=rival),
    ]
    return World(home, rival, both, {caller.name: caller for caller in callers}, await state(pool), without_home)


def _own(account: Account, session: SignedIn) -> Mapping[str, str]:
    """What is somebody's own."""
    return {
        "own_id": str(account.id),
        "own_email": account.email,
        "password": _password_of(account.email),
        "refresh_token": session.refresh_token,
    }


def _password_of(email: str) -> str:
    """Everybody has another one: nobody signs in as somebody else by sending the own one."""
    return f"correct horse of {email}"


async def _add_person(ports: Ports, email: str, **changes: Any) -> Account:
    return await add_account(ports, email, _password_of(email), **changes)


async def _people_of(ports: Ports, tenant: Tenant, prefix: str = "", steward: Account | None = None) -> list[Caller]:
    """The owner, the admin and the member, signed in; and, with a platform owner, that one as the owner and as the member."""
    org = tenant.organization.id
    callers = []
    for role in Role:
        account = tenant.people[role]
        own = await sign_in(ports, account, org, agent=f"{tenant.organization.name} Browser")
        callers.append(Caller(name=f"{prefix}{role}", at=tenant, account=account, session=own, role=role))
        if steward is not None:
            acted = await sign_in(ports, account, org, impersonator=steward)
            callers.append(Caller(name=f"{prefix}as-{role}", at=tenant, account=account, session=acted, role=role, impersonated=True))
    return callers


async def _add_tenant(
    ports: Ports,
    pool: Pool,
    slug: str,
    *,
    both: Account | None = None,
    status: OrganizationStatus = OrganizationStatus.ACTIVE,
    invites: Email | None = None,
) -> Tenant:
    """An organization with something in every table that can hold a tenant's things. Every text in it has the slug in it.

    `both` is a member who exists already, `invites` one more address that it has invited.
    """
    now = ports.clock.now()
    people = {name: await _add_person(ports, f"{name}@{slug}.example") for name in (*Role, "further", "guest")}
    roles = {people[role]: role for role in Role} | {people["further"]: Role.MEMBER} | ({both: Role.MEMBER} if both else {})
    sessions = {name: await sign_in(ports, people[name], agent=f"{slug} telephone") for name in ("further", "owner")}
    secrets = {name: str(new_id()) for name in ("invitation_token", "reset_token", "verification_token")}
    owner, further = people["owner"], people["further"]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        tier = await tx.tiers.by_name("professional")
        assert tier is not None, "every database has it"
        organization = Organization(
            id=new_id(),
            slug=Slug(slug),
            name=f"{slug.title()} Works",
            status=status,
            tier=tier,
            max_services=None,
            max_users=None,
            device_trust_days=30,
            member_count=0,
            created_at=now,
            updated_at=now,
            approved_at=None if status is OrganizationStatus.PENDING else now,
            rejected_reason=f"why {slug} was rejected once",
            suspended_reason=f"why {slug} was suspended once",
        )
        await tx.organizations.add(organization)
        org = organization.id
        for account, role in roles.items():
            await tx.members.add(Membership(id=new_id(), org_id=org, user_id=account.id, role=role, created_at=now, confirmed_at=now))
        pending = _invitation(organization, owner, people["guest"].email, now, secrets["invitation_token"])
        await tx.invitations.add(pending)
        if invites is not None:
            await tx.invitations.add(_invitation(organization, owner, invites, now))
        for ended in InvitationStatus:
            invitation = _invitation(organization, owner, f"{ended}@{slug}.example", now - timedelta(days=8))
            await tx.invitations.add(invitation)
            if ended is not InvitationStatus.PENDING:  # one is past its time, and not marked yet
                await tx.invitations.end(org, invitation.id, ended, now)
        for token, purpose in (("reset_token", Purpose.RESET_PASSWORD), ("verification_token", Purpose.VERIFY_EMAIL)):
            await tx.one_time_tokens.add(
                digest(secrets[token]), purpose, further.id, further.email, created_at=now, expires_at=now + timedelta(hours=1)
            )
        for kind in (MailKind.VERIFY_EMAIL, MailKind.PASSWORD_CHANGED):
            await tx.mails.queue(new_mail(kind, further.email, now))
    actor = Person(
        user_id=owner.id, email=owner.email, session_id=sessions["owner"].session_id, address=f"{slug}:1", agent=f"{slug} laptop"
    )
    async with ports.storage.transaction(by=actor) as tx:
        for name in AUDITED:
            tx.record(Event(CATALOGUE[name], str(further.id), org_id=org, details={"note": f"{name} at {slug}"}))
    login = """
        insert into login_events (id, user_id, org_id, provider, success, agent, created_at)
        values (%s, %s, %s, 'password', true, %s, %s)"""
    await run_sql(pool, login, new_id(), further.id, org, f"{slug} watch", now)
    things = {
        **secrets,
        "org_id": str(org),
        "org_slug": slug,
        "user_id": str(further.id),
        "invitation_id": str(pending.id),
        "invitation_hash": pending.token_hash.hex(),  # what stands for the token in lists, and opens nothing for others (point 192)
        "tier_id": str(tier.id),
        "guest_email": people["guest"].email,
        **_own(further, sessions["further"]),
    }
    return Tenant(organization, people, things)


def _invitation(organization: Organization, inviter: Account, email: str, created_at: datetime, token: str | None = None) -> Invitation:
    return Invitation(
        id=new_id(),
        org_id=organization.id,
        email=Email(email),
        role=Role.MEMBER,
        invited_by=inviter.id,
        status=InvitationStatus.PENDING,
        token_hash=digest(token or str(new_id())),
        expires_at=created_at + timedelta(days=7),
        created_at=created_at,
    )

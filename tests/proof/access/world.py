"""The world for the access tests: four organizations, and all kinds of callers.

A test worker creates it once, with the real repositories, in a separate database. Every test begins with the same ids
and tokens.
"""

import json
import secrets as randomness
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, AccountOrigin, new_email_change
from core.accounts.model.email_queue import EmailKind, OneTimeToken, TokenPurpose, new_email
from core.accounts.model.security_notices import UNDO_TTL, SecurityNotice
from core.applications.model.api_keys import ApiKey
from core.applications.model.plans import Plan
from core.applications.model.services import Service, ServiceType
from core.authentication import connections, impersonation
from core.authentication.browser import authenticate, form_token
from core.authentication.model.identities import ServiceOAuthCredentials
from core.authentication.model.openid import Scope
from core.eventing.model.webhooks import OVERLAP, SUBSCRIBABLE, Webhook
from core.federation.oauth.model.authorization import s256_challenge as challenge_of_verifier
from core.federation.oauth.model.device_flow import USER_CODE_ALPHABET, USER_CODE_LENGTH
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import OrganizationStatus, Person
from core.kernel.causes import SYSTEM
from core.kernel.claims import external_client_id
from core.kernel.connections import CODEHOST, OFFICESUITE, PLATFORM_CONNECTIONS, WEBSUITE
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, Capability, Permission, RoleName
from core.kernel.values import Domain, Email, Slug, digest, new_id, new_secret
from core.programs.model.registration_tokens import RegistrationToken
from core.programs.model.registration_tokens import new_token as new_registration_token
from core.provisioning.model.directories import ScimToken
from core.provisioning.model.profiles import ScimProfile
from core.tenancy.model.domains import DomainClaim
from core.tenancy.model.invitations import Invitation, InvitationStatus
from core.tenancy.model.organizations import Membership, Organization
from core.tenancy.model.roles import OrganizationRole
from core.tenancy.model.settings import BrandingSettings
from ports import Ports
from tests.proof.access.belongings import (
    COUNTRY,
    Belongings,
    add_code,
    add_email_sign_ins,
    add_flows,
    backup_codes,
    begin_in_browser,
    device_of,
    password_of,
    wait_for_code,
)
from tests.proof.access.robots import (
    NARROW,
    NARROW_ON_PLATFORM,
    Robot,
    add_organization_account,
    add_platform_account,
    add_robot,
    add_secret,
)
from tests.proof.access.state import State, state
from tests.proof.access.things.attributes import add_attributes
from tests.proof.access.things.connections import add_connection_of_tenant
from tests.proof.access.things.external import add_external_client, address_at, register
from tests.proof.access.things.openid import add_openid_sessions, with_openid
from tests.proof.access.things.saml import saml_of, sign_on_with_saml
from tests.proof.access.things.setup import add_setup_links_of_tenant
from tests.proof.access.things.sign_ins import add_counted_attempts, add_hidden_sign_ins, add_sign_ins_of_tenant
from tests.support.builders import SignedIn, add_account, add_member, mail_server, run_sql, sign_in
from tests.support.identities import add_identity, at_nowhere
from tests.support.mfa import use_in_sessions
from tests.support.passkeys.users import new_credential
from tests.support.personal_tokens import add_personal_token
from tests.support.saml import new_certificate
from tests.support.services import add_api_resource, add_login, add_service_role, add_service_user, add_subscription, sign_in_to
from tests.support.siem import make_sink

AUDITED: Final = ("organization.updated", "user.invited", "user.removed", "security.password.changed", "service.updated")

CONSENTED: Final = (Scope.OPENID, Scope.EMAIL, Scope.OFFLINE_ACCESS)

HOME, RIVAL, SUSPENDED, PENDING = SLUGS = ("aurora", "borealis", "dormant", "unborn")

# A tenant's API keys and their permissions. All are for its first service, except the last, for its
# second.
KEYS: Final = {
    "key": frozenset(Permission),
    "reading-key": frozenset(permission for permission in Permission if permission.startswith("read:")),
    "writing-key": frozenset(permission for permission in Permission if not permission.startswith("read:")),
    "expired-key": frozenset(Permission),
    "other-key": frozenset(Permission),
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization and its users.

    The users are an owner, an admin, a member, another member without calls, a member with a second factor, a guest who
    is only invited, and an end user without a membership. The organization has two services.

    `things` are the values for `<name>` in paths and `{name}` in requests about this organization.
    """

    organization: Organization
    people: Mapping[str, Account]
    things: Mapping[str, str]
    services: tuple[UUID, UUID]
    keys: Mapping[str, str] = field(repr=False)  # the API keys by their names in KEYS
    external: SignedIn = field(repr=False)  # issued to an external client with a document, for the end user
    registered: SignedIn = field(repr=False)  # belongs to a client that registered itself


@dataclass(frozen=True, slots=True)
class UsedToken:
    """A caller's personal access token. It acts in the organization, or on the user's own account."""

    text: str = field(repr=False)
    org_id: UUID | None
    scopes: frozenset[ApiScope]
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller with a role in the organization `at`, which its requests are about."""

    name: str
    at: Tenant
    account: Account | None = None
    session: SignedIn | None = None
    role: RoleName | None = None
    impersonated: bool = False
    is_application: bool = False  # has this user's session at a service
    is_external: bool = False  # an external client. Its token is for an API resource
    pre_auth: str | None = None  # in place of a session
    directory: str | None = None  # a SCIM token
    directory_of: Tenant | None = None  # whether the token is valid
    key: str | None = None
    permissions: frozenset[Permission] | None = None  # the key's permissions, if it is valid
    key_of: Tenant | None = None
    cookie: str | None = None  # the cookie of a browser on our pages
    is_signed_in_browser: bool = False
    setup: str | None = None  # the cookie from a browser that opened a set-up link
    robot: Robot | None = None
    token: UsedToken | None = None
    own: Mapping[str, str] = field(default_factory=dict, repr=False)  # personal things

    @property
    def is_platform_owner(self) -> bool:
        return self.account is not None and self.account.is_platform_owner

    @property
    def headers(self) -> Mapping[str, str]:
        if self.key is not None:
            return {"X-Api-Key": self.key}
        if self.directory is not None:
            return {"Authorization": f"Bearer {self.directory}"}
        if self.robot is not None:
            return {"Authorization": f"Bearer {self.robot.token}"}
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token.text}"}
        token = self.pre_auth if self.session is None else self.session.access_token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    @property
    def cookies(self) -> Mapping[str, str]:
        cookies = {"gatehouse-session": self.cookie, "gatehouse-setup": self.setup}
        return {name: value for name, value in cookies.items() if value is not None}

    @property
    def things(self) -> Mapping[str, str]:
        """Return the organization's things, and the caller's personal things."""
        return {**self.at.things, **self.own}


@dataclass(frozen=True, slots=True)
class World:
    """The whole world.

    `home` is the organization under test, and `rival` another organization like it.
    """

    home: Tenant
    rival: Tenant
    both: Account  # a member at home and rival
    unsure: Account  # a member at rival who is not confirmed
    callers: Mapping[str, Caller]
    state: State = field(repr=False)
    state_without_home: State = field(repr=False)  # the world if the home organization and its users did not exist


async def make_world(ports: Ports, pool: Pool) -> World:
    """Create the world in an empty database."""
    await connections.fill(ports, [at_nowhere(slug) for slug in PLATFORM_CONNECTIONS])
    belongings = Belongings(ports, pool)
    steward = await _add_person(ports, "steward@platform.example", is_platform_owner=True)
    stranger = await _add_person(ports, "stranger@nowhere.example")
    platform_things = await add_platform_account(pool, steward)
    impersonator = Impersonator(steward, await sign_in(ports, steward), belongings, platform_things)
    # This user is a member in two organizations. Neither organization must learn about the other
    # organization.
    both = await _add_person(ports, "both@between.example")
    rival = await _add_tenant(ports, pool, RIVAL, impersonator, both=both)
    # The organization knows only this user's address.
    unsure = await _add_person(ports, "unsure@between.example")
    await add_member(pool, rival.organization.id, unsure.id)
    passer = await _add_person(ports, "passer@nowhere.example")
    await add_counted_attempts(ports, rival.organization.id, rival.services[0])
    suspended = await _add_tenant(ports, pool, SUSPENDED, impersonator, status=OrganizationStatus.SUSPENDED)
    pending = await _add_tenant(ports, pool, PENDING, impersonator, status=OrganizationStatus.PENDING)
    callers = [
        *await _people_of(ports, pool, rival, belongings, "foreign-", steward),
        await _application(ports, pool, rival, belongings, rival.people["end-user"], "foreign-application"),
        *_keys_of(rival, "foreign-"),
        *_directories_of(rival, "foreign-"),
        replace((await _people_of(ports, pool, suspended, belongings))[0], name="suspended"),
        await _browser(ports, pool, suspended, belongings, suspended.people["owner"], "suspended-browser"),
        await _application(ports, pool, suspended, belongings, suspended.people["end-user"], "suspended-application"),
        replace((await _people_of(ports, pool, pending, belongings))[0], name="pending"),
        await _robot(ports, pool, rival, belongings, "foreign-robot", OWNER, granted=True),
        await _robot(ports, pool, rival, belongings, "foreign-narrow-robot", OWNER, scopes=NARROW),  # so that its scope is no secret
        await _robot(ports, pool, suspended, belongings, "suspended-robot", OWNER, granted=True),
        await _token(ports, rival, belongings, "foreign-token", "owner"),
        await _token(ports, rival, belongings, "elsewhere-token", both),
        await _token(ports, suspended, belongings, "suspended-token", "owner"),
    ]
    of_platform = {
        "platform-robot": await add_robot(ports, pool, None, steward, None),
        "platform-granted": await add_robot(ports, pool, None, steward, None, granted=True),
        "platform-narrow": await add_robot(ports, pool, None, steward, None, scopes=NARROW_ON_PLATFORM),
        "platform-revoked": await add_robot(ports, pool, None, steward, None, granted=True, revoked=True),
        "platform-stopped": await add_robot(ports, pool, None, stranger, None, granted=True, is_live=False),
    }
    stranger_session = await sign_in(ports, stranger)
    stranger_things = _own(await belongings.of(stranger, "nowhere"), stranger_session)
    steward_things = _own(await belongings.of(steward, "platform"), impersonator.session)
    await sign_in(ports, both, rival.organization.id)
    of_stranger = await _browser(ports, pool, rival, belongings, stranger, "stranger-browser")
    of_steward = await _browser(ports, pool, rival, belongings, steward, "platform-browser")
    of_steward_token = await _token(ports, rival, belongings, "platform-token", steward, bound_to=None, scopes=tuple(ApiScope))
    await run_sql(pool, "update personal_tokens set last_used_at = created_at")  # uses write nothing for a minute
    without_home = await state(pool)
    home = await _add_tenant(ports, pool, HOME, impersonator, both=both, invites=rival.people["further"].email)
    await sign_in(ports, both, home.organization.id)
    await add_hidden_sign_ins(
        pool,
        ports,
        HOME,
        rival=(rival.organization.id, rival.services[0]),
        both=both.id,
        strangers=[passer.id, unsure.id, home.people["further"].id],
    )
    guest = home.people["guest"]
    guest_session = await sign_in(ports, guest)
    rival_callers = {caller.name: caller for caller in callers}
    callers += [
        *await _people_of(ports, pool, home, belongings, "", steward),
        *_keys_of(home),
        *_directories_of(home),
        await _application(ports, pool, home, belongings, home.people["end-user"], "application"),
        await _application(ports, pool, home, belongings, home.people["owner"], "owner-application"),
        await _application(ports, pool, home, belongings, steward, "platform-application"),
        await _external_client(home, belongings, "external-client", home.external),
        await _external_client(home, belongings, "registered-client", home.registered),
        Caller(name="anonymous", at=home),
        Caller(name="setup-link", at=home, setup=home.things["setup_cookie"]),
        Caller(name="stranger", at=home, account=stranger, session=stranger_session, own=stranger_things),
        Caller(name="guest", at=home, account=guest, session=guest_session, own=_own(await belongings.of(guest, HOME), guest_session)),
        Caller(name="platform", at=home, account=steward, session=impersonator.session, own=steward_things),
        # Copies of the rival's callers, which call about the home organization.
        replace(rival_callers["foreign-owner"], name="foreign", at=home, role=None),
        replace(rival_callers["foreign-application"], name="visiting-application", at=home),
        replace(rival_callers["foreign-key"], name="visiting-key", at=home),
        replace(_keys_of(suspended)[0], name="suspended-key", at=home),
        replace(rival_callers["foreign-directory"], name="visiting-directory", at=home),
        replace(_directories_of(suspended)[0], name="suspended-directory", at=home),
        await _browser(ports, pool, home, belongings, home.people["owner"], "ended-browser", ended=True),
        await _browser(ports, pool, home, belongings, home.people["admin"], "admin-browser"),
        await _impersonating_browser(ports, pool, home, belongings, steward),
        *[await _robot(ports, pool, home, belongings, f"{role}-robot", role) for role in ROLES],
        await _robot(ports, pool, home, belongings, "granted-robot", OWNER, granted=True),
        await _robot(ports, pool, home, belongings, "narrow-robot", OWNER, granted=True, scopes=NARROW),
        await _robot(ports, pool, home, belongings, "revoked-robot", OWNER, granted=True, revoked=True),
        await _robot(ports, pool, home, belongings, "stopped-robot", ADMIN, granted=True, owner="member"),
        replace(rival_callers["foreign-robot"], name="visiting-robot", at=home),
        *(Caller(name=name, at=home, robot=robot, own=steward_things) for name, robot in of_platform.items()),
        *[await _token(ports, home, belongings, f"{role}-token", role) for role in ROLES],
        await _token(ports, home, belongings, "narrow-token", "owner", scopes=(ApiScope.MEMBERS_READ,)),
        replace(rival_callers["elsewhere-token"], at=home),
        replace(of_steward_token, at=home),
        await _token(ports, home, belongings, "account-token", "owner", bound_to=None),
        await _token(ports, home, belongings, "reading-token", "owner", bound_to=None, scopes=(ApiScope.ACCOUNT_READ,)),
        await _token(ports, home, belongings, "ended-token", "owner", ended=True),
        replace(of_stranger, at=home, role=None),
        replace(of_steward, at=home, role=None),
        Caller(name="foreign-stranger", at=rival, account=stranger, session=stranger_session, own=stranger_things),
        Caller(name="foreign-anonymous", at=rival),
    ]
    await run_sql(pool, "update personal_tokens set last_used_at = created_at")
    return World(home, rival, both, unsure, {caller.name: caller for caller in callers}, await state(pool), without_home)


@dataclass(frozen=True, slots=True)
class Impersonator:
    """A platform owner who impersonates users, and all users' personal things."""

    steward: Account
    session: SignedIn
    belongings: Belongings
    platform_things: Mapping[str, str]

    async def impersonate(self, ports: Ports, organization: Organization, account: Account) -> UUID:
        """Impersonate a member. Return the id of the platform log entry."""
        slug, steward = organization.slug, self.steward
        by = Person(
            user_id=steward.id,
            email=steward.email,
            session_id=self.session.session_id,
            is_platform_owner=True,
            address=f"{slug}:5",
            agent=f"{slug} desk",
        )
        return (await impersonation.start(ports, by, account.id, reason_of(slug), org_slug=slug)).entry_id


def reason_of(slug: str) -> str:
    """Return an impersonation's reason, which no tenant learns (decision 207)."""
    return f"why {slug} was looked at"


async def _application(ports: Ports, pool: Pool, tenant: Tenant, belongings: Belongings, account: Account, name: str) -> Caller:
    """Add an application with this user's token. The user has a linked identity there."""
    session, slug = await sign_in_to(ports, pool, tenant.services[0], account), tenant.organization.slug
    if account.id != tenant.people["end-user"].id:
        await _link(pool, tenant.services[0], slug, account)
    own = _own(await belongings.of(account, slug), session)
    return Caller(name=name, at=tenant, account=account, session=session, is_application=True, own=own)


async def _external_client(tenant: Tenant, belongings: Belongings, name: str, session: SignedIn) -> Caller:
    """Return an external client to which the end user agreed."""
    user = tenant.people["end-user"]
    own = _own(await belongings.of(user, tenant.organization.slug), session)
    return Caller(name=name, at=tenant, account=user, session=session, is_external=True, own=own)


async def _browser(
    ports: Ports, pool: Pool, tenant: Tenant, belongings: Belongings, account: Account, name: str, *, ended: bool = False
) -> Caller:
    """Add a browser with this user's session, which may have ended."""
    cookie = await begin_in_browser(ports, account)
    [(session_id,)] = await run_sql(pool, "select id from sessions where browser_hash = %s", digest(cookie))
    if ended:
        await run_sql(pool, "update sessions set ended_at = created_at where browser_hash = %s", digest(cookie))
    token = form_token(cookie)
    things = await belongings.of(account, tenant.organization.slug)
    own = {**things, **new_credential(session_id), "form_token": token, "own_form_token": token}
    role = next((role for role in ROLES if tenant.people[role] == account), MEMBER)
    return Caller(name=name, at=tenant, account=account, role=role, cookie=cookie, is_signed_in_browser=not ended, own=own)


async def _impersonating_browser(ports: Ports, pool: Pool, tenant: Tenant, belongings: Belongings, steward: Account) -> Caller:
    """Add a browser in which this platform owner impersonates the tenant's owner."""
    cookie = await begin_in_browser(ports, steward)
    by = await authenticate(ports, SYSTEM, cookie)
    slug = tenant.organization.slug
    started = await impersonation.start(ports, by, tenant.people["owner"].id, reason_of(slug), org_slug=slug)
    caller = await _browser(ports, pool, tenant, belongings, tenant.people["owner"], "impersonating-browser")
    own = {**caller.own, "form_token": form_token(cookie, started.session_id), "own_form_token": form_token(cookie)}
    return replace(caller, cookie=cookie, impersonated=True, own=own)


def _keys_of(tenant: Tenant, prefix: str = "") -> list[Caller]:
    """Return the programs that have the tenant's API keys."""
    return [
        Caller(
            name=f"{prefix}{name}",
            at=tenant,
            key=tenant.keys[name],
            permissions=None if name == "expired-key" else permissions,
            key_of=tenant,
        )
        for name, permissions in KEYS.items()
    ]


def _directories_of(tenant: Tenant, prefix: str = "") -> list[Caller]:
    """Return a directory with the tenant's SCIM token, and a directory with an expired token."""
    return [
        Caller(name=f"{prefix}directory", at=tenant, directory=tenant.things["scim_token"], directory_of=tenant),
        Caller(name=f"{prefix}expired-directory", at=tenant, directory=tenant.things["expired_scim_token"]),
    ]


def _own(belongings: Mapping[str, str], session: SignedIn) -> Mapping[str, str]:
    """Return this caller's personal things."""
    return {**belongings, "refresh_token": session.refresh_token, **new_credential(session.session_id)}


async def _add_person(ports: Ports, email: str, **changes: Any) -> Account:
    return await add_account(ports, email, password_of(email), **changes)


async def _robot(
    ports: Ports, pool: Pool, tenant: Tenant, belongings: Belongings, name: str, role: RoleName, *, owner: str = "owner", **settings: Any
) -> Caller:
    """Add a service account that calls. In requests about a user, it sends its owner's personal things."""
    account, organization = tenant.people[owner], tenant.organization
    robot = await add_robot(ports, pool, organization, account, role, is_live=owner == "owner", **settings)
    own = _own(await belongings.of(account, organization.slug), await sign_in(ports, account, organization.id))
    return Caller(name=name, at=tenant, robot=robot, own=own)


async def _token(
    ports: Ports,
    tenant: Tenant,
    belongings: Belongings,
    name: str,
    user: str | Account,
    *,
    bound_to: Tenant | Literal["its own"] | None = "its own",
    scopes: tuple[ApiScope, ...] | None = None,
    ended: bool = False,
) -> Caller:
    """Add a program with a member's personal access token, or this user's, by default for the organization of `tenant`."""
    account = user if isinstance(user, Account) else tenant.people[user]
    organization = (tenant if bound_to == "its own" else bound_to).organization if bound_to is not None else None
    slug = (tenant.organization if organization is None else organization).slug
    added = await add_personal_token(ports, account, None if organization is None else organization.id, scopes, name=f"{slug} {name}")
    if ended:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.personal_tokens.end(account.id, added.id, ports.clock.now())
    token = UsedToken(added.text, None if organization is None else organization.id, added.scopes, is_live=not ended)
    role = RoleName(user) if isinstance(user, str) else None
    own = await belongings.of(account, tenant.organization.slug)
    return Caller(name=name, at=tenant, token=token, role=role, account=account, own=own)


async def _people_of(
    ports: Ports, pool: Pool, tenant: Tenant, belongings: Belongings, prefix: str = "", steward: Account | None = None
) -> list[Caller]:
    """Add sessions for the owner, the admin and the member.

    With a platform owner, add impersonation sessions, the member with a second factor, and
    browsers.
    """
    org, slug, callers = tenant.organization.id, tenant.organization.slug, []

    async def add(name: str, account: Account, **changes: Any) -> None:
        session = await sign_in(ports, account, org, agent=f"{tenant.organization.name} Browser", impersonator=changes.pop("by", None))
        own = _own(await belongings.of(account, slug), session)
        callers.append(Caller(name=f"{prefix}{name}", at=tenant, account=account, session=session, own=own, **changes))

    for role in ROLES:
        await add(role, tenant.people[role], role=role)
        if steward is not None:
            await add(f"as-{role}", tenant.people[role], role=role, impersonated=True, by=steward)
    if steward is not None:
        guarded = tenant.people["guarded"]
        await add("with-mfa", guarded, role=MEMBER)
        things = await belongings.of(guarded, slug)
        callers.append(Caller(name=f"{prefix}waiting", at=tenant, account=guarded, pre_auth=tenant.things["pre_auth"], own=things))
        callers.append(await _browser(ports, pool, tenant, belongings, tenant.people["owner"], f"{prefix}browser"))
        callers.append(await _browser(ports, pool, tenant, belongings, guarded, f"{prefix}browser-with-mfa"))
        await use_in_sessions(pool, guarded)
    return callers


async def _add_tenant(
    ports: Ports,
    pool: Pool,
    slug: str,
    impersonator: Impersonator,
    *,
    both: Account | None = None,
    status: OrganizationStatus = OrganizationStatus.ACTIVE,
    invites: Email | None = None,
) -> Tenant:
    """Add an organization with a row in every tenant table. Every text contains the slug.

    `both` is an existing account that becomes a member, `invites` an additional invited address.
    """
    now = ports.clock.now()
    people = {name: await _add_person(ports, f"{name}@{slug}.example") for name in (*ROLES, "further", "guarded", "guest")}
    people["former"] = await _add_person(ports, f"former@{slug}.example", origin=AccountOrigin.SCIM)
    members = (people["further"], people["guarded"], people["former"], *([both] if both else []))
    roles = {people[role]: role for role in ROLES} | dict.fromkeys(members, MEMBER)
    sessions = {name: await sign_in(ports, people[name], agent=f"{slug} telephone") for name in ("further", "owner")}
    secrets = {name: str(new_id()) for name in ("invitation_token", "reset_token", "verification_token", "undo_token", "recovery_token")}
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
            personal_tokens=True,
            members_see_end_users=True,
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
            if ended is not InvitationStatus.PENDING:  # a pending invitation has expired, and is not marked yet
                await tx.invitations.end(org, invitation.id, ended, now)
        for token, purpose in (("reset_token", TokenPurpose.RESET_PASSWORD), ("verification_token", TokenPurpose.VERIFY_EMAIL)):
            await tx.one_time_tokens.add(
                OneTimeToken(
                    digest(secrets[token]),
                    purpose,
                    further.id,
                    further.email,
                    created_at=now,
                    expires_at=now + timedelta(hours=1),
                    org_id=org,
                )
            )
        email_sign_in = await add_email_sign_ins(tx, further, slug, now)
        change = new_email_change(
            further, further.email, sessions["further"].session_id, Email(f"pending@{slug}.example"), timedelta(hours=24), now
        )
        await tx.email_changes.add(change)
        notice = SecurityNotice(
            new_id(), further.id, sessions["further"].session_id, EmailKind.EMAIL_CHANGE_REQUESTED, further.email, now, now + UNDO_TTL
        )
        await tx.security_notices.add(notice)
        await tx.security_notices.save_token(notice.id, digest(secrets["undo_token"]))
        await tx.one_time_tokens.add(
            OneTimeToken(
                digest(secrets["recovery_token"]),
                TokenPurpose.RECOVER_OWNER,
                impersonator.steward.id,
                impersonator.steward.email,
                created_at=now,
                expires_at=now + timedelta(minutes=15),
            )
        )
        for kind in (EmailKind.VERIFY_EMAIL, EmailKind.PASSWORD_CHANGED):
            await tx.email_queue.add(new_email(kind, further.email, now, org_id=org))
    actor = Person(
        user_id=owner.id, email=owner.email, session_id=sessions["owner"].session_id, address=f"{slug}:1", agent=f"{slug} laptop"
    )
    async with ports.storage.transaction(by=actor) as tx:
        for name in AUDITED:
            tx.record(Event(EVENT_KINDS[name], str(further.id), org_id=org, details={"note": f"{name} at {slug}"}))
    [(audit_entry_id,)] = await run_sql(pool, "select id from audit_log where org_id = %s and action = %s limit 1", org, AUDITED[0])
    login = """
        insert into login_events (id, user_id, org_id, provider, success, agent, city, country, created_at)
        values (%s, %s, %s, 'password', true, %s, %s, %s, %s)"""
    await run_sql(pool, login, new_id(), further.id, org, f"{slug} watch", f"{slug.title()} Harbour", COUNTRY, now)
    export = "insert into privacy_log (id, event_type, user_id, actor_id, address, agent, created_at) values (%s, %s, %s, %s, %s, %s, %s)"
    await run_sql(pool, export, new_id(), f"{slug} was asked", further.id, owner.id, f"{slug}:6", f"{slug} desk", now)
    entry_id = new_id()
    if status is OrganizationStatus.ACTIVE:
        entry_id = await impersonator.impersonate(ports, organization, people["guarded"])
    guarded_things = await impersonator.belongings.of(people["guarded"], slug, guarded=True)
    further_things = _own(await impersonator.belongings.of(further, slug), sessions["further"])
    # Managed: created by this organization, with an address in its domain, so that it has all
    # rights over the account.
    people["end-user"] = await _add_person(ports, f"end-user@{slug}.example", origin=AccountOrigin.API_KEY, origin_org_id=org)
    directory = await _add_directory(ports, organization, owner, further, people["former"])
    webhook, delivery = await _add_settings(ports, organization, owner)
    services, service_things = await _add_services(ports, organization, owner)
    await add_sign_ins_of_tenant(ports, slug, org, services[0], further.id)
    keys = await _add_keys(ports, organization, services, owner)
    user_code = await _add_device(pool, slug, services[0], now)
    code, verifier = await _add_code(ports, pool, slug, services[0], people["end-user"])
    # The member of the two organizations signs in to services in both organizations. One
    # organization's records must not reach the other organization.
    for user in (people["end-user"], further, *([both] if both else [])):
        await _use(ports, pool, organization, services[0], user)
        saml_state = await sign_on_with_saml(ports, pool, slug, org, services[0], user)
    resource = await _add_api_resource(pool, organization, services[0], people["end-user"])
    sealed = await register(ports, slug)
    external, registered = [
        await add_external_client(ports, pool, organization, resource, people["end-user"], each) for each in (address_at(slug), sealed)
    ]
    role_name = await _add_role(ports, organization)
    await add_service_role(pool, services[0], people["end-user"].id, f"{slug}-editor")
    account_things = await add_organization_account(pool, organization, owner)
    grant = "insert into api_resource_service_accounts values (%s, %s, %s, %s, now())"
    await run_sql(pool, grant, org, resource, UUID(account_things["account_id"]), [f"{slug}:orders"])
    ends = now + timedelta(days=30)
    plan = UUID(service_things["used_plan_id"])
    subscription = await add_subscription(ports, pool, services[0], people["end-user"].id, plan, ends=ends, provider=f"sub_{slug}")
    if both:
        await add_subscription(ports, pool, services[0], both.id, plan, "past_due", ends=ends)
    connection = await add_connection_of_tenant(ports, organization, people["end-user"])
    things = {
        **secrets,
        **await add_openid_sessions(ports, pool, slug, services[0], people["end-user"]),
        **email_sign_in,
        **service_things,
        **directory,
        **await _add_registration_token(ports, organization, owner),
        **connection,
        **await add_setup_links_of_tenant(ports, organization, owner, connection["connection_id"]),
        "resource_id": str(resource),
        "external_client_id": str(external_client_id(org, address_at(slug))),
        "external_access_token": external.access_token,
        "external_refresh_token": external.refresh_token,
        "registered_client": sealed,
        "registered_refresh_token": registered.refresh_token,
        "role_name": role_name,
        "role_slug": f"{slug}-editor",
        "permission_name": f"{slug}-editor:all",
        "resource_credential_id": await add_secret(pool, org, slug, resource, "Orders API"),
        **account_things,
        **impersonator.platform_things,
        "attribute_name": await add_attributes(pool, slug, org, [further.id, people["end-user"].id], services[1]),
        **await _add_groups(
            pool, organization, services[0], people["owner"], people["end-user"], further, UUID(directory["live_token_id"])
        ),
        "webhook_id": str(webhook),
        "webhook_name": f"{slug.title()} Hook",
        "resource_name": f"{slug.title()} Orders",
        "delivery_id": str(delivery),
        "user_code": user_code,
        "saml_state": saml_state,
        "authorization_code": code,
        "code_verifier": verifier,
        "redirect_uri": f"https://shop.{slug}.example/callback",
        "end_user_id": str(people["end-user"].id),
        "end_user_email": people["end-user"].email,
        "api_key": keys["key"],
        "org_id": str(org),
        "org_slug": slug,
        "org_name": organization.name,
        "user_id": str(further.id),
        "user_email": str(further.email),
        "invitation_id": str(pending.id),
        "invitation_hash": pending.token_hash.hex(),  # the token in invitation lists, which opens nothing (decision 192)
        "tier_id": str(tier.id),
        "entry_id": str(entry_id),
        "audit_entry_id": str(audit_entry_id),
        "subscription_id": str(subscription),
        "guest_email": people["guest"].email,
        "guarded_id": str(people["guarded"].id),
        "guarded_code": guarded_things["code"],
        "guarded_device_token": guarded_things["device_token"],
        "guarded_secret": guarded_things["mfa_secret"],
        "backup_code": backup_codes(slug)[0],
        "pre_auth": await wait_for_code(ports, people["guarded"]),
        "device": device_of(slug),
        "browser_token": form_token(device_of(slug)),
        **await add_flows(ports, people["guarded"], slug, org, services[0]),
        **further_things,
        "further_device_id": further_things["device_id"],
        "further_passkey_id": further_things["passkey_id"],
        "organization_token_id": str((await add_personal_token(ports, further, org, name=f"{slug} token")).id),
    }
    assign = "insert into api_resource_groups_assigned values (%s, %s, %s, now())"
    await run_sql(pool, assign, org, resource, UUID(things["group_id"]))
    return Tenant(organization, people, things, services, keys, external, registered)


async def _add_device(pool: Pool, slug: str, service: UUID, now: datetime) -> str:
    """Add a device that waits for approval by this service. Return its user code."""
    user_code = "".join(randomness.choice(USER_CODE_ALPHABET) for _ in range(USER_CODE_LENGTH))
    insert = """
        insert into device_codes (device_code_hash, user_code_hash, org_id, service_id, code_challenge, address, agent, status,
                                  interval_seconds, polled_at, created_at, expires_at)
        select %s, %s, org_id, id, %s, %s, %s, 'pending', 5, %s, %s, %s from services where id = %s"""
    where = (f"challenge of {slug}", f"{slug}:7", f"{slug} terminal")
    await run_sql(pool, insert, digest(f"device of {slug}"), digest(user_code), *where, now, now, now + timedelta(minutes=5), service)
    return user_code


async def _add_code(ports: Ports, pool: Pool, slug: str, service: UUID, user: Account) -> tuple[str, str]:
    """Add an exchanged and an unused authorization code for this service.

    Return the unused code with its verifier.
    """
    code, verifier = new_secret(), new_secret()
    browser = digest(await begin_in_browser(ports, user))
    used = (await sign_in_to(ports, pool, service, user)).session_id
    for name, challenge, session in ((code, challenge_of_verifier(verifier), None), (f"used code of {slug}", f"challenge of {slug}", used)):
        await add_code(ports, pool, digest(name), browser, f"https://shop.{slug}.example/callback", challenge, service, session)
    return code, verifier


async def _add_directory(ports: Ports, organization: Organization, owner: Account, known: Account, former: Account) -> Mapping[str, str]:
    """Add SCIM users, among them a deactivated user, and SCIM tokens."""
    org, slug, now = organization.id, organization.slug, ports.clock.now()
    texts = {"scim_token": f"scim_live_{slug[:6]}_{new_secret()}", "expired_scim_token": f"scim_live_{slug[:6]}_{new_secret()}"}
    ids = {name: new_id() for name in texts}
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for name, text in texts.items():
            token = ScimToken(
                id=ids[name],
                org_id=org,
                name=f"{slug} {name}",
                prefix=f"scim_live_{slug[:6]}",
                expires_at=now if name.startswith("expired") else None,
                created_by=owner.id,
                created_at=now,
                directory_groups=True,
            )
            await tx.scim_tokens.add(token, digest(text))
        for account in (known, former):
            name = f"{slug} {account.email.partition('@')[0]}"
            profile = ScimProfile(f"{name} there", f"Dr. {name}", f"Given {name}", f"Family {name}", f"Shown {name}")
            await tx.scim_users.save_profile(org, account.id, profile, account.email, now)
        await tx.directory_blocks.add(org, former.id, now)
        await tx.scim_users.remove_members(org, [former.id], now)
    return {**texts, "token_id": str(ids["expired_scim_token"]), "live_token_id": str(ids["scim_token"])}


async def _add_groups(
    pool: Pool, organization: Organization, service: UUID, owner: Account, end_user: Account, further: Account, token: UUID
) -> Mapping[str, str]:
    """Add a group that admins manage and that opens the service, a directory's group, and a group that gives a role.

    All have the same users.
    """
    org, slug = organization.id, organization.slug
    ids = {"group_id": new_id(), "pushed_group_id": new_id(), "mapped_group_id": new_id()}
    group = """
        insert into groups (id, org_id, name, name_key, description, external_id, scim_token_id, created_at, updated_at, members_changed_at)
        values (%s, %s, %s, lower(%s), %s, %s, %s, now(), now(), now())"""
    for kind, id_ in ids.items():
        name, of_directory = f"{slug.title()} {kind.partition('_')[0]}", token if kind.startswith("pushed") else None
        await run_sql(pool, group, id_, org, name, name, f"{name} of {slug}", f"{name} there", of_directory)
        for account in (end_user, further):
            await run_sql(pool, "insert into group_members values (%s, %s, %s, now())", org, id_, account.id)
        values = Jsonb({"team": f"team of a group at {slug}"})
        await run_sql(pool, "insert into group_attribute_values values (%s, %s, %s, now())", id_, org, values)
    await run_sql(pool, "insert into service_groups_assigned values (%s, %s, %s, now())", org, service, ids["group_id"])
    mapped = "update groups set role = 'member', mapped_by = %s, mapped_at = now() where id = %s"
    await run_sql(pool, mapped, owner.id, ids["mapped_group_id"])
    await run_sql(pool, "update organizations set maps_groups = true where id = %s", org)
    give = "insert into service_role_groups select org_id, service_id, id, %s, now() from service_roles where service_id = %s"
    await run_sql(pool, give, ids["group_id"], service)
    return {**{kind: str(id_) for kind, id_ in ids.items()}, "group_name": f"{slug.title()} group"}


async def _add_settings(ports: Ports, organization: Organization, owner: Account) -> tuple[UUID, UUID]:
    """Add all organization settings, with a verified domain.

    Return the ids of its webhook and a delivery.
    """
    org, slug, now = organization.id, organization.slug, ports.clock.now()
    domain = Domain(f"{slug}.example")
    branding = BrandingSettings(f"https://{slug}.example/logo.png", f"#{digest(slug).hex()[:6]}", f"{slug.title()} Suite")
    mailer = mail_server(
        org,
        host=f"mail.{slug}.example",
        username=f"{slug}-mailer",
        password=f"mail password of {slug}",
        from_email=Email(f"post@{slug}.example"),
        from_name=f"{slug.title()} Post",
    )
    webhook = Webhook(
        id=new_id(),
        org_id=org,
        name=f"{slug.title()} Hook",
        url=f"https://hooks.{slug}.example/in",
        events=tuple(SUBSCRIBABLE),
        is_active=True,
        created_at=now,
        updated_at=now,
    )
    payload = json.dumps({"event": "user.invited", "data": {"note": f"note for {slug}"}})
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.add(webhook, f"whsec_{digest(f'former {slug}').hex()}")
        await tx.webhooks.rotate(webhook, f"whsec_{digest(slug).hex()}", now + OVERLAP)
        delivery = await tx.deliveries.add(new_id(), org, webhook.id, "user.invited", payload, owner.id, now)
        await tx.smtp.put(mailer, now)
        # This address does not exist, so that a test delivery ends at once. Later events wait.
        await tx.siem.put(new_id(), make_sink(org, f"https://192.0.2.7/{slug}", token=f"token-of-the-siem-of-{slug}"), now)
        await tx.branding.put(org, branding, now)
        await tx.domains.add(DomainClaim(org_id=org, domain=domain, challenge=challenge_of(slug), verified_at=None, created_at=now))
        await tx.domains.mark_verified(org, domain, now)
        await tx.home_realm.replace(org, {domain: CODEHOST})
    return webhook.id, delivery.id


def challenge_of(slug: str) -> str:
    """Return the challenge for a tenant's domain, which its TXT record contains."""
    return digest(f"challenge of {slug}").hex()


async def _add_services(ports: Ports, organization: Organization, owner: Account) -> tuple[tuple[UUID, UUID], Mapping[str, str]]:
    """Add two services, the first with an active plan and a removed plan.

    Return the services and their things.
    """
    org, slug, now = organization.id, organization.slug, ports.clock.now()
    secret = f"client secret of {slug}"
    shop, desk = (
        Service(
            id=new_id(),
            org_id=org,
            slug=Slug(f"{slug}-{kind}"),
            name=f"{slug.title()} {kind.title()}",
            service_type=ServiceType.WEB,
            client_id=new_id(),
            credential_id=new_id(),
            client_secret_hash=digest(f"{secret} {kind}"),
            connection_scopes={CODEHOST: (f"{slug}:read",), WEBSUITE: (f"{slug}:mail",), OFFICESUITE: (f"{slug}:files",)},
            redirect_uris=(f"https://{kind}.{slug}.example/callback",),
            device_activation_uri=f"https://{kind}.{slug}.example/device",
            subscription_count=0,
            created_at=now,
            updated_at=now,
        )
        for kind in ("shop", "desk")
    )
    plans = {
        name: Plan(
            id=new_id(),
            org_id=org,
            service_id=service.id,
            name=f"{slug.title()} {name}",
            price_cents=999,
            currency="eur",
            features=(f"{slug} exports",),
            billing_price_id=f"price_{slug}_{name}",
            created_at=now,
            updated_at=now,
        )
        for name, service in {"used": shop, "spare": shop, "other": desk}.items()
    }
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for service in (shop, desk):
            await tx.services.add(with_openid(service, slug))
            await tx.oauth_credentials.put(
                org,
                service.id,
                ServiceOAuthCredentials(CODEHOST, f"{service.slug} client", now),
                f"provider secret of {service.slug}",
            )
            await tx.saml.configure(org, service.id, saml_of(slug, service.slug), now)
            await tx.saml.add_certificate(org, service.id, await new_certificate(now, slug))
        for plan in plans.values():
            await tx.plans.add(plan)
        listed = _key(organization, shop.id, owner, "listed-key", frozenset(Permission), now)
        await tx.api_keys.add(listed, digest(new_secret()))
    things = {
        "service_slug": shop.slug,
        "service_name": shop.name,
        "service_id": str(shop.id),
        "client_id": str(shop.client_id),
        "client_secret": f"{secret} shop",
        "other_service_slug": desk.slug,
        "plan_id": str(plans["spare"].id),
        "used_plan_id": str(plans["used"].id),
        "api_key_id": str(listed.id),
        "provider": CODEHOST,
        "domain": f"{slug}.example",
    }
    return (shop.id, desk.id), things


async def _add_role(ports: Ports, organization: Organization) -> str:
    """Add a role to the organization. Return its slug."""
    slug, now = organization.slug, ports.clock.now()
    role = OrganizationRole(
        id=new_id(),
        org_id=organization.id,
        slug=RoleName(f"{slug}-auditor"),
        name=f"{slug.title()} Auditor",
        description=f"Reads what {slug} did",
        capabilities=frozenset({Capability.AUDIT_VIEW}),
        created_at=now,
        updated_at=now,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.roles.add(role)
    return role.slug


async def _add_api_resource(pool: Pool, organization: Organization, service: UUID, user: Account) -> UUID:
    """Add an API resource that the service may ask for, with an assigned user. Return its id."""
    slug = organization.slug
    identifier, scopes = f"https://api.{slug}.example/", {f"{slug}:orders": f"See the orders of {slug}"}
    resource = await add_api_resource(pool, organization.id, identifier, services=(service,), scopes=scopes)
    await run_sql(pool, "update api_resources set name = %s where id = %s", f"{slug.title()} Orders", resource)
    await run_sql(pool, "update api_resource_clients set own_scopes = %s where resource_id = %s", list(scopes), resource)
    await run_sql(pool, "insert into api_resource_assignments values (%s, %s, %s, now())", organization.id, resource, user.id)
    return resource


async def _add_registration_token(ports: Ports, organization: Organization, owner: Account) -> Mapping[str, str]:
    """Add a registration token. Return its id and its secret."""
    secret, prefix = new_registration_token()
    token = RegistrationToken(
        id=new_id(),
        org_id=organization.id,
        name=f"{organization.slug} registrations",
        prefix=prefix,
        uses_left=1_000,
        expires_at=None,
        created_by=owner.id,
        created_at=ports.clock.now(),
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.registration_tokens.add(token, digest(secret))
    return {"registration_token_id": str(token.id), "registration_token": secret}


async def _add_keys(ports: Ports, organization: Organization, services: tuple[UUID, UUID], owner: Account) -> Mapping[str, str]:
    """Add the API keys in KEYS. Return them by name."""
    now = ports.clock.now()
    texts = {name: f"sk_{organization.slug[:6]}_{new_secret()}" for name in KEYS}
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for name, permissions in KEYS.items():
            key = _key(organization, services[name == "other-key"], owner, name, permissions, now)
            ends = now - timedelta(seconds=1) if name == "expired-key" else None
            await tx.api_keys.add(replace(key, expires_at=ends), digest(texts[name]))
    return texts


def _key(organization: Organization, service: UUID, owner: Account, name: str, permissions: frozenset[Permission], now: datetime) -> ApiKey:
    """Return a new API key. It has just been used, so that another use changes nothing."""
    return ApiKey(
        id=new_id(),
        org_id=organization.id,
        service_id=service,
        name=f"{organization.slug} {name}",
        prefix=f"sk_{organization.slug[:6]}",
        permissions=tuple(sorted(permissions)),
        last_used_at=now,
        expires_at=None,
        created_by=owner.id,
        created_at=now,
    )


async def _use(ports: Ports, pool: Pool, organization: Organization, service: UUID, user: Account) -> None:
    """Add a user's sign-in data, including a sign-in through a provider."""
    await add_service_user(ports, service, user.id)
    await add_login(ports, pool, service, user.id, "codehost")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.consents.add(organization.id, service, user.id, CONSENTED, ports.clock.now())
    await _link(pool, service, organization.slug, user)


async def _link(pool: Pool, service: UUID, slug: str, user: Account) -> None:
    name = f"{slug}-{user.email.split('@')[0]}"
    await add_identity(
        pool, user.id, service=service, subject=name, email=f"{name}@codehost.example", token=f"token of {name}", scopes=[f"{slug}:read"]
    )


def _invitation(organization: Organization, inviter: Account, email: str, created_at: datetime, token: str | None = None) -> Invitation:
    return Invitation(
        id=new_id(),
        org_id=organization.id,
        email=Email(email),
        role=MEMBER,
        invited_by=inviter.id,
        status=InvitationStatus.PENDING,
        token_hash=digest(token or str(new_id())),
        expires_at=created_at + timedelta(days=7),
        created_at=created_at,
    )

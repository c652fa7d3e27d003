"""Valid objects, and short ways to set up common situations."""

import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import cycle
from typing import Any, TypeVar
from uuid import UUID

import outcome
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from quart_trio.testing import TrioClient
from werkzeug.datastructures import Headers

from adapters.anonymizers import NoAnonymizers
from adapters.crypto import (
    AesVault,
    Argon2Passwords,
    JwtClientAssertions,
    JwtDpopProofs,
    JwtPipelineTokens,
    JwtTokens,
    TotpCodes,
    WebAuthnPasskeys,
    X509Certificates,
)
from adapters.crypto.certificates import generate_rsa_key
from adapters.email.message import EmailTemplates
from adapters.http.client_keys import HttpClientDocuments, HttpClientKeys, HttpIssuerKeys
from adapters.http.guard import EVERYWHERE, AllowedTarget, Guard
from adapters.http.openid_providers import HttpOpenIdProviders
from adapters.http.payments import HttpPayments
from adapters.http.sender import GuardedSender
from adapters.images import PillowImages
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from adapters.saml.documents import XmlDocuments, XmlProviders
from adapters.threads import TrioThreads
from adapters.user_agents import UserAgents
from core.accounts import email_queue
from core.accounts.model.accounts import Account, AccountOrigin
from core.accounts.model.devices import Device, DeviceType, LoginRisk, PresentedDevice
from core.accounts.model.email_queue import EmailResult
from core.authentication import session_start
from core.authentication.flow.model import FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods.password import Password
from core.authentication.model.login import SignedIn as StartedSession
from core.authentication.model.sessions import Session, TokenPair
from core.authentication.model.tokens import SigningKey
from core.kernel.callers import ServiceContext
from core.kernel.causes import SYSTEM, Caller
from core.kernel.claims import Claims
from core.kernel.policy import Policy
from core.kernel.proofs import Method, Proof, Proofs, Strength, complete, first_proof
from core.kernel.roles import MEMBER, RoleName
from core.kernel.sign_in_age import LastSignIn
from core.kernel.values import Email, digest, new_id, new_secret
from core.mailing import preparation
from core.tenancy.model.invitations import Invitation, InvitationStatus
from core.tenancy.model.organizations import Tier
from core.tenancy.model.settings import MailServer
from entrypoints.common_passwords import default_common_passwords
from entrypoints.http.app import Application, Edge, build_routes
from ports import Ports
from ports.crypto import Tokens
from ports.observe import Clock, Metrics
from ports.outside import EmailMessage, MailTransport
from tests.fakes.installation import FakeInstallation
from tests.fakes.outside import FakeGeoIp, FakeTxtRecords
from tests.support.waiting import eventually

T = TypeVar("T")

BASE_URL = "http://gatehouse.test"
PASSWORD, NEW_PASSWORD = "correct horse battery staple", "another good password"
EMAIL = "ada@example.com"
# A browser's User-Agent.
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"

# The tiers in every database, and their ids in the API.
FREE_ID, PROFESSIONAL_ID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
FREE = Tier(UUID(FREE_ID), "free", "Free", 3, 100, 0)
PROFESSIONAL = Tier(UUID(PROFESSIONAL_ID), "professional", "Professional", 10, 1000, 0)


def make_edge(**changes: Any) -> Edge:
    """Return edge settings.

    Rate limits are off, and no test knows the secret for the payment provider's events.
    """
    edge = Edge(
        base_url=BASE_URL,
        frontend_url=None,
        trusted_proxies=(),
        rate_limit_factor=None,
        client_rate=20.0,
        metrics_token=None,
        billing_secrets=("whsec_unused",),
    )
    return replace(edge, **changes)


@lru_cache
def application() -> Application:
    """Return this worker's application, without a binding. Building it takes half a second."""
    return build_routes()


VAULT_KEY = ("test", bytes(range(32)))


@lru_cache
def make_vault() -> AesVault:
    return AesVault([VAULT_KEY])


@lru_cache
def cheap_passwords() -> Argon2Passwords:
    """Argon2id with minimal parameters. The benchmark measures real hashes."""
    return Argon2Passwords(memory_kib=8, time_cost=1, parallelism=1, concurrency=2, queue=200)


@lru_cache
def user_agents() -> UserAgents:
    """Return the rules for user agents. Loading them is slow."""
    return UserAgents()


@lru_cache
def _certificate_keys() -> Iterator[rsa.RSAPrivateKey]:
    """Return the keys for all certificates, which come again after the sixth, because generating them is slow."""
    return cycle([generate_rsa_key() for _ in range(6)])


@lru_cache
def _signing_key_pem() -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@lru_cache
def _tokens_with_key() -> JwtTokens:
    """Return tokens that have loaded the signing key. Checking its primes takes tens of milliseconds."""
    tokens = JwtTokens(BASE_URL)
    tokens.use([SigningKey("test", _signing_key_pem(), datetime.now(UTC), None)], datetime.now(UTC))
    return tokens


@lru_cache
def _authorities() -> ssl.SSLContext:
    """Return the certificate authorities. Loading them is slow."""
    return ssl.create_default_context()


def with_loopback_sender(ports: Ports) -> Ports:
    """Return ports with a sender that can also reach the loopback interface.

    The tests' receivers listen there. The sender resolves no names, because the machine's resolver is unpredictable.
    """
    sender = GuardedSender(Guard([AllowedTarget.parse("127.0.0.1/32")], lookup=_literals), _authorities())
    allowed = ports.policy.key_ports
    client_keys, issuer_keys = HttpClientKeys(sender, ports.clock, allowed), HttpIssuerKeys(sender, ports.clock, allowed)
    openid_providers = HttpOpenIdProviders(sender, ports.clock, unchecked=unchecked_sender())
    return replace(ports, sender=sender, client_keys=client_keys, issuer_keys=issuer_keys, openid_providers=openid_providers)


def unchecked_sender() -> GuardedSender:
    """Return a sender for the URLs of the operator, which can be private. It resolves no names either."""
    return GuardedSender(Guard(EVERYWHERE, lookup=_literals), _authorities())


def _literals(host: str, port: int, **options: Any) -> Any:
    return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **options)


async def make_ports(
    pool: Pool,
    clock: Clock,
    mail: MailTransport,
    metrics: Metrics,
    policy: Policy | None = None,
    **replaced: Any,
) -> Ports:
    """Return real ports with a signing key that was generated before.

    The clock, mail, metrics, DNS and geolocation are fakes. `replaced` names ports to use instead.
    """
    policy = policy or Policy(common_passwords=default_common_passwords())
    sender = GuardedSender(Guard(), _authorities())
    ports = Ports(
        storage=Postgres(pool, make_vault(), clock),
        vault=make_vault(),
        passwords=cheap_passwords(),
        codes=TotpCodes(),
        passkeys=WebAuthnPasskeys([VAULT_KEY]),
        tokens=copy(_tokens_with_key()),
        client_assertions=JwtClientAssertions(),
        pipeline_tokens=JwtPipelineTokens(),
        dpop_proofs=JwtDpopProofs(),
        certificates=X509Certificates(partial(next, _certificate_keys())),
        saml=XmlDocuments(BASE_URL, clock, metrics),
        saml_providers=XmlProviders(metrics),
        email_templates=EmailTemplates(BASE_URL, policy),
        mail=mail,
        dns=FakeTxtRecords(),
        openid_providers=HttpOpenIdProviders(sender, clock, unchecked=unchecked_sender()),
        payments=HttpPayments(None, clock),
        sender=sender,
        client_keys=HttpClientKeys(sender, clock, policy.key_ports),
        client_documents=HttpClientDocuments(sender, clock, policy),
        issuer_keys=HttpIssuerKeys(sender, clock, policy.key_ports),
        user_agents=user_agents(),
        geoip=FakeGeoIp(),
        anonymizers=NoAnonymizers(),
        clock=clock,
        threads=TrioThreads(),
        images=PillowImages(BASE_URL),
        installation=FakeInstallation(clock),
        metrics=metrics,
        policy=policy,
    )
    ports = replace(ports, **replaced)
    key = SigningKey("test", _signing_key_pem(), clock.now(), None)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(key)
    ports.tokens.use([key], clock.now())
    return ports


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Headers
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The error code, after checking the body's format."""
        body = self.json
        assert set(body) - {"error_description"} == {"error", "error_code", "timestamp"}, body  # OAuth errors have this field
        assert body["error"]
        assert body["timestamp"].endswith("Z")
        code = body["error_code"]
        assert isinstance(code, str)
        return code


class Api:
    """A client for the JSON API."""

    def __init__(self, client: TrioClient) -> None:
        self._client = client

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
            sent["Content-Length"] = str(len(data))
        response = await self._client.open(path, method=method, headers=sent, data=data)
        return Answer(response.status_code, response.headers, await response.get_data(as_text=True))

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, {} if body is None else body, **options)

    async def patch(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.call("PATCH", path, body, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, **options)

    async def login(self, email: str = EMAIL, password: str = PASSWORD, **options: Any) -> Answer:
        return await self.post("/api/auth/login", {"email": email, "password": password}, **options)


async def deliver(ports: Ports) -> None:
    """Send all due emails once, as the mailer does. Emails from the same moment are sent in random order, so that no test depends on it."""
    while due := await email_queue.claim_due(ports, 100):
        for mail in sorted(due, key=lambda mail: (mail.created_at, mail.id)):
            prepared = await preparation.prepare(ports, mail)
            if not isinstance(prepared, EmailResult):
                await ports.mail.send(prepared[1], prepared[0].server)
                await email_queue.record_sent(ports, prepared[0])


def link(message: EmailMessage) -> str:
    """Return the one-time token from the link in an email."""
    match = re.search(r"[?&]token=([0-9a-f-]{36})", message.text)
    assert match, message.text
    return match[1]


async def add_account(
    ports: Ports, email: str = EMAIL, password: str | None = PASSWORD, *, verified: bool = True, **changes: Any
) -> Account:
    """Add an account, as registration and verification leave it."""
    now = ports.clock.now()
    account = Account(
        id=new_id(),
        email=Email.parse(email),
        email_verified_at=now if verified else None,
        password_hash=await ports.passwords.hash(password) if password is not None else None,
        is_platform_owner=False,
        origin=AccountOrigin.PLATFORM,
        origin_org_id=None,
        deactivated_at=None,
        anonymized_at=None,
        created_at=now,
        first_verified_at=now if verified else None,
    )
    account = replace(account, **changes)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.add(account)
    return account


async def add_platform_owner(ports: Ports, email: str = "steward@platform.example") -> Account:
    """Add a platform owner without a password."""
    return await add_account(ports, email, None, is_platform_owner=True)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A live session and its tokens."""

    session_id: UUID
    access_token: str
    refresh_token: str


def one_factor(at: datetime, name: str = "password") -> Proofs:
    """Return the proofs from a sign-in without a second factor. `name` is the method's or the identity provider's."""
    return (first_proof(name, at),)


def two_factors(at: datetime, name: str = "password") -> Proofs:
    """Return the proofs of a sign-in with an authenticator app's code."""
    return complete(first_proof(name, at), Proof(Method.TOTP, at))


def fresh_sign_in(ports: Ports) -> LastSignIn:
    """Return a sign-in from now, for a person who calls a use case directly."""
    return LastSignIn(ports.clock.now(), is_proof=True, strength=Strength.ONE, required=Strength.ONE)


async def sign_in(
    ports: Ports,
    account: Account,
    org: UUID | None = None,
    *,
    impersonator: Account | None = None,
    agent: str = "tests",
    second_factor: bool = False,
) -> SignedIn:
    """Begin a session as a login does, and select the organization `org`.

    No password is hashed, and no login event is recorded. With `impersonator`, that user acts as `account`, from a new
    session in their own account.
    """
    now = ports.clock.now()
    ends_at = now + (ports.policy.session_absolute_ttl if impersonator is None else timedelta(hours=1))
    refresh_token = new_secret()
    session = Session(
        id=new_id(),
        user_id=account.id,
        created_at=now,
        expires_at=min(now + ports.policy.refresh_token_ttl, ends_at),
        ends_at=ends_at,
        address="203.0.113.9",
        agent=agent,
        impersonator_id=None if impersonator is None else impersonator.id,
        impersonator_session_id=None if impersonator is None else (await sign_in(ports, impersonator)).session_id,
        impersonated_in=None if impersonator is None else org,
        proofs=two_factors(now) if second_factor else () if impersonator else one_factor(now),
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if org is None:
            await tx.sessions.begin(session, digest(refresh_token))
            organization = None
        else:
            await tx.sessions.begin(session, digest(new_secret()))
            await tx.refresh_tokens.select_organization(session.id, org, digest(refresh_token), now, session.expires_at)
            organization = await tx.organizations.by_id(org)
    claims = Claims(
        user_id=account.id,
        session_id=session.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        token_id=new_id(),
        issued_at=now,
        expires_at=now + ports.policy.access_token_ttl,
        org=organization.slug if organization else "",
        org_id=organization.id if organization else None,
        impersonator_id=session.impersonator_id,
    )
    return SignedIn(session.id, ports.tokens.sign(claims), refresh_token)


def user_claims(tokens: Tokens, token: str, now: datetime) -> Claims:
    claims = tokens.read(token, now)
    assert isinstance(claims, Claims)
    return claims


async def log_in(
    ports: Ports, email: str = EMAIL, password: str = PASSWORD, service: ServiceContext | None = None, *, by: Caller = SYSTEM
) -> TokenPair:
    """Return the tokens from a password login without a second factor."""
    flow = new_flow(ports.clock.now(), FlowTarget.API, "", service=service)
    session = await prove(ports, by, flow, Password(Email(email), password), PresentedDevice())
    assert isinstance(session, StartedSession), session
    return await session_start.issue_first_tokens(ports, session)


async def impersonate(ports: Ports, impersonator: Account, target: Account, org: UUID | None = None) -> str:
    """Return the access token for a session in which `impersonator` acts as `target`, in `org` alone if it is given."""
    return (await sign_in(ports, target, org, impersonator=impersonator)).access_token


async def run_sql(pool: Pool, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a statement on a separate connection. Return its rows, or none."""
    async with pool.connection() as connection:
        cursor = await connection.execute(statement, parameters)
        return await cursor.fetchall() if cursor.description else []


async def add_organization(pool: Pool, slug: str, status: str = "active") -> UUID:
    """Add an organization in the free tier without members, named after its slug."""
    org = new_id()
    insert = """
        insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
        values (%s, %s, %s, %s, (select id from tiers where name = 'free'), now(), now())"""
    await run_sql(pool, insert, org, slug, slug.title(), status)
    return org


def mail_server(org: UUID, **changes: Any) -> MailServer:
    """Return an organization's mail server. It has a user name if it has a password."""
    plain = MailServer(
        org_id=org,
        host="mail.example.com",
        port=587,
        username=None,
        password=None,
        from_email=Email("post@acme.example"),
        from_name="Acme Post",
        tls=True,
    )
    server = replace(plain, **changes)
    return replace(server, username=server.username or (None if server.password is None else "acme"))


async def mark_created_by(pool: Pool, org: UUID, *user_ids: UUID) -> None:
    """Let these users have signed up for the organization, so that its owner may erase their accounts at once."""
    await run_sql(pool, "update users set origin = 'sign_up', origin_org_id = %s where id = any(%s)", org, list(user_ids))


async def add_member(pool: Pool, org: UUID, user: UUID, role: str = "member", *, confirmed: bool = False) -> None:
    """Add a membership."""
    insert = """
        with added as (
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            values (%s, %s, %s, %s, now(), case when %s then now() end) returning org_id)
        update organizations set member_count = member_count + 1 where id = (select org_id from added)"""
    await run_sql(pool, insert, new_id(), org, user, role, confirmed)


async def add_provisioned(pool: Pool, org: UUID, user: UUID, *, provisioned: bool = True, blocked: bool = False) -> None:
    """Add a SCIM user to the organization, provisioned or not, blocked or not."""
    insert = """
        with added as (
            insert into scim_users (org_id, user_id, provisioned, membership_id, joined_at, updated_at)
            values (%s, %s, %s, %s, now(), now()) returning org_id, user_id)
        insert into directory_blocks select org_id, user_id, now() from added where %s"""
    await run_sql(pool, insert, org, user, provisioned, new_id(), blocked)


async def add_person(ports: Ports, pool: Pool, name: str, org: UUID | None = None, role: str = "member") -> tuple[Account, str]:
    """Add an account, and a membership if an organization is given.

    Return a token without organization.
    """
    account = await add_account(ports, f"{name}@example.com", None)
    if org is not None:
        await add_member(pool, org, account.id, role)
    return account, (await sign_in(ports, account)).access_token


def make_device(user_id: UUID, now: datetime, **changes: Any) -> Device:
    """Return a new device without special properties."""
    plain = Device(
        id=new_id(),
        user_id=user_id,
        client_hash=None,
        name="Firefox on Linux",
        device_type=DeviceType.BROWSER,
        browser="Firefox",
        browser_version=None,
        os="Linux",
        os_version=None,
        last_used_at=now,
        last_ip=None,
        location=None,
        risk=LoginRisk(0, ()),
        mfa_at=None,
        trust_hash=None,
        trust_expires_at=None,
        created_at=now,
        updated_at=now,
    )
    return replace(plain, **changes)


async def add_invitation(ports: Ports, org: UUID, email: str = EMAIL, role: RoleName = MEMBER, **changes: Any) -> Invitation:
    """Add a pending invitation without an email.

    By default the inviter is a user without an account.
    """
    now = ports.clock.now()
    plain = Invitation(
        id=new_id(),
        org_id=org,
        email=Email(email),
        role=role,
        invited_by=new_id(),
        status=InvitationStatus.PENDING,
        token_hash=digest(new_secret()),
        expires_at=now + timedelta(days=7),
        created_at=now,
    )
    invitation = replace(plain, **changes)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.add(invitation)
    return invitation


async def run_concurrently(count: int, act: Callable[[int], Awaitable[T]]) -> list[T]:
    """Return the results of `count` tasks that begin at the same moment, ordered by number."""
    results: dict[int, T] = {}
    start = trio.Event()

    async def one(number: int) -> None:
        await start.wait()
        results[number] = await act(number)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)
        await trio.testing.wait_all_tasks_blocked()
        start.set()
    return [results[number] for number in range(count)]


async def run_during(pool: Pool, changes: Sequence[tuple[str, Any]], act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `act`, which begins during uncommitted changes and waits for their commit.

    `changes` are statements with parameters. `act` reads none of the changes before it waits, so that it sees them only
    if it reads again afterwards.
    """
    outcomes: list[outcome.Outcome[T]] = []
    is_waiting = trio.Event()

    async def change(task_status: trio.TaskStatus[int]) -> None:
        async with pool.connection() as connection, connection.transaction():
            for statement, parameters in changes:
                await connection.execute(statement, parameters)
            task_status.started(connection.info.backend_pid)
            await is_waiting.wait()

    async def run_second() -> None:
        outcomes.append(await outcome.acapture(act))

    async def second_waits() -> bool:
        assert not outcomes, f"it did not wait: {outcomes}"
        return bool(await run_sql(pool, "select pid from pg_stat_activity where %s = any (pg_blocking_pids(pid))", changing))

    async with trio.open_nursery() as nursery:
        changing = await nursery.start(change)
        nursery.start_soon(run_second)
        await eventually(second_waits, "the second transaction waits for the first")
        is_waiting.set()
    return outcomes[0].unwrap()

"""Second factors, devices, browser sessions and authorization codes of users, as sign-ins would create them."""

import json
import random
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import psycopg
import pyotp
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from jwt.algorithms import ECAlgorithm

from adapters.crypto import AesVault, JwtTokens, parse_keys
from adapters.postgres.accounts import mfa
from adapters.postgres.authentication import signing_keys
from core.authentication.model.signing_keys import SigningKey
from core.kernel import scannable_secrets
from core.kernel.claims import PreAuthClaims
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX
from core.kernel.values import base64url, digest, new_secret
from ops.bench.filling import FREE_TIER, copy, new_uuid
from ops.bench.processes import MeasurementFailed
from ops.bench.service import Service, tidy
from ops.bench.wrk import Request

DEVICES: Final = 5  # per user
STEP: Final = timedelta(seconds=30)
# All users share this secret. It is encrypted for each account, as in production.
SECRET: Final = pyotp.random_base32()
REDIRECT_URI: Final = "https://shop.bench.example/callback"


@dataclass(frozen=True, slots=True)
class PendingSignIns:
    """Pending sign-ins of different accounts, which need the second factor."""

    service: Service
    accounts: Sequence[uuid.UUID]
    tokens: JwtTokens

    def requests(self, first: int, count: int) -> list[Request]:
        """Return requests with the correct codes of `count` accounts. They are valid for a minute, once."""
        now = datetime.now(UTC)
        ends = now + timedelta(seconds=600)
        code = pyotp.TOTP(SECRET).at(now + STEP / 2)  # the code of this step, or of the next one if that is near
        pending = [(uuid.uuid4(), user) for user in self.accounts[first : first + count]]
        with psycopg.connect(self.service.conninfo) as connection:
            rows = (f"{id_}\t{user}\tpassword\t{now}\t{ends}\n" for id_, user in pending)
            copy(connection, "copy pre_auths (id, user_id, provider, created_at, expires_at)", rows)
        tidy(self.service)
        claims = (PreAuthClaims(id=id_, user_id=user, issued_at=now, expires_at=ends) for id_, user in pending)
        return [Request("POST", "/api/auth/mfa/verify", self.tokens.sign_pre_auth(one), {"code": code}) for one in claims]


def add_second_factors(service: Service, count: int) -> PendingSignIns:
    """Add `count` accounts with a second factor, each with a known device."""
    vault = AesVault(parse_keys((service.directory / "encryption-keys").read_text().strip()))
    now = datetime.now(UTC)
    before = now - timedelta(days=1)
    accounts = [uuid.uuid4() for _ in range(count)]
    with psycopg.connect(service.conninfo) as connection:
        people = (f"{user}\tsecond-{user}@bench.example\t{before}\t{before}\tplatform\t{before}\t{before}\t{before}\n" for user in accounts)
        columns = "id, email, email_verified_at, first_verified_at, origin, mfa_enabled_at, created_at, updated_at"
        copy(connection, f"copy users ({columns})", people)
        sealed = (f"{user}\t\\\\x{vault.seal(SECRET.encode(), mfa.secret_context(user)).hex()}\t{before}\t1\n" for user in accounts)
        copy(connection, "copy mfa (user_id, secret, setup_at, last_step)", sealed)
        _add_devices(connection, accounts, 1, before)
        keys = connection.execute("select kid, private_key, created_at, retires_at from signing_keys").fetchall()
    tokens = JwtTokens(service.address)
    tokens.use([SigningKey(kid, vault.open(sealed, signing_keys.secret_context(kid)), at, end) for kid, sealed, at, end in keys], now)
    tidy(service)
    return PendingSignIns(service, accounts, tokens)


def add_saml(service: Service, token: str) -> str:
    """Make all accounts members of an organization with a SAML service, and return the path of the service's SAML routes.

    The user of `token` owns the organization.
    """
    me = service.ask("GET", "/api/user", token=token)["id"]
    with psycopg.connect(service.conninfo) as connection:
        connection.execute(
            """
            with org as (
                insert into organizations (id, slug, name, status, member_count, created_at, updated_at)
                values (gen_random_uuid(), 'acme', 'Acme', 'active', (select count(*) from users), now(), now()) returning id),
            added as (
                insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
                select gen_random_uuid(), id, 'shop', 'Shop', 'mobile', gen_random_uuid(), '{}', now(), now() from org)
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            select gen_random_uuid(), org.id, u.id, case when u.id = %s then 'owner' else 'member' end, now(), now() from org, users u""",
            [me],
        )
    path = "/api/organizations/acme/services/shop/saml"
    configuration = {"enabled": True, "entity_id": "https://shop.bench.example", "acs_url": "https://shop.bench.example/acs"}
    service.ask("POST", path, configuration, token)
    service.ask("POST", f"{path}/certificate", None, token)
    tidy(service)
    return path


def add_browser_sessions(service: Service) -> list[str]:
    """Add a browser session for each account that can sign in, ordered by email, and return the secrets of the cookies."""
    now = datetime.now(UTC)
    ends = now + timedelta(days=30)
    with psycopg.connect(service.conninfo) as connection:
        accounts = [row[0] for row in connection.execute("select id from users where password_hash is not null order by email")]
        secrets = [new_secret() for _ in accounts]
        columns = "id, user_id, created_at, expires_at, ends_at, provider, browser_hash"
        rows = (
            f"{uuid.uuid4()}\t{user}\t{now}\t{ends}\t{ends}\tpassword\t\\\\x{digest(secret).hex()}\n"
            for user, secret in zip(accounts, secrets, strict=True)
        )
        copy(connection, f"copy sessions ({columns})", rows)
    tidy(service)
    return secrets


def add_devices(service: Service) -> None:
    """Add DEVICES devices to each account."""
    with psycopg.connect(service.conninfo) as connection:
        accounts = [row[0] for row in connection.execute("select id from users order by email")]
        _add_devices(connection, accounts, DEVICES, datetime.now(UTC) - timedelta(days=1))
    tidy(service)


def _add_devices(connection: psycopg.Connection[Any], accounts: Sequence[uuid.UUID], each: int, at: datetime) -> None:
    draw = random.Random(1)  # noqa: S311 - reproducible
    columns = "id, user_id, name, device_type, browser, os, last_used_at, last_ip, risk_score, risk_factors, created_at, updated_at"
    rows = (
        f"{new_uuid(draw)}\t{user}\tFirefox on Linux\tbrowser\tFirefox\tLinux\t{at - number * timedelta(hours=1)}\t203.0.113.9\t30\t"
        f"{{new_device}}\t{at}\t{at}\n"
        for user in accounts
        for number in range(each)
    )
    copy(connection, f"copy devices ({columns})", rows)


def add_service_accounts(service: Service, count: int) -> list[dict[str, str]]:
    """Add service accounts of one organization with a secret each, and return their requests for a token."""
    requests = []
    with psycopg.connect(service.conninfo) as connection:
        connection.execute(
            """
            insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
            values (gen_random_uuid(), 'robots', 'Robots', 'active', %s, now(), now())""",
            [FREE_TIER],
        )
        connection.execute(
            """
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            select gen_random_uuid(), o.id, u.id, 'owner', now(), now()
            from organizations o, (select id from users order by email limit 1) u where o.slug = 'robots'"""
        )
        for _ in range(count):
            account, secret = uuid.uuid4(), scannable_secrets.generate(CREDENTIAL_PREFIX)
            connection.execute(
                """
                with added as (
                    insert into service_accounts (id, org_id, name, owner_id, role, created_by, created_at, updated_at)
                    select %(account)s, m.org_id, 'Robot', m.user_id, 'admin', m.user_id, now(), now() from memberships m
                    returning id, org_id, created_by)
                insert into credentials (id, client_id, org_id, kind, name, secret_hash, created_by, created_at)
                select gen_random_uuid(), id, org_id, 'secret', 'Main', %(hash)s, created_by, now() from added""",
                {"account": account, "hash": digest(secret)},
            )
            requests.append({"grant_type": "client_credentials", "client_id": str(account), "client_secret": secret})
    tidy(service)
    return requests


class RelyingApplication:
    """An application that all accounts use. Each account has a browser session."""

    def __init__(self, service: Service) -> None:
        self._service = service
        client_id, secret = uuid.uuid4(), new_secret()
        self.credentials = {"client_id": str(client_id), "client_secret": secret}
        self._org, self._shop = uuid.uuid4(), uuid.uuid4()
        now = datetime.now(UTC)
        ends = now + timedelta(days=30)
        with psycopg.connect(service.conninfo) as connection:
            connection.execute(
                "insert into organizations (id, slug, name, status, tier_id, created_at, updated_at) "
                "values (%s, 'bench', 'Bench', 'active', %s, %s, %s)",
                (self._org, FREE_TIER, now, now),
            )
            connection.execute(
                "insert into services (id, org_id, slug, name, service_type, client_id, client_secret_hash, redirect_uris, created_at, "
                "updated_at) values (%s, %s, 'shop', 'Shop', 'web', %s, %s, %s, %s, %s)",
                (self._shop, self._org, client_id, digest(secret), [REDIRECT_URI], now, now),
            )
            people = [row[0] for row in connection.execute("select id from users where email like '%@bench.example'")]
            self._browsers = [(user, uuid.uuid4()) for user in people]
            columns = "id, user_id, created_at, expires_at, ends_at, provider, browser_hash"
            rows = (f"{id_}\t{user}\t{now}\t{ends}\t{ends}\tpassword\t\\\\x{digest(str(id_)).hex()}\n" for user, id_ in self._browsers)
            copy(connection, f"copy sessions ({columns})", rows)

    def exchanges(self, count: int, scope: Sequence[str] = ()) -> list[Request]:
        """Return the exchanges of `count` codes of these users in turn. The codes are valid for an hour, and have these scopes."""
        now = datetime.now(UTC)
        ends = now + timedelta(hours=1)
        # Earlier revisions, which `--compare` measures too, have no column for scopes.
        codes, granted = [new_secret() for _ in range(count)], f"\t{{{','.join(scope)}}}" if scope else ""
        rows = (
            f"\\\\x{digest(code).hex()}\t{self._org}\t{self._shop}\t{user}\t{session}\t{REDIRECT_URI}\t{now}\t{ends}{granted}\n"
            for code, (user, session) in zip(codes, self._turns(count), strict=True)
        )
        columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, created_at, expires_at" + (
            ", scope" if scope else ""
        )
        with psycopg.connect(self._service.conninfo) as connection:
            copy(connection, f"copy authorization_codes ({columns})", rows)
        tidy(self._service)
        fields = {"redirect_uri": REDIRECT_URI, **self.credentials}
        return [Request("POST", "/auth/token", body={"code": code, **fields}) for code in codes]

    def _turns(self, count: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
        return [self._browsers[number % len(self._browsers)] for number in range(count)]


# Proofs of keys, to which tokens are bound (RFC 9449). They are signed before a measurement, and valid until the nonce is a minute old.

NONCE_HEADER: Final = "DPoP-Nonce"
_SIGNATURE: Final = ec.ECDSA(hashes.SHA256())


class Key:
    """A key of an application."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        jwk = ECAlgorithm.to_jwk(self._private.public_key(), as_dict=True)
        self._header = base64url(json.dumps({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk}).encode())

    def proof(self, method: str, url: str, nonce: str, token: str = "") -> str:
        """Return a new proof for a request, with the nonce unless it is empty."""
        claims = {"jti": uuid4().hex, "htm": method, "htu": url, "iat": int(time.time())}
        claims |= {"nonce": nonce} if nonce else {}
        claims |= {"ath": base64url(digest(token))} if token else {}
        text = f"{self._header}.{base64url(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._private.sign(text.encode(), _SIGNATURE))
        return f"{text}.{base64url(r.to_bytes(32) + s.to_bytes(32))}"


@dataclass(frozen=True, slots=True)
class BoundReads:
    """Reads with tokens that are bound to keys, each of another user."""

    service: Service
    holders: Sequence[tuple[Key, str]]  # a key and an access token

    def requests(self, count: int) -> list[Request]:
        """Return `count` requests of the holders in turn, each with a new proof."""
        url, nonce = f"{self.service.address}/api/user", current_nonce(self.service)
        turns = (self.holders[number % len(self.holders)] for number in range(count))
        return [Request("GET", "/api/user", token, proof=key.proof("GET", url, nonce, token)) for key, token in turns]


def bound_reads(service: Service, count: int) -> BoundReads:
    """Return the reads of `count` users. The service has at least as many accounts."""
    nonce, holders = current_nonce(service), []
    for exchange in RelyingApplication(service).exchanges(count):
        key = Key()
        proof = key.proof("POST", f"{service.address}{exchange.path}", nonce)
        status, body = service.send(Request(exchange.method, exchange.path, body=exchange.body, proof=proof))
        tokens = json.loads(body)
        if status != 200 or tokens["token_type"] != "DPoP":  # noqa: S105  (a scheme)
            raise MeasurementFailed(f"The tokens are not bound to the key: {status} {body.decode()[:200]}")
        holders.append((key, tokens["access_token"]))
    return BoundReads(service, holders)


def current_nonce(service: Service) -> str:
    """Return the nonce that the service asks for. Raises: MeasurementFailed."""
    path = "/auth/token"
    headers = {"DPoP": Key().proof("POST", f"{service.address}{path}", ""), "Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(f"{service.address}{path}", b"grant_type=refresh_token&refresh_token=x", headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request):  # noqa: S310
            nonce = None
    except urllib.error.HTTPError as error:
        nonce = error.headers[NONCE_HEADER]
    if not nonce:
        raise MeasurementFailed("The service does not ask for a nonce.")
    return nonce

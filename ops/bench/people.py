"""Accounts with their sessions, devices, second factors and authorization codes, as sign-ins would create them."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import argon2
import jwt
import pyotp
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from adapters.crypto import AesVault, JwtTokens, parse_keys
from adapters.postgres.accounts import mfa
from adapters.postgres.authentication import signing_keys
from adapters.user_agents import UNKNOWN_BROWSER, UNKNOWN_SYSTEM
from core.accounts.model.devices import DeviceType
from core.authentication.model.tokens import SigningKey
from core.kernel.claims import PreAuthClaims
from core.kernel.values import base64url, digest, new_secret
from ops.bench.filling import add_organization
from ops.bench.processes import MeasurementFailed
from ops.bench.service import ARGON2_MEMORY_KIB, ARGON2_PARALLELISM, ARGON2_TIME_COST, Service
from ops.bench.wrk import Request

DEVICES: Final = 5  # per user


def email_of(number: int) -> str:
    return f"person-{number}@bench.example"


def credentials_of(number: int) -> dict[str, str]:
    return {"email": email_of(number), "password": f"the password of person {number}"}


def add_accounts(service: Service, count: int, ids: Sequence[UUID] = ()) -> None:
    """Add verified accounts, numbered from 0, all with different passwords. The first accounts get these ids."""
    hasher = argon2.PasswordHasher(time_cost=ARGON2_TIME_COST, memory_cost=ARGON2_MEMORY_KIB, parallelism=ARGON2_PARALLELISM)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        hashed = list(threads.map(lambda number: hasher.hash(credentials_of(number)["password"]), range(count)))
    service.query(
        """
        insert into users (id, email, email_verified_at, first_verified_at, password_hash, origin, created_at, updated_at)
        select coalesce(id, gen_random_uuid()), email, now(), now(), hash, 'platform', now(), now()
        from unnest(%(emails)s::text[], %(hashes)s::text[], %(ids)s::uuid[]) account (email, hash, id)""",
        emails=[email_of(number) for number in range(count)],
        hashes=hashed,
        ids=list(ids),
    )
    service.tidy()


def access_tokens(service: Service, count: int) -> list[str]:
    """Sign in with the first `count` accounts and return their access tokens."""
    logins = (Request("POST", "/api/auth/login", body=credentials_of(number)) for number in range(count))
    return [str(service.ask(login)["access_token"]) for login in logins]


def add_sessions(service: Service, count: int) -> list[str]:
    """Add sessions for the accounts in turn, and return their unused refresh tokens."""
    tokens = [new_secret() for _ in range(count)]
    service.query(
        """
        with people as (select array_agg(id) as ids from users where email like '%%@bench.example'),
        new as (
            select hash, gen_random_uuid() as id, ids[1 + n %% cardinality(ids)] as user_id
            from people, unnest(%(hashes)s::bytea[]) with ordinality token (hash, n)),
        added as (
            insert into sessions (id, user_id, created_at, expires_at, ends_at, strength, proofs)
            select id, user_id, now(), now() + interval '30 days', now() + interval '30 days', 1,
                   jsonb_build_array(jsonb_build_object('method', 'password', 'at', now())) from new)
        insert into refresh_tokens (token_hash, session_id, generation, created_at) select hash, id, 1, now() from new""",
        hashes=[digest(token) for token in tokens],
    )
    service.tidy()
    return tokens


def browser_cookies(service: Service) -> list[dict[str, str]]:
    """Add a browser session for every account that can sign in, ordered by email, and return the headers with their cookies."""
    accounts = service.query("select id from users where password_hash is not null and email like '%%@bench.example' order by email")
    secrets = [new_secret() for _ in accounts]
    service.query(
        """
        insert into sessions (id, user_id, created_at, expires_at, ends_at, browser_hash, strength, proofs)
        select gen_random_uuid(), id, now(), now() + interval '30 days', now() + interval '30 days', hash, 1,
               jsonb_build_array(jsonb_build_object('method', 'password', 'at', now()))
        from unnest(%(ids)s::uuid[], %(hashes)s::bytea[]) account (id, hash)""",
        ids=[account for (account,) in accounts],
        hashes=[digest(secret) for secret in secrets],
    )
    service.tidy()
    return [{"Cookie": f"gatehouse-session={secret}"} for secret in secrets]


def add_devices(service: Service, each: int = DEVICES) -> None:
    """Add devices to every account, with logins and a session. The devices belong to a client without a User-Agent header, such as wrk.

    Without the logins and sessions, PostgreSQL plans for empty tables, and then reads the whole measurement's rows at every sign-in.
    """
    service.query(
        """
        with logins as (
            insert into login_events (id, user_id, provider, success, address, created_at)
            select gen_random_uuid(), id, 'password', true, '203.0.113.9', now() - interval '1 day' - n * interval '1 hour'
            from users, generate_series(0, %(each)s - 1) n),
        started as (
            insert into sessions (id, user_id, created_at, expires_at, ends_at)
            select gen_random_uuid(), id, now() - interval '1 day', now() + interval '1 day', now() + interval '1 day' from users)
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, last_ip, risk_score, risk_factors, created_at,
                             updated_at)
        select gen_random_uuid(), id, %(browser)s || ' on ' || %(os)s, %(type)s, %(browser)s, %(os)s,
               now() - interval '1 day' - n * interval '1 hour', '203.0.113.9', 30, '{new_device}', now() - interval '1 day',
               now() - interval '1 day'
        from users, generate_series(0, %(each)s - 1) n""",
        each=each,
        browser=UNKNOWN_BROWSER,
        os=UNKNOWN_SYSTEM,
        type=DeviceType.BROWSER,
    )
    service.tidy()


def second_factors(service: Service, count: int) -> Callable[[int], list[Request]]:
    """Add `count` accounts with a second factor and a known device.

    The returned function returns requests with the correct codes for the next accounts. They are valid for a minute, once.
    """
    vault = AesVault(parse_keys((service.directory / "encryption-keys").read_text().strip()))
    secret = pyotp.random_base32()  # for all users; it is encrypted per account, as in production
    accounts = [uuid4() for _ in range(count)]
    service.query(
        """
        with people as (
            insert into users (id, email, email_verified_at, first_verified_at, origin, mfa_enabled_at, created_at, updated_at)
            select id, 'second-' || id || '@bench.example', at, at, 'platform', at, at, at
            from unnest(%(ids)s::uuid[]) id, (select now() - interval '1 day' as at) yesterday)
        insert into mfa (user_id, secret, setup_at, last_step)
        select id, secret, now() - interval '1 day', 1 from unnest(%(ids)s::uuid[], %(secrets)s::bytea[]) mfa (id, secret)""",
        ids=accounts,
        secrets=[vault.seal(secret.encode(), mfa.secret_context(account)) for account in accounts],
    )
    add_devices(service, 1)
    keys = service.query("select kid, private_key, created_at, retires_at from signing_keys")
    tokens = JwtTokens(service.address)
    tokens.use(
        [SigningKey(kid, vault.open(sealed, signing_keys.secret_context(kid)), at, end) for kid, sealed, at, end in keys], datetime.now(UTC)
    )

    def next_requests(number: int) -> list[Request]:
        now = datetime.now(UTC)
        ends = now + timedelta(seconds=600)
        code = pyotp.TOTP(secret).at(now + timedelta(seconds=15))  # this step's code, or the next step's if that is near
        claims = [PreAuthClaims(id=uuid4(), user_id=accounts.pop(), issued_at=now, expires_at=ends) for _ in range(number)]
        waiting = {"now": now, "ends": ends, "ids": [one.id for one in claims], "users": [one.user_id for one in claims]}
        service.query(
            """
            insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, user_id, proofs, proofs_expire_at, begun_at,
                                       expires_at)
            select id, 'api', '', false, true, user_id, jsonb_build_array(jsonb_build_object('method', 'password', 'at', now)), ends,
                   now, ends
            from unnest(%(ids)s::uuid[], %(users)s::uuid[]) pending (id, user_id),
                 (select %(now)s::timestamptz as now, %(ends)s::timestamptz as ends) times""",
            **waiting,
        )
        service.tidy()
        return [Request("POST", "/api/auth/mfa/verify", tokens.sign_pre_auth(one), {"code": code}) for one in claims]

    return next_requests


class RelyingApplication:
    """An application that all accounts use. All accounts have a browser session."""

    REDIRECT_URI: Final = "https://shop.bench.example/callback"

    def __init__(self, service: Service) -> None:
        self._service = service
        secret = new_secret()
        [(client_id,)] = service.query(
            """
            insert into services (id, org_id, slug, name, service_type, client_id, client_secret_hash, redirect_uris, created_at,
                                  updated_at)
            values (gen_random_uuid(), %(org)s, 'shop', 'Shop', 'web', gen_random_uuid(), %(hash)s, array[%(uri)s], now(), now())
            returning client_id""",
            org=add_organization(service, "bench"),
            hash=digest(secret),
            uri=self.REDIRECT_URI,
        )
        self.credentials = {"client_id": str(client_id), "client_secret": secret}
        browser_cookies(service)

    def exchanges(self, count: int, scope: Sequence[str] = ()) -> list[Request]:
        """Return exchanges for `count` codes, the users in turn. The codes are valid for an hour, and have these scopes."""
        codes = [new_secret() for _ in range(count)]
        self._service.query(
            """
            insert into authorization_codes (code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, created_at,
                                             expires_at, scope)
            select hash, shop.org_id, shop.id, users[turn], sessions[turn], %(uri)s, now(), now() + interval '1 hour', %(scope)s::text[]
            from services shop,
                 (select array_agg(user_id order by id) as users, array_agg(id order by id) as sessions
                  from sessions where browser_hash is not null) browsers,
                 unnest(%(hashes)s::bytea[]) with ordinality code (hash, n), lateral (select 1 + n %% cardinality(users) as turn) turns""",
            uri=self.REDIRECT_URI,
            scope=list(scope) or None,
            hashes=[digest(code) for code in codes],
        )
        self._service.tidy()
        fields = {"redirect_uri": self.REDIRECT_URI, **self.credentials}
        return [Request("POST", "/auth/token", body={"code": code, **fields}) for code in codes]


# Key proofs, to which tokens are bound (RFC 9449). They are signed before a measurement, and valid until the nonce is a minute old.


def _proof(key: ec.EllipticCurvePrivateKey, method: str, url: str, **claims: str) -> str:
    header = {"typ": "dpop+jwt", "jwk": ECAlgorithm.to_jwk(key.public_key(), as_dict=True)}
    payload = {"jti": uuid4().hex, "htm": method, "htu": url, "iat": int(time.time()), **claims}
    return jwt.PyJWS().encode(json.dumps(payload).encode(), key, "ES256", header)


def bound_reads(service: Service, count: int) -> Callable[[int], list[Request]]:
    """Return a function that returns reads for `count` users in turn, with a token bound to a key and a new proof."""
    url, nonce, holders = f"{service.address}/auth/token", _current_nonce(service), []
    for exchange in RelyingApplication(service).exchanges(count):
        key = ec.generate_private_key(ec.SECP256R1())
        tokens = service.ask(Request("POST", exchange.path, body=exchange.body, more={"DPoP": _proof(key, "POST", url, nonce=nonce)}))
        if tokens["token_type"] != "DPoP":  # noqa: S105  (a scheme)
            raise MeasurementFailed(f"The tokens are not bound to the key: {tokens}")
        holders.append((key, tokens["access_token"]))

    def reads(number: int) -> Iterator[Request]:
        url, nonce = f"{service.address}/api/user", _current_nonce(service)
        for turn in range(number):
            key, token = holders[turn % len(holders)]
            proof = _proof(key, "GET", url, nonce=nonce, ath=base64url(digest(token)))
            yield Request("GET", "/api/user", more={"Authorization": f"DPoP {token}", "DPoP": proof})

    return lambda number: list(reads(number))


def _current_nonce(service: Service) -> str:
    """Return the nonce that the service asks for. Raises: MeasurementFailed."""
    headers = {"DPoP": _proof(ec.generate_private_key(ec.SECP256R1()), "POST", f"{service.address}/auth/token")}
    form = {"grant_type": "refresh_token", "refresh_token": "x"}
    nonce: Any = service.send(Request("POST", "/auth/token", form=form, more=headers)).headers.get("DPoP-Nonce")
    if not nonce:
        raise MeasurementFailed("The service does not ask for a nonce.")
    return str(nonce)

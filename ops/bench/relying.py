"""An application with a client secret, and authorization codes that signed-in users would have got."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg

from core.kernel.values import digest, new_secret
from ops.bench.filling import FREE_TIER, copy
from ops.bench.service import Service, tidy
from ops.bench.wrk import Request

REDIRECT_URI: Final = "https://shop.bench.example/callback"


class RelyingApplication:
    """An application that all accounts use. Each account has a browser session."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._client_id, self._secret = uuid.uuid4(), new_secret()
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
                (self._shop, self._org, self._client_id, digest(self._secret), [REDIRECT_URI], now, now),
            )
            people = [row[0] for row in connection.execute("select id from users where email like '%@bench.example'")]
            self._browsers = [(user, uuid.uuid4()) for user in people]
            columns = "id, user_id, created_at, expires_at, ends_at, provider, browser_hash"
            rows = (f"{id_}\t{user}\t{now}\t{ends}\t{ends}\tpassword\t\\\\x{digest(str(id_)).hex()}\n" for user, id_ in self._browsers)
            copy(connection, f"copy sessions ({columns})", rows)

    def exchanges(self, count: int) -> list[Request]:
        """Return the exchanges of `count` codes of these users in turn. The codes are valid for an hour."""
        now = datetime.now(UTC)
        ends = now + timedelta(hours=1)
        codes = [new_secret() for _ in range(count)]
        rows = (
            f"\\\\x{digest(code).hex()}\t{self._org}\t{self._shop}\t{user}\t{session}\t{REDIRECT_URI}\t{now}\t{ends}\n"
            for code, (user, session) in zip(codes, self._turns(count), strict=True)
        )
        columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, created_at, expires_at"
        with psycopg.connect(self._service.conninfo) as connection:
            copy(connection, f"copy authorization_codes ({columns})", rows)
        tidy(self._service)
        client = {"redirect_uri": REDIRECT_URI, "client_id": str(self._client_id), "client_secret": self._secret}
        return [Request("POST", "/auth/token", body={"code": code, **client}) for code in codes]

    def _turns(self, count: int) -> list[tuple[uuid.UUID, uuid.UUID]]:
        return [self._browsers[number % len(self._browsers)] for number in range(count)]

"""The rows about sign-ins: logins, reads while others sign in, second factors, tokens and memory."""

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.bench import people, service
from ops.bench.processes import Child, MeasurementFailed, RequirementMissing, resident_mb
from ops.bench.row import (
    ACCOUNTS,
    CORES,
    READERS,
    REQUESTS,
    START_TIMEOUT,
    WARM_UP,
    BareAppRow,
    Row,
    ask,
    check_body,
    logins,
    measure,
    raw_command,
    reads,
    refreshes,
    start_service,
)
from ops.bench.service import access_tokens, add_accounts, add_sessions, email_of
from ops.bench.table import Goal, Sample
from ops.bench.wrk import Request, Wrk

# Enough to keep both workers hashing no matter how the connections are distributed, and fewer than
# one worker's queue holds.
LOGINS: Final = Wrk(connections=24)
# One worker's queue as full as it gets without refusing a login: 2 hashes in progress and 30
# waiting, of 32.
FULL_QUEUE: Final = Wrk(connections=32)
BACKGROUND_READS: Final = Wrk(connections=8)
OPENID_SCOPE: Final = ("openid", "profile", "email")
MIXED_TIMEOUT: Final = 120  # seconds for 10,000 requests
PROGRAMS: Final = 50


class Logins(Row):
    """Complete logins, compared with bare password verifications, which are most of their cost."""

    build: Path | None = None
    setting = f"{LOGINS.connections} connections, {ACCOUNTS} accounts, correct passwords"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = start_service(self.directory / "data", self.stack, CORES, self.build, self.run.source)
        add_accounts(self.service, ACCOUNTS)
        access_tokens(self.service, 4 * CORES)  # the first login of a worker takes the longest

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        parameters = (CORES, seconds, service.ARGON2_MEMORY_KIB, service.ARGON2_TIME_COST, service.ARGON2_PARALLELISM)
        command = raw_command("argon2", *map(str, parameters))
        with Child(command, service.clean_environment(self.build), self.directory / "argon2") as child:
            if child.wait(seconds + START_TIMEOUT) != 0:
                raise MeasurementFailed(f"The password verifications failed: {child.last_line()}")
        seen = json.loads(child.last_line())
        if self.build is not None and Path(seen["library"]) != self.build:
            raise MeasurementFailed("The password verifications used another build of Argon2 than the requested one.")
        return Sample(seen["per_second"])

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, LOGINS, logins(), seconds)


class LoginsOnWheel(Logins):
    name = "logins-wheel"
    description = "logins with 2 workers on 2 cores / Argon2 verifications on 2 threads, both with the PyPI wheel"
    goal = Goal(bar=0.80, aim=0.88)


class LoginsOnBuild(Logins):
    name = "logins-built"
    description = "logins with 2 workers on 2 cores / Argon2 verifications on 2 threads, both with argon2-cffi built for this processor"
    goal = Goal(bar=0.72, aim=0.80)

    def prepare(self, seconds: int, rounds: int) -> None:
        self.build = service.argon2_built_here()
        if self.build is None:
            raise RequirementMissing("No argon2-cffi was built for this processor. ./run builds it if the machine has a C compiler.")
        super().prepare(seconds, rounds)


class ReadsDuringLogins(Row):
    name = "reads-during-logins"
    description = "p99 of GET /api/user while logins saturate the hashing queue / p99 without logins"
    goal = Goal(bar=1.7, aim=1.3)
    unit = "ms"
    setting = (
        f"1 worker, {BACKGROUND_READS.connections} connections that read; {FULL_QUEUE.connections} that sign in, "
        "as many as the queue holds without refusing one"
    )

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = self.start_service(workers=1)
        add_accounts(self.service, ACCOUNTS)
        self.reads = reads(access_tokens(self.service, READERS))

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        with self.service.explaining():
            load = BACKGROUND_READS.drive(self.service.address, self.reads, seconds)
        return Sample(load.p99, {"p50 {} ms": load.p50, "{} reads/s": load.rate})

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        with self.service.explaining(), FULL_QUEUE.driving(self.service.address, logins(), seconds + 1) as signing_in:
            time.sleep(0.5)  # until the queue is full
            load = BACKGROUND_READS.drive(self.service.address, self.reads, seconds)
            signed_in = signing_in.result(seconds + START_TIMEOUT)
        return Sample(load.p99, {"p50 {} ms": load.p50, "{} reads/s": load.rate, "{} logins/s": signed_in.rate})


class Refresh(BareAppRow):
    name = "refresh"
    description = "POST /api/auth/refresh with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.35, aim=0.45)
    # A token is valid for one refresh, and wrk cannot pass the token of a response to the next
    # request. No real session is refreshed a thousand times in seconds either. So each request uses
    # the first token of another session.
    setting = f"{BareAppRow.setting}, each request is the first refresh of another session"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, ACCOUNTS)
        # More than needed: a refresh is slower than the response of two bytes. A token that is used
        # twice would fail visibly.
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(1.5 * probe.rate)
        self.tokens = add_sessions(self.service, self.per_second * (seconds * rounds + 1 + WARM_UP))

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        tokens, self.tokens = self.tokens[:count], self.tokens[count:]
        return measure(self.service, REQUESTS, refreshes(tokens), seconds)


class CodeExchange(BareAppRow):
    scope: Sequence[str] = ()
    name = "code-exchange"
    description = "POST /auth/token with a code and 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.20, aim=0.28)
    setting = (
        f"{BareAppRow.setting}, one application with a client secret, each request with another code, {ACCOUNTS} users, "
        "who have all signed in to the application before"
    )

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, ACCOUNTS)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than needed; a code that is used twice would fail visibly
        codes = people.RelyingApplication(self.service).exchanges(ACCOUNTS + self.per_second * (seconds * rounds + 1 + WARM_UP), self.scope)
        # The first sign-in of a user waits for the lock on the application's counter of users.
        first, self.codes = codes[:ACCOUNTS], codes[ACCOUNTS:]
        REQUESTS.drive(self.service.address, first, MIXED_TIMEOUT, once=True)

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        requests, self.codes = self.codes[:count], self.codes[count:]
        return measure(self.service, REQUESTS, requests, seconds)


class OpenIdExchange(CodeExchange):
    scope = OPENID_SCOPE
    name = "code-exchange-openid"
    description = "POST /auth/token with a code and an ID token in the answer, 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.17, aim=0.22)
    setting = f"{CodeExchange.setting}, scope {' '.join(OPENID_SCOPE)}"


class UserInfo(BareAppRow):
    name = "userinfo"
    description = "GET /auth/userinfo with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.40, aim=0.50)
    setting = f"{BareAppRow.setting}, {READERS} users, scope {' '.join(OPENID_SCOPE)}"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        exchanges = people.RelyingApplication(self.service).exchanges(READERS, OPENID_SCOPE)
        self.requests = [Request("GET", "/auth/userinfo", ask(self.service, exchange)["access_token"]) for exchange in exchanges]
        if "email" not in ask(self.service, self.requests[0]):
            raise MeasurementFailed("The userinfo endpoint does not show the email address.")

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class Introspection(BareAppRow):
    name = "introspection"
    description = "POST /auth/introspect with an access token and 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.35, aim=0.50)
    setting = f"{BareAppRow.setting}, one application with a client secret, tokens of {READERS} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        application = people.RelyingApplication(self.service)
        tokens = [ask(self.service, exchange)["access_token"] for exchange in application.exchanges(READERS, OPENID_SCOPE)]
        self.requests = [Request("POST", "/auth/introspect", form={"token": token, **application.credentials}) for token in tokens]
        check_body(self.service, self.requests[0], '"active":true')

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class ClientCredentials(BareAppRow):
    name = "client-credentials"
    description = "POST /auth/token for a service account with a secret and 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.20, aim=0.30)
    setting = f"{BareAppRow.setting}, {PROGRAMS} service accounts of one organization"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        self.requests = [Request("POST", "/auth/token", form=form) for form in people.add_service_accounts(self.service, PROGRAMS)]
        check_body(self.service, self.requests[0], '"scope":"organization:read')

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class MfaVerify(BareAppRow):
    name = "mfa-verify"
    description = "POST /api/auth/mfa/verify with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.20, aim=0.28)
    # A code is valid once per account, and so is a pre-auth token.
    setting = f"{BareAppRow.setting}, each request with the code of another account, on a known device"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than needed; a code that is used twice would fail visibly
        self.pending = people.add_second_factors(self.service, self.per_second * (seconds * rounds + 1 + WARM_UP))
        self.used = 0

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        requests = self.pending.requests(self.used, count)
        self.used += count
        return measure(self.service, REQUESTS, requests, seconds)


class Memory(Row):
    name = "memory"
    description = "resident memory of one worker after 10,000 requests"
    goal = Goal(bar=115, aim=95, unit="MB")
    unit = "MB"
    repeats = False
    setting = (
        "10,000 requests: 70 % reads, 15 % refreshes, 5 % logins, 2 % registrations, 2 % password resets, "
        "and health, metrics, /openapi.json and /docs"
    )

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = self.start_service(workers=1)
        add_accounts(self.service, ACCOUNTS)
        of_readers, of_logins = reads(access_tokens(self.service, READERS)), logins()
        requests = [of_readers[number % READERS] for number in range(7000)]
        requests += refreshes(add_sessions(self.service, 1500))
        requests += [of_logins[number % ACCOUNTS] for number in range(500)]
        for number in range(200):
            registration = {"email": f"newcomer-{number}@bench.example", "password": "the password of a newcomer"}
            requests += [
                Request("POST", "/api/auth/register", body=registration),
                Request("POST", "/api/auth/forgot-password", body={"email": email_of(number)}),
                Request("GET", "/health/ready"),
                Request("GET", ("/metrics", "/openapi.json", "/docs", "/.well-known/jwks.json")[number % 4]),
                Request("GET", "/"),
            ]
        random.Random(1).shuffle(requests)  # noqa: S311 - a reproducible order
        self.requests = requests
        self.before, _ = resident_mb(self.service.pid)

    def ours(self, seconds: int) -> Sample:
        with self.service.explaining():
            load = REQUESTS.drive(self.service.address, self.requests, MIXED_TIMEOUT, once=True)
        if load.requests < len(self.requests) - REQUESTS.connections:
            raise MeasurementFailed(f"Only {load.requests} requests were sent in time.")
        self.service.settle()
        now, highest = resident_mb(self.service.pid)
        return Sample(now, {"{} MB before them": self.before, "{} MB at the highest": highest, "{} requests/s": load.rate})

"""The load kinds, and the raw costs that they are compared with."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from actors.dispatching import WEBHOOK_SLOTS
from ops.bench import passkeys, service
from ops.bench.people import access_tokens, add_accounts, add_sessions, email_of
from ops.bench.processes import MeasurementFailed, RequirementMissing, resident_mb
from ops.bench.requests import ACCOUNTS, MIXED_TIMEOUT, READERS, Following, checked, logins, read_users, refresh
from ops.bench.row import CORES, REQUESTS, START_TIMEOUT, Bench, Measure, Sample, drive_bare, measure
from ops.bench.service import Service
from ops.bench.webhooks import WebhookReceiver
from ops.bench.wrk import Request, Wrk

REFUSED: Final = Wrk(connections=REQUESTS.connections, refused=True)
# Enough to keep all workers hashing no matter how the connections are distributed, but fewer than a
# worker's queue holds.
LOGINS: Final = Wrk(connections=24)
# A worker's queue as full as it gets without refusing a login: 2 hashes in progress and 30 waiting.
# 32 connections fill it.
FULL_QUEUE: Final = Wrk(connections=32)
BACKGROUND_READS: Final = Wrk(connections=8)
DELIVERIES_PER_SECOND: Final = 400  # how many fall due per second

# Raw costs


def bare_app(bench: Bench, seconds: int) -> Sample:
    return drive_bare(bench.raw_server("hypercorn"), seconds)


def verifying_app(bench: Bench, seconds: int) -> Sample:
    return drive_bare(bench.raw_server("es256"), seconds)


def easier(bench: Bench, seconds: int) -> Sample:
    return bench.easier(seconds)


def signature_pairs(bench: Bench, seconds: int) -> Sample:
    return Sample(bench.run_raw(seconds, "xmlsec", seconds)["per_second"] / 2)


def posts(bench: Bench, seconds: int) -> Sample:
    return Sample(bench.run_raw(seconds, "httpx", bench.raw_server("receiver"), WEBHOOK_SLOTS, seconds)["per_second"])


def verifications(bench: Bench, seconds: int) -> Sample:
    build = bench.service.argon2_build
    parameters = (CORES, seconds, service.ARGON2_MEMORY_KIB, service.ARGON2_TIME_COST, service.ARGON2_PARALLELISM)
    seen = bench.run_raw(seconds, "argon2", *parameters, build=build)
    if build is not None and Path(seen["library"]) != build:
        raise MeasurementFailed("The password verifications used another build of Argon2 than the requested one.")
    return Sample(seen["per_second"])


# Load kinds


def load(requests: Callable[[Service], Sequence[Request]], wrk: Wrk = REQUESTS) -> Callable[[Bench], Measure]:
    """Send the same requests again and again to a worker."""

    def prepare(bench: Bench) -> Measure:
        on = bench.start()
        repeated = requests(on)
        return lambda seconds: measure(on, wrk, repeated, seconds)

    return prepare


def once(source: Callable[[Service, int], Following], share: float = 0.6, **settings: Any) -> Callable[[Bench], Measure]:
    """Send every request once to a worker with these settings.

    `source` returns the next requests. It gets the count for all rounds: for every second, `share` of the bare application's rate, which is
    more than needed. A request that is sent twice would fail visibly.
    """

    def prepare(bench: Bench) -> Measure:
        on = bench.start(**settings)
        per_second = round(share * drive_bare(bench.raw_server("hypercorn"), 1).value)
        following = source(on, per_second * bench.seconds)
        return lambda seconds: measure(on, REQUESTS, following(per_second * seconds), seconds)

    return prepare


def halved(prepare: Callable[[Bench], Measure]) -> Callable[[Bench], Measure]:
    """Count two requests as a single request."""

    def prepare_both(bench: Bench) -> Measure:
        measure_requests = prepare(bench)

        def measure_pairs(seconds: int) -> Sample:
            sample = measure_requests(seconds)
            return Sample(sample.value / 2, sample.also)

        return measure_pairs

    return prepare_both


def document(path: str, part: str) -> Callable[[Bench], Measure]:
    """Read a page or a document that needs no session, and contains `part`."""
    return load(lambda on: checked(on, [Request("GET", path)], part))


def reads_beside_our_server(bench: Bench) -> Measure:
    """Read users, and compare the bare application on Gatehouse's server."""
    prepared = load(read_users)(bench)

    def on_our_server(seconds: int) -> Sample:
        bench.service.settle()
        return drive_bare(bench.raw_server("own"), seconds)

    bench.beside["the bare app on the server of Gatehouse (entrypoints/http/edge/protocol/server.py)"] = on_our_server
    return prepared


# Several workers, the password queue, webhooks, memory and the start


def sign_ins(requests: Callable[[], Sequence[Request]], *, wheel: bool = False, status: int = 200) -> Callable[[Bench], Measure]:
    """Sign in with two workers, with the Argon2 build from PyPI or the build for this processor."""

    def prepare(bench: Bench) -> Measure:
        build = None if wheel else service.argon2_built_here()
        if not wheel and build is None:
            raise RequirementMissing("No argon2-cffi was built for this processor. ./run builds it if the machine has a C compiler.")
        on = bench.start(CORES, build=lambda: build)
        add_accounts(on, ACCOUNTS)
        access_tokens(on, 4 * CORES)  # a worker's first login takes the longest
        repeated = checked(on, requests(), "", status)
        return lambda seconds: measure(on, LOGINS, repeated, seconds)

    return prepare


def passkeys_against_passwords(bench: Bench) -> Measure:
    """Sign in with passkeys, with two workers. The easier condition is the same service with passwords, as in logins-built."""
    passwords = sign_ins(logins)(bench)
    on, per_second = bench.service, round(0.6 * drive_bare(bench.raw_server("hypercorn"), 1).value)
    following = passkeys.sign_ins(on, per_second * bench.seconds)
    bench.easier = passwords
    return lambda seconds: measure(on, REQUESTS, following(per_second * seconds), seconds)


def two_workers(requests: Callable[[Service], Sequence[Request]]) -> Callable[[Bench], Measure]:
    """Send the same requests to two workers, on two cores. The easier condition is a single worker."""

    def with_workers(bench: Bench, workers: int) -> Measure:
        on = bench.start(workers, data=f"data-{workers}")
        repeated = requests(on)
        return lambda seconds: measure(on, REQUESTS, repeated, seconds)

    def prepare(bench: Bench) -> Measure:
        bench.easier = with_workers(bench, 1)
        return with_workers(bench, CORES)

    return prepare


def reads_during_logins(bench: Bench) -> Measure:
    """Read while logins fill the queue. The easier condition is no login."""
    on = bench.start()
    add_accounts(on, ACCOUNTS)
    reads = [Request("GET", "/api/user", token) for token in access_tokens(on, READERS)]

    def read(seconds: int) -> Sample:
        result = BACKGROUND_READS.drive(on.address, reads, seconds)
        return Sample(result.p99, {"p50 {} ms": result.p50, "{} reads/s": result.rate})

    def without_logins(seconds: int) -> Sample:
        with on.explaining():
            return read(seconds)

    def during_logins(seconds: int) -> Sample:
        on.settle()
        with on.explaining(), FULL_QUEUE.driving(on.address, logins(), seconds + 1) as signing_in:
            time.sleep(0.5)  # until the queue is full
            sample = read(seconds)
            signed_in = FULL_QUEUE.result(signing_in, seconds + START_TIMEOUT)
        return Sample(sample.value, {**sample.also, "{} logins/s": signed_in.rate})

    bench.easier = without_logins
    return during_logins


def _webhooks(bench: Bench) -> WebhookReceiver:
    return WebhookReceiver(bench.start(SSO_OUTBOUND_ALLOW="127.0.0.0/8"), bench.raw_server("receiver"))


def deliveries(bench: Bench) -> Measure:
    """Make due deliveries that are claimed, signed, sent and recorded."""
    webhooks = _webhooks(bench)

    def deliver(seconds: int) -> Sample:
        bench.service.settle()
        usage, count = bench.service.usage(), DELIVERIES_PER_SECOND * seconds
        rate = webhooks.per_second(count)
        return Sample(rate, bench.service.usage().since(usage, count))

    return deliver


def delivery_delay(bench: Bench) -> Measure:
    webhooks = _webhooks(bench)

    def deliver(seconds: int) -> Sample:
        bench.service.settle()
        delays = webhooks.delays(20 * seconds, apart=0.05)
        return Sample(median(delays), {"p99 {} ms": delays[int(len(delays) * 0.99)]})

    return deliver


def memory(bench: Bench) -> Measure:
    """Send 10,000 different requests, and measure the memory."""
    on = bench.start()
    add_accounts(on, ACCOUNTS)
    reads = [Request("GET", "/api/user", token) for token in access_tokens(on, READERS)]
    requests = (7000 // READERS + 1) * reads
    del requests[7000:]
    requests += map(refresh, add_sessions(on, 1500))
    requests += (2 * logins())[:500]
    for number in range(200):
        registration = {"email": f"newcomer-{number}@bench.example", "password": "the password of a newcomer"}
        requests += [
            Request("POST", "/api/auth/register", body=registration),
            Request("POST", "/api/auth/forgot-password", body={"email": email_of(number)}),
            Request("GET", "/health/ready"),
            Request("GET", ("/metrics", "/openapi.json", "/docs/api", "/.well-known/jwks.json")[number % 4]),
            Request("GET", "/"),
        ]
    random.Random(1).shuffle(requests)  # noqa: S311 - a reproducible order
    before, _ = resident_mb(on.pid)

    def send(_: int) -> Sample:
        with on.explaining():
            result = REQUESTS.drive(on.address, requests, MIXED_TIMEOUT, once=True)
        if result.requests < len(requests) - REQUESTS.connections:
            raise MeasurementFailed(f"Only {result.requests} requests were sent in time.")
        on.settle()
        now, highest = resident_mb(on.pid)
        return Sample(now, {"{} MB before them": before, "{} MB at the highest": highest, "{} requests/s": result.rate})

    return send


def start(bench: Bench) -> Measure:
    """Start the service, on a database that exists."""

    def begin(_: int) -> Sample:
        with ExitStack() as stack:
            return Sample(stack.enter_context(bench.starting()).start)

    begin(0)
    return begin

"""The rows of the table. A new one is a class here, and its name in ROWS: what it asks, what it prepares, the raw cost, and ours."""

import json
import random
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Final
from urllib.parse import urlencode, urlsplit

import psycopg

from actors.webhook_dispatcher import SLOTS
from ops.bench import directories, end_users, people, service, tenants
from ops.bench.billing import ORGANIZATIONS as SELLERS
from ops.bench.billing import SECRET, Paying
from ops.bench.directories import Directories, Directory
from ops.bench.end_users import DOMAIN, LIFE, LITTLE, Application, Applications, add_applications
from ops.bench.events import ORGANIZATIONS, WEBHOOKS_OF_EACH, Receiving
from ops.bench.filling import Say
from ops.bench.plans import UNTIL_PLANNED, plans_of, renew
from ops.bench.processes import Child, NotHere, Unfit, resident_mb
from ops.bench.relying import Relying
from ops.bench.service import Service, access_tokens, add_accounts, add_sessions, email_of, password_of
from ops.bench.table import Goal, Sample
from ops.bench.tenants import PER_TARGET, Tenant, Tenants, add_tenants
from ops.bench.wrk import Load, Request, Wrk

CORES: Final = 2
ACCOUNTS: Final = 400  # so many that no account has several logins under way, which count as guesses until they are proved right
READERS: Final = 64
START_PATIENCE: Final = 20.0  # seconds
MIXED_PATIENCE: Final = 120  # seconds for 10,000 requests

REQUESTS: Final = Wrk(connections=16)
# Enough to keep both workers hashing however the connections fall on them, and fewer than one worker lets wait.
LOGINS: Final = Wrk(connections=24)
# One worker's queue as full as it gets without refusing anybody: 2 hashes under way and 30 waiting, of 32.
FULL_QUEUE: Final = Wrk(connections=32)
READS_MEANWHILE: Final = Wrk(connections=8)
ONE_BY_ONE: Final = Wrk(connections=1)
DELIVERIES_PER_SECOND: Final = 400  # so many of them fall due for each second of a round


class Run:
    """What the rows of one run share: made when the first of them asks for it. There is one at a time, since each is large.

    It is ended when a row asks for another, and at last by the stack, with the run.
    """

    def __init__(self, directory: Path, stack: ExitStack, say: Say, *, quick: bool) -> None:
        self._directory = directory
        self._stack = stack.enter_context(ExitStack())
        self._say = say
        self._quick = quick
        self._name = ""
        self._shared: tuple[Service, Any] | Unfit | None = None

    def tenants(self) -> tuple[Service, Tenants]:
        """A service with one worker, and many organizations in its database. Raises Unfit, and then for each row that asks."""
        scale = tenants.QUICK if self._quick else tenants.FULL
        return self._get("organizations", scale.gigabytes, lambda on: add_tenants(on, scale, self._say))

    def applications(self) -> tuple[Service, Applications]:
        """The same with many end users of other services."""
        scale = end_users.QUICK if self._quick else end_users.FULL
        return self._get("end users", scale.gigabytes, lambda on: add_applications(on, scale, self._say))

    def directories(self) -> tuple[Service, Directories]:
        """The same with many users whom a directory has provisioned."""
        users = directories.QUICK if self._quick else directories.FULL
        return self._get("provisioned users", directories.GIGABYTES, lambda on: directories.add_directories(on, users, self._say))

    def _get(self, name: str, needed: float, fill: Callable[[Service], Any]) -> tuple[Service, Any]:
        if self._name != name:
            self._stack.close()
            self._name = name
            try:
                self._shared = self._new(needed, fill)
            except Unfit as reason:
                self._shared = reason
        if isinstance(self._shared, Unfit):
            raise self._shared
        assert self._shared is not None
        return self._shared

    def _new(self, needed: float, fill: Callable[[Service], Any]) -> tuple[Service, Any]:
        free = shutil.disk_usage(self._directory).free / 2**30
        if free < needed:
            raise NotHere(f"The {self._name} need {needed:.0f} GB on the disk of {self._directory.parent}, which has {free:.0f} free.")
        data = self._directory / "shared"
        self._stack.callback(shutil.rmtree, data, ignore_errors=True)
        started = start_service(data, self._stack, 1, service.argon2_in_use())
        return started, fill(started)


class Row(ABC):
    """One row: `prepare` once, then raw, ours, raw, ours ... by turns. Whatever it starts goes on the stack, which ends it."""

    name: ClassVar[str]
    what: ClassVar[str]
    goal: ClassVar[Goal]
    unit: ClassVar[str] = "/s"  # of raw and ours
    setting: str  # how it is measured, in a few words
    repeats: ClassVar[bool] = True  # else there is one round

    def __init__(self, directory: Path, stack: ExitStack, run: Run) -> None:
        self.directory = directory  # its own, and empty
        self.stack = stack
        self.run = run

    @abstractmethod
    def prepare(self, seconds: int, rounds: int) -> None:
        """Start and fill what so many rounds of so many seconds need. Raises Unfit with a sentence, as the others do."""

    def raw(self, seconds: int) -> Sample | None:
        """The raw cost, where there is one to relate ours to."""
        return None

    @abstractmethod
    def ours(self, seconds: int) -> Sample:
        """The same by the service."""

    def beside(self, seconds: int) -> Mapping[str, Sample]:
        """What else is worth knowing here, by name."""
        return {}

    def plans(self) -> Sequence[str]:
        """How the database goes about it, where that is worth knowing."""
        return ()

    def start_service(self, workers: int, **settings: str) -> Service:
        """The service on an empty database, with the Argon2 that `run` would start it with, and these settings."""
        return start_service(self.directory / "data", self.stack, workers, service.argon2_in_use(), **settings)


# -- logins ------------------------------------------------------------------------------------------------------------


class Logins(Row):
    """Whole logins against bare password verifications, which are most of their cost."""

    build: Path | None = None
    setting = f"{LOGINS.connections} connections, {ACCOUNTS} accounts, right passwords"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = start_service(self.directory / "data", self.stack, CORES, self.build)
        add_accounts(self.service, ACCOUNTS)
        access_tokens(self.service, 4 * CORES)  # of all logins, a worker's first one takes the longest

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        parameters = (CORES, seconds, service.ARGON2_MEMORY_KIB, service.ARGON2_TIME_COST, service.ARGON2_PARALLELISM)
        command = raw_command("argon2", *map(str, parameters))
        with Child(command, service.clean_environment(self.build), self.directory / "argon2") as child:
            if child.wait(seconds + START_PATIENCE) != 0:
                raise Unfit(f"The password verifications failed: {child.last_words()}")
        seen = json.loads(child.last_words())
        if self.build is not None and Path(seen["library"]) != self.build:
            raise Unfit("The password verifications ran with another build of Argon2 than they were given.")
        return Sample(seen["per_second"])

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, LOGINS, logins(), seconds)


class LoginsOnWheel(Logins):
    name = "logins-wheel"
    what = "logins with 2 workers on 2 cores / Argon2 verifications on 2 threads, both with the PyPI wheel"
    goal = Goal(bar=0.75, aim=0.90)


class LoginsOnBuild(Logins):
    name = "logins-built"
    what = "the same, both with argon2-cffi built for this processor"
    goal = Goal(bar=0.60, aim=0.75)

    def prepare(self, seconds: int, rounds: int) -> None:
        self.build = service.argon2_built_here()
        if self.build is None:
            raise NotHere("There is no argon2-cffi built for this processor; ./run builds it where there is a C compiler.")
        super().prepare(seconds, rounds)


# -- requests of people who are signed in ----------------------------------------------------------------------------------


class AgainstBareApp(Row):
    """Requests to one worker against a bare application on Hypercorn's trio worker."""

    setting = f"1 worker, {REQUESTS.connections} connections"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.bare = start_bare(self, "hypercorn")
        self.service = self.start_service(workers=1)

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        return told(REQUESTS.drive(self.bare, [Request("GET", "/")], seconds))


class Read(AgainstBareApp):
    name = "read"
    what = "GET /api/user with 1 worker / a bare ASGI app that returns 2 bytes on Hypercorn's trio worker"
    goal = Goal(bar=0.33, aim=0.45)
    setting = f"{AgainstBareApp.setting}, {READERS} people"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        self.bare_on_ours = start_bare(self, "own")
        add_accounts(self.service, READERS)
        self.requests = reads(access_tokens(self.service, READERS))

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, REQUESTS, self.requests, seconds)

    def beside(self, seconds: int) -> Mapping[str, Sample]:
        self.service.settle()
        load = REQUESTS.drive(self.bare_on_ours, [Request("GET", "/")], seconds)
        return {"the bare app on our own server (entrypoints/server.py)": told(load)}


class ServiceUserRead(AgainstBareApp):
    name = "service-user-read"
    what = "GET /api/service/users/{user_id} with an API key and 1 worker / the same bare app"
    goal = Goal(bar=0.30, aim=0.45)

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        asked = add_applications(self.service, LITTLE, lambda _: None).large
        self.requests = [Request("GET", f"/api/service/users/{user_id}", key=asked.key) for user_id in asked.people]
        self.setting = f"{AgainstBareApp.setting}, {len(self.requests)} users of one service"
        for request, user_id in zip(self.requests, asked.people, strict=True):
            if answer(self.service, request)["id"] != user_id:
                raise Unfit(f"{request.path} shows somebody else.")

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, REQUESTS, self.requests, seconds)


class Refresh(AgainstBareApp):
    name = "refresh"
    what = "POST /api/auth/refresh with 1 worker / the same bare app"
    goal = Goal(bar=0.15, aim=0.25)
    # A token is good for one refresh. wrk cannot hand the one in an answer to the connection's next request, and sessions that are
    # refreshed a thousand times in seconds would be nobody's; so each request uses up the first token of a session of its own.
    setting = f"{AgainstBareApp.setting}, each request the first refresh of a session of its own"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, ACCOUNTS)
        # More than will be asked for: a whole refresh is no faster than two bytes. Using one twice would fail, and be seen.
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(1.5 * probe.rate)
        self.tokens = add_sessions(self.service, self.per_second * (seconds * rounds + 1 + WARM_UP))

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        tokens, self.tokens = self.tokens[:count], self.tokens[count:]
        return measured(self.service, REQUESTS, refreshes(tokens), seconds)


class CodeExchange(AgainstBareApp):
    name = "code-exchange"
    what = "POST /auth/token with a code and 1 worker / the same bare app"
    goal = Goal(bar=0.12, aim=0.20)
    setting = f"{AgainstBareApp.setting}, one application that shows its secret, each request a code of its own, of {ACCOUNTS} people"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, ACCOUNTS)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than will be asked for; using one twice would fail, and be seen
        self.codes = Relying(self.service).exchanges(self.per_second * (seconds * rounds + 1 + WARM_UP))

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        requests, self.codes = self.codes[:count], self.codes[count:]
        return measured(self.service, REQUESTS, requests, seconds)


class MfaVerify(AgainstBareApp):
    name = "mfa-verify"
    what = "POST /api/auth/mfa/verify with 1 worker / the same bare app"
    goal = Goal(bar=0.15, aim=0.25)
    # A code is good once for its account, and so is a pre-auth token.
    setting = f"{AgainstBareApp.setting}, each request the right code of an account of its own, known on its device"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than will be asked for; using one twice would fail, and be seen
        self.waiting = people.add_second_factors(self.service, self.per_second * (seconds * rounds + 1 + WARM_UP))
        self.used = 0

    def ours(self, seconds: int) -> Sample:
        count = self.per_second * seconds
        requests = self.waiting.requests(self.used, count)
        self.used += count
        return measured(self.service, REQUESTS, requests, seconds)


class DeviceList(AgainstBareApp):
    name = "device-list"
    what = f"GET /api/user/devices with 1 worker, {people.DEVICES} devices each / the same bare app"
    goal = Goal(bar=0.30, aim=0.45)
    setting = f"{AgainstBareApp.setting}, {READERS} people"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        self.requests = [Request("GET", "/api/user/devices", token) for token in access_tokens(self.service, READERS)]
        people.add_devices(self.service)
        # That of the login is one more.
        same("The number of devices", answer(self.service, self.requests[0])["total"], people.DEVICES + 1)

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, REQUESTS, self.requests, seconds)


# -- signatures ------------------------------------------------------------------------------------------------------------


class SamlResponses(Row):
    """Whole responses, each with two signatures, against as many bare ones, which are most of their cost."""

    name = "saml-responses"
    what = "signed SAML responses with 1 worker / pairs of bare xmlsec signatures in 1 process, RSA 2048"
    goal = Goal(bar=0.5, aim=0.7)
    setting = f"1 worker, {REQUESTS.connections} connections, {READERS} members of an organization, who begin at its service themselves"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = self.start_service(workers=1)
        add_accounts(self.service, READERS)
        tokens = access_tokens(self.service, READERS)
        path = people.add_saml(self.service, tokens[0])
        self.requests = [Request("GET", f"{path}/login", token) for token in tokens]

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        command = raw_command("xmlsec", str(seconds))
        with Child(command, service.clean_environment(None), self.directory / "xmlsec") as child:
            if child.wait(seconds + START_PATIENCE) != 0:
                raise Unfit(f"The signatures failed: {child.last_words()}")
        return Sample(json.loads(child.last_words())["per_second"] / 2)

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, REQUESTS, self.requests, seconds)


# -- billing ---------------------------------------------------------------------------------------------------------------


class BillingEvents(AgainstBareApp):
    name = "billing-events"
    what = "POST /webhooks/billing with 1 worker / the same bare app"
    goal = Goal(bar=0.15, aim=0.25)
    setting = f"{AgainstBareApp.setting}, each event once, and each changes one of {ACCOUNTS} subscriptions in {SELLERS} organizations"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.bare = start_bare(self, "hypercorn")
        self.service = self.start_service(workers=1, SSO_BILLING_WEBHOOK_SECRET=SECRET)
        add_accounts(self.service, ACCOUNTS)
        self.per_second = round(0.6 * REQUESTS.drive(self.bare, [Request("GET", "/")], 1).rate)  # more than will be asked for
        self.paying = Paying(self.service, REQUESTS)

    def ours(self, seconds: int) -> Sample:
        return measured(self.service, REQUESTS, self.paying.news(self.per_second * seconds), seconds)


# -- deliveries -------------------------------------------------------------------------------------------------------------


class OfDeliveries(Row):
    """Webhooks with a receiver that takes everything at once."""

    def prepare(self, seconds: int, rounds: int) -> None:
        self.receiver = start_bare(self, "receiver")
        self.service = self.start_service(workers=1, SSO_OUTBOUND_ALLOW="127.0.0.0/8")
        self.receiving = Receiving(self.service, self.receiver)


class Deliveries(OfDeliveries):
    """Deliveries that are due already, each claimed, signed, sent and recorded, against posts alone."""

    name = "deliveries"
    what = "deliveries per second with 1 worker / bare httpx posts per second on Trio, as many at once, to the same receiver"
    goal = Goal(bar=0.4, aim=0.6)
    setting = f"1 worker, {SLOTS} at once, {ORGANIZATIONS} organizations with {WEBHOOKS_OF_EACH} webhooks each"

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        command = raw_command("httpx", self.receiver, str(SLOTS), str(seconds))
        with Child(command, service.clean_environment(None), self.directory / "httpx") as child:
            if child.wait(seconds + START_PATIENCE) != 0:
                raise Unfit(f"The posts failed: {child.last_words()}")
        return Sample(json.loads(child.last_words())["per_second"])

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        usage, count = self.service.usage(), DELIVERIES_PER_SECOND * seconds
        rate = self.receiving.per_second(count)
        return Sample(rate, self.service.usage().since(usage, count))


class DeliveryDelay(OfDeliveries):
    name = "delivery-delay"
    what = "p50 from the commit of an event until the receiver of a webhook has it"
    goal = Goal(bar=50, unit="ms")
    unit = "ms"
    setting = "1 worker, 20 events per second"

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        delays = self.receiving.delays(20 * seconds, apart=0.05)
        return Sample(median(delays), {"p99 {} ms": delays[int(len(delays) * 0.99)]})


# -- reads while others sign in --------------------------------------------------------------------------------------------


class ReadsDuringLogins(Row):
    name = "reads-during-logins"
    what = "p99 of GET /api/user while logins saturate the hashing queue / p99 without logins"
    goal = Goal(bar=3, aim=2)
    unit = "ms"
    setting = (
        f"1 worker, {READS_MEANWHILE.connections} connections that read; {FULL_QUEUE.connections} that sign in, "
        "as many as the queue holds without refusing any"
    )

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service = self.start_service(workers=1)
        add_accounts(self.service, ACCOUNTS)
        self.reads = reads(access_tokens(self.service, READERS))

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        with self.service.explaining():
            load = READS_MEANWHILE.drive(self.service.address, self.reads, seconds)
        return Sample(load.p99, {"p50 {} ms": load.p50, "{} reads/s": load.rate})

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        with self.service.explaining(), FULL_QUEUE.driving(self.service.address, logins(), seconds + 1) as signing_in:
            time.sleep(0.5)  # until the queue is full
            load = READS_MEANWHILE.drive(self.service.address, self.reads, seconds)
            signed_in = signing_in.result(seconds + START_PATIENCE)
        return Sample(load.p99, {"p50 {} ms": load.p50, "{} reads/s": load.rate, "{} logins/s": signed_in.rate})


# -- memory ----------------------------------------------------------------------------------------------------------------


class Memory(Row):
    name = "memory"
    what = "resident memory of one worker after 10,000 requests"
    goal = Goal(bar=150, aim=100, unit="MB")
    unit = "MB"
    repeats = False
    setting = (
        "10,000 requests: 70 % reads, 15 % refreshes, 5 % logins, 2 % registrations and forgotten passwords each, "
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
        random.Random(1).shuffle(requests)  # noqa: S311 - the same order each time
        self.requests = requests
        self.before, _ = resident_mb(self.service.pid)

    def ours(self, seconds: int) -> Sample:
        with self.service.explaining():
            load = REQUESTS.drive(self.service.address, self.requests, MIXED_PATIENCE, once=True)
        if load.requests < len(self.requests) - REQUESTS.connections:
            raise Unfit(f"There was time for {load.requests} requests only.")
        self.service.settle()
        now, highest = resident_mb(self.service.pid)
        return Sample(now, {"{} MB before them": self.before, "{} MB at the highest": highest, "{} requests/s": load.rate})


# -- pages of organizations, however large ------------------------------------------------------------------------------------


class TenantPage(Row):
    """The first page of a list, in the large organization against the small one, one request after the other."""

    goal = Goal(bar=2, aim=1.2)
    unit = "ms"
    setting = "1 worker, 1 connection"
    resource: ClassVar[str]  # the last part of the path
    listed: ClassVar[str]  # where in the answer the page is

    @abstractmethod
    def total(self, tenant: Tenant) -> int:
        """What the page must say that there is."""

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {}

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.tenants = self.run.tenants()
        self.setting = f"{TenantPage.setting}; {self.tenants.scale}; they took {self.tenants.seconds:.0f} s to make"
        self.tokens = access_tokens(self.service, 2)
        shown = [
            self.check(self.request(tenant, self.filters(tenant)), self.total(tenant))
            for tenant in (self.tenants.small, self.tenants.large)
        ]
        if shown[0] != shown[1]:
            raise Unfit(f"The pages are of different length: {shown[0]} in the small organization, {shown[1]} in the large one.")

    def check(self, request: Request, total: int) -> int:
        """How many the page shows. Raises Unfit unless its total is right."""
        shown = answer(self.service, request)
        same(f"The total of {request.path}", shown["pagination"]["total"], total)
        return len(shown[self.listed])

    def request(self, tenant: Tenant, filters: Mapping[str, str]) -> Request:
        path = f"/api/organizations/{tenant.slug}/{self.resource}"
        token = self.tokens[0 if tenant is self.tenants.large else 1]
        return Request("GET", f"{path}?{urlencode(filters)}" if filters else path, token)

    def raw(self, seconds: int) -> Sample:
        return self.page(self.tenants.small, self.filters(self.tenants.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return self.page(self.tenants.large, self.filters(self.tenants.large), seconds)

    def page(self, tenant: Tenant, filters: Mapping[str, str], seconds: int) -> Sample:
        return one_by_one(self.service, self.request(tenant, filters), seconds)


class MembersPage(TenantPage):
    name = "members-page"
    what = "p50 of the first page of members, with its total, in the large organization / in the small one"
    resource = listed = "members"

    def total(self, tenant: Tenant) -> int:
        return tenant.members

    def beside(self, seconds: int) -> Mapping[str, Sample]:
        large, of_role = self.tenants.large, {"role": "member"}
        self.check(self.request(large, of_role), large.members_of_role)
        return {f"the large one's {large.members_of_role:,} with the role member": self.page(large, of_role, seconds)}


class AuditPage(TenantPage):
    name = "audit-page"
    what = "the same of the audit log"
    resource, listed = "audit-log", "logs"

    def total(self, tenant: Tenant) -> int:
        return tenant.entries


class AuditPageByTarget(AuditPage):
    name = "audit-page-by-target"
    what = f"the same of the audit log about one person, {PER_TARGET} entries in both"

    def total(self, tenant: Tenant) -> int:
        return PER_TARGET

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {"target_type": "user", "target_id": tenant.person}

    def beside(self, seconds: int) -> Mapping[str, Sample]:
        large = self.tenants.large
        of_people, of_itself = {"target_type": "user"}, {"target_type": "organization", "target_id": large.id}
        self.check(self.request(large, of_people), large.entries_of_people)
        self.check(self.request(large, of_itself), large.entries_of_itself)
        return {
            f"the large one's {large.entries_of_people:,} entries about people": self.page(large, of_people, seconds),
            f"the large one's {large.entries_of_itself:,} entries about itself": self.page(large, of_itself, seconds),
        }


# -- end users and their logins, however many ----------------------------------------------------------------------------------


class AboutService(Row):
    """Something that is asked of the large service, or of its organization, against the small one, one request after the other."""

    unit = "ms"
    setting = "1 worker, 1 connection"
    path: ClassVar[str]

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.applications = self.run.applications()
        self.setting = f"{AboutService.setting}; {self.applications.scale}; they took {self.applications.seconds:.0f} s to make"
        self.tokens = access_tokens(self.service, 2)
        for application in (self.applications.small, self.applications.large):
            self.check(application, answer(self.service, self.request(application)))

    @abstractmethod
    def check(self, application: Application, shown: Any) -> None:
        """Raises Unfit unless this answer is right."""

    def request(self, application: Application, **parameters: str) -> Request:
        token = self.tokens[0 if application is self.applications.large else 1]
        asked = {**self.parameters(application), **parameters}
        path = f"/api/organizations/{application.org_slug}/{self.path}"
        return Request("GET", f"{path}?{urlencode(asked)}" if asked else path, token)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {}

    def raw(self, seconds: int) -> Sample:
        return self.alone(self.request(self.applications.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return self.alone(self.request(self.applications.large), seconds)

    def alone(self, request: Request, seconds: int) -> Sample:
        """A session of the database keeps a plan for all values, or does not, by the first few that it has seen; so it sees no others."""
        with psycopg.connect(self.service.conninfo, autocommit=True) as connection:
            renew(connection)
        for _ in range(UNTIL_PLANNED):
            answer(self.service, request)
        return one_by_one(self.service, request, seconds)


class OfKey(AboutService):
    """The same by the service's API key."""

    def request(self, application: Application, **parameters: str) -> Request:
        return Request("GET", f"/api/service/{self.path}{'?' if parameters else ''}{urlencode(parameters)}", key=application.key)


class ServiceUsersPage(OfKey):
    name = "service-users-page"
    what = "p50 of the first page of a service's users, with its total, for the large service / for the small one"
    goal = Goal(bar=2, aim=1.2)
    path = "users"

    def check(self, application: Application, shown: Any) -> None:
        same("The total", shown["total"], application.users)
        same("The length of the page", len(shown["users"]), PAGE)


class EndUsersPage(AboutService):
    name = "end-users-page"
    what = "the same of an organization's end users"
    goal = Goal(bar=2, aim=1.2)
    path = "users"

    def check(self, application: Application, shown: Any) -> None:
        same("The total", shown["pagination"]["total"], application.active)
        same("The length of the page", len(shown["users"]), PAGE)


class ReadAmongMany(Row):
    name = "authenticated-large"
    goal = Goal(bar=1.5, aim=1.1)
    unit = "ms"
    FEW: ClassVar = 1000
    what = f"p50 of GET /api/user among all these end users and logins / among {FEW:,} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.among_many, applications = self.run.applications()
        self.among_few = self.start_service(workers=1)
        add_accounts(self.among_few, self.FEW)
        self.setting = f"1 worker, 1 connection; {applications.scale}"
        self.few, self.many = (reads(access_tokens(on, 1))[0] for on in (self.among_few, self.among_many))

    def raw(self, seconds: int) -> Sample:
        return one_by_one(self.among_few, self.few, seconds)

    def ours(self, seconds: int) -> Sample:
        return one_by_one(self.among_many, self.many, seconds)


class OfDirectory(Row):
    """Something that the directory of the large organization asks over SCIM, against that of the small one, one request after the other."""

    unit = "ms"
    goal = Goal(bar=2, aim=1.2)

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.directories = self.run.directories()
        self.setting = f"1 worker, 1 connection; {self.directories}; they took {self.directories.seconds:.0f} s to make"
        for directory in (self.directories.small, self.directories.large):
            self.check(directory, answer(self.service, self.request(directory)))

    @abstractmethod
    def check(self, directory: Directory, shown: Any) -> None:
        """Raises Unfit unless this answer is right."""

    @abstractmethod
    def request(self, directory: Directory) -> Request: ...

    def raw(self, seconds: int) -> Sample:
        return one_by_one(self.service, self.request(self.directories.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return one_by_one(self.service, self.request(self.directories.large), seconds)


class ScimFilter(OfDirectory):
    name = "scim-filter"
    what = "p50 of GET /scim/v2/Users that finds one by the user name, in the large organization / in the small one"

    def request(self, directory: Directory) -> Request:
        return Request("GET", f"/scim/v2/Users?{urlencode({'filter': f'userName eq {json.dumps(directory.email)}'})}", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        same("Who is found", [user["userName"] for user in shown["Resources"]], [directory.email])


class ScimPage(OfDirectory):
    """Beside one that fills the page: a page of fifty would be half the work, whatever the organization's size."""

    name = "scim-page"
    what = "p50 of GET /scim/v2/Users for the first page of 100 users, with their total, in the large organization / in one of 100 users"

    def request(self, directory: Directory) -> Request:
        return Request("GET", "/scim/v2/Users?startIndex=1&count=100", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        same("The total", shown["totalResults"], directory.users)
        same("The length of the page", len(shown["Resources"]), min(directories.PAGE, directory.users))

    def raw(self, seconds: int) -> Sample:
        return one_by_one(self.service, self.request(self.directories.page), seconds)


class ScimGroup(OfDirectory):
    name = "scim-group"
    what = "p50 of GET /scim/v2/Groups/{id} without its members, in the large organization / in the small one"

    def request(self, directory: Directory) -> Request:
        return Request("GET", f"/scim/v2/Groups/{directory.org_id}?excludedAttributes=members", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        same("The group", (shown["id"], "members" in shown), (directory.org_id, False))


class ScimCreate(AgainstBareApp):
    name = "scim-create"
    what = "POST /scim/v2/Users with 1 worker / the same bare app"
    goal = Goal(bar=0.08, aim=0.15)
    setting = f"{AgainstBareApp.setting}, each request somebody new, of one organization"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than will be asked for; making one twice would fail, and be seen
        self.provisioned = directories.add_directory(self.service, "acme", 1)
        self.made = 0

    def ours(self, seconds: int) -> Sample:
        first, self.made = self.made, self.made + self.per_second * seconds
        return measured(self.service, REQUESTS, [self.request(number) for number in range(first, self.made)], seconds)

    def request(self, number: int) -> Request:
        body = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
            "userName": f"newcomer-{number}@{directories.DOMAIN}",
            "externalId": f"external-{number}",
            "name": {"givenName": f"Given {number}", "familyName": f"Family {number}"},
            "active": True,
        }
        return Request("POST", "/scim/v2/Users", self.provisioned.token, body)


class Limited(AboutService):
    """What may grow with the service, up to a limit. Once is enough then, and what it costs in the small one is told beside it."""

    goal = Goal(bar=250, unit="ms")
    repeats = False
    tables: ClassVar[tuple[str, ...]]  # whose statements are explained

    def plans(self) -> Sequence[str]:
        request = self.request(self.applications.large)
        return plans_of(self.service, lambda: answer(self.service, request), self.tables)


class Search(Limited):
    name = "end-users-search"
    what = "p50 of a search that finds one of an organization's end users, with its total, for the large one (raw: for the small one)"
    path = "users"
    tables = ("end_users",)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {"search": application.part}

    def check(self, application: Application, shown: Any) -> None:
        same("The total", shown["pagination"]["total"], 1)
        same("The length of the page", len(shown["users"]), 1)


class SearchEverybody(Limited):
    name = "end-users-search-all"
    what = "the same of a search that finds everybody"
    path = "users"
    tables = ("end_users",)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {"search": DOMAIN}

    def check(self, application: Application, shown: Any) -> None:
        same("The total", shown["pagination"]["total"], application.active)
        same("The length of the page", len(shown["users"]), PAGE)


class Analytics(Limited):
    """Of the last 30 days and today."""

    tables: ClassVar[tuple[str, ...]] = ("login_totals", "login_events")

    def counted(self, application: Application, what: str, condition: str = "true") -> list[tuple[Any, ...]]:
        """The same from the logins themselves."""
        with psycopg.connect(self.service.conninfo) as connection:
            return connection.execute(
                f"select {what} from login_events where org_id = %s and {condition} "  # noqa: S608
                "and created_at >= date_trunc('day', now() - interval '30 days', 'UTC') and success group by 1 order by 1",
                [application.org_id],
            ).fetchall()


class LoginTrends(Analytics):
    name = "login-trends"
    what = "the same of the logins of an organization's services on each of the last 30 days"
    path = "analytics/login-trends"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.counted(application, "(created_at at time zone 'UTC')::date::text, count(*)")
        same("The logins of the days", [(one["date"], one["count"]) for one in shown], counted)

    def beside(self, seconds: int) -> Mapping[str, Sample]:
        request = self.request(self.applications.large, start_date=f"{datetime.now(UTC) - LIFE:%Y-%m-%d}")
        return {f"the large one's of {LIFE.days} days": self.alone(request, seconds)}


class LoginsByService(Analytics):
    name = "logins-by-service"
    what = "the same by service"
    path = "analytics/logins-by-service"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.counted(application, "service_id::text, count(*)")
        same("The logins to services", [(one["service_id"], one["count"]) for one in shown], counted)


class LoginsByProvider(Analytics):
    name = "logins-by-provider"
    what = "the same by provider"
    path = "analytics/logins-by-provider"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.counted(application, "provider, count(*)", "provider in ('codehost', 'websuite', 'officesuite')")
        same("The logins through providers", sorted((one["provider"], one["count"]) for one in shown), counted)


class RecentLogins(Analytics):
    name = "recent-logins"
    what = "the same of the latest logins to an organization's services"
    path = "analytics/recent-logins"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.counted(application, "created_at, min(id::text)")[:-11:-1]
        same("The latest logins", [one["id"] for one in shown], [login_id for _, login_id in counted])


class ServiceAnalytics(OfKey, Analytics):
    name = "service-analytics"
    what = "the same of all figures of a service, for its API key"
    path = "analytics"
    tables = ("login_totals", "service_users", "subscriptions")

    def check(self, application: Application, shown: Any) -> None:
        counted = self.counted(application, "(created_at at time zone 'UTC')::date::text, count(*)")
        same("The logins of the days", [(one["date"], one["count"]) for one in shown["login_trends"]], counted)
        same("The number of users", shown["total_users"], application.users)
        same("The number of logins", shown["total_logins"], application.logins)
        same("The number of subscriptions", sum(shown["subscriptions_by_status"].values()), -(-application.users // 2))


# -- what rows are made of -------------------------------------------------------------------------------------------------

WARM_UP: Final = 1  # seconds of the round before the first, which does not count
PAGE: Final = 50  # users on a page


def start_service(data: Path, stack: ExitStack, workers: int, argon2_build: Path | None, **settings: str) -> Service:
    """The service on an empty database in `data`, which is created."""
    data.mkdir()
    data.chmod(0o755)  # for the account that PostgreSQL runs as when this one is root
    return stack.enter_context(service.started(data, workers=workers, argon2_build=argon2_build, **settings))


def raw_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ops.bench.raw", *arguments]


def start_bare(row: Row, server: str) -> str:
    """The bare application on one of the servers of raw.py, until the row ends; its address."""
    child = Child(raw_command(server), service.clean_environment(None), row.directory / f"bare-{server}")
    row.stack.enter_context(child)
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline and child.exit_code is None:
        if child.said().endswith("}\n"):
            return str(json.loads(child.last_words())["address"])
        time.sleep(0.02)
    raise Unfit(f"The bare application did not start: {child.last_words()}")


def told(load: Load) -> Sample:
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99})


def answer(on: Service, request: Request) -> Any:
    return on.ask(request.method, request.path, request.body, request.token, request.key)


def same(what: str, seen: object, expected: object) -> None:
    """Raises Unfit unless they are equal."""
    if seen != expected:
        raise Unfit(f"{what} should be {str(expected)[:200]}, not {str(seen)[:200]}.")


def one_by_one(on: Service, request: Request, seconds: int) -> Sample:
    """How long one request takes when nothing else is asked. Raises Unfit."""
    load, costs = driven(on, ONE_BY_ONE, [request], seconds)
    return Sample(load.p50, {"p99 {} ms": load.p99, "{} pages/s": load.rate, **costs})


def measured(on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int) -> Sample:
    """Requests of one route per second, and what each cost. Raises Unfit."""
    load, costs = driven(on, wrk, requests, seconds)
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99, **costs})


def driven(on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int) -> tuple[Load, Mapping[str, float]]:
    """Requests of one route, and what each cost. Raises Unfit unless each succeeded and has its line in the access log."""
    on.settle()
    paths = {urlsplit(request.path).path for request in requests}
    marked = f'"path":"{paths.pop()}"' if len(paths) == 1 else f'"path":"{paths.pop().rpartition("/")[0]}/'
    lines, usage = on.log_lines(marked), on.usage()
    with on.explaining():
        load = wrk.drive(on.address, requests, seconds)
    on.settle()
    logged = on.log_lines(marked) - lines
    if logged < load.requests:
        raise Unfit(f"Of {load.requests} requests, {logged} are in the access log.")
    return load, on.usage().since(usage, logged)


def logins() -> list[Request]:
    """The login of each account."""
    return [
        Request("POST", "/api/auth/login", body={"email": email_of(number), "password": password_of(number)}) for number in range(ACCOUNTS)
    ]


def reads(tokens: Sequence[str]) -> list[Request]:
    return [Request("GET", "/api/user", token) for token in tokens]


def refreshes(tokens: Sequence[str]) -> list[Request]:
    return [Request("POST", "/api/auth/refresh", body={"refresh_token": token}) for token in tokens]


# Those of the organizations come last, and then those of end users: what rows share runs from the first to the last that asks for it.
ROWS: Final[Sequence[type[Row]]] = (
    LoginsOnWheel, LoginsOnBuild, Read, ServiceUserRead, DeviceList, Refresh, CodeExchange, MfaVerify, SamlResponses,
    BillingEvents, Deliveries, DeliveryDelay,
    ReadsDuringLogins, Memory,
    ScimCreate, ScimFilter, ScimPage, ScimGroup,
    MembersPage, AuditPage, AuditPageByTarget,
    ReadAmongMany, ServiceUsersPage, EndUsersPage, Search, SearchEverybody,
    LoginTrends, LoginsByService, LoginsByProvider, RecentLogins, ServiceAnalytics,
)  # fmt: skip

"""The rows about processes: several workers, and the start of the service."""

from contextlib import ExitStack

from ops.bench import people, service
from ops.bench.row import CORES, READERS, REQUESTS, Row, measure, reads, start_service
from ops.bench.service import Service, access_tokens, add_accounts
from ops.bench.table import Goal, Sample
from ops.bench.wrk import Request


class TwoWorkers(Row):
    """The same requests to one worker and to two workers, on two cores."""

    setting = f"{REQUESTS.connections} connections, {READERS} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.one, self.two = (self._start(workers) for workers in (1, CORES))

    def _start(self, workers: int) -> tuple[Service, list[Request]]:
        data = self.directory / f"data-{workers}"
        started = start_service(data, self.stack, workers, service.argon2_in_use(), self.run.source)
        add_accounts(started, READERS)
        return started, self.requests(started)

    def requests(self, started: Service) -> list[Request]:
        return reads(access_tokens(started, READERS))

    def raw(self, seconds: int) -> Sample:
        return measure(self.one[0], REQUESTS, self.one[1], seconds)

    def ours(self, seconds: int) -> Sample:
        return measure(self.two[0], REQUESTS, self.two[1], seconds)


class ReadsOnTwoWorkers(TwoWorkers):
    name = "reads-two-workers"
    description = "GET /api/user with 2 workers / with 1 worker, on 2 cores"
    goal = Goal(bar=1.5, aim=1.6)


class SamlOnTwoWorkers(TwoWorkers):
    name = "saml-two-workers"
    description = "signed SAML responses with 2 workers / with 1 worker, on 2 cores"
    goal = Goal(bar=1.4, aim=1.6)

    def requests(self, started: Service) -> list[Request]:
        tokens = access_tokens(started, READERS)
        path = people.add_saml(started, tokens[0])
        return [Request("GET", f"{path}/login", token) for token in tokens]


class Start(Row):
    name = "start"
    description = "seconds from the start of the service, on a database that exists, until it is ready"
    goal = Goal(bar=1.5, aim=1.0, unit="s")
    unit = "s"
    setting = "1 worker, embedded PostgreSQL, which is started too"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.data = self.directory / "data"
        self._start()

    def ours(self, seconds: int) -> Sample:
        return Sample(self._start())

    def _start(self) -> float:
        with ExitStack() as stack:
            return start_service(self.data, stack, 1, service.argon2_in_use(), self.run.source).start

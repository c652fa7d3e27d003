"""The rows about single requests: reads, devices, SAML responses, billing events and webhook deliveries."""

import json
from collections.abc import Mapping
from statistics import median
from typing import Final

from actors.webhook_dispatcher import SLOTS
from ops.bench import people, service
from ops.bench.billing import ORGANIZATIONS as BILLED_ORGANIZATIONS
from ops.bench.billing import SECRET, PayingOrganizations
from ops.bench.end_users import LITTLE, add_applications
from ops.bench.events import ORGANIZATIONS, WEBHOOKS_OF_EACH, WebhookReceiver
from ops.bench.people import bound_reads
from ops.bench.processes import Child, MeasurementFailed
from ops.bench.row import (
    ACCOUNTS,
    READERS,
    REQUESTS,
    START_TIMEOUT,
    BareAppRow,
    Row,
    ask,
    check_equal,
    load_sample,
    measure,
    raw_command,
    reads,
    start_bare_app,
)
from ops.bench.service import access_tokens, add_accounts
from ops.bench.table import Goal, Sample
from ops.bench.wrk import Request

DELIVERIES_PER_SECOND: Final = 400  # the number that falls due for each second of a round


class Read(BareAppRow):
    name = "read"
    description = "GET /api/user with 1 worker / a bare ASGI app that returns 2 bytes, on Hypercorn's Trio worker"
    goal = Goal(bar=0.50, aim=0.60)
    setting = f"{BareAppRow.setting}, {READERS} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        self.bare_on_ours = start_bare_app(self, "own")
        add_accounts(self.service, READERS)
        self.requests = reads(access_tokens(self.service, READERS))

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        self.service.settle()
        load = REQUESTS.drive(self.bare_on_ours, [Request("GET", "/")], seconds)
        return {"the bare app on our own server (entrypoints/http/edge/protocol/server.py)": load_sample(load)}


class BoundRead(BareAppRow):
    name = "bound-read"
    description = "GET /api/user with a token bound to a key and a new proof, with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.25, aim=0.35)
    setting = f"{BareAppRow.setting}, {READERS} users with a P-256 key each, replays refused"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, ACCOUNTS)
        self.bound = bound_reads(self.service, READERS)
        # More than needed: a proof that is sent twice would fail visibly.
        self.per_second = round(REQUESTS.drive(self.bare, [Request("GET", "/")], 1).rate)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.bound.requests(self.per_second * seconds), seconds)


class ServiceUserRead(BareAppRow):
    name = "service-user-read"
    description = "GET /api/service/users/{user_id} with an API key and 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.45, aim=0.55)

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        asked = add_applications(self.service, LITTLE, lambda _: None).large
        self.requests = [Request("GET", f"/api/service/users/{user_id}", key=asked.key) for user_id in asked.people]
        self.setting = f"{BareAppRow.setting}, {len(self.requests)} users of one service"
        for request, user_id in zip(self.requests, asked.people, strict=True):
            if ask(self.service, request)["id"] != user_id:
                raise MeasurementFailed(f"{request.path} shows another user.")

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class DeviceList(BareAppRow):
    name = "device-list"
    description = f"GET /api/user/devices with 1 worker, {people.DEVICES} devices each / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.40, aim=0.55)
    setting = f"{BareAppRow.setting}, {READERS} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        add_accounts(self.service, READERS)
        self.requests = [Request("GET", "/api/user/devices", token) for token in access_tokens(self.service, READERS)]
        people.add_devices(self.service)
        # Plus the device of the login.
        check_equal("The number of devices", ask(self.service, self.requests[0])["total"], people.DEVICES + 1)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class SamlResponses(Row):
    """Complete responses with two signatures each, compared with bare signatures."""

    name = "saml-responses"
    description = "signed SAML responses with 1 worker / pairs of bare xmlsec signatures in 1 process, RSA 2048"
    goal = Goal(bar=0.30, aim=0.40)
    setting = f"1 worker, {REQUESTS.connections} connections, {READERS} members, identity-provider-initiated"

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
            if child.wait(seconds + START_TIMEOUT) != 0:
                raise MeasurementFailed(f"The signatures failed: {child.last_line()}")
        return Sample(json.loads(child.last_line())["per_second"] / 2)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.requests, seconds)


class BillingEvents(BareAppRow):
    name = "billing-events"
    description = "POST /webhooks/billing with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.18, aim=0.28)
    setting = f"{BareAppRow.setting}, each event is new and changes one of {ACCOUNTS} subscriptions in {BILLED_ORGANIZATIONS} organizations"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.bare = start_bare_app(self, "hypercorn")
        self.service = self.start_service(workers=1, SSO_BILLING_WEBHOOK_SECRET=SECRET)
        add_accounts(self.service, ACCOUNTS)
        self.per_second = round(0.6 * REQUESTS.drive(self.bare, [Request("GET", "/")], 1).rate)  # more than needed
        self.payments = PayingOrganizations(self.service, REQUESTS)

    def ours(self, seconds: int) -> Sample:
        return measure(self.service, REQUESTS, self.payments.events(self.per_second * seconds), seconds)


class DeliveryRow(Row):
    """A row about webhooks with a receiver that accepts every delivery at once."""

    def prepare(self, seconds: int, rounds: int) -> None:
        self.receiver = start_bare_app(self, "receiver")
        self.service = self.start_service(workers=1, SSO_OUTBOUND_ALLOW="127.0.0.0/8")
        self.webhooks = WebhookReceiver(self.service, self.receiver)


class Deliveries(DeliveryRow):
    """Due deliveries, each claimed, signed, sent and recorded, compared with bare HTTP posts."""

    name = "deliveries"
    description = "deliveries per second with 1 worker / bare httpx posts per second on Trio, with equal concurrency and receiver"
    goal = Goal(bar=0.40, aim=0.60)
    setting = f"1 worker, {SLOTS} at once, {ORGANIZATIONS} organizations with {WEBHOOKS_OF_EACH} webhooks each"

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        command = raw_command("httpx", self.receiver, str(SLOTS), str(seconds))
        with Child(command, service.clean_environment(None), self.directory / "httpx") as child:
            if child.wait(seconds + START_TIMEOUT) != 0:
                raise MeasurementFailed(f"The posts failed: {child.last_line()}")
        return Sample(json.loads(child.last_line())["per_second"])

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        usage, count = self.service.usage(), DELIVERIES_PER_SECOND * seconds
        rate = self.webhooks.per_second(count)
        return Sample(rate, self.service.usage().since(usage, count))


class DeliveryDelay(DeliveryRow):
    name = "delivery-delay"
    description = "p50 from the commit of an event to its arrival at the receiver of a webhook"
    goal = Goal(bar=50, unit="ms")
    unit = "ms"
    setting = "1 worker, 20 events per second"

    def ours(self, seconds: int) -> Sample:
        self.service.settle()
        delays = self.webhooks.delays(20 * seconds, apart=0.05)
        return Sample(median(delays), {"p99 {} ms": delays[int(len(delays) * 0.99)]})

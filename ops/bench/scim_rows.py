"""The rows about SCIM: reading users and groups, and creating users."""

import json
from abc import abstractmethod
from typing import Any
from urllib.parse import urlencode

from ops.bench import directories
from ops.bench.directories import Directory
from ops.bench.row import REQUESTS, BareAppRow, Row, ask, check_equal, measure, measure_sequentially
from ops.bench.table import Goal, Sample
from ops.bench.wrk import Request


class DirectoryRow(Row):
    """A SCIM request of the large organization's directory, compared with the small one's, with one request at a time."""

    unit = "ms"
    goal = Goal(bar=2, aim=1.2)

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.directories = self.run.directories()
        self.setting = f"1 worker, 1 connection; {self.directories}; created in {self.directories.seconds:.0f} s"
        for directory in (self.directories.small, self.directories.large):
            self.check(directory, ask(self.service, self.request(directory)))

    @abstractmethod
    def check(self, directory: Directory, shown: Any) -> None:
        """Raise MeasurementFailed if this response is wrong."""

    @abstractmethod
    def request(self, directory: Directory) -> Request: ...

    def raw(self, seconds: int) -> Sample:
        return measure_sequentially(self.service, self.request(self.directories.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return measure_sequentially(self.service, self.request(self.directories.large), seconds)


class ScimFilter(DirectoryRow):
    name = "scim-filter"
    description = "p50 of GET /scim/v2/Users with a filter that finds one user name, in the large organization / in the small one"

    def request(self, directory: Directory) -> Request:
        return Request("GET", f"/scim/v2/Users?{urlencode({'filter': f'userName eq {json.dumps(directory.email)}'})}", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        check_equal("The users that were found", [user["userName"] for user in shown["Resources"]], [directory.email])


class ScimPage(DirectoryRow):
    """The small organization fills the page, because a page with half as many users would be half the work."""

    name = "scim-page"
    description = (
        "p50 of GET /scim/v2/Users for the first page of 100 users, with their total, in the large organization / in one of 100 users"
    )

    def request(self, directory: Directory) -> Request:
        return Request("GET", "/scim/v2/Users?startIndex=1&count=100", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        check_equal("The total", shown["totalResults"], directory.users)
        check_equal("The length of the page", len(shown["Resources"]), min(directories.PAGE, directory.users))

    def raw(self, seconds: int) -> Sample:
        return measure_sequentially(self.service, self.request(self.directories.page), seconds)


class ScimGroup(DirectoryRow):
    name = "scim-group"
    description = "p50 of GET /scim/v2/Groups/{id} without its members, in the large organization / in the small one"

    def request(self, directory: Directory) -> Request:
        return Request("GET", f"/scim/v2/Groups/{directory.org_id}?excludedAttributes=members", directory.token)

    def check(self, directory: Directory, shown: Any) -> None:
        check_equal("The group", (shown["id"], "members" in shown), (directory.org_id, False))


class ScimCreate(BareAppRow):
    name = "scim-create"
    description = "POST /scim/v2/Users with 1 worker / a bare ASGI app on Hypercorn"
    goal = Goal(bar=0.18, aim=0.28)
    setting = f"{BareAppRow.setting}, each request creates another user of one organization"

    def prepare(self, seconds: int, rounds: int) -> None:
        super().prepare(seconds, rounds)
        probe = REQUESTS.drive(self.bare, [Request("GET", "/")], 1)
        self.per_second = round(0.6 * probe.rate)  # more than needed; a user that is created twice would fail visibly
        self.provisioned = directories.add_directory(self.service, "acme", 1)
        self.created = 0

    def ours(self, seconds: int) -> Sample:
        first, self.created = self.created, self.created + self.per_second * seconds
        return measure(self.service, REQUESTS, [self.request(number) for number in range(first, self.created)], seconds)

    def request(self, number: int) -> Request:
        body = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
            "userName": f"newcomer-{number}@{directories.DOMAIN}",
            "externalId": f"external-{number}",
            "name": {"givenName": f"Given {number}", "familyName": f"Family {number}"},
            "active": True,
        }
        return Request("POST", "/scim/v2/Users", self.provisioned.token, body)

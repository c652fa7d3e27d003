"""The rows about lists and analytics of organizations and services of different sizes."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

import psycopg

from ops.bench.end_users import DOMAIN, LIFE, Application
from ops.bench.plans import UNTIL_PLANNED, plans_of, renew
from ops.bench.processes import MeasurementFailed
from ops.bench.row import PAGE, Row, ask, check_equal, measure_sequentially, reads
from ops.bench.service import access_tokens, add_accounts
from ops.bench.table import Goal, Sample
from ops.bench.tenants import PER_TARGET, Tenant
from ops.bench.wrk import Request

ACTION: Final = "security.password.changed"  # of the filtered page


class TenantPage(Row):
    """The first page of a list in the large organization, compared with the small one, with one request at a time."""

    goal = Goal(bar=2, aim=1.2)
    unit = "ms"
    setting = "1 worker, 1 connection"
    resource: ClassVar[str]  # the last part of the path
    listed: ClassVar[str]  # the response field with the items

    @abstractmethod
    def total(self, tenant: Tenant) -> int:
        """Return the total that the page must show."""

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {}

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.tenants = self.run.tenants()
        self.setting = f"{TenantPage.setting}; {self.tenants.scale}; created in {self.tenants.seconds:.0f} s"
        self.tokens = access_tokens(self.service, 2)
        shown = [
            self.check(self.request(tenant, self.filters(tenant)), self.total(tenant))
            for tenant in (self.tenants.small, self.tenants.large)
        ]
        if shown[0] != shown[1]:
            raise MeasurementFailed(
                f"The pages are of different length: {shown[0]} in the small organization, {shown[1]} in the large one."
            )

    def check(self, request: Request, total: int) -> int:
        """Return the number of items on the page. Raises: MeasurementFailed if its total is wrong."""
        shown = ask(self.service, request)
        check_equal(f"The total of {request.path}", shown["pagination"]["total"], total)
        return len(shown[self.listed])

    def request(self, tenant: Tenant, filters: Mapping[str, str]) -> Request:
        path = f"/api/organizations/{tenant.slug}/{self.resource}"
        token = self.tokens[0 if tenant is self.tenants.large else 1]
        return Request("GET", f"{path}?{urlencode(filters)}" if filters else path, token)

    def raw(self, seconds: int) -> Sample:
        return self.measure_page(self.tenants.small, self.filters(self.tenants.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return self.measure_page(self.tenants.large, self.filters(self.tenants.large), seconds)

    def measure_page(self, tenant: Tenant, filters: Mapping[str, str], seconds: int) -> Sample:
        return measure_sequentially(self.service, self.request(tenant, filters), seconds)


class MembersPage(TenantPage):
    name = "members-page"
    description = "p50 of the first page of members, with its total, in the large organization / in the small one"
    resource = listed = "members"

    def total(self, tenant: Tenant) -> int:
        return tenant.members

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        large, of_role = self.tenants.large, {"role": "member"}
        self.check(self.request(large, of_role), large.members_of_role)
        named = {"search": "member-99@"}
        self.check(self.request(large, named), 1)
        return {
            f"the large one's {large.members_of_role:,} with the role member": self.measure_page(large, of_role, seconds),
            "the large one's one with a certain part in the address": self.measure_page(large, named, seconds),
        }


class AuditPage(TenantPage):
    name = "audit-page"
    description = "p50 of the first page of the audit log, with its total, in the large organization / in the small one"
    resource, listed = "audit-log", "logs"

    def total(self, tenant: Tenant) -> int:
        return tenant.entries + self.sign_ins(tenant)

    def sign_ins(self, tenant: Tenant) -> int:
        """Return the number of entries about sign-ins of this benchmark."""
        shown = ask(self.service, self.request(tenant, {"action": "user.login.success"}))
        return int(shown["pagination"]["total"])


class AuditPageByTarget(AuditPage):
    name = "audit-page-by-target"
    description = (
        f"p50 of the first page of the audit log about one user, {PER_TARGET} entries, in the large organization / in the small one"
    )

    def total(self, tenant: Tenant) -> int:
        return PER_TARGET

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {"target_type": "user", "target_id": tenant.person}

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        large = self.tenants.large
        of_people, of_itself = {"target_type": "user"}, {"target_type": "organization", "target_id": large.id}
        self.check(self.request(large, of_people), large.entries_of_people + self.sign_ins(large))
        self.check(self.request(large, of_itself), large.entries_of_itself)
        return {
            f"the large one's {large.entries_of_people:,} entries about users": self.measure_page(large, of_people, seconds),
            f"the large one's {large.entries_of_itself:,} entries about itself": self.measure_page(large, of_itself, seconds),
        }


class AuditPageByAction(AuditPage):
    name = "audit-page-by-action"
    description = f"p50 of the first page of the audit log with the action {ACTION}, in the large organization / in the small one"

    def total(self, tenant: Tenant) -> int:
        with psycopg.connect(self.service.conninfo) as connection:
            row = connection.execute(
                "select coalesce(sum(total), 0)::int from audit_totals where org_id = %s and action = %s", (tenant.id, ACTION)
            ).fetchone()
        assert row is not None, "an aggregate returns one row"
        return int(row[0])

    def filters(self, tenant: Tenant) -> Mapping[str, str]:
        return {"action": ACTION}


class ServicePage(Row):
    """A request about the large service or its organization, compared with the small one, with one request at a time."""

    unit = "ms"
    setting = "1 worker, 1 connection"
    path: ClassVar[str]

    def prepare(self, seconds: int, rounds: int) -> None:
        self.service, self.applications = self.run.applications()
        self.setting = f"{ServicePage.setting}; {self.applications.scale}; created in {self.applications.seconds:.0f} s"
        self.tokens = access_tokens(self.service, 2)
        for application in (self.applications.small, self.applications.large):
            self.check(application, ask(self.service, self.request(application)))

    @abstractmethod
    def check(self, application: Application, shown: Any) -> None:
        """Raise MeasurementFailed if this response is wrong."""

    def request(self, application: Application, **parameters: str) -> Request:
        token = self.tokens[0 if application is self.applications.large else 1]
        asked = {**self.parameters(application), **parameters}
        path = f"/api/organizations/{application.org_slug}/{self.path}"
        return Request("GET", f"{path}?{urlencode(asked)}" if asked else path, token)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {}

    def raw(self, seconds: int) -> Sample:
        return self.measure_alone(self.request(self.applications.small), seconds)

    def ours(self, seconds: int) -> Sample:
        return self.measure_alone(self.request(self.applications.large), seconds)

    def measure_alone(self, request: Request, seconds: int) -> Sample:
        """Measure a request in new database sessions.

        A session decides by the first few values of a statement whether it keeps one plan for all
        values. So it must not see the values of another request before.
        """
        with psycopg.connect(self.service.conninfo, autocommit=True) as connection:
            renew(connection)
        for _ in range(UNTIL_PLANNED):
            ask(self.service, request)
        return measure_sequentially(self.service, request, seconds)


class ByKey(ServicePage):
    """A request with the service's API key."""

    def request(self, application: Application, **parameters: str) -> Request:
        return Request("GET", f"/api/service/{self.path}{'?' if parameters else ''}{urlencode(parameters)}", key=application.key)


class ServiceUsersPage(ByKey):
    name = "service-users-page"
    description = "p50 of the first page of a service's users, with its total, for the large service / for the small one"
    goal = Goal(bar=2, aim=1.2)
    path = "users"

    def check(self, application: Application, shown: Any) -> None:
        check_equal("The total", shown["total"], application.users)
        check_equal("The length of the page", len(shown["users"]), PAGE)


class EndUsersPage(ServicePage):
    name = "end-users-page"
    description = "p50 of the first page of an organization's end users, with its total, for the large one / for the small one"
    goal = Goal(bar=2, aim=1.2)
    path = "users"

    def check(self, application: Application, shown: Any) -> None:
        check_equal("The total", shown["pagination"]["total"], application.active)
        check_equal("The length of the page", len(shown["users"]), PAGE)


class UserReadAmongMany(Row):
    name = "authenticated-large"
    goal = Goal(bar=1.5, aim=1.1)
    unit = "ms"
    FEW: ClassVar = 1000
    description = f"p50 of GET /api/user in a database with all these end users and logins / with {FEW:,} users"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.among_many, applications = self.run.applications()
        self.among_few = self.start_service(workers=1)
        add_accounts(self.among_few, self.FEW)
        self.setting = f"1 worker, 1 connection; {applications.scale}"
        self.few, self.many = (reads(access_tokens(on, 1))[0] for on in (self.among_few, self.among_many))

    def raw(self, seconds: int) -> Sample:
        return measure_sequentially(self.among_few, self.few, seconds)

    def ours(self, seconds: int) -> Sample:
        return measure_sequentially(self.among_many, self.many, seconds)


class LimitedRow(ServicePage):
    """A request that may take longer for a large service, up to a limit.

    One round is enough for a limit. The raw value is the same request for the small service.
    """

    goal = Goal(bar=250, unit="ms")
    repeats = False
    tables: ClassVar[tuple[str, ...]]  # statements with these tables are explained

    def plans(self) -> Sequence[str]:
        request = self.request(self.applications.large)
        return plans_of(self.service, lambda: ask(self.service, request), self.tables)


class Search(LimitedRow):
    name = "end-users-search"
    description = (
        "p50 of a search that finds one of an organization's end users, with its total, for the large one (raw: for the small one)"
    )
    path = "users"
    tables = ("end_users",)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {"search": application.part}

    def check(self, application: Application, shown: Any) -> None:
        check_equal("The total", shown["pagination"]["total"], 1)
        check_equal("The length of the page", len(shown["users"]), 1)


class SearchAll(LimitedRow):
    name = "end-users-search-all"
    description = (
        "p50 of a search that finds all of an organization's end users, with its total, for the large one (raw: for the small one)"
    )
    path = "users"
    tables = ("end_users",)

    def parameters(self, application: Application) -> Mapping[str, str]:
        return {"search": DOMAIN}

    def check(self, application: Application, shown: Any) -> None:
        check_equal("The total", shown["pagination"]["total"], application.active)
        check_equal("The length of the page", len(shown["users"]), PAGE)


class Analytics(LimitedRow):
    """Figures of the last 30 days and today."""

    tables: ClassVar[tuple[str, ...]] = ("login_totals", "login_events")

    def count_logins(
        self, application: Application, columns: str, condition: str = "true", source: str = "login_events"
    ) -> list[tuple[Any, ...]]:
        """Count the logins themselves, for comparison with the response."""
        with psycopg.connect(self.service.conninfo) as connection:
            return connection.execute(
                f"select {columns} from {source} where org_id = %s and {condition} "  # noqa: S608
                "and created_at >= date_trunc('day', now() - interval '30 days', 'UTC') and success group by 1 order by 1",
                [application.org_id],
            ).fetchall()


# The logins to an organization's services, and the sign-ins of its members to the platform. The
# benchmark signs in as a member.
ALL_LOGINS: Final = """
    (select id, org_id, created_at, success from login_events
     union all
     select id, org_id, created_at, success from audit_log where action = 'user.login.success') all_logins"""


class LoginTrends(Analytics):
    name = "login-trends"
    description = (
        "p50 of the logins to an organization's services per day, for the last 30 days, for the large one (raw: for the small one)"
    )
    path = "analytics/login-trends"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.count_logins(application, "(created_at at time zone 'UTC')::date::text, count(*)", source=ALL_LOGINS)
        check_equal("The logins of the days", [(one["date"], one["count"]) for one in shown], counted)

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        request = self.request(self.applications.large, start_date=f"{datetime.now(UTC) - LIFE:%Y-%m-%d}")
        return {f"the large one's of {LIFE.days} days": self.measure_alone(request, seconds)}


class LoginsByService(Analytics):
    name = "logins-by-service"
    description = "p50 of the logins to an organization's services by service, for the large one (raw: for the small one)"
    path = "analytics/logins-by-service"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.count_logins(application, "service_id::text, count(*)")
        check_equal("The logins to services", [(one["service_id"], one["count"]) for one in shown], counted)


class LoginsByProvider(Analytics):
    name = "logins-by-provider"
    description = "p50 of the logins to an organization's services by provider, for the large one (raw: for the small one)"
    path = "analytics/logins-by-provider"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.count_logins(application, "provider, count(*)", "provider in ('codehost', 'websuite', 'officesuite')")
        check_equal("The logins through providers", sorted((one["provider"], one["count"]) for one in shown), counted)


class RecentLogins(Analytics):
    name = "recent-logins"
    description = "p50 of the latest logins to an organization's services, for the large one (raw: for the small one)"
    path = "analytics/recent-logins"

    def check(self, application: Application, shown: Any) -> None:
        counted = self.count_logins(application, "created_at, min(id::text)", source=ALL_LOGINS)[:-11:-1]
        check_equal("The latest logins", [one["id"] for one in shown], [login_id for _, login_id in counted])


class ServiceAnalytics(ByKey, Analytics):
    name = "service-analytics"
    description = "p50 of all figures of a service with its API key, for the large one (raw: for the small one)"
    path = "analytics"
    tables = ("login_totals", "service_users", "subscriptions")

    def check(self, application: Application, shown: Any) -> None:
        counted = self.count_logins(application, "(created_at at time zone 'UTC')::date::text, count(*)")
        check_equal("The logins of the days", [(one["date"], one["count"]) for one in shown["login_trends"]], counted)
        check_equal("The number of users", shown["total_users"], application.users)
        check_equal("The number of logins", shown["total_logins"], application.logins)
        check_equal("The number of subscriptions", sum(shown["subscriptions_by_status"].values()), -(-application.users // 2))

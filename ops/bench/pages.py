"""Requests about large organizations and services, each compared with the same request about a small one."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import psycopg

from ops.bench.directories import DIRECTORIES, Directory
from ops.bench.end_users import APPLICATIONS, LIFE, Application
from ops.bench.people import access_tokens, add_accounts, browser_cookies
from ops.bench.plans import UNTIL_PLANNED, plans_of, renew
from ops.bench.row import Bench, Filling, Measure, Sample, check_equal, measure_sequentially
from ops.bench.service import Service
from ops.bench.tenants import TENANTS, Tenant
from ops.bench.wrk import Request

LENGTH: Final = 50  # items on a page
FEW: Final = 1000  # users
LARGE, SMALL, FULL_PAGE = 0, 1, 2  # the positions in a filling

T = TypeVar("T")
Check = Callable[[Service, T, Any], None]  # raises MeasurementFailed if this response is wrong
Headers = Mapping[str, str]


def page(
    filling: Filling[T],
    headers: Callable[[Service, Sequence[T]], Sequence[Headers]],
    path: Callable[[T], str],
    check: Check[T] | str,
    *,
    against: int = SMALL,
    beside: Callable[[T], Mapping[str, tuple[str, Check[T]]]] | None = None,
    renewed: bool = False,
    tables: Sequence[str] = (),
) -> Callable[[Bench], Measure]:
    """Send the request about the large one, one at a time. The easier condition is the request about the one at position `against`.

    The headers authenticate the requests about each. `check` checks the response, or is a part of a page in HTML. `beside` has further
    requests about the large one. With `renewed`, each measurement has new database sessions. Statements with `tables` are explained.
    """

    def prepare(bench: Bench) -> Measure:
        on, subjects = bench.shared.get(filling)
        bench.service = on
        bench.setting = f"1 worker, 1 connection; {bench.shared.scale(filling)}; created in {bench.shared.seconds:.0f} s"
        credentials = headers(on, subjects)
        how = partial(_measure_in_new_sessions if renewed else measure_sequentially, on)

        def checked(position: int, path: str, check: Check[T] | str) -> Request:
            request = Request("GET", path, more=credentials[position])
            if isinstance(check, str):
                on.check(request, check)
            else:
                check(on, subjects[position], on.ask(request))
            return request

        measures = {position: partial(how, checked(position, path(subjects[position]), check)) for position in (against, LARGE)}
        bench.easier = measures[against]
        for name, (other, check_other) in (beside(subjects[LARGE]) if beside else {}).items():
            bench.beside[name] = partial(how, checked(LARGE, other, check_other))
        if tables:
            bench.plans = partial(plans_of, on, lambda: on.ask(measures[LARGE].args[0]), tables)
        return measures[LARGE]

    return prepare


def _measure_in_new_sessions(on: Service, request: Request, seconds: int) -> Sample:
    """Measure a request in new database sessions.

    A session decides by the first few values of a statement whether it keeps one plan for all
    values. So it must not see the values of another request before.
    """
    with psycopg.connect(on.conninfo, autocommit=True) as connection:
        renew(connection)
    for _ in range(UNTIL_PLANNED):
        on.ask(request)
    return measure_sequentially(on, request, seconds)


def _with_query(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _owners(on: Service, _: Sequence[object]) -> Sequence[Headers]:
    return [{"Authorization": f"Bearer {token}"} for token in access_tokens(on, 2)]


def listed(items: str, total: Callable[[Service, T], int], length: int = LENGTH) -> Check[T]:
    """Check the total of a list, and the length of its first page."""

    def check(on: Service, subject: T, shown: Any) -> None:
        expected = total(on, subject)
        shown_total = shown["pagination"]["total"] if "pagination" in shown else shown.get("total", shown.get("totalResults"))
        check_equal("The total", shown_total, expected)
        check_equal("The length of the page", len(shown[items]), min(length, expected))

    return check


# Organizations


def tenant_page(
    resource: str,
    items: str,
    total: Callable[[Service, Tenant], int],
    filters: Callable[[Tenant], dict[str, str]] = lambda _: {},
    beside: Mapping[str, tuple[Callable[[Tenant], dict[str, str]], Callable[[Service, Tenant], int]]] | None = None,
) -> Callable[[Bench], Measure]:
    """Read the first page of a list. `beside` has filters and totals by a template for their name."""

    def path(tenant: Tenant, filters: dict[str, str]) -> str:
        return _with_query(f"/api/organizations/{tenant.slug}/{resource}", **filters)

    def others(tenant: Tenant) -> Mapping[str, tuple[str, Check[Tenant]]]:
        return {
            name.format(tenant): (path(tenant, narrow(tenant)), listed(items, count)) for name, (narrow, count) in (beside or {}).items()
        }

    return page(TENANTS, _owners, lambda tenant: path(tenant, filters(tenant)), listed(items, total), beside=others)


def console_page(resource: str) -> Callable[[Bench], Measure]:
    return page(TENANTS, _browsers, lambda one: f"/app/organizations/{one.slug}/{resource}", 'class="list"')


def _browsers(on: Service, _: Sequence[object]) -> Sequence[Headers]:
    return browser_cookies(on)


def count_sign_ins(on: Service, tenant: Tenant) -> int:
    """Return the number of entries about sign-ins of this benchmark."""
    return count_action(on, tenant, "user.login.success")


def count_action(on: Service, tenant: Tenant, action: str) -> int:
    statement = "select count(*) from audit_log where org_id = %(org_id)s and action = %(action)s"
    return int(on.query(statement, org_id=tenant.id, action=action)[0][0])


# End users of applications


def application_page(
    path: str,
    check: Check[Application],
    query: Callable[[Application], dict[str, str]] = lambda _: {},
    tables: Sequence[str] = (),
    beside: Callable[[Application], Mapping[str, tuple[str, Check[Application]]]] | None = None,
) -> Callable[[Bench], Measure]:
    """Read something of the organization of a service."""

    def full_path(one: Application) -> str:
        return _with_query(f"/api/organizations/{one.org_slug}/{path}", **query(one))

    return page(APPLICATIONS, _owners, full_path, check, beside=beside, renewed=True, tables=tables)


def analytics_page(
    name: str, check: Check[Application], beside: Callable[[Application], Mapping[str, tuple[str, Check[Application]]]] | None = None
) -> Callable[[Bench], Measure]:
    return application_page(f"analytics/{name}", check, tables=("login_totals", "login_events"), beside=beside)


def service_page(path: str, check: Check[Application], tables: Sequence[str] = ()) -> Callable[[Bench], Measure]:
    """Read something of a service with its API key."""
    return page(APPLICATIONS, _api_keys, lambda _: f"/api/service/{path}", check, renewed=True, tables=tables)


def _api_keys(_: Service, applications: Sequence[Application]) -> Sequence[Headers]:
    return [{"X-Api-Key": one.key} for one in applications]


def _count_logins(
    on: Service, application: Application, columns: str, condition: str = "true", source: str = "login_events"
) -> list[tuple[Any, ...]]:
    """Count the logins of the last 30 days and today themselves, for comparison with the response."""
    return on.query(
        f"select {columns} from {source} where org_id = %(org_id)s and {condition} "  # noqa: S608
        "and created_at >= date_trunc('day', now() - interval '30 days', 'UTC') and success group by 1 order by 1",
        org_id=application.org_id,
    )


# The logins to an organization's services, and the sign-ins of its members to the platform. The
# benchmark signs in as a member.
_ALL_LOGINS: Final = """
    (select id, org_id, created_at, success from login_events
     union all
     select id, org_id, created_at, success from audit_log where action = 'user.login.success') all_logins"""
_DAYS: Final = "(created_at at time zone 'UTC')::date::text, count(*)"


def check_trends(on: Service, application: Application, shown: Any) -> None:
    counted = _count_logins(on, application, _DAYS, source=_ALL_LOGINS)
    check_equal("The logins of the days", [(one["date"], one["count"]) for one in shown], counted)


def all_trends(application: Application) -> Mapping[str, tuple[str, Check[Application]]]:
    path = f"/api/organizations/{application.org_slug}/analytics/login-trends?start_date={datetime.now(UTC) - LIFE:%Y-%m-%d}"
    return {f"the large one's of {LIFE.days} days": (path, lambda *_: None)}


def check_services(on: Service, application: Application, shown: Any) -> None:
    counted = _count_logins(on, application, "service_id::text, count(*)")
    check_equal("The logins to services", [(one["service_id"], one["count"]) for one in shown], counted)


def check_providers(on: Service, application: Application, shown: Any) -> None:
    counted = _count_logins(on, application, "provider, count(*)", "provider in ('codehost', 'websuite', 'officesuite')")
    check_equal("The logins through providers", sorted((one["provider"], one["count"]) for one in shown), counted)


def check_latest(on: Service, application: Application, shown: Any) -> None:
    counted = _count_logins(on, application, "created_at, min(id::text)", source=_ALL_LOGINS)[:-11:-1]
    check_equal("The latest logins", [one["id"] for one in shown], [login_id for _, login_id in counted])


def check_figures(on: Service, application: Application, shown: Any) -> None:
    counted = _count_logins(on, application, _DAYS)
    check_equal("The logins of the days", [(one["date"], one["count"]) for one in shown["login_trends"]], counted)
    check_equal("The number of users", shown["total_users"], application.users)
    check_equal("The number of logins", shown["total_logins"], application.logins)
    check_equal("The number of subscriptions", sum(shown["subscriptions_by_status"].values()), -(-application.users // 2))


def read_among_many(bench: Bench) -> Measure:
    """Read a user in a database with many others. The easier condition is a database with few."""
    many, _ = bench.shared.get(APPLICATIONS)
    bench.setting = f"1 worker, 1 connection; {bench.shared.scale(APPLICATIONS)}"
    few = bench.start()
    add_accounts(few, FEW)
    measures = [partial(measure_sequentially, on, Request("GET", "/api/user", access_tokens(on, 1)[0])) for on in (few, many)]
    bench.easier = measures[0]
    return measures[1]


# Provisioned users


def directory_page(path: Callable[[Directory], str], check: Check[Directory], against: int = SMALL) -> Callable[[Bench], Measure]:
    return page(DIRECTORIES, _scim_tokens, lambda one: f"/scim/v2/{path(one)}", check, against=against)


def _scim_tokens(_: Service, all_of: Sequence[Directory]) -> Sequence[Headers]:
    return [{"Authorization": f"Bearer {one.token}"} for one in all_of]


def check_found(_: Service, directory: Directory, shown: Any) -> None:
    check_equal("The users that were found", [user["userName"] for user in shown["Resources"]], [directory.email])


def check_group(_: Service, directory: Directory, shown: Any) -> None:
    check_equal("The group", (shown["id"], "members" in shown), (directory.org_id, False))

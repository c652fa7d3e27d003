"""Requests about large organizations and services, compared with the same requests about small organizations and services."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import psycopg

from ops.bench.end_users import APPLICATIONS, Application
from ops.bench.people import access_tokens, add_accounts, browser_cookies
from ops.bench.plans import UNTIL_PLANNED, plans_of, renew
from ops.bench.row import Bench, Filling, Measure, Sample, check_equal, measure_sequentially
from ops.bench.service import Service
from ops.bench.wrk import Request

LENGTH: Final = 50  # items on a page
FEW: Final = 1000  # users
QUICK_REQUESTS: Final = 5  # for a measurement with --quick, which needs no figure
LARGE, SMALL, FULL_PAGE = 0, 1, 2  # the positions in a filling

T = TypeVar("T")
Check = Callable[[Service, T, Any], None]  # raises MeasurementFailed if this response is wrong


def page(
    filling: Filling[T],
    path: str,
    check: Check[T] | str,
    *,
    against: int = SMALL,
    beside: Mapping[str, tuple[str, Check[T] | str]] | None = None,
    tables: Sequence[str] = (),
) -> Callable[[Bench], Measure]:
    """Send requests about the large subject one at a time. The easier condition is the subject at position `against`.

    `check` checks the response, or must be in it. `beside` has other requests about the large subject, by name. Paths, parts and names
    are templates for the organization or service. Statements with `tables` are explained.
    """

    def prepare(bench: Bench) -> Measure:
        on, subjects = bench.shared.get(filling)
        bench.service = on
        bench.setting = f"1 worker, 1 connection; {bench.shared.scale(filling)}; created in {bench.shared.seconds:.0f} s"
        credentials = _credentials(on, path, subjects)
        measure = _measure_in_new_sessions if filling is APPLICATIONS else measure_sequentially
        how = partial(measure, on, times=QUICK_REQUESTS if bench.shared.quick else None)

        def checked(position: int, path: str, check: Check[T] | str) -> list[Request]:
            request = Request("GET", path.format(subjects[position]), more=credentials[position])
            if isinstance(check, str):
                on.check(request, check.format(subjects[position]))
            else:
                check(on, subjects[position], on.ask(request))
            return [request]

        bench.easier = partial(how, checked(against, path, check))
        large = checked(LARGE, path, check)
        for name, (other, check_other) in (beside or {}).items():
            bench.beside[name.format(subjects[LARGE])] = partial(how, checked(LARGE, other, check_other))
        if tables:
            bench.plans = lambda: plans_of(on, lambda: on.ask(large[0]), tables)
        return partial(how, large)

    return prepare


def _credentials(on: Service, path: str, subjects: Sequence[Any]) -> Sequence[Mapping[str, str]]:
    """Return the headers that authenticate requests, per subject."""
    if path.startswith("/app/"):
        return browser_cookies(on)
    if path.startswith("/api/service/"):
        return [{"X-Api-Key": one.key} for one in subjects]
    tokens = [one.token for one in subjects] if path.startswith("/scim/") else access_tokens(on, 2)
    return [{"Authorization": f"Bearer {token}"} for token in tokens]


def _measure_in_new_sessions(on: Service, requests: Sequence[Request], seconds: int, *, times: int | None = None) -> Sample:
    """Measure a request in new database sessions.

    By a statement's first few values, a session decides whether it keeps a single plan for all values. So it must not
    see another request's values before.
    """
    with psycopg.connect(on.conninfo, autocommit=True) as connection:
        renew(connection)
    for _ in range(UNTIL_PLANNED):
        on.check(requests[0])
    return measure_sequentially(on, requests, seconds, times=times)


def listed(items: str, total: Callable[[T], int], action: str = "", length: int = LENGTH) -> Check[T]:
    """Check a list's total, and its first page's length. `total` does not count audit log entries with `action`."""

    def check(on: Service, subject: T, shown: Any) -> None:
        expected = total(subject) + (_count_entries(on, subject, action) if action else 0)
        shown_total = shown["pagination"]["total"] if "pagination" in shown else shown.get("total", shown.get("totalResults"))
        check_equal("The total", shown_total, expected)
        check_equal("The length of the page", len(shown[items]), min(length, expected))

    return check


def _count_entries(on: Service, tenant: Any, action: str) -> int:
    statement = "select count(*) from audit_log where org_id = %(org_id)s and action = %(action)s"
    return int(on.query(statement, org_id=tenant.id, action=action)[0][0])


def not_empty(_: Service, __: object, shown: Any) -> None:
    """Raise MeasurementFailed if a list is empty. The tests check its content."""
    check_equal("Whether the list has entries", bool(shown), True)


def check_figures(_: Service, application: Application, shown: Any) -> None:
    check_equal("The number of users", shown["total_users"], application.users)
    check_equal("The number of logins", shown["total_logins"], application.logins)
    check_equal("The number of subscriptions", sum(shown["subscriptions_by_status"].values()), -(-application.users // 2))


def read_among_many(bench: Bench) -> Measure:
    """Read a user in a database with many users. The easier condition is a database with few."""
    many, _ = bench.shared.get(APPLICATIONS)
    bench.setting = f"1 worker, 1 connection; {bench.shared.scale(APPLICATIONS)}"
    few = bench.start()
    add_accounts(few, FEW)
    measures = [partial(measure_sequentially, on, [Request("GET", "/api/user", access_tokens(on, 1)[0])]) for on in (few, many)]
    bench.easier = measures[0]
    return measures[1]

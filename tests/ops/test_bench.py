"""The benchmark's figures, its table, its parsers, and its organizations and services. No test here measures a time."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ops.bench import end_users
from ops.bench.compare import Comparison, comparison_table
from ops.bench.end_users import APPLICATIONS, SMALL_USERS, Application
from ops.bench.plans import executed
from ops.bench.processes import MeasurementFailed, RequirementMissing
from ops.bench.row import Goal, Row, Sample, Shared
from ops.bench.rows import ROWS
from ops.bench.service import WORKER_TIME
from ops.bench.table import Result, Verdict, details, number, plans, table
from ops.bench.tenants import FULL, PER_TARGET, QUICK, SMALL_ENTRIES, SMALL_MEMBERS, TENANTS, Tenant, fill
from ops.bench.wrk import Request, load_from
from tests.support import database

FASTER = Goal(bar=0.33, aim=0.45)
SLOWER = Goal(bar=3, aim=2)
LIMIT = Goal(bar=250, unit="ms")


def samples(*values: float) -> list[Sample]:
    return [Sample(value, {"p99 {} ms": value / 100}) for value in values]


def make_row(goal: Goal = FASTER, name: str = "read", unit: str = "/s") -> Row:
    return Row(name, "reads / nothing", lambda _: lambda _: Sample(1), None, goal, unit=unit)


def make_result(raw: list[Sample], ours: list[Sample], goal: Goal = FASTER, **more: Any) -> Result:
    return Result(make_row(goal), raw, ours, **more)


def test_the_figure_is_the_median_of_the_ratios_of_the_rounds() -> None:
    # The ratios are 0.5, 0.1 and 0.4. The medians' ratio would be 300 / 1000.
    result = make_result(samples(1000, 3000, 500), samples(500, 300, 200))
    assert result.figure == pytest.approx(0.4)


def test_without_a_raw_cost_the_figure_is_the_measurement() -> None:
    assert make_result([], samples(90, 120, 100)).figure == 100


@pytest.mark.parametrize(
    ("goal", "ours", "verdict"),
    [
        (FASTER, 0.45, Verdict.AIM),
        (FASTER, 0.44, Verdict.BAR),
        (FASTER, 0.33, Verdict.BAR),
        (FASTER, 0.32, Verdict.MISSED),
        (SLOWER, 2, Verdict.AIM),
        (SLOWER, 2.1, Verdict.BAR),
        (SLOWER, 3, Verdict.BAR),
        (SLOWER, 3.1, Verdict.MISSED),
        (LIMIT, 250, Verdict.BAR),
        (LIMIT, 251, Verdict.MISSED),
    ],
)
def test_a_figure_is_compared_with_bar_and_aim(goal: Goal, ours: float, verdict: Verdict) -> None:
    assert make_result(samples(1), samples(ours), goal).verdict is verdict


def test_a_row_without_a_measurement_has_failed_unless_the_machine_lacks_something() -> None:
    assert make_result([], [], problem="It broke.").verdict is Verdict.FAILED
    assert make_result([], [], problem="No compiler.", absent=True).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("value", "text"), [(0.354, "0.35"), (9.996, "10.00"), (14.25, "14.2"), (99.9, "99.9"), (3301.4, "3,301"), (0, "0.00")]
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_has_measurements_and_verdicts() -> None:
    result = make_result(samples(3000, 2000, 3000), samples(1000, 1000, 1200), beside={"another": samples(6000, 4000, 3000)})
    row = table([result]).splitlines()[-1]
    assert row == "| read | reads / nothing | 3,000/s | 1,000/s | 0.40 (0.33 to 0.50) | 0.33 | 0.45 | ✓ bar passed |"
    text = details([result])
    assert "ours: 1,000/s, p99 10.0 ms" in text
    assert "for comparison, another: 4,000/s, p99 40.0 ms; 2.00 of raw" in text


def test_a_row_with_a_limit_is_compared_with_the_limit_and_has_plans() -> None:
    result = make_result(samples(2), samples(300), LIMIT, plans=["Seq Scan on users", "Result"])
    assert table([result]).splitlines()[-1] == "| read | reads / nothing | 2.00/s | 300/s | 300 ms | 250 ms | - | ✗ misses the bar |"
    assert "ours: 300/s, p99 3.00 ms; 150 of raw" in details([result])
    assert plans([result, make_result(samples(1), samples(1))]) == "### read\n\n```text\nSeq Scan on users\n```\n\n```text\nResult\n```"


def test_a_repeated_setting_is_written_once() -> None:
    settings = ("2 workers", "2 workers", "", "", "1 worker")
    text = details([make_result([], samples(1), setting=setting) for setting in settings])
    assert [line for line in text.splitlines() if line.startswith("-")] == [
        "- **read**: 2 workers",
        "- **read**: same as above",
        "- **read**:",
        "- **read**:",
        "- **read**: 1 worker",
    ]


def test_a_problem_is_a_sentence_in_its_row() -> None:
    result = make_result(samples(1000), [], Goal(bar=150, aim=100, unit="MB"), problem="It\nbroke: a|b.")
    assert table([result]).splitlines()[-1] == r"| read | reads / nothing | - | - | - | 150 MB | 100 MB | ✗ failed: It broke: a\|b. |"
    assert details([result]) == ""


def test_every_row_has_a_unique_name_and_an_aim_beyond_its_bar() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.goal.aim != row.goal.bar for row in ROWS)


def output(**changes: int) -> str:
    fields = {"requests": 4000, "microseconds": 2_000_000, "p50": 1500, "p99": 9000}
    fields |= {"connect": 0, "read": 0, "write": 0, "timeout": 0, "status": 0} | changes
    return f"Running 2s test @ http://127.0.0.1:1\n  4000 requests in 2.00s\n{json.dumps(fields)}\n"


def test_the_load_is_parsed_from_the_output_of_wrk() -> None:
    load = load_from(output())
    assert (load.requests, load.rate, load.p50, load.p99) == (4000, 2000, 1.5, 9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"status": 7}, "7 of 4000 responses were errors"),
        ({"timeout": 2, "read": 1}, "1 read, 2 timeout"),
        ({"requests": 0}, "no response at all"),
    ],
)
def test_a_load_with_failures_is_refused(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(MeasurementFailed, match=sentence):
        load_from(output(**changes))


def test_responses_that_must_be_errors_are_counted() -> None:
    assert load_from(output(status=4000), refused=True).requests == 4000
    with pytest.raises(MeasurementFailed, match="3999 of 4000 responses were errors"):
        load_from(output(status=3999), refused=True)


def test_a_request_is_one_line_with_any_body() -> None:
    line = Request("POST", "/api/auth/login", body={"password": "tab\tand\nline"}).line()
    assert line == 'POST\t/api/auth/login\t{"password": "tab\\tand\\nline"}\tContent-Type: application/json\n'
    form = Request("POST", "/app/sign-in", form={"password": "tab\t&"}, more={"Cookie": "a=b"}).line()
    assert form == "POST\t/app/sign-in\tpassword=tab%09%26\tContent-Type: application/x-www-form-urlencoded\tCookie: a=b\n"


def test_revisions_are_compared_round_by_round() -> None:
    before = [Sample(100, {WORKER_TIME: 2.0}), Sample(50, {WORKER_TIME: 2.0}), Sample(200, {WORKER_TIME: 1.0})]
    now = [Sample(150, {WORKER_TIME: 1.0}), Sample(150, {WORKER_TIME: 1.0}), Sample(200, {WORKER_TIME: 0.9})]
    rows = [Comparison(make_row(), before, now), Comparison(make_row(name="start", unit="s"), problem="It did not start.")]
    assert comparison_table(rows, "v1").splitlines()[2:] == [
        "| read | 100/s | 150/s | 1.50 (1.00 to 3.00) | 0.50 (0.50 to 0.90) | - |",
        "| start | It did not start. | | | | |",
    ]


def test_statements_and_their_values_are_parsed_from_the_servers_log() -> None:
    log = """2026-11-20 16:23:00.000 UTC [7] LOG:  statement: begin
2026-11-20 16:23:00.001 UTC [7] LOG:  execute <unnamed>: select 1 from users where id = $1 and note = $2 and no = $3
2026-11-20 16:23:00.001 UTC [7] DETAIL:  Parameters: $1 = '1', $2 = 'it''s, $9 = ''no''', $3 = NULL
2026-11-20 16:23:00.002 UTC [8] LOG:  execute _pg3_12:
\t            select 2
\t            from users
2026-11-20 16:23:00.003 UTC [8] LOG:  disconnection
"""
    first, second = executed(log)
    assert first == ("select 1 from users where id = $1 and note = $2 and no = $3", ["'1'", "'it''s, $9 = ''no'''", "NULL"])
    assert (second[0].split(), second[1]) == (["select", "2", "from", "users"], [])


# Organizations


def test_the_large_organization_has_the_documented_size() -> None:
    assert (FULL.organizations, FULL.members_of_each[0], sum(FULL.entries_of_each)) == (10_000, 100_000, 10_000_000)
    assert FULL.entries_of_each[:2] == [3_000_000, 1000]
    assert FULL.members_of_each[1] == 50
    assert set(FULL.entries_of_each[2:]) == {700, 701}


Indexes = list[tuple[str, str]]


@contextmanager
def new_database() -> Iterator[tuple[psycopg.Connection, str]]:
    with (
        database.Database(os.environ[database.SERVER_VARIABLE]) as own_database,
        psycopg.connect(own_database.conninfo, autocommit=True) as connection,
    ):
        yield connection, own_database.conninfo


@pytest.fixture(scope="module")
def filled_log() -> Iterator[tuple[psycopg.Connection, Tenant, Tenant, Indexes]]:
    """A filled database, its large and its small organization, and the indexes that the audit log had before."""
    with new_database() as (connection, conninfo):
        before = indexes(connection, "audit_log")
        large, small = fill(conninfo, QUICK, lambda _: None)
        yield connection, large, small, before


def indexes(connection: psycopg.Connection, *tables: str) -> Indexes:
    return connection.execute("select indexname, indexdef from pg_indexes where tablename = any(%s) order by 1", [list(tables)]).fetchall()


@pytest.mark.slow
def test_organizations_have_the_reported_members_and_entries(
    filled_log: tuple[psycopg.Connection, Tenant, Tenant, Indexes],
) -> None:
    connection, large, small, _ = filled_log
    assert (large.members, large.entries) == (QUICK.large_members, QUICK.large_entries)
    assert (small.members, small.entries) == (SMALL_MEMBERS, SMALL_ENTRIES)
    for tenant in (large, small):
        log = connection.execute("select target_type, target_id from audit_log where org_id = %s", [tenant.id]).fetchall()
        targets = Counter(log)
        assert len(log) == tenant.entries
        assert targets["user", tenant.person] == PER_TARGET
        assert targets["organization", tenant.id] == tenant.entries_of_itself
        assert sum(target_type == "user" for target_type, _ in log) == tenant.entries_of_people
    assert connection.execute("select count(*) from audit_log").fetchone() == (QUICK.entries,)
    rows = connection.execute(
        "select o.slug, o.member_count, count(*), count(*) filter (where m.role = 'owner') "
        "from organizations o join memberships m on m.org_id = o.id group by o.id"
    ).fetchall()
    assert len(rows) == QUICK.organizations
    assert all((stored_count, owners) == (members, 1) for _, stored_count, members, owners in rows)
    assert {slug: members for slug, _, members, _ in rows if slug in (large.slug, small.slug)} == {
        large.slug: large.members,
        small.slug: small.members,
    }


@pytest.mark.slow
def test_the_totals_match_the_log(filled_log: tuple[psycopg.Connection, Tenant, Tenant, Indexes]) -> None:
    connection, *_ = filled_log
    totals = connection.execute("select org_id, action, target_type, total from audit_totals").fetchall()
    rows = connection.execute("select org_id, action, target_type, count(*) from audit_log group by 1, 2, 3").fetchall()
    assert totals
    assert set(totals) == set(rows)


@pytest.mark.slow
def test_the_log_has_the_indexes_of_the_migrations(filled_log: tuple[psycopg.Connection, Tenant, Tenant, Indexes]) -> None:
    connection, *_, before = filled_log
    assert before
    assert indexes(connection, "audit_log") == before


# End users


def test_the_large_service_has_the_documented_size() -> None:
    full = end_users.FULL
    assert (full.large_users, SMALL_USERS, full.logins) == (100_000, 50, 10_000_000)
    assert full.users >= 1_000_000
    assert full.large_logins >= full.logins * full.large_users / full.users, "its share at least"


SERVICE_TABLES = ("login_events", "login_totals", "service_users", "end_users", "subscriptions")
FilledServices = tuple[psycopg.Connection, Application, Application, Indexes]


@pytest.fixture(scope="module")
def filled_services() -> Iterator[FilledServices]:
    """A filled database, its large and its small service, and the indexes that their tables had before."""
    with new_database() as (connection, conninfo):
        connection.execute(
            "insert into users (id, email, origin, created_at, updated_at) "
            "select gen_random_uuid(), n || '@bench.example', 'platform', now(), now() from generate_series(1, 2) n"
        )
        before = indexes(connection, *SERVICE_TABLES)
        large, small = end_users.fill(conninfo, end_users.QUICK, lambda _: None)
        yield connection, large, small, before


@pytest.mark.slow
def test_services_have_the_reported_users_and_logins(filled_services: FilledServices) -> None:
    connection, large, small, _ = filled_services
    assert (large.users, small.users) == (end_users.QUICK.large_users, SMALL_USERS)
    for application in (large, small):
        people = connection.execute(
            "select user_id::text, email, deactivated from service_users where service_id = %s", [application.id]
        ).fetchall()
        assert len(people) == application.users
        assert {user_id for user_id, *_ in people} >= set(application.people)
        assert sum(application.part in email for _, email, _ in people) == 1
        assert sum(not deactivated for *_, deactivated in people) == application.active
        logins = connection.execute("select count(*) from login_events where service_id = %s and success", [application.id])
        assert logins.fetchone() == (application.logins,)
    assert connection.execute("select count(*) from service_users").fetchone() == (end_users.QUICK.users,)
    by_success = connection.execute("select success, count(*) from login_events group by success order by success").fetchall()
    assert by_success == [(False, end_users.QUICK.large_failures + end_users.SMALL_FAILURES), (True, end_users.QUICK.logins)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stored_query", "count_query"),
    [
        ("id, user_count from services", "service_id, count(*) from service_users group by 1"),
        ("id, subscription_count from services", "service_id, count(*) from subscriptions group by 1"),
        ("org_id, total from end_user_totals", "org_id, count(distinct user_id) from service_users group by 1"),
        ("id, member_count from organizations", "org_id, count(*) from memberships where role = 'owner' group by 1"),
        (
            "org_id, service_id, day, provider, sum(total) from login_totals group by 1, 2, 3, 4",
            "org_id, service_id, (created_at at time zone 'UTC')::date, provider, count(*) from login_events where success "
            "group by 1, 2, 3, 4",
        ),
        (
            "service_id, user_id, first_login_at, last_login_at from service_users where first_login_at is not null",
            "service_id, user_id, min(created_at), max(created_at) from login_events where success group by 1, 2",
        ),
        (
            "org_id, user_id, email, deactivated, created_at from end_users",
            "org_id, user_id, email, deactivated, min(created_at) from service_users group by 1, 2, 3, 4",
        ),
        ("id, origin_org_id from users where origin = 'api_key'", "user_id, org_id from service_users where first_login_at is null"),
    ],
)
def test_stored_totals_of_services_match_the_rows(filled_services: FilledServices, stored_query: str, count_query: str) -> None:
    connection, *_ = filled_services
    rows, counts = (connection.execute(sql.SQL(f"select {query}")).fetchall() for query in (stored_query, count_query))
    assert rows
    assert Counter(rows) == Counter(counts)


@pytest.mark.slow
def test_rows_of_services_have_valid_foreign_keys(filled_services: FilledServices) -> None:
    connection, *_ = filled_services
    keys = connection.execute(
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint where contype = 'f'"
    ).fetchall()
    assert keys
    with connection.transaction(force_rollback=True):
        for table_name, name, definition in keys:  # they were not checked when the rows were added
            connection.execute(sql.SQL(f"alter table {table_name} drop constraint {name}, add constraint {name} {definition}"))


@pytest.mark.slow
def test_rows_of_services_are_ordered_by_time(filled_services: FilledServices) -> None:
    connection, *_ = filled_services
    for table_name, times in [*((name, "created_at") for name in SERVICE_TABLES if name != "login_totals"), ("login_totals", "day")]:
        of_sign_ins = "where success" if table_name == "login_events" else ""  # failures come last
        rows = connection.execute(sql.SQL(f"select {times} from {table_name} {of_sign_ins} order by ctid")).fetchall()  # noqa: S608
        assert rows == sorted(rows), table_name


@pytest.mark.slow
def test_tables_of_services_have_the_indexes_of_the_migrations(filled_services: FilledServices) -> None:
    connection, *_, before = filled_services
    assert len(before) > len(SERVICE_TABLES)
    assert indexes(connection, *SERVICE_TABLES) == before


def test_a_full_disk_is_a_missing_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 2**30))
    with ExitStack() as stack:
        shared = Shared(tmp_path, stack, lambda _: None, quick=False)
        for _ in range(2):  # raised again for every row
            with pytest.raises(RequirementMissing, match=r"The organizations need 16 GB .* which has 5 free"):
                shared.get(TENANTS)
        with pytest.raises(RequirementMissing, match=r"The end users need 10 GB .* which has 5 free"):
            shared.get(APPLICATIONS)

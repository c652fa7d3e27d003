"""The benchmark itself, with the small databases from `./run bench --quick`."""

import os
import re
import shutil
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from ops.bench import end_users
from ops.bench.table import Verdict
from ops.bench.tenants import QUICK

ROWS: Final = {
    f"{QUICK.organizations} organizations": ["members-page", "audit-page", "audit-page-by-target", "applications-page-html"],
    f"{end_users.QUICK.organizations} organizations": ["service-users-page", "end-users-page", "service-analytics"],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # belongs to the fork, in which no other threads run
def test_rows_about_large_organizations_and_services_are_measured(tmp_path: Path) -> None:
    """In a forked process, because a new interpreter takes seconds to import the benchmark."""
    if shutil.which("wrk") is None:
        reason = "wrk is not installed. On Debian: apt-get install wrk."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    table, log = tmp_path / "table.md", tmp_path / "log"
    rows = [row for rows in ROWS.values() for row in rows]
    process = get_context("fork").Process(
        target=_measure, args=(["--quick", "--output", str(table), *(f"--row={row}" for row in rows)], log)
    )
    process.start()
    process.join(300)
    if process.is_alive():
        process.kill()
    output = log.read_text() if log.exists() else ""
    assert table.exists(), output
    document = table.read_text()
    for row in rows:
        # The verdict does not matter here, because more tests run at the same time.
        assert re.search(
            rf"^\| {row} \|.* ms \|.* ms \|.*(?:{Verdict.AIM.value}|{Verdict.BAR.value}|{Verdict.MISSED.value})", document, re.M
        ), document
    assert process.exitcode == 0, output
    for database_content in ROWS:
        assert output.count(database_content) == 1, "rows share a database"
    assert "Scan" in document, "the plans of service-analytics"


def _measure(arguments: list[str], log: Path) -> None:
    from ops.bench.__main__ import main  # no other test in this process needs it

    with log.open("w", buffering=1) as progress, open(os.devnull, "w") as table:
        sys.stdout, sys.stderr = table, progress
        main(arguments)

"""The benchmark itself, with the small databases of `./run bench --quick`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench import end_users
from ops.bench.table import Verdict
from ops.bench.tenants import QUICK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "database_content"),
    [
        (["members-page", "audit-page", "audit-page-by-target", "applications-page-html"], f"{QUICK.organizations} organizations"),
        (["service-users-page", "end-users-page", "service-analytics"], f"{end_users.QUICK.organizations} organizations"),
    ],
    ids=["organizations", "end users"],
)
def test_rows_about_large_organizations_and_services_are_measured(rows: list[str], database_content: str, tmp_path: Path) -> None:
    if shutil.which("wrk") is None:
        reason = "wrk is not installed. On Debian: apt-get install wrk."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    command = [sys.executable, "-m", "ops.bench", "--quick", "--output", str(tmp_path / "table.md")]
    result = subprocess.run([*command, *(f"--row={row}" for row in rows)], capture_output=True, text=True, timeout=300, check=False)
    assert (tmp_path / "table.md").exists(), result.stderr
    document = (tmp_path / "table.md").read_text()
    for row in rows:
        # The verdict does not matter here, because other tests run at the same time.
        assert re.search(
            rf"^\| {row} \|.* ms \|.* ms \|.*(?:{Verdict.AIM.value}|{Verdict.BAR.value}|{Verdict.MISSED.value})", document, re.M
        ), document
    assert result.returncode == 0
    assert result.stderr.count(database_content) == 1, "all rows share one database"
    assert ("Scan" in document) == ("service-analytics" in rows), "with its plans"

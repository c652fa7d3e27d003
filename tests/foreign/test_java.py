"""Java's HTTP client, which Spring uses: by default it asks for HTTP/2 with the header Upgrade, with and without a body."""

import shutil
import subprocess

import pytest

from tests.foreign.gatehouse import Gatehouse
from tests.foreign.programs import FOREIGN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("javac") is None, reason="a JDK is missing")]


def test_javas_client_gets_responses_in_http_1_1(gatehouse: Gatehouse) -> None:
    run = subprocess.run(
        ["java", str(FOREIGN / "java" / "Requests.java"), gatehouse.address], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.splitlines() == ["HTTP_1_1 200", "HTTP_1_1 401", "HTTP_1_1 401"]

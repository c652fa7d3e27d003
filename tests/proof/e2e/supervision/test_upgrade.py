"""An upgrade from version 0.9.0, which runs as its own program."""

import os
from pathlib import Path
from typing import Final

import pytest

from adapters.crypto import generate_key
from tests import ROOT
from tests.engine.releases import kept_release
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import gatehouse, gatehouse_in_new_interpreter
from tests.support import database

pytestmark = pytest.mark.slow

EMAIL: Final = "owner@gatehouse.example"
PASSWORD: Final = "correct horse battery staple"


def test_a_user_stays_signed_in_and_a_backup_can_be_restored(service: Start, home: Path) -> None:
    server = os.environ[database.SERVER_VARIABLE]
    with database.Database(server, template="template1") as own, database.Database(server, template="template1") as empty:
        settings = {
            "SSO_DATABASE_URL": own.conninfo,
            "SSO_ENCRYPTION_KEYS": generate_key(),
            "SSO_PLATFORM_OWNER_EMAIL": EMAIL,
            "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD,
            "PYTHONPATH": str(kept_release("0.9.0")),
        }
        upgraded = service(**settings).in_new_interpreter()
        at_localhost = upgraded.settings["SSO_BIND"]
        upgraded.settings["SSO_BIND"] = f"127.0.0.1:{upgraded.port}"  # the default of that version
        upgraded.start()
        tokens = upgraded.login(EMAIL, PASSWORD)
        backup = gatehouse_in_new_interpreter(home, "backup", "create", "backup", **settings)
        assert backup.returncode == 0, backup.stderr
        upgraded.stop()

        upgraded.settings |= {"PYTHONPATH": str(ROOT), "SSO_BIND": at_localhost}
        upgraded.in_new_interpreter(False).start()
        metadata = upgraded.get("/.well-known/openid-configuration").json()
        assert metadata["issuer"] == f"http://127.0.0.1:{upgraded.port}", "clients have stored it"
        assert upgraded.logged("migrated")[-1]["first"] == "0077_baseline"
        assert upgraded.get("/api/user", token=tokens["access_token"]).json()["email"] == EMAIL
        refreshed = upgraded.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        assert refreshed.status_code == 200, refreshed.text
        upgraded.stop()

        settings |= {"SSO_DATABASE_URL": empty.conninfo, "PYTHONPATH": str(ROOT)}
        restored = gatehouse(home, "backup", "restore", "backup", **settings)
        assert restored.returncode == 0, restored.stderr
        upgraded.settings["SSO_DATABASE_URL"] = empty.conninfo
        upgraded.start()
        assert upgraded.login(EMAIL, PASSWORD)
        upgraded.stop()

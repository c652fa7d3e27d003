"""An upgrade from the release before, which runs as its own program."""

import os
from pathlib import Path
from typing import Final

import pytest

from adapters.crypto import generate_key
from adapters.postgres.engine.migrate import read_migrations
from tests.engine.releases import two_releases
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import gatehouse_in_new_interpreter
from tests.support import database

pytestmark = pytest.mark.slow

EMAIL: Final = "owner@gatehouse.example"
PASSWORD: Final = "correct horse battery staple"


def test_a_user_stays_signed_in_and_a_backup_can_be_restored(service: Start, home: Path) -> None:
    server = os.environ[database.SERVER_VARIABLE]
    old, new = two_releases(home / "release")
    before, after = (read_migrations(release.folder / "adapters/postgres") for release in (old, new))
    added = [migration.name for migration in after[len(before) :]]
    with database.Database(server, template="template1") as own, database.Database(server, template="template1") as empty:
        settings = {
            "SSO_DATABASE_URL": own.conninfo,
            "SSO_ENCRYPTION_KEYS": generate_key(),
            "SSO_PLATFORM_OWNER_EMAIL": EMAIL,
            "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD,
            "PYTHONPATH": str(old.folder),
        }
        upgraded = service(**settings).in_new_interpreter()
        upgraded.start()
        tokens = upgraded.login(EMAIL, PASSWORD)
        backup = gatehouse_in_new_interpreter(home, "backup", "create", "backup", **settings)
        assert backup.returncode == 0, backup.stderr
        upgraded.stop()

        settings["PYTHONPATH"] = upgraded.settings["PYTHONPATH"] = str(new.folder)
        upgraded.start()
        assert upgraded.get("/health").json()["version"] == new.version
        assert not added or upgraded.logged("migrated")[-1]["first"] == added[0]
        assert upgraded.get("/api/user", token=tokens["access_token"]).json()["email"] == EMAIL
        refreshed = upgraded.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        assert refreshed.status_code == 200, refreshed.text
        newer = gatehouse_in_new_interpreter(home, "backup", "create", "newer", **settings)
        assert newer.returncode == 0, newer.stderr
        upgraded.stop()

        settings |= {"SSO_DATABASE_URL": empty.conninfo, "PYTHONPATH": str(old.folder)}
        if added:
            refused = gatehouse_in_new_interpreter(home, "backup", "restore", "newer", **settings)
            assert (refused.returncode, "made by a newer release" in refused.stderr) == (1, True), refused.stderr
        settings["PYTHONPATH"] = str(new.folder)
        restored = gatehouse_in_new_interpreter(home, "backup", "restore", "backup", **settings)
        assert restored.returncode == 0, restored.stderr
        upgraded.settings["SSO_DATABASE_URL"] = empty.conninfo
        upgraded.start()
        assert upgraded.login(EMAIL, PASSWORD)
        upgraded.stop()

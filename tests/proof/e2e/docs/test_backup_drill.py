"""The drill in docs/operating/backup.md: back up a running service, lose its data, restore, and sign in."""

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest

from adapters.crypto import generate_key
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, parts
from tests.proof.e2e.docs.test_walks import OWNER, OWNER_PASSWORD
from tests.proof.e2e.docs.walk import Shell, Step, walk
from tests.proof.e2e.launcher import launcher
from tests.proof.e2e.process import CHEAP_HASHES, environment, gatehouse
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PAGE: Final = DOCS / "operating/backup.md"


def run_in_a_fork(home: Path, command: str, _: Shell) -> dict[str, str]:
    """Run a Gatehouse command without `./run`, because a new interpreter takes seconds."""
    done = gatehouse(home, *shlex.split(command), **CHEAP_HASHES)
    assert done.returncode == 0, f"{command}{done.stderr}"
    return {}


def test_the_drill_of_the_guide_works(service: Start, home: Path) -> None:
    running = service(**OWNER)
    running.start()

    def stop(_: Shell) -> dict[str, str]:
        assert running.stop() == 0
        return {}

    def start(_: Shell) -> dict[str, str]:
        assert (home / "var" / "encryption-keys").read_text() == (home / "var.lost" / "encryption-keys").read_text()
        running.settings = {name: value for name, value in running.settings.items() if name not in OWNER}
        running.start()
        return {}

    places = {"/srv/": f"{home}/srv/", "mv var var.lost": f"mv {home}/var {home}/var.lost"}
    (home / "srv").mkdir()
    steps: dict[str, Step] = {"stop": stop, "start": start}
    page = []
    for part in parts(PAGE):
        text = part.text
        for documented, here in places.items():
            text = text.replace(documented, here)
        before, is_command, command = text.partition("./run gatehouse ")
        page.append(replace(part, text=before))
        if is_command:
            page.append(replace(part, kind="step", name=command, text=""))
            steps[command] = partial(run_in_a_fork, home, command)
    with Shell(home, environment(home, api=running.address, OWNER_PASSWORD=OWNER_PASSWORD, **CHEAP_HASHES)) as shell:
        walk(shell, PAGE, page, steps, home)
        user = json.loads(shell.run('curl -s $api/api/user -H "$(bearer owner)"'))
    assert user["email"] == OWNER["SSO_PLATFORM_OWNER_EMAIL"]
    assert sorted(path.name for path in (home / "tmp").iterdir() if "scratch" in path.name) == []


def test_a_killed_backup_never_looks_complete(home: Path, own_database: dict[str, str]) -> None:
    conninfo = own_database["SSO_DATABASE_URL"]
    with psycopg.connect(conninfo) as other, (home / "output").open("w+b") as output:
        other.execute("lock table users")  # in the middle of the alphabet, so the backup has begun
        streams = [output.fileno()] * 3
        arguments = ["backup", "create", str(home / "backup"), "--keys", str(home / "keys")]
        process = launcher().launch(arguments, home=home, environment=environment(home, **own_database), streams=streams)
        with psycopg.connect(conninfo, autocommit=True) as watching:
            waits = "select from pg_locks where relation = 'users'::regclass and not granted"
            until(lambda: watching.execute(waits).fetchone() is not None, "the backup waits for the table")
        process.kill()
        process.wait()
    assert not (home / "backup").exists()
    assert not (home / "keys").exists()
    [partial] = home.glob(".backup.partial-*")
    refused = gatehouse(home, "backup", "restore", str(partial), **own_database)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"gatehouse: {partial} is not a complete backup: it has no backup.json.\n"


def test_a_backup_without_a_database_creates_nothing(home: Path) -> None:
    other_keys = {"SSO_ENCRYPTION_KEYS": generate_key()}
    refused = gatehouse(home, "backup", "create", str(home / "backup"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("gatehouse: ")
    assert list((home / "var").iterdir()) == []
    refused = gatehouse(home, "backup", "create", str(home / "backup"), **other_keys)
    assert "There is no database in" in refused.stderr

"""The user that runs the embedded server, and where its data and programs are."""

import os
import pwd
import shutil
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.engine.embedded import attach, location, programs, start
from entrypoints.addresses import require_installation
from entrypoints.settings import Settings
from tests.proof.embedded.kept_rows import kept_numbers, write

pytestmark = pytest.mark.slow

as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@as_root_only
def test_root_runs_the_server_as_another_user(initialized: Path) -> None:
    with start(initialized, durable=False) as running:
        assert Path(f"/proc/{running.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        assert initialized.stat().st_uid == pwd.getpwnam("nobody").pw_uid
        status = Path(f"/proc/{running.pid}/status").read_text()
    assert "Groups:\t \n" in status or "Groups:\t\n" in status  # without root's other groups


@as_root_only
def test_a_project_out_of_reach_has_its_database_in_the_fallback_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "FALLBACK_DIRECTORY", home / "elsewhere")
    clone = home / "clone"
    clone.mkdir(mode=0o700)
    data = clone / "var" / "postgres"
    with start(data, durable=False) as running:
        write(running.conninfo, 1)
        assert attach(data) == running.conninfo
        assert str(home / "elsewhere") in running.conninfo
        require_installation(Settings(data_dir=data.parent))  # as `gatehouse quickstart` does
    assert not data.exists()
    assert clone.stat().st_mode & 0o777 == 0o700
    with start(data, durable=False) as running:
        assert kept_numbers(running.conninfo) == [1]
    shutil.rmtree(clone / "var")  # deletes the service's keys, and with them its database
    with start(data, durable=False) as running, psycopg.connect(running.conninfo) as connection:
        assert connection.execute("select to_regclass('kept')").fetchone() == (None,)


@as_root_only
def test_programs_out_of_reach_are_copied(home: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "FALLBACK_DIRECTORY", home / "elsewhere")
    monkeypatch.delenv("PG_BINDIR", raising=False)
    directory = next(iter(programs._package_directories()), None)
    if directory is None:
        pytest.skip("the wheel with the programs is not installed")
    install, package = directory.parent, directory.parent.parent
    site = home / "site-packages"
    shutil.copytree(install, site / package.name / install.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(package.with_name(f"{package.name}.libs"), site / f"{package.name}.libs", symlinks=True)
    (site / package.name / install.name / "bin" / "postgres").chmod(0o700)  # as with the umask 077
    site.chmod(0o700)
    monkeypatch.setattr(programs, "_package_directories", lambda: iter([site / package.name / install.name / "bin"]))
    for _ in range(2):
        with start(data, durable=False) as running:
            write(running.conninfo, 1)
            assert str(home / "elsewhere") in os.readlink(f"/proc/{running.pid}/exe")
    assert len(list((home / "elsewhere" / "programs").iterdir())) == 1


@as_root_only
def test_an_ordinary_user_runs_the_server_as_that_user(home: Path, data: Path) -> None:
    # In a fork, because an interpreter under /root could not be started by another user.
    someone = pwd.getpwnam("daemon")
    os.chown(home, someone.pw_uid, someone.pw_gid)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(someone.pw_gid)
            os.setuid(someone.pw_uid)
            for number in (1, 2):
                with start(data, durable=False) as running:
                    assert Path(f"/proc/{running.pid}").stat().st_uid == someone.pw_uid
                    assert attach(data) == running.conninfo
                    write(running.conninfo, number)
            status = 0 if data.stat().st_uid == someone.pw_uid else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with start(data, durable=False) as running:  # root runs another user's database as that user
        assert kept_numbers(running.conninfo) == [1, 2]
        assert Path(f"/proc/{running.pid}").stat().st_uid == someone.pw_uid


def test_a_user_without_the_permission_to_enter_cannot_reach_a_path(home: Path) -> None:
    user = location.ServerUser("someone", 4242, 4343)
    (home / "a" / "b").mkdir(parents=True)
    (home / "a").chmod(0o711)
    assert user.can_reach(home / "a" / "b")
    (home / "a").chmod(0o700)
    assert not user.can_reach(home / "a" / "b")
    if os.geteuid() == 0:
        os.chown(home / "a", 4242, 0)
        assert user.can_reach(home / "a" / "b")
        os.chown(home / "a", 0, 4343)
        assert not user.can_reach(home / "a" / "b")
        (home / "a").chmod(0o010)
        assert user.can_reach(home / "a" / "b")

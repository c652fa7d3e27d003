"""Every file in a release, installed and run on a Debian without a network, and upgraded from the previous release."""

import json
import re
import shutil
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.release.bare_root import QUICK_PYTHON, BareRoot
from tests.release.conftest import Files
from tests.release.sandbox import PROBE, UNIT, allowed_calls, calls_of, open_points, sandboxed

EMAIL: Final = "owner@company.example"
PASSWORD: Final = "correct horse battery staple"
OWNER: Final = {"SSO_PLATFORM_OWNER_EMAIL": EMAIL, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD, "SSO_BASE_URL": "http://localhost:8080"}
PIP: Final = "/home/app/pip"


def sign_in(debian: BareRoot) -> dict[str, str]:
    status, tokens = debian.ask("POST", "/api/auth/login", {"email": EMAIL, "password": PASSWORD})
    assert status == 200, tokens
    return dict(tokens)


def check_that_the_user_is_still_signed_in(debian: BareRoot, tokens: dict[str, str]) -> None:
    assert debian.ask("GET", "/api/user", token=tokens["access_token"])[1]["email"] == EMAIL
    status, refreshed = debian.ask("POST", "/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})
    assert status == 200, refreshed


def unpack(debian: BareRoot, release: Files) -> str:
    """Unpack a release's archive in the home of `app`, and return its command."""
    name = f"gatehouse-{release.version}-linux-x86_64"
    shutil.copy(release.folder / f"{name}.tar.gz", debian.folder / "home/app")
    debian.run("tar", "-xzf", f"/home/app/{name}.tar.gz", "-C", "/home/app", user="app")
    debian.run("rm", f"/home/app/{name}.tar.gz")
    return f"/home/app/{name}/gatehouse"


def test_an_archive_starts_without_a_network_and_takes_over_the_data_of_the_release_before(
    debian: BareRoot, two_releases: tuple[Files, Files]
) -> None:
    old, new = (unpack(debian, release) for release in two_releases)
    check_that_faults_are_reported_in_sentences(debian, new)
    with debian.running(old, "serve", user="app", **OWNER, GATEHOUSE_PYTHON=QUICK_PYTHON):
        tokens = sign_in(debian)
    with debian.running(new, "serve", user="app", **OWNER):
        check_that_the_user_is_still_signed_in(debian, tokens)
        health = debian.ask("GET", "/health")[1]
        assert (health["version"], len(health["revision"])) == (two_releases[1].version, 40)
        doctor = debian.run(new, "doctor", user="app", succeeds=False, **OWNER).stdout
        assert "FAIL" not in doctor
    assert debian.run(new, "servve", user="app", succeeds=False).stderr.startswith(f"Usage: {new} [OPTIONS] ")
    check_that_only_processors_that_have_avx2_get_the_build_for_it(debian, new)
    debian.run("rm", "-r", "/home/app/.local")
    with debian.running(new, user="app") as output:
        [link] = re.findall(r"http://localhost:8080/auth/recover-owner\S+", output.read_text())
        assert debian.ask("GET", link)[0] == 200
    debian.run("rm", "-r", str(Path(new).parent), user="app")


def check_that_faults_are_reported_in_sentences(debian: BareRoot, command: str) -> None:
    debian.run("mount", "-t", "tmpfs", "-o", "size=4m", "none", "/mnt")
    process = debian.run(command, "--version", succeeds=False, GATEHOUSE_PACKAGES="/mnt/packages", GATEHOUSE_PYTHON="/usr/bin/perl")
    debian.run("umount", "/mnt")
    assert process.returncode == 1
    ignored, _, *reason = process.stderr.splitlines()
    assert ignored.startswith(
        "gatehouse: GATEHOUSE_PYTHON=/usr/bin/perl cannot be used: CPython 3.11 to 3.14 and glibc 2.28 or later are needed."
    )
    assert reason == [
        "gatehouse: no space is left in /mnt/packages. The packages need about 250 MB. Set GATEHOUSE_PACKAGES to a directory with space."
    ]


def check_that_only_processors_that_have_avx2_get_the_build_for_it(debian: BareRoot, command: str) -> None:
    debian.add_program("/home/app/python", '#!/bin/sh\n[ "$2" != -m ] || echo "$PYTHONPATH"\nexec /usr/bin/python3 "$@"\n')
    described = debian.folder / "root/cpuinfo"
    described.write_text("flags : avx avx2 bmi1 bmi2 f16c fma abm movbe\n")
    debian.run("mount", "--bind", "/root/cpuinfo", "/proc/cpuinfo")

    def modules(argon2: str = "") -> str:
        settings = ("GATEHOUSE_PYTHON=/home/app/python", f"GATEHOUSE_ARGON2={argon2}")
        return debian.run("env", *settings, command, "--version", user="app").stdout

    fast = str(Path(command).parent / "argon2-x86-64-v3")
    assert modules().startswith(f"{fast}:")
    assert fast not in modules("wheel")
    described.write_text("flags : avx bmi1 bmi2 f16c fma abm movbe\n")
    assert fast not in modules()
    debian.run("umount", "/proc/cpuinfo")


def test_a_debian_package_is_installed_upgraded_and_purged(debian: BareRoot, two_releases: tuple[Files, Files]) -> None:
    packages = [f"gatehouse_{release.version}_amd64.deb" for release in two_releases]
    for package, release in zip(packages, two_releases, strict=True):
        shutil.copy(release.folder / package, debian.folder / "root")
    old, new = (f"/root/{package}" for package in packages)
    assert "gatehouse owner link you@example.com" in debian.run("apt-get", "install", "--yes", old, GATEHOUSE_PYTHON=QUICK_PYTHON).stdout
    settings = debian.folder / "etc/gatehouse.env"
    assert settings.stat().st_mode & 0o777 == 0o600
    with settings.open("a") as file:
        file.write("".join(f"{name}='{value}'\n" for name, value in OWNER.items()))
    with debian.running("gatehouse", "serve"):
        tokens = sign_in(debian)
    debian.run("apt-get", "install", "--yes", new)
    assert OWNER["SSO_PLATFORM_OWNER_PASSWORD"] in settings.read_text(), "an upgrade keeps the settings"
    assert len(list((debian.folder / "usr/lib/gatehouse/packages").iterdir())) == 1, "the packages of the release before are removed"
    with debian.running("gatehouse", "serve"):
        check_that_the_user_is_still_signed_in(debian, tokens)
        assert "FAIL" not in debian.run("gatehouse", "doctor", succeeds=False).stdout
    check_that_the_service_runs_in_its_sandbox(debian)
    data = debian.folder / "var/lib/gatehouse/postgres"
    asked = debian.run("dpkg", "--purge", "gatehouse", typed="\n", DEBIAN_FRONTEND="readline", TERM="dumb").stdout
    assert "Remove all accounts and settings of Gatehouse?" in asked
    assert data.exists(), "without an answer, the data is kept"
    assert settings.exists()
    assert not (debian.folder / "usr/lib/gatehouse").exists()
    debian.run("dpkg", "--unpack", new)
    debian.run("sh", "-c", "echo gatehouse gatehouse/remove-data boolean true | debconf-set-selections")
    debian.run("dpkg", "--purge", "gatehouse", DEBIAN_FRONTEND="noninteractive")
    assert not data.exists()
    assert not settings.exists()
    assert debian.run("id", "gatehouse", succeeds=False).returncode != 0


def check_that_the_service_runs_in_its_sandbox(debian: BareRoot) -> None:
    """Serve as the unit does: no program in the package needs anything that the unit forbids."""
    unit, command = debian.folder / UNIT, "/usr/lib/gatehouse/gatehouse"
    needed = {
        "SystemCallFilter=~@resources",
        "PrivateNetwork=",
        "RestrictAddressFamilies=~AF_(INET|INET6)",
        "RestrictAddressFamilies=~AF_UNIX",
    }
    assert open_points(unit) == {*needed, "IPAddressDeny=", "RootDirectory=/RootImage=", "DeviceAllow="}
    assert {"setpriority", "sched_setscheduler"} == {*allowed_calls(unit)} & (calls_of("@privileged") | calls_of("@resources"))
    settings = {**OWNER, "SSO_DATA_DIR": "/var/lib/gatehouse"}
    debian.add_program("/usr/local/bin/python", '#!/bin/sh\n[ "$2" != -m ] || echo "$PYTHONPATH"\nexec /usr/bin/python3 "$@"\n')
    usual = debian.run(command, "--version", GATEHOUSE_PYTHON="/usr/local/bin/python").stdout
    with sandboxed(debian):
        assert debian.run(command, "--version", GATEHOUSE_PYTHON="/usr/local/bin/python").stdout == usual, "also the build of Argon2"
        refused = json.loads(debian.run("python3", "-c", PROBE).stdout)
        assert {name for name, is_refused in refused.items() if not is_refused} == {"lower priority", "batches"}
        with debian.running(command, "serve", **settings) as output:
            check_that_the_user_is_still_signed_in(debian, sign_in(debian))
            assert '"level":"error"' not in output.read_text()


def test_a_wheel_is_installed_beside_other_packages_and_upgraded(debian: BareRoot, two_releases: tuple[Files, Files]) -> None:
    """In an environment that `pipx` makes, and without our package that is called `core`."""
    environment = "/home/app/environment"
    command = f"{environment}/bin/gatehouse"
    debian.run("python3", "-m", "venv", "--without-pip", environment, user="app")
    old, new = (unpack(debian, release) for release in two_releases)
    unpack_pip(debian, new)
    install_wheel(debian, environment, old)
    with debian.running(command, "serve", user="app", **OWNER):
        tokens = sign_in(debian)
    install_wheel(debian, environment, new, "--upgrade")
    assert two_releases[1].version in debian.run(command, "--version", user="app").stdout
    assert debian.run(f"{environment}/bin/python", "-P", "-c", "import core", user="app", succeeds=False).returncode == 1
    with debian.running(command, "serve", user="app", **OWNER):
        check_that_the_user_is_still_signed_in(debian, tokens)
        assert "FAIL" not in debian.run(command, "doctor", user="app", succeeds=False, **OWNER).stdout
    debian.run("rm", "-r", "/home/app/.local")
    with debian.running(command, user="app") as output:
        assert "/auth/recover-owner?token=" in output.read_text()
    debian.run("rm", "-r", environment, user="app")


def unpack_pip(debian: BareRoot, archive: str) -> None:
    """Unpack an archive's pip. From files that it compiles once, it runs in half the time that it needs from its wheel."""
    [pip] = (debian.folder / archive.lstrip("/")).parent.glob("wheels/pip-*.whl")
    debian.run("python3", "-m", "zipfile", "-e", f"{Path(archive).parent}/wheels/{pip.name}", PIP, user="app")


def install_wheel(debian: BareRoot, environment: str, archive: str, *options: str) -> None:
    """Install an archive's wheel, as `pipx` does. The start compiles the modules that it imports."""
    install = ("install", "--no-index", "--no-compile", "--find-links", f"{Path(archive).parent}/wheels", *options, "gatehouse")
    debian.run("python3", f"{PIP}/pip", "--python", environment, *install, user="app")


def test_a_checkout_without_a_network_names_the_archive(debian: BareRoot) -> None:
    folder = debian.folder / "home/app/checkout"
    shutil.copytree(ROOT / "ops/requirements", folder / "ops/requirements")
    shutil.copy(ROOT / "run", folder)
    (debian.folder / "etc/apt/apt.conf.d/99retries").write_text('Acquire::Retries "0";\n')
    for user in ("app", None):  # root tries to install Debian's package
        process = debian.run("/home/app/checkout/run", user=user, succeeds=False)
        [line] = process.stderr.splitlines()
        assert process.returncode == 1
        assert "Without a network, use the archive of a release" in line

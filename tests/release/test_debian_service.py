"""The Debian package's service: when the package's scripts enable, start and stop it.

A program in place of systemctl(1) has the service's state, because the test's Debian has no systemd.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.release.bare_root import BareRoot
from tests.release.conftest import Shared

LINK: Final = "etc/systemd/system/multi-user.target.wants/gatehouse.service"
ACTIVE: Final = "run/gatehouse-is-active"
SYSTEMCTL: Final = f"""#!/bin/sh
for argument; do
    case $argument in
    preset) mkdir -p /{Path(LINK).parent} && ln -sf /usr/lib/systemd/system/gatehouse.service /{LINK} ;;
    is-enabled) [ -L /{LINK} ] && echo enabled || echo disabled ;;
    is-active) [ -e /{ACTIVE} ]; exit ;;
    start | restart) echo started >/{ACTIVE} ;;
    try-restart) [ ! -e /{ACTIVE} ] || echo restarted >/{ACTIVE} ;;
    stop) rm -f /{ACTIVE} ;;
    esac
done
"""
# The package's command without its wheels. Like the real program, it makes the packages' directory.
COMMAND: Final = """#!/bin/sh
mkdir -p "/usr/lib/gatehouse/packages/cp311-$(cksum </usr/lib/gatehouse/requirements.txt | tr ' ' -)"
"""


@dataclass(frozen=True)
class Machine:
    """A Debian with systemd, and Gatehouse's package without the wheels."""

    debian: BareRoot
    package: str

    @property
    def service(self) -> tuple[bool, str | None]:
        """Return whether the service is enabled, and how it became active, or None if it is not."""
        active = self.debian.folder / ACTIVE
        return (self.debian.folder / LINK).is_symlink(), active.read_text().strip() if active.exists() else None

    def install(self) -> tuple[bool, str | None]:
        """Install or upgrade the package, and return the service after it."""
        self.debian.run("dpkg", "--install", self.package)
        return self.service

    def remove(self, *, purge: bool = False) -> tuple[bool, str | None]:
        """Remove the package, and return the service after it."""
        self.debian.run("dpkg", "--purge" if purge else "--remove", "gatehouse", DEBIAN_FRONTEND="noninteractive")
        return self.service


@pytest.fixture(scope="session")
def small_package(shared: Shared, release: Path) -> Path:
    """The package without its wheels, and with COMMAND."""

    def make(folder: Path) -> None:
        [package] = release.glob("*_amd64.deb")
        folder.mkdir()
        subprocess.run(["dpkg-deb", "--raw-extract", package, folder / "files"], check=True)
        shutil.rmtree(folder / "files/usr/lib/gatehouse/wheels")
        (folder / "files/usr/lib/gatehouse/gatehouse").write_text(COMMAND)
        build = ("dpkg-deb", "--build", "--root-owner-group", "-Znone", folder / "files", folder / "small.deb")
        subprocess.run(build, check=True)

    return shared("small_package", make) / "small.deb"


@pytest.fixture
def machine(debian: BareRoot, small_package: Path) -> Machine:
    shutil.copy(small_package, debian.folder / "root")
    debian.add_program("/usr/bin/systemctl", SYSTEMCTL)
    (debian.folder / "run/systemd/system").mkdir(parents=True)
    return Machine(debian, f"/root/{small_package.name}")


def test_each_installation_enables_and_starts_the_service(machine: Machine) -> None:
    assert machine.install() == (True, "started")
    assert machine.install() == (True, "restarted"), "an upgrade"
    assert machine.remove()[1] is None
    assert machine.install() == (True, "started"), "after a removal"
    assert machine.remove(purge=True) == (False, None)
    assert not list((machine.debian.folder / "var/lib/systemd").rglob("*gatehouse*")), "a purge leaves nothing"
    assert machine.install() == (True, "started"), "after a purge"


def test_an_upgrade_leaves_the_service_as_the_operator_left_it(machine: Machine) -> None:
    machine.install()
    machine.debian.run("systemctl", "stop", "gatehouse.service")
    assert machine.install() == (True, None), "stopped"
    (machine.debian.folder / LINK).unlink()
    assert machine.install() == (False, None), "stopped and disabled"
    machine.debian.run("systemctl", "start", "gatehouse.service")
    assert machine.install() == (False, "restarted"), "disabled and started by hand"
    machine.remove()
    assert machine.install() == (False, None), "disabled, removed, and installed again"


def test_no_script_starts_the_service_where_the_policy_forbids_it(machine: Machine) -> None:
    """As when an image is built."""
    machine.debian.add_program("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    assert machine.install() == (True, None)


def test_an_upgrade_keeps_the_packages_that_a_process_uses_until_the_next_one(machine: Machine) -> None:
    machine.install()
    packages = "/usr/lib/gatehouse/packages"
    present = machine.debian.run("ls", packages).stdout.strip()
    upgrade = f"dpkg --install {machine.package} >&2 && ls {packages}"
    commands = (
        "set -e",
        f"mkdir {packages}/used {packages}/unused",
        f"cp /usr/bin/sleep {packages}/used/service",
        f"{packages}/used/service infinity & {upgrade}",
        f"kill $! && wait $! || {upgrade}",
    )
    assert machine.debian.run("sh", "-c", "\n".join(commands)).stdout.split() == [present, "used", present]

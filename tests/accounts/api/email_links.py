"""Registration, requests for reset links, and a query."""

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, deliver, link


async def register(api: Api, email: str = EMAIL, password: str = PASSWORD) -> Answer:
    return await api.post("/api/auth/register", {"email": email, "password": password})


async def request_reset(api: Api, ports: Ports, sent: FakeMailTransport, email: str = EMAIL) -> str:
    answer = await api.post("/api/auth/forgot-password", {"email": email})
    assert answer.status == 200
    await deliver(ports)
    return link(sent.newest("/auth/reset-password"))


async def query_value(pool: Pool, query: str, *parameters: object) -> object:
    async with pool.connection() as connection:
        row = await (await connection.execute(query, parameters)).fetchone()
        assert row is not None
        return row[0]

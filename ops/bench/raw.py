"""The raw costs, each in a process of its own: a bare application on a server, bare password verifications, bare signatures, bare posts;
and a receiver of posts that costs next to nothing.

python -m ops.bench.raw hypercorn | own | argon2 THREADS SECONDS MEMORY_KIB TIME_COST PARALLELISM | xmlsec SECONDS
                      | httpx ADDRESS AT_ONCE SECONDS | receiver
"""

import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
_HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"2")]


async def bare(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    """The least that an application can do: two bytes."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"ok"})


async def on_hypercorn() -> None:
    """Hypercorn's trio worker as it comes, with nothing set but the address."""
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = ["127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        application: Any = bare
        (address,) = await nursery.start(partial(serve, application, config))
        _tell(address=address)


async def on_our_server() -> None:
    """The server that the service itself uses."""
    import trio

    from entrypoints.http.edge.server import listen, serve_http

    listening = listen("127.0.0.1:0")
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    await serve_http(bare, listening, shutdown=trio.Event(), grace=1.0, on_started=lambda: _tell(address=address))


def verify(threads: int, seconds: float, memory_kib: int, time_cost: int, parallelism: int) -> None:
    """Verify passwords on so many threads; how many per second, and with which build of the library."""
    import _argon2_cffi_bindings
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
    password = b"correct horse battery staple"
    hashed = hasher.hash(password)
    counts = [0.0] * threads
    begin = threading.Barrier(threads)

    def work(which: int) -> None:
        begin.wait()
        started, done = time.perf_counter(), 0
        while time.perf_counter() < started + seconds:
            hasher.verify(hashed, password)
            done += 1
        counts[which] = done / (time.perf_counter() - started)  # the last one ends a little after its time

    workers = [threading.Thread(target=work, args=(which,)) for which in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    _tell(per_second=sum(counts), library=str(Path(str(_argon2_cffi_bindings.__file__)).parent.parent))


def sign(seconds: float) -> None:
    """Sign XML as SAML has it, RSA-SHA256 with a key of 2048 bits; how many signatures per second."""
    import xmlsec
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from lxml import etree

    made = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key = xmlsec.Key.from_memory(made, xmlsec.constants.KeyDataFormatPem)
    started, done = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        root = etree.fromstring(b'<Assertion xmlns="urn:x" ID="_1"><Subject>ada@bench.example</Subject></Assertion>')
        signature = xmlsec.template.create(root, xmlsec.constants.TransformExclC14N, xmlsec.constants.TransformRsaSha256)
        root.append(signature)
        reference = xmlsec.template.add_reference(signature, xmlsec.constants.TransformSha256, uri="#_1")
        xmlsec.template.add_transform(reference, xmlsec.constants.TransformEnveloped)
        xmlsec.template.add_transform(reference, xmlsec.constants.TransformExclC14N)
        context = xmlsec.SignatureContext()
        context.key = key
        context.register_id(root, "ID")
        context.sign(signature)
        done += 1
    _tell(per_second=done / (time.perf_counter() - started))


async def post(address: str, at_once: str, seconds: str) -> None:
    """Post what a delivery would, with httpx on Trio, so many at once; how many per second.

    Each of them with a client and a connection of its own, which is the fastest: a pool for all looks through all of them for each post.
    """
    import httpx
    import trio

    body, done = b"x" * 300, 0
    headers = {"Content-Type": "application/json", "webhook-id": "raw"}
    started = time.perf_counter()

    async def again_and_again() -> None:
        nonlocal done
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:  # noqa: S501  (reading authorities takes a while)
            while time.perf_counter() < started + float(seconds):
                (await client.post(address, content=body, headers=headers)).raise_for_status()
                done += 1

    async with trio.open_nursery() as nursery:
        for _ in range(int(at_once)):
            nursery.start_soon(again_and_again)
    _tell(per_second=done / (time.perf_counter() - started))


def receive() -> None:
    """Take posts, and tell at /seen when each `webhook-id` came first. Written to cost little, not to be right in every case."""
    import asyncio

    seen: dict[str, float] = {}

    class Receiver(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.waiting = transport, b""

        def data_received(self, data: bytes) -> None:
            self.waiting += data
            head, found, body = self.waiting.partition(b"\r\n\r\n")
            lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
            fields = {name.lower(): value for name, value in lines.items()}
            if not found or len(body) < int(fields.get(b"content-length", 0)):
                return
            self.waiting = b""
            if head.startswith(b"GET /seen"):
                said = json.dumps(seen).encode()
            else:
                seen.setdefault(fields.get(b"webhook-id", b"").decode(), time.time())
                said = b""
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
            if fields.get(b"connection") == b"close":
                self.transport.close()

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0, backlog=1000)
        _tell(address=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await server.serve_forever()

    asyncio.run(serve())


def _tell(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(what: str, *arguments: str) -> None:
    if what == "argon2":
        verify(*map(int, arguments))
    elif what == "xmlsec":
        sign(*map(int, arguments))
    elif what == "receiver":
        receive()
    else:
        import trio

        work: Any = {"hypercorn": on_hypercorn, "own": on_our_server, "httpx": post}[what]
        trio.run(work, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The raw costs, measured in separate processes.

These are a bare application on a server, password verifications, signatures and HTTP posts. There is also a cheap
receiver for posts.

python -m ops.bench.raw hypercorn | es256 | own | argon2 THREADS SECONDS MEMORY_KIB TIME_COST PARALLELISM | xmlsec SECONDS
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
    """Return two bytes, the minimum for an application."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"ok"})


async def on_hypercorn(application: Any = bare) -> None:
    """Serve on Hypercorn's Trio worker with default settings."""
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = ["127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(partial(serve, application, config))
        _print(address=address)


async def verifying_on_hypercorn() -> None:
    """Serve an application that verifies an ES256 signature per request, with a key that is loaded already."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    private, data = ec.generate_private_key(ec.SECP256R1()), bytes(69)  # the length that an assertion signs
    key, signature, algorithm = private.public_key(), private.sign(data, ec.ECDSA(SHA256())), ec.ECDSA(SHA256())

    async def verifying(scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] != "lifespan":
            key.verify(signature, data, algorithm)
        await bare(scope, receive, send)

    await on_hypercorn(verifying)


async def on_our_server() -> None:
    """Serve on Gatehouse's server."""
    import trio

    from entrypoints.http.edge.protocol.listening import listen
    from entrypoints.http.edge.protocol.server import Server
    from entrypoints.settings import KEEP_ALIVE

    listening = listen("127.0.0.1:0")
    address = f"http://127.0.0.1:{listening[0].getsockname()[1]}"
    never = trio.Event()
    server = Server(app=bare, keep_alive=KEEP_ALIVE)
    await server.serve(listening, shutdown=never, shutdown_grace=1.0, on_started=lambda: _print(address=address))


def verify(threads: int, seconds: float, memory_kib: int, time_cost: int, parallelism: int) -> None:
    """Verify passwords on `threads` threads, and print how many per second, and which library build."""
    import _argon2_cffi_bindings
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_kib, parallelism=parallelism)
    password = b"correct horse battery staple"
    hashed = hasher.hash(password)
    counts = [0.0] * threads
    begin = threading.Barrier(threads)

    def work(index: int) -> None:
        begin.wait()
        started, done = time.perf_counter(), 0
        while time.perf_counter() < started + seconds:
            hasher.verify(hashed, password)
            done += 1
        counts[index] = done / (time.perf_counter() - started)  # the last verification ends a little late

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    _print(per_second=sum(counts), library=str(Path(str(_argon2_cffi_bindings.__file__)).parent.parent))


def sign(seconds: float) -> None:
    """Sign XML as in SAML, with RSA-SHA256 and a 2048-bit key, and print how many signatures per second."""
    import xmlsec
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from lxml import etree

    pem = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key = xmlsec.Key.from_memory(pem, xmlsec.constants.KeyDataFormatPem)
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
    _print(per_second=done / (time.perf_counter() - started))


async def post(address: str, at_once: str, seconds: str) -> None:
    """Post the same data as a delivery, with httpx on Trio and `at_once` tasks, and print the number per second.

    Every task has its own client and connection, which is fastest: a shared pool searches all connections for every
    post.
    """
    import httpx
    import trio

    body, done = b"x" * 300, 0
    headers = {"Content-Type": "application/json", "webhook-id": "raw"}
    started = time.perf_counter()

    async def post_repeatedly() -> None:
        nonlocal done
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:  # noqa: S501  (loading certificate authorities takes a while)
            while time.perf_counter() < started + float(seconds):
                (await client.post(address, content=body, headers=headers)).raise_for_status()
                done += 1

    async with trio.open_nursery() as nursery:
        for _ in range(int(at_once)):
            nursery.start_soon(post_repeatedly)
    _print(per_second=done / (time.perf_counter() - started))


def receive() -> None:
    """Accept posts, and list at /seen when every `webhook-id` first came. This is fast, and not correct in every case."""
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
                content = json.dumps(seen).encode()
            else:
                seen.setdefault(fields.get(b"webhook-id", b"").decode(), time.time())
                content = b""
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
            if fields.get(b"connection") == b"close":
                self.transport.close()

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0, backlog=1000)
        _print(address=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await server.serve_forever()

    asyncio.run(serve())


def _print(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(measurement: str, *arguments: str) -> None:
    if measurement == "argon2":
        verify(*map(int, arguments))
    elif measurement == "xmlsec":
        sign(*map(int, arguments))
    elif measurement == "receiver":
        receive()
    else:
        import trio

        work: Any = {"hypercorn": on_hypercorn, "es256": verifying_on_hypercorn, "own": on_our_server, "httpx": post}[measurement]
        trio.run(work, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])

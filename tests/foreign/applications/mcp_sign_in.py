"""Sign in to an MCP server with the client from the package mcp or fastmcp, and call a tool before and after the access token expires.

The program prints the address that the user opens, and a line per call. Its client id is its metadata's address. Without a client id, it
registers itself.
"""

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import mcp
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

NAME, ADDRESS, PORT, CLIENT_ID = sys.argv[1], sys.argv[2], int(sys.argv[3]), (sys.argv[4:] or [None])[0]
CALLBACK = f"http://localhost:{PORT}/callback"


class Storage:
    """Tokens and the client in memory."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def show(address):
    print(address, flush=True)


async def wait_for_callback():
    """Return the response that the browser brings to the callback."""
    received = asyncio.get_running_loop().create_future()

    async def answer(reader, writer):
        if not (line := await reader.readline()):  # the test only looks whether this program listens
            writer.close()
            return
        query = parse_qs(urlsplit(line.split()[1].decode()).query)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        received.set_result(AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0]))

    async with await asyncio.start_server(answer, "localhost", PORT):
        return await received


@asynccontextmanager
async def connect_mcp():
    metadata = OAuthClientMetadata(client_name="mcp", redirect_uris=[CALLBACK], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(ADDRESS, metadata, Storage(), show, wait_for_callback, client_metadata_url=CLIENT_ID)
    async with create_mcp_http_client(auth=provider) as http, mcp.Client(streamable_http_client(ADDRESS, http_client=http)) as client:
        yield client


@asynccontextmanager
async def connect_fastmcp():
    import fastmcp
    from fastmcp.client.auth import OAuth

    # It opens the address with the program in the variable BROWSER.
    async with fastmcp.Client(ADDRESS, auth=OAuth(client_metadata_url=CLIENT_ID, callback_port=PORT)) as client:
        yield client


async def main():
    async with {"mcp": connect_mcp, "fastmcp": connect_fastmcp}[NAME]() as client:
        print((await client.call_tool("list_notes", {})).content[0].text, flush=True)
        real = time.time
        time.time = lambda: real() + 7200  # for the client, the access token has expired
        print((await client.call_tool("list_notes", {})).content[0].text, flush=True)


asyncio.run(main())

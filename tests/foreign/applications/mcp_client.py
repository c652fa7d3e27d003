"""Call an MCP server's tools with each of these tokens, through the client in the package fastmcp. Print a line per call."""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.auth import BearerAuth

TOOLS = ("list_notes", "add_note")


async def main(address: str, *tokens: str) -> None:
    for token in tokens:
        async with Client(address, auth=BearerAuth(token)) as client:
            for tool in TOOLS:
                try:
                    print((await client.call_tool(tool)).content[0].text)
                except Exception as error:
                    print(f"refused: {type(error).__name__}")


asyncio.run(main(*sys.argv[1:]))

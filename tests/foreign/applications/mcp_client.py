"""Call the tools of an MCP server with a token, with the client of the package mcp. Print a line for each."""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.auth import BearerAuth


async def main(address: str, token: str, *tools: str) -> None:
    async with Client(address, auth=BearerAuth(token)) as client:
        for tool in tools:
            try:
                print((await client.call_tool(tool)).content[0].text)
            except Exception as error:
                print(f"refused: {type(error).__name__}")


asyncio.run(main(*sys.argv[1:]))

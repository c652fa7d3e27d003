"""Well-known external clients, with the hosts of the documents that they publish.

A preset only saves typing: an admin may admit the same hosts by hand. A host belongs here when a public source shows a client ID
metadata document at it. The source and its date stand beside each preset, so that a change of the client changes one line.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPreset:
    """The clients of one product."""

    name: str  # in forms
    label: str
    hosts: tuple[str, ...]
    accepts_token_endpoint_audience: bool = False  # its assertions name the token endpoint


PRESETS: Final = (
    # The documents are /oauth/mcp-oauth-client-metadata, for the web and the apps, and /oauth/claude-code-client-metadata, at claude.ai.
    # Some clients name the first one at claude.com, where the product moves.
    # https://github.com/anthropics/claude-ai-mcp/issues/518 (2026-07-01), https://github.com/apify/mcpc/pull/187 (2026-04-17)
    ClientPreset(name="claude", label="Claude", hosts=("claude.ai", "claude.com")),
    # The documents are /oauth/client.json, and /oauth/ID/client.json for each connector. They prefer private_key_jwt, and their
    # assertions have the token endpoint as audience.
    # https://github.com/django-oauth/django-oauth-toolkit/issues/1857 (2026-09-20),
    # https://github.com/Artexis10/exomem/pull/380 (2026-08-07)
    ClientPreset(name="chatgpt", label="ChatGPT", hosts=("chatgpt.com",), accepts_token_endpoint_audience=True),
    # The document is /oauth/client-metadata.json. https://github.com/microsoft/vscode/issues/298300 (2026-02-27)
    ClientPreset(name="vscode", label="Visual Studio Code", hosts=("vscode.dev",)),
)

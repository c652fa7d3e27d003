"""Well-known external clients, with the hosts for the documents that they publish.

A preset only saves typing: an admin may admit the same hosts by hand. A host belongs here when a public source shows that it serves a
client ID metadata document. Every preset has its source and the date beside it, so that a changed client changes one line.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPreset:
    """The clients that belong to a product."""

    name: str  # in forms
    label: str
    hosts: tuple[str, ...]
    accepts_token_endpoint_audience: bool = False  # its assertions name the token endpoint


PRESETS: Final = (
    # The documents are /oauth/mcp-oauth-client-metadata, for the web and the apps, and /oauth/claude-code-client-metadata, at claude.ai.
    # Some clients name the first document at claude.com, where the product moves. https://github.com/anthropics/claude-ai-mcp/issues/518
    # (2026-07-01), https://github.com/apify/mcpc/pull/187 (2026-04-17)
    ClientPreset(name="claude", label="Claude", hosts=("claude.ai", "claude.com")),
    # The documents are /oauth/client.json, and /oauth/ID/client.json for every connector. These clients prefer private_key_jwt, and their
    # assertions have the token endpoint as audience. https://github.com/django-oauth/django-oauth-toolkit/issues/1857 (2026-09-20),
    # https://github.com/Artexis10/exomem/pull/380 (2026-08-07)
    ClientPreset(name="chatgpt", label="ChatGPT", hosts=("chatgpt.com",), accepts_token_endpoint_audience=True),
    # The document is /oauth/client-metadata.json. https://github.com/microsoft/vscode/issues/298300 (2026-02-27)
    ClientPreset(name="vscode", label="Visual Studio Code", hosts=("vscode.dev",)),
)

"""The documents that well-known clients publish at their addresses, as public sources show them.

The source and its date stand beside every document. When a client changes its document, a single constant here changes.
"""

from typing import Any, Final

CLAUDE: Final[dict[str, Any]] = {
    # https://github.com/sebadob/rauthy/issues/1644 (2026-07-16), https://github.com/keycloak/keycloak/issues/50362 (2026-06-26)
    "client_id": "https://claude.ai/oauth/mcp-oauth-client-metadata",
    "client_name": "Claude",
    "client_uri": "https://claude.ai",
    "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
CLAUDE_CODE: Final[dict[str, Any]] = {
    # https://github.com/anthropics/claude-code/issues/37767 (2026-03-23): without a port.
    # https://github.com/anthropics/claude-code/issues/64705 (2026-06-02): without application_type.
    "client_id": "https://claude.ai/oauth/claude-code-client-metadata",
    "client_name": "Claude Code",
    "client_uri": "https://claude.ai",
    "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
CHATGPT: Final[dict[str, Any]] = {
    # https://github.com/django-oauth/django-oauth-toolkit/issues/1845 (2026-08-26)
    "client_id": "https://chatgpt.com/oauth/client.json",
    "client_uri": "https://chatgpt.com/",
    "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
    "token_endpoint_auth_method": "private_key_jwt",
    "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "client_name": "ChatGPT",
    "logo_uri": "https://persistent.oaistatic.com/sonic/misc/openai-logo.png",
    "token_endpoint_auth_signing_alg": "RS256",
    "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
}
CHATGPT_CONNECTOR: Final[dict[str, Any]] = {
    # https://github.com/better-auth/better-auth/issues/10660 (2026-08-04): the connector's own document, which names only several
    # methods. https://github.com/Altinity/altinity-mcp/issues/118 (2026-05-15): its redirect URI.
    **{name: value for name, value in CHATGPT.items() if name != "token_endpoint_auth_method"},
    "client_id": "https://chatgpt.com/oauth/ZoZTx6U8hji2/client.json",
    "redirect_uris": ["https://chatgpt.com/connector/oauth/ZoZTx6U8hji2"],
}
VSCODE: Final[dict[str, Any]] = {
    # https://github.com/microsoft/vscode/issues/298300 (2026-02-27): the address and the logo.
    # https://code.visualstudio.com/api/extension-guides/ai/mcp (2026-09-08): the redirect URIs.
    # https://github.com/microsoft/vscode/pull/252226 (2025-06-23): application_type.
    "client_name": "Visual Studio Code",
    "logo_uri": "https://code.visualstudio.com/assets/branding/code-stable.png",
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "client_id": "https://vscode.dev/oauth/client-metadata.json",
    "client_uri": "https://vscode.dev/product",
    "redirect_uris": ["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
}

"""The external identity providers, over HTTP."""

from core.errors import ProviderFailed
from core.providers import Asking, Provider, ProviderClient, ProviderTokens, Vouched


class HttpProviders:
    """ports.outside.IdentityProviders."""

    def platform_client(self, provider: Provider) -> ProviderClient | None:
        return None

    def address(self, provider: Provider, asking: Asking) -> str:
        raise ProviderFailed(f"{provider.value} is not set up")

    async def vouch(self, provider: Provider, asking: Asking, code: str) -> Vouched:
        raise ProviderFailed(f"{provider.value} is not set up")

    async def refresh(self, provider: Provider, client: ProviderClient, refresh_token: str) -> ProviderTokens:
        raise ProviderFailed(f"{provider.value} is not set up")

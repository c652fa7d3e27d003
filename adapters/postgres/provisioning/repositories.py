"""The repositories of provisioning."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.provisioning.blocks import DirectoryBlocks
from adapters.postgres.provisioning.request_log import ScimRequests
from adapters.postgres.provisioning.tokens import ScimTokens
from adapters.postgres.provisioning.users import ScimUsers


class ProvisioningRepositories(Scope):
    """The repositories of provisioning, for every kind of access."""

    directory_blocks = repository(DirectoryBlocks)
    scim_requests = repository(ScimRequests)
    scim_tokens = repository(ScimTokens)
    scim_users = repository(ScimUsers)

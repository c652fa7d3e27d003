"""Declarations of the repositories of programs."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.programs.api_resources import ApiResources
from adapters.postgres.programs.created_secrets import CreatedSecrets
from adapters.postgres.programs.credentials import Credentials
from adapters.postgres.programs.program_clients import ProgramClients
from adapters.postgres.programs.service_accounts import ServiceAccounts


class ProgramsRepositories(Scope):
    """The repositories of programs, for every kind of access."""

    api_resources = repository(ApiResources)
    created_secrets = repository(CreatedSecrets)
    credentials = repository(Credentials)
    program_clients = repository(ProgramClients)
    service_accounts = repository(ServiceAccounts)

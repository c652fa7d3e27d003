"""Declarations of the repositories of programs."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.programs.service_accounts import ServiceAccounts


class ProgramsRepositories(Scope):
    """The repositories of programs, for every kind of access."""

    service_accounts = repository(ServiceAccounts)

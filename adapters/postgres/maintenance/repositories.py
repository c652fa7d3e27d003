"""The repositories of maintenance."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.maintenance.expiring_secrets import ExpiringSecrets
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases
from adapters.postgres.maintenance.sealed import SealedColumns


class MaintenanceRepositories(Scope):
    """The repositories of maintenance, for every kind of access."""

    expiring_secrets = repository(ExpiringSecrets)
    housekeeping = repository(Housekeeping)
    leases = repository(Leases)
    sealed = repository(SealedColumns)

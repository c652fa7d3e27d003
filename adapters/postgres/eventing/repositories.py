"""The repositories of eventing."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.eventing.audit import Audit
from adapters.postgres.eventing.deliveries import Deliveries
from adapters.postgres.eventing.logout_notices import LogoutNotices
from adapters.postgres.eventing.platform_log import PlatformLog
from adapters.postgres.eventing.siem import Siem
from adapters.postgres.eventing.webhooks import Webhooks


class EventingRepositories(Scope):
    """The repositories of eventing, for every kind of access."""

    audit = repository(Audit)
    deliveries = repository(Deliveries)
    logout_notices = repository(LogoutNotices)
    platform_log = repository(PlatformLog)
    siem = repository(Siem)
    webhooks = repository(Webhooks)

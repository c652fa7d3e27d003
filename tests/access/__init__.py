"""Who may call what, and that no tenant learns of another: the access matrix and the leak test, which every new route extends.

A new route gets a row in `MATRIX` (table.py), or in `SERVICE_INTERFACE` if it is for API keys, with the status for each kind of caller, and
a request in `REQUESTS` where a bare call would not succeed; without a row the tests say which one is missing, and from the row on the leak
test tries the route, too. A new kind of thing gets rows of its own in every tenant, with the tenant's slug in every text, and a name among
the tenant's `things` (`_add_tenant` in world.py): what `<name>` in a path and `{name}` in a request then mean. A new kind of caller is a
`Caller` in `make_world`, with a session or another credential, and a column of the table (`PEOPLE`, `KEYS`); the rival tenant's go among
the `SPIES` of test_leaks.py. A new access decorator is told to `refused_at_the_door` (test_matrix.py), which says where the table and the
decorators disagree. Where a new answer tells on purpose that something of another tenant exists, or more of it, `TOLD_ON_PURPOSE` or
`GIVEN_ON_PURPOSE` (test_leaks.py) has to say why. A new way to change an organization takes part in the storm (test_storm.py).
"""

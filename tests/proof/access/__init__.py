"""The access matrix and the leak test, which every new route extends.

A new route gets a row in `MATRIX` (table.py), with the status for every kind of caller. A route about an organization
or the platform also gets a row for service accounts (robots_table.py). A route for API keys gets a row in
`SERVICE_INTERFACE`, and a route that reads the browser's cookie gets a row in `PAGES`. It gets a request in `REQUESTS`
if it needs a body or special things. The tests name routes without a row, and the leak test tries all routes with a
row. If the answer depends on the resource, every variant has a row (`GET /api/user/devices/<device_id>#other`), and
`REFUSES_INSIDE` (test_matrix.py) gives the reason for refusals that the decorator does not make.

The leak test needs nothing for a new table: it finds the private texts in its rows, and adds a decoy row (decoys.py). The effect test needs
an entry: effects/rows.py lists how the table changes. A request changes something, and sends every powerless field, because its changes are
compared with its route's effect.

A new kind of thing gets rows in every tenant, with the tenant's slug in every text, and a name
among the tenant's `things` (`_add_tenant` in world.py), which replaces `<name>` in paths and
`{name}` in requests. Personal things are in belongings.py.

A new kind of caller is a `Caller` in `make_world`, with a session or another credential, and a table column (`PEOPLE`,
`KEYS`, `BROWSERS`). Callers from the rival tenant are added to `SPIES` (attempts.py).

A new access decorator is added to `decorator_refusal` (refusals.py). If a new response reveals or changes another
tenant's data on purpose, `EXISTENCE_SHOWN_ON_PURPOSE`, `DATA_SHOWN_ON_PURPOSE` or `CHANGED_ON_PURPOSE` (test_leaks.py)
gives the reason. A new way to change an organization or a shared account takes part in the storm (test_storm.py), and
new account invariants are added to `VIOLATIONS` there.
"""

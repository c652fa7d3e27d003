"""A database's catalog, to compare two catalogs."""

from typing import Any, Final

import psycopg

# Functions are compared without the comments in their bodies. Foreign keys have internal triggers.
_CATALOG: Final = r"""
    with ours as (select * from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S'))
    select 'relation', relname, '', concat_ws(' ', relkind, relpersistence, relispartition, reloptions::text, pg_get_partkeydef(oid),
        pg_get_expr(relpartbound, oid), case when relkind = 'v' then pg_get_viewdef(oid) end, obj_description(oid))
    from ours
    union all
    select 'column', relname, attname, concat_ws(' ', row_number() over (partition by c.oid order by attnum),
        format_type(atttypid, atttypmod), attcollation, attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid),
        col_description(c.oid, attnum))
    from ours c join pg_attribute a on attrelid = c.oid left join pg_attrdef d on adrelid = c.oid and adnum = attnum
    where attnum > 0 and not attisdropped
    union all
    select 'constraint', relname, conname, pg_get_constraintdef(k.oid) from pg_constraint k join ours c on c.oid = conrelid
    union all
    select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
    union all
    select 'trigger', relname, tgname, tgenabled::text || pg_get_triggerdef(t.oid) from pg_trigger t join ours c on c.oid = tgrelid
    where not tgisinternal
    union all
    select 'foreign keys', relname, tgenabled::text, count(*)::text from pg_trigger t join ours c on c.oid = tgrelid
    where tgisinternal group by relname, tgenabled
    union all
    select 'function', oid::regprocedure::text, '', regexp_replace(pg_get_functiondef(oid), '\s*--[^\n]*', '', 'g')
    from pg_proc where pronamespace = 'public'::regnamespace
    order by 1, 2, 3"""


def catalog(conninfo: str) -> list[tuple[Any, ...]]:
    """Return tables, views, sequences, columns, constraints, indexes, triggers and functions, as text."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(_CATALOG).fetchall()

-- A signing key is published before it signs. Null: it signs since its creation, as the keys of earlier releases do. The key before it has
-- its retirement time from the same moment, so that one key still has none.
alter table signing_keys add column signs_at timestamptz;

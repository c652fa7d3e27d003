-- A signing key is published before it signs. Null: it signs since its creation, as the keys of earlier releases do. The key before it has
-- its retirement time from the same moment, so that one key still has none.
alter table signing_keys add column signs_at timestamptz;

-- Processes of the previous release sign with a new key at once. So no key is old enough for a rotation by age while they can still run.
update signing_keys set signs_at = now() - interval '80 days' where retires_at is null and created_at < now() - interval '80 days';

-- The DPoP proofs that were used (RFC 9449 section 11.1; docs/adr/0033). The partitions are unlogged, so that a use waits for no disk. A
-- crash empties them and dpop_nonce_keys, and then no nonce from before is accepted. Each partition takes the proofs with a nonce of
-- one minute in ten, and is truncated some minutes later, so that nothing is left for a vacuum.
create table dpop_proofs (
    slot  smallint not null,  -- the minute of the nonce, modulo 10
    id    uuid not null,      -- the first 16 bytes of a hash over the key, the jti and the time of the nonce
    primary key (slot, id)
) partition by list (slot);
create unlogged table dpop_proofs_0 partition of dpop_proofs for values in (0);
create unlogged table dpop_proofs_1 partition of dpop_proofs for values in (1);
create unlogged table dpop_proofs_2 partition of dpop_proofs for values in (2);
create unlogged table dpop_proofs_3 partition of dpop_proofs for values in (3);
create unlogged table dpop_proofs_4 partition of dpop_proofs for values in (4);
create unlogged table dpop_proofs_5 partition of dpop_proofs for values in (5);
create unlogged table dpop_proofs_6 partition of dpop_proofs for values in (6);
create unlogged table dpop_proofs_7 partition of dpop_proofs for values in (7);
create unlogged table dpop_proofs_8 partition of dpop_proofs for values in (8);
create unlogged table dpop_proofs_9 partition of dpop_proofs for values in (9);

-- The secrets that make the nonces, for all processes.
create unlogged table dpop_nonce_keys (
    period  bigint primary key,  -- the hour since 1970
    secret  bytea not null
);

-- Empties a partition, unless it is empty or in use, for example by pg_dump. Returns whether it was emptied.
create function empty_dpop_proofs(slot integer) returns boolean language plpgsql as $$
declare
    name text := 'dpop_proofs_' || slot;
    has_rows boolean;
begin
    if pg_relation_size(name::regclass) = 0 then
        return false;
    end if;
    execute format('lock table %I in access exclusive mode nowait', name);
    execute format('select exists (select from %I)', name) into has_rows;
    execute format('truncate %I', name);
    return has_rows;
exception when lock_not_available then
    return false;
end $$;

-- What a service has set for a connection: its own OAuth client there, and the scopes that it requests.
create table service_connections (
    service_id     uuid not null references services on delete cascade,
    connection_id  uuid not null references connections on delete cascade,
    org_id         uuid not null,
    -- these three are null together: the service uses the client of the platform
    client_id      text,
    client_secret  bytea,  -- sealed
    updated_at     timestamptz,
    scopes         text[],  -- null: those of the platform
    primary key (service_id, connection_id),
    constraint service_connections_client_check check (num_nulls(client_id, client_secret, updated_at) in (0, 3))
);

-- Version 0.9.0 has the scopes in `services`, and the clients in `oauth_credentials`. The triggers copy in both
-- directions while it still runs. The next release drops them with these columns and this table.
create function copy_scopes_of_previous_release() returns trigger language plpgsql as $$
begin
    insert into service_connections (service_id, connection_id, org_id, scopes)
    select new.id, c.id, new.org_id, s.scopes
    from (values ('codehost', new.codehost_scopes), ('websuite', new.websuite_scopes), ('officesuite', new.officesuite_scopes))
        s (slug, scopes)
    join connections c on c.slug = s.slug
    where s.scopes is not null
       or tg_op = 'UPDATE' and exists (select from service_connections x where x.service_id = new.id and x.connection_id = c.id)
    on conflict (service_id, connection_id) do update set scopes = excluded.scopes;
    return null;
end $$;
create trigger copy_scopes_of_previous_release after insert or update of codehost_scopes, websuite_scopes, officesuite_scopes on services
    for each row when (pg_trigger_depth() = 0) execute function copy_scopes_of_previous_release();

insert into service_connections (service_id, connection_id, org_id, scopes)
select v.id, c.id, v.org_id, s.scopes
from services v
cross join lateral (values ('codehost', v.codehost_scopes), ('websuite', v.websuite_scopes), ('officesuite', v.officesuite_scopes))
    s (slug, scopes)
join connections c on c.slug = s.slug
where s.scopes is not null;

create function copy_connection_to_previous_release() returns trigger language plpgsql as $$
declare
    connection text := (select slug from connections where id = new.connection_id);
begin
    if new.scopes is distinct from old.scopes then
        update services set
            codehost_scopes = case connection when 'codehost' then new.scopes else codehost_scopes end,
            websuite_scopes = case connection when 'websuite' then new.scopes else websuite_scopes end,
            officesuite_scopes = case connection when 'officesuite' then new.scopes else officesuite_scopes end
        where id = new.service_id;
    end if;
    if new.client_id is not null then
        insert into oauth_credentials (service_id, provider, org_id, client_id, client_secret, updated_at)
        values (new.service_id, connection, new.org_id, new.client_id, new.client_secret, new.updated_at)
        on conflict (service_id, provider) do update set
            client_id = excluded.client_id, client_secret = excluded.client_secret, updated_at = excluded.updated_at;
    elsif old.client_id is not null then
        delete from oauth_credentials where service_id = new.service_id and provider = connection;
    end if;
    return null;
end $$;
create trigger copy_connection_to_previous_release after insert or update on service_connections
    for each row when (pg_trigger_depth() = 0) execute function copy_connection_to_previous_release();

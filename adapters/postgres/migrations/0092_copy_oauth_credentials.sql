-- Apart from the one before, so that no transaction waits for two tables.
create function copy_credentials_of_previous_release() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        update service_connections set client_id = null, client_secret = null, updated_at = null
        where service_id = old.service_id and connection_id = (select id from connections where slug = old.provider);
        return null;
    end if;
    insert into service_connections (service_id, connection_id, org_id, client_id, client_secret, updated_at)
    select new.service_id, c.id, new.org_id, new.client_id, new.client_secret, new.updated_at from connections c where c.slug = new.provider
    on conflict (service_id, connection_id) do update set
        client_id = excluded.client_id, client_secret = excluded.client_secret, updated_at = excluded.updated_at;
    return null;
end $$;
create trigger copy_credentials_of_previous_release after insert or update or delete on oauth_credentials
    for each row when (pg_trigger_depth() = 0) execute function copy_credentials_of_previous_release();

alter table oauth_credentials drop constraint oauth_credentials_provider_check;
insert into service_connections (service_id, connection_id, org_id, client_id, client_secret, updated_at)
select o.service_id, c.id, o.org_id, o.client_id, o.client_secret, o.updated_at
from oauth_credentials o join connections c on c.slug = o.provider
on conflict (service_id, connection_id) do update set
    client_id = excluded.client_id, client_secret = excluded.client_secret, updated_at = excluded.updated_at;

-- The issuer of all tokens, as the last start set it. Clients and access tokens have stored it, so a start only accepts
-- another spelling of the same server if the installation uses it already (decision 395).
create table issuer (
    is_only  boolean primary key default true check (is_only),
    url      text not null
);

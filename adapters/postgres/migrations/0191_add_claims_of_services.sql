-- Which claims the tokens of an application have, and their sources. Without a row it gets the standard claims.
create table service_claims (
    service_id  uuid primary key references services on delete cascade,
    org_id      uuid not null,
    document    jsonb not null,  -- core/authentication/model/claim_document.py
    sources     text[] not null,  -- of the values: attribute, directory
    changed_at  timestamptz not null
);
create sequence service_claim_versions;
-- The version of the document, beside the other facts that each token needs. Null: there is none.
alter table services add column claims_version bigint;

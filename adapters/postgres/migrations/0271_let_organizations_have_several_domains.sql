alter table domains drop constraint domains_pkey;
alter table domains add constraint domains_pkey primary key using index domains_key;

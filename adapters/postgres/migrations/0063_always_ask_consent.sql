alter table services add column always_ask_consent boolean not null default false;

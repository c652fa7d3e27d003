alter table services validate constraint services_check;

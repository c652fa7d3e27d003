alter table users validate constraint users_origin_check;

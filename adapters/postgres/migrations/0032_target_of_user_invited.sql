-- The target id of user.invited is that of the invitation, so its target type is, too.
update audit_log set target_type = 'invitation' where action = 'user.invited' and target_type = 'user';
with renamed as (
    delete from audit_totals where action = 'user.invited' and target_type = 'user' returning org_id, total)
insert into audit_totals as t (org_id, action, target_type, total) select org_id, 'user.invited', 'invitation', total from renamed
on conflict (org_id, action, target_type) do update set total = t.total + excluded.total;

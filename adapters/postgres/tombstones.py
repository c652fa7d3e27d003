"""Removing what was recorded of organizations that are gone: in the transaction that deletes one, and by the housekeeper."""

from typing import LiteralString


def removing_records(of: LiteralString) -> LiteralString:
    """The beginning of a statement that removes at most %(limit)s records of the organizations whose ids `of` selects.

    `records` has a row for each that is removed.
    """
    # One organization after the other, each in the order of an index, and the rows themselves by an array of their ids: so the planner
    # reads by index, however few organizations there are and however much it therefore expects to find. What somebody else is writing
    # this moment is skipped: whoever deletes an organization holds locks that others may be waiting for.
    return f"""
        with gone as ({of}),
        of_log as (
            delete from audit_log where id = any(array(
                select l.id from gone cross join lateral (
                    select id from audit_log where org_id = gone.id
                    order by created_at desc, id desc limit %(limit)s for update skip locked) l
                limit %(limit)s))
            returning 1),
        of_events as (
            delete from events where id = any(array(
                select e.id from gone cross join lateral (
                    select id from events where org_id = gone.id
                    order by name limit %(limit)s for update skip locked) e
                limit %(limit)s - (select count(*) from of_log)))
            returning 1),
        of_logins as (
            delete from login_events where id = any(array(
                select l.id from gone cross join lateral (
                    select id from login_events where org_id = gone.id
                    order by created_at desc limit %(limit)s for update skip locked) l
                limit %(limit)s - (select count(*) from of_log) - (select count(*) from of_events)))
            returning 1),
        of_totals as (
            delete from audit_totals where (org_id, action, target_type) in (
                select t.org_id, t.action, t.target_type from gone cross join lateral (
                    select org_id, action, target_type from audit_totals where org_id = gone.id
                    order by action, target_type limit %(limit)s for update skip locked) t
                limit %(limit)s - (select count(*) from of_log) - (select count(*) from of_events) - (select count(*) from of_logins))
            returning 1),
        records as (
            select 1 from of_log union all select 1 from of_events union all select 1 from of_logins union all select 1 from of_totals)"""

-- The rights on the procedures of the queue emails. Roles need none on its tables.
-- As producer: push, push_many, push_each, cancel.
grant usage on schema public to "web";
grant execute on routine public.tq_emails_push to "web";
grant execute on routine public.tq_emails_push_many to "web";
grant execute on routine public.tq_emails_push_each to "web";
grant execute on routine public.tq_emails_cancel to "web";
-- As consumer: pop, take, look, wait, complete, fail, release, extend.
grant usage on schema public to "worker";
grant execute on routine public.tq_emails_pop to "worker";
grant execute on routine public.tq_emails_take to "worker";
grant execute on routine public.tq_emails_look to "worker";
grant execute on routine public.tq_emails_wait to "worker";
grant execute on routine public.tq_emails_complete to "worker";
grant execute on routine public.tq_emails_fail to "worker";
grant execute on routine public.tq_emails_release to "worker";
grant execute on routine public.tq_emails_extend to "worker";
-- As observer: stats, peek, history.
grant usage on schema public to "board";
grant execute on routine public.tq_emails_stats to "board";
grant execute on routine public.tq_emails_peek to "board";
grant execute on routine public.tq_emails_history to "board";

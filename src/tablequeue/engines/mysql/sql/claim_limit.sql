-- How many messages a claim may claim, if no limit allows fewer, and its time. In the packet of a claim.
-- Locks: none.
select :n, {now} into @tq_n, @tq_now;

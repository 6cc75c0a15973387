-- Drop the ranges of a subscription. In one transaction with its queue: a crash leaves all or nothing.
drop table if exists {ranges};

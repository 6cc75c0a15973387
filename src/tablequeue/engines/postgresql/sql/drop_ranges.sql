-- Drop the ranges of a subscription. In one transaction with its queue: a crash leaves all or nothing.
drop function if exists {claim_range};
drop function if exists {read_range};
drop function if exists {pump_range};
drop table if exists {ranges};

-- Note the slot of the group that was served last. In the transaction of the claim: a rollback leaves it as it was.
update {ring} set served = :served;

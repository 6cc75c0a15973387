-- The creators' lock: one at a time makes tables in a database, until its transaction ends; without a transaction it
-- is refused (-999). IF OBJECT_ID ... IS NULL alone lets two through at once, and no row lock can say it: there is no
-- row yet.
declare @granted int;
exec @granted = sp_getapplock
    @Resource = N'tablequeue', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
if @granted = -999
    throw 51001, N'There is no transaction. Give the text one: begin it, run all of this, and commit.', 1;
if @granted < 0
    throw 51000, N'tablequeue: another program is creating or dropping queues in this database', 1;

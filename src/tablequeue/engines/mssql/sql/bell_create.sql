-- A doorbell for the queue, by Service Broker, for consumers of your own: in it lies a message while nobody has looked
-- since a push. The database must have ENABLE_BROKER, which Azure SQL Database has not. A crash leaves nothing.
create queue {queue}__bell with status = on, poison_message_handling (status = off);
create service [{queue}__bell] on queue {queue}__bell ([DEFAULT]);

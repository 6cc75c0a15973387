-- Create a Service Broker queue by which pushes notify consumers of your own. It holds a notification while no consumer
-- has looked for messages since a push. The database must have ENABLE_BROKER, which Azure SQL Database does not have.
-- A crash leaves nothing.
create queue {queue}__notify with status = on, poison_message_handling (status = off);
create service [{queue}__notify] on queue {queue}__notify ([DEFAULT]);

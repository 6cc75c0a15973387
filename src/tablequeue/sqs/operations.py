"""The operations of SQS, by name. A test compares them with the service model."""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.sqs import finishing, moves, permissions, queues, receiving, sending, tags
from tablequeue.sqs.endpoint import Operation

OPERATIONS: Mapping[str, Operation] = {
    "AddPermission": permissions.add_permission,
    "CancelMessageMoveTask": moves.cancel_message_move_task,
    "ChangeMessageVisibility": finishing.change_message_visibility,
    "ChangeMessageVisibilityBatch": finishing.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": finishing.delete_message,
    "DeleteMessageBatch": finishing.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": queues.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moves.list_message_move_tasks,
    "ListQueueTags": tags.list_queue_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": queues.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": permissions.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": moves.start_message_move_task,
    "TagQueue": tags.tag_queue,
    "UntagQueue": tags.untag_queue,
}

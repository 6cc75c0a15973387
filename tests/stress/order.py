"""The order of strict queues and of groups: no message overtakes an earlier one."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf

from tests.stress.mix import ordered
from tests.stress.story import Claim, Message, Story
from tests.stress.violation import Violation

Group = tuple[str, str | None]


def groups_of(story: Story) -> dict[Group, list[Message]]:
    """Return the messages of each group. A strict queue is one group."""
    groups: dict[Group, list[Message]] = defaultdict(list)
    for message in story.messages.values():
        if ordered(message.queue) and message.push:
            groups[message.queue, message.new.group].append(message)
    return groups


def overtaken(story: Story) -> Iterator[Violation]:
    """Check that no message is popped while another is live that certainly existed before its push began."""
    for (queue, _), messages in groups_of(story).items():
        waiting = sorted(messages, key=lambda message: message.live_from, reverse=True)
        there: list[tuple[float, str]] = []
        for message, claim in sorted(_claims(messages), key=lambda pair: pair[1].op.end):
            while waiting and waiting[-1].live_from < message.op.begin:
                one = waiting.pop()
                heappush(there, (one.live_from, one.uid))
            while there and _over(story.messages[there[0][1]], claim):
                heappop(there)
            for since, uid in there[:1]:
                if uid != message.uid and since < message.op.begin and not _taken_with(story.messages[uid], claim):
                    text = f"{message.uid} (id {message.id}) overtook {uid} (id {story.messages[uid].id})"
                    yield Violation("overtaken", text, queue, (uid, message.uid), claim.op.begin)


def _over(message: Message, claim: Claim) -> bool:
    """Return whether the message may be finished or a dead letter at the time of the claim."""
    return message.surely_until <= claim.op.end


def _taken_with(message: Message, claim: Claim) -> bool:
    """Return whether it was taken earlier in the same transaction. With one writer, the next one is free then."""
    return any(claim.op.txn and other.op.txn == claim.op.txn and other.takes for other in message.claims)


def _claims(messages: list[Message]) -> Iterator[tuple[Message, Claim]]:
    for message in messages:
        for claim in message.claims:
            yield message, claim


def out_of_turn(story: Story) -> Iterator[Violation]:
    """Check that the next head of a group is the lowest id among those that are committed.

    It becomes the head when the previous one is finished, or when the first message of an idle group is committed.
    """
    for (queue, _), messages in groups_of(story).items():
        turns = sorted(
            act.effect.begin
            for message in messages
            for claim in message.claims
            for act in claim.acts
            if act.effect.sure and (act.verb == "complete" or act.op.state == "dead")
        )

        def turn(message: Message, claim: Claim, turns: list[float] = turns) -> float:
            before = bisect_right(turns, claim.op.earliest)
            return max(turns[before - 1] if before else -inf, message.push.begin if message.push else inf)

        for message, claim, lower in _lower(story, messages, turn):
            text = (
                f"id {message.id} ({message.uid}) was popped, and id {lower.id} ({lower.uid}) was there before its turn"
            )
            yield Violation("out of turn", text, queue, (lower.uid, message.uid), claim.op.begin)


def _lower(
    story: Story, messages: list[Message], turn: Callable[[Message, Claim], float]
) -> Iterator[tuple[Message, Claim, Message]]:
    """Return claims of a group while a lower id was certainly live and had existed before the claim."""
    by_id: list[tuple[int, float, str]] = []
    for message in messages:
        if message.id is not None and message.live_from < inf and not message.redrives:
            insort(by_id, (message.id, message.live_from, message.uid))
    first = 0
    for message, claim in sorted(_claims(messages), key=lambda pair: pair[1].op.end):
        while first < len(by_id) and _over(story.messages[by_id[first][2]], claim):
            first += 1  # finished for all later claims too
        for id, since, uid in by_id[first:]:
            if message.id is None or id >= message.id:
                break
            one = story.messages[uid]
            if since < turn(message, claim) and not _over(one, claim) and not _taken_with(one, claim):
                yield message, claim, one

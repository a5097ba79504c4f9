"""A failed delivery: which client had the message, what it states, and its rule for a redelivery."""

from __future__ import annotations

from typing import Final, NamedTuple

from sievemq_broker.domain.policy import delay_after


class Party(NamedTuple):
    """A client, by the names that the broker knows it by.

    Attributes:
        connection: id of its connection; empty if none is known.
        client_id, user: None for none.
        address: of its end of the connection; empty if none is known.
    """

    connection: str = ""
    client_id: str | None = None
    user: str | None = None
    address: str = ""


NOBODY: Final = Party()


class Failure(NamedTuple):
    """What is known of a failure, beside the fact.

    Attributes:
        reject: the message becomes a dead letter, however few attempts there were.
        text: the reason, for the dead letter; empty for none.
        attempts: after which it becomes a dead letter. The rule of the client, with the next three, takes the place of
            the destination's. 0: the destination's rule holds.
        delay: ms until the message is delivered again after its first attempt.
        factor: by which the delay grows with each further attempt.
        delay_max: ms, upper bound of the grown delay.
        party: the client that had the message.
        consumer: its number of the consumer; 0 for none.
    """

    reject: bool = False
    text: str = ""
    attempts: int = 0
    delay: int = 0
    factor: float = 1.0
    delay_max: int = 0
    party: Party = NOBODY
    consumer: int = 0

    def by(self, party: Party, consumer: int, text: str = "") -> Failure:
        """The same, of this client.

        Args:
            consumer: its number of the consumer.
            text: the reason, unless the client states one.
        """
        return self._replace(party=party, consumer=consumer, text=self.text or text)

    def limit(self, most: int) -> int:
        """After how many attempts the message becomes a dead letter; 0 for never.

        Args:
            most: the same by the rule of the destination.
        """
        return self.attempts or most

    def delay_after(self, attempts: int, delay: int) -> int:
        """Ms that the message waits after its `attempts`-th failed delivery.

        Args:
            delay: the same by the rule of the destination.
        """
        return delay_after(attempts, self.delay, self.factor, self.delay_max) if self.attempts else delay


PLAIN: Final = Failure()
"""The client states nothing more."""
FOR_GOOD: Final = Failure(reject=True)

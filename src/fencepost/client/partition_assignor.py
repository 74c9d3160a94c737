"""Custom assignors for groups of the classic protocol (KIP-54, KIP-429): the interface and its data.

The built-in assignors implement the same interface (`group/assignors.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client.types import GroupMetadata, TopicPartition

_NO_GENERATION: Final = -1


class Subscription(NamedTuple):
    """The subscription of a group's member. `owned` has the current (cooperative) or former (sticky) partitions.

    `generation` is the group's generation in which the member owned them, or -1.
    """

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = _NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None  # of the member's assignor
    instance_id: str | None = None  # of a static member (KIP-345)


class Assignment(NamedTuple):
    """The partitions that a member gets, with data of the leader's assignor for the member's assignor."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


class PartitionAssignor(ABC):
    """A strategy for the leader of a classic group, passed in the setting `partition_assignment_strategy`.

    It corresponds to Java's ConsumerPartitionAssignor. Each consumer needs its own object, because an object may have
    a state. The methods run in another thread than the application, one at a time, and hold up the group only.

    Attributes:
        name: Name of the protocol in the group. All members need an assignor with the same name.
        cooperative: Members keep their partitions during a rebalance (KIP-429). It takes effect if all assignors of the
            consumer are cooperative. The client withholds a partition from its new owner until the old owner has given
            it up, so `assign` returns the final assignment.
    """

    name: str
    cooperative: bool = False

    @abstractmethod
    def assign(
        self, subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]
    ) -> Mapping[str, Assignment]:
        """Assign the partitions. Only the leader of the group calls it.

        An assignment that gives a partition to two members, to an unknown member or to a member without a subscription
        to the topic fails as a whole, as an exception does: the next poll raises GroupConfigurationError. Partitions
        without a member are logged as a warning.

        Args:
            subscriptions: The subscription of each member, by member id.
            partitions: The number of partitions of each subscribed topic that exists.

        Returns:
            The assignment of each member, by member id. A member that is missing gets no partitions.
        """

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return the data that this member sends with its subscription to `topics`; the leader's `assign` gets it."""
        return None

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: B027 (optional)
        """Handle the assignment of this member, before the rebalance listener does. Exceptions are logged.

        It is called if the group chose this assignor. `metadata` has the group's new generation and the member id.
        """

"""Not run: each line marked "error" has to be refused by a type checker."""

from __future__ import annotations

import fencepost


def wrong(producer: fencepost.Producer, admin: fencepost.Admin) -> None:
    fencepost.Producer("localhost:9092", linger_msx=1)  # error
    fencepost.Producer("localhost:9092", linger_ms="soon")  # error
    fencepost.Consumer("localhost:9092", compression_type="zstd")  # error
    producer.send("t", "text")  # error
    producer.send("t", b"v", headers=[("a", 1)])  # error
    producer.send_offsets_to_transaction({("t", 0): "7"}, "g")  # error
    admin.create_topic(7)  # error
    admin.delete_records({fencepost.TopicPartition("t", 0): "all"})  # error

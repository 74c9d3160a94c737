"""Draw docs/ui.png: `fencepost ui` about a broker with a bit of everything.

python -m tools.screenshot [FILE]
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import fencepost
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.server import Page
from tests.support.chromium import chromium

FILE = Path(__file__).parents[1] / "docs" / "ui.png"
LOOKS = 24
EVERY_S = 0.5
UNTIL_FINDINGS_S = 61  # a prepared transaction is a finding at this age
WAVES = (3, 4, 6, 9, 11, 10, 8, 7, 7, 9, 12, 14)


def main() -> None:
    """Makes the broker busy, and draws when the line is long enough."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    with ExitStack() as stack:
        broker = stack.enter_context(fencepost.Broker({"transaction.two.phase.commit.enable": True}))
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            for topic, partitions in (("orders", 12), ("payments", 6), ("shipments", 6), ("clicks", 24)):
                admin.create_topic(topic, partitions)
        for number, topic in ((7, "payments"), (3, "orders")):
            leave_prepared(servers, f"billing-{number}", topic)
        time.sleep(UNTIL_FINDINGS_S)
        group = stack.enter_context(fencepost.Consumer(servers, group_id="warehouse"))
        group.subscribe(["orders"])
        group.poll(1000)
        page = Page([PageCluster({"bootstrap.servers": servers})], every_s=EVERY_S)
        stack.callback(page.close)
        producer = stack.enter_context(fencepost.Producer(servers))
        browser = stack.enter_context(chromium())
        tab = browser.new_page(viewport={"width": 1000, "height": 680}, color_scheme="light")
        tab.goto(page.address)
        for look in range(LOOKS):
            for _ in range(40 * WAVES[look % len(WAVES)]):
                producer.send("clicks", b"x")
            producer.flush()
            time.sleep(EVERY_S)
            if look == LOOKS - 1:
                tab.screenshot(path=file)


def leave_prepared(servers: str, transactional_id: str, topic: str) -> None:
    """A transaction whose owner went away before he decided it."""
    with fencepost.Producer(servers, transactional_id=transactional_id, two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=number)
        producer.prepare_transaction()


if __name__ == "__main__":
    main()

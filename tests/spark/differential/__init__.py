"""Compare our source with Spark's own Kafka connector: every option, in every state of a topic.

    python -m tests.spark.differential                all cells, and what differs
    python -m tests.spark.differential --only TEXT    the cells whose name contains TEXT
    python -m tests.spark.differential --resume FILE  keep the outcomes in FILE, and go on after Ctrl-C

A cell is a state of a topic (states.py), a way of reading (a batch, or a stream under some trigger) and a set of
options (cases.py). One Spark session (driver.py) runs each cell with both connectors. docs/differences-from-spark.md
lists the differences there are (known.py); the run fails for a difference that the page lacks, and for a row of the
page that no cell shows any more.
"""

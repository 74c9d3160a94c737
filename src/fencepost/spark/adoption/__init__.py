"""Moving a query between Spark's own Kafka connector and this one, with its checkpoint and its state.

    checkpoint.py   Spark's checkpoint as facts, or the reason why it cannot be moved          (pure)
    judgement.py    a begun batch beside the end of the output topic, row by row                (pure)
    plans.py        from these facts to the records that the decision topic needs               (pure)
    batch_rows.py   the rows of the begun batch, computed by the query itself
    tail.py         the end of the output topic, read from the brokers
    fill.py         the rows of a begun batch that the output lacks, written in one transaction
    move.py         looks, plans, asks, writes

Nothing is ever written into the checkpoint: both sources write the same offsets, and the state is Spark's. The move is
one or two records in the decision topic, so a move that is killed is repeated, and ends in the same state.
"""

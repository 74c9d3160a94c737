"""Move a query between Spark's own Kafka connector and this one, with its checkpoint and its state.

    checkpoint.py   parse Spark's checkpoint, or explain why the query cannot be moved          (pure)
    judgement.py    compare a begun batch with the end of the output topic, row by row          (pure)
    plans.py        derive the records that the decision topic needs                            (pure)
    batch_rows.py   let the query compute the rows of the begun batch
    tail.py         read the end of the output topic from the brokers
    fill.py         write the missing rows of a begun batch in one transaction
    move.py         collect the facts, plan the move, carry it out
    replan.py       take back the plan of a batch of which the sink has written nothing

A move never writes into the checkpoint: both sources write offsets of the same form, and the state belongs to Spark. A
move writes one or two records to the decision topic. A killed move can be repeated and ends in the same state.
"""

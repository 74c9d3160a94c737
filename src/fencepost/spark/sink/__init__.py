"""The sink: its protocol (plan.py), the runner of its steps (runner.py, steps.py), and its writers for Spark.

writer.py is for `format("fencepost")`, foreach.py for foreachBatch.
"""

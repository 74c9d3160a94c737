"""The main job: real flights through Kafka and Spark exactly once, while processes are killed, and a verdict by a
stranger.
"""

"""How fast clients are at a Kafka: contestants side by side, in turn, told as ratios."""

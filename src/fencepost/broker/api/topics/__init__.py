"""APIs of topics and partitions."""

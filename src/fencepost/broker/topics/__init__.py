"""Topics and their partitions: the catalogue, and opening, cleaning and repairing of logs."""

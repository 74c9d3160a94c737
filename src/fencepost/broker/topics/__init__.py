"""Topics and partitions: the catalogue, and opening, cleaning and repair of logs."""

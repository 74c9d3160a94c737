"""DefaultSource for Spark."""

"""What the processes of one executor, or driver, of Spark leave for each other."""

"""Files that the processes of one executor, or of one driver, share."""

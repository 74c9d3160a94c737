"""Files that the Python processes of one executor, or of one driver, share."""

"""The process as a whole: its end, and signals that come while a call waits."""

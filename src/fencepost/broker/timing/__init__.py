"""The broker's time, and what is due when."""

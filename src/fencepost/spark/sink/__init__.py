"""The sink: its protocol (plan.py), who carries it out, and the two doors to it."""

"""Actors of the simulated world: applications, readers and operators, all over the production client cores."""

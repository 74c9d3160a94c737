"""Share groups (KIP-932): records delivered to members, and their acknowledgements."""

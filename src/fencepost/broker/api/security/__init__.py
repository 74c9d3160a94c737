"""APIs of authentication and access control."""

"""Authentication and authorization: listeners, login, ACL bindings and the authorizer."""

"""Who somebody is and what he may do: listeners, login, bindings, the authorizer, and what each API needs."""

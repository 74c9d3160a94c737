"""Who may do what: bindings, the authorizer, where bindings are kept, and what each API needs."""

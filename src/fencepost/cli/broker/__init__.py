"""`fencepost broker`, in a folder of its own: it may serve the page, which builds on the other commands."""

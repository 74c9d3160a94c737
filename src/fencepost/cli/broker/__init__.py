"""`fencepost broker`. It has its own folder because it can serve the web page, which builds on other commands."""

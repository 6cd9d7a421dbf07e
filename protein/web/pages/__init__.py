"""What each page asks the server for: one module a page, each with `routes(viewer)`."""

"""Tables of rows: from a file, a frame or a query to encoded rows."""

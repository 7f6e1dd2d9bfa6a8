"""Tables as people have them: how their cells are written, and files, folders and databases that hold them."""

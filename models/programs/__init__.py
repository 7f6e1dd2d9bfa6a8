"""Released models as programs of other languages: one SQL query, one Python file, one C file."""

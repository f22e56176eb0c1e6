"""Reading tables: files, cells, columns, rows and past reviews."""

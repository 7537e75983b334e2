"""One file for each table or figure of the paper: what it shows, its grid, its tables and its figures."""

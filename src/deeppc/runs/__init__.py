"""The run folder: its files, who writes and reads them."""

"""Tables, plots, pages and drawings of what a run left behind."""

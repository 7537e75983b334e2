"""Tables, plots, pages and network drawings: what a run, a comparison or a search looks like to a reader."""

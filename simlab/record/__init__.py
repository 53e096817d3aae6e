"""The simulation's side: a logger, the rows it stages, the thread that writes them. Never imports xarray or matplotlib."""

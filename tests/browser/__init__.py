"""The viewer in a real browser: JupyterLab, Notebook 7, Voilà, a page from a file."""

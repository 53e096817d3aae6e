"""The analysis side: runs as lazy, labelled Datasets."""

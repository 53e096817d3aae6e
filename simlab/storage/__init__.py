"""Chunks and files: the only rooms that know h5py."""

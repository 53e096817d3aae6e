"""Configuration and metadata as JSON text that gives back what went in, and as attributes that other programs read.

What JSON can say stays plain JSON. Everything else becomes an object with a ``"$type"``: ``{"$type": "tuple", "items": [1, 2]}``;
a dictionary that has keys other than text, or a key called ``"$type"``, is written ``{"$type": "dict", "items": [[key, value], ...]}``.
Nothing is ever evaluated or imported on the way back.
"""

from simlab.metadata.attributes import split_attributes
from simlab.metadata.decoding import from_json
from simlab.metadata.encoding import MAX_DEPTH, to_json

__all__ = ["MAX_DEPTH", "from_json", "split_attributes", "to_json"]

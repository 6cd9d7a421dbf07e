"""In place of the package of this name, from which `jsonschema` builds grammars: 1.3 s for each process of Ray's."""

raise ImportError("Ray needs no grammars")

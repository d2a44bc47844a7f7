"""Names that torch keeps private or undocumented, used here and nowhere else.

``tests/unit/engine/test_torch_private.py`` holds what each of them means, so that a torch that changes one says so
there; a house test keeps them out of every other module. docs/decisions/0095-one-place-for-private-names.md
"""

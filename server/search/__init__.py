"""The query language of the run and experiment lists: words become terms, terms become parameterised SQL."""

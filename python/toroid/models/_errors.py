class ModelError(ValueError):
    """A model that cannot become a program, or features that do not fit it; the message says what would help."""

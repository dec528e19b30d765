"""A rendered plan brought about on a platform by the platform's own tool, with a lock, a journal and a way back."""

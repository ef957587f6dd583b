"""Recognition: what runs a recogniser, its transcripts, and how they fit an expected text."""

"""Frontend of the shipped voice: any English text to phonemes."""
